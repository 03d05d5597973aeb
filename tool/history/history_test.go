package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/history"
	"github.com/skete-dev/skete/workspace"
)

// desk is a workspace, its history, and the tools on it.
type desk struct {
	t     *testing.T
	dir   string
	h     *workspace.Workspace
	tools map[string]tool.Tool
}

func newDesk(t *testing.T, bytesMax int) *desk {
	t.Helper()
	dir := t.TempDir()
	d := &desk{t: t, dir: filepath.Join(dir, "files"), tools: map[string]tool.Tool{}}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	d.h, err = workspace.Open(workspace.Config{Dir: d.dir, Staging: filepath.Join(dir, "staging"), Store: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.h.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &tool.Registry{}
	history.Add(r)
	tools, err := r.Make(tool.Env{Dir: "/workspace", Past: history.Of(d.h), ResultBytesMax: bytesMax}, r.Names())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tools {
		d.tools[x.Spec().Name] = x
	}
	return d
}

// step writes a file ("" removes it) and makes a revision.
func (d *desk) step(name, content, run, call string) {
	d.t.Helper()
	d.write(name, content)
	l := workspace.Label{Actor: "agent", Thread: "t", Run: run, Step: 1, Call: call, Text: "edit " + name}
	if _, _, err := d.h.Snapshot(d.t.Context(), l); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) write(name, content string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil && content == "" {
		err = os.Remove(path)
	} else if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) read(name string) string {
	data, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return ""
	}
	return string(data)
}

// call plans and runs a call as the agent does.
func (d *desk) call(name, args string) tool.Result {
	d.t.Helper()
	req := tool.Request{Key: "k", Call: "now", Thread: "t", Run: "r9", Args: json.RawMessage(args)}
	var done *tool.Result
	var err error
	if req.Plan, done, err = d.tools[name].(tool.Planner).Plan(d.t.Context(), req); err != nil {
		d.t.Fatal(err)
	}
	if done != nil {
		return *done
	}
	r, err := d.tools[name].Run(d.t.Context(), req)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func text(r tool.Result) string { return r.Code + r.Blocks[0].Text }

func TestLook(t *testing.T) {
	d := newDesk(t, 2000)
	if got := text(d.call("list_revisions", `{}`)); got != "There are no revisions of it." {
		t.Errorf("%s", got)
	}
	d.step("src/a", "one\ntwo\n", "r1", "c1")
	d.step("b\xff", "\x00", "r1", "c2")
	d.step("src/a", "one\n2\n", "r2", "c3")
	d.step("src/a", "", "r2", "c4")
	d.step("large", strings.Repeat("x", 3000), "r2", "c5")
	for _, tt := range []struct{ tool, args, want, not string }{
		{"list_revisions", `{}`, "agent  r2 step 1 call c4  edit src/a", ""},
		{"list_revisions", `{"limit":"2"}`, "(there are older ones)", "c3"},
		{"list_revisions", `{"path":"/workspace/src/a"}`, "c3", "c2"},
		{"list_revisions", `{"path":"nothing"}`, "no revisions", ""},
		{"diff_revisions", `{"to":3}`, "change src/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n", ""},
		{"diff_revisions", `{"from":1,"to":4,"path":"./src"}`, "remove src/a", "b"},
		{"diff_revisions", `{"from":1,"to":3,"path":"b"}`, "Nothing differs", ""},
		{"diff_revisions", `{"to":2}`, "add b\uFFFD\n(it is no text)", ""},
		{"diff_revisions", `{"to":9}`, tool.CodeNotFound + "Error: there is no revision 9", ""},
		{"read_revision", `{"revision":1,"path":"/workspace/src/a"}`, "one\ntwo\n", ""},
		{"read_revision", `{"revision":4,"path":"src/a"}`, tool.CodeNotFound, ""},
		{"read_revision", `{"revision":1,"path":"src"}`, tool.CodeArgs + "Error: \"src\" is no file", ""},
		{"read_revision", `{"revision":5,"path":"large"}`, tool.CodeTooLarge, ""},
		{"read_revision", `{"revision":0,"path":"a"}`, tool.CodeArgs, ""},
		{"read_revision", `{"path":"a"}`, tool.CodeArgs, ""},
	} {
		got := text(d.call(tt.tool, tt.args))
		if !strings.Contains(got, tt.want) || tt.not != "" && strings.Contains(got, tt.not) {
			t.Errorf("%s %s: %s", tt.tool, tt.args, got)
		}
	}
}

func TestUndoChanges(t *testing.T) {
	for _, tt := range []struct{ name, args, says, a, b string }{
		{"the last change", `{}`, "remove b", "2", ""},
		{"a call", `{"call":"c2"}`, "change a", "1", ""},
		{"a run", `{"run":"r2"}`, "change a", "1", ""},
		{"a revision", `{"revision":1}`, "change a", "1", ""},
		{"a path of a revision", `{"revision":1,"path":"/workspace/a"}`, "1 paths changed", "1", "x"},
		{"where it is already", `{"revision":3}`, "Nothing would change", "2", "x"},
		{"a run that is not there", `{"run":"r7"}`, tool.CodeNotFound, "2", "x"},
		{"two things", `{"run":"r1","call":"c1"}`, tool.CodeArgs, "2", "x"},
		{"a path of nothing", `{"path":"a"}`, tool.CodeArgs, "2", "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t, 0)
			d.step("a", "1", "r1", "c1")
			d.step("a", "2", "r2", "c2")
			d.step("b", "x", "r2", "c3")
			got := text(d.call("undo_changes", tt.args))
			if !strings.Contains(got, tt.says) || d.read("a") != tt.a || d.read("b") != tt.b {
				t.Errorf("a is %q, b is %q: %s", d.read("a"), d.read("b"), got)
			}
		})
	}
}

// An agent hears what was not taken back, and how it would be.
func TestUndoChanges_saysWhatStays(t *testing.T) {
	d := newDesk(t, 0)
	d.step("a", "1", "r1", "c1")
	d.write(".git/HEAD", "ref: refs/heads/main\n")
	d.step("a", "2", "r1", "c2")
	const stays = "left as it is: .git: the repository was made since"
	if got := text(d.call("undo_changes", `{}`)); !strings.Contains(got, "change a\n"+stays) || d.read("a") != "1" {
		t.Errorf("a is %q: %s", d.read("a"), got)
	}
	if got := text(d.call("undo_changes", `{"revision":1}`)); !strings.Contains(got, "Nothing would change") || !strings.Contains(got, stays) {
		t.Error(got)
	}
	if d.read(".git/HEAD") == "" {
		t.Error("the repository is gone")
	}
}

// What was planned is what is done, once, whatever happens in between.
func TestUndoChanges_isDoneOnceOrNot(t *testing.T) {
	d := newDesk(t, 0)
	d.step("a", "1", "r1", "c1")
	d.step("a", "2", "r1", "c2")
	u := d.tools["undo_changes"].(tool.Planner)
	req := tool.Request{Key: "k", Call: "now", Thread: thread.ID("t"), Run: "r1", Args: json.RawMessage(`{}`)}
	plan := func() {
		t.Helper()
		var err error
		if req.Plan, _, err = u.Plan(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	run := func() string {
		t.Helper()
		r, err := u.Run(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return text(r)
	}
	plan()
	d.write("b", "meanwhile")
	if got := run(); !strings.Contains(got, tool.CodeConflict) || d.read("a") != "2" || d.read("b") != "meanwhile" {
		t.Errorf("the files moved: %s", got)
	}
	plan()
	first := run()
	d.write("b", "later")
	req.Again = true // it is not known whether the first one came to its end
	if again := run(); again != first || d.read("b") != "later" {
		t.Errorf("%s\nagain: %s", first, again)
	}
}

// Rules about paths must see what a call reads and where it writes.
func TestEffectNamesThePaths(t *testing.T) {
	d := newDesk(t, 0)
	for _, tt := range []struct{ tool, args, want string }{
		{"read_revision", `{"revision":1,"path":"secret/x"}`, "read [{/workspace/secret/x false}]"},
		{"read_revision", `{"revision":1,"path":"/workspace/secret"}`, "read [{/workspace/secret false}]"},
		{"diff_revisions", `{}`, "read [{/workspace false}]"},
		{"diff_revisions", `{"path":"a/../secret"}`, "read [{/workspace false}]"},
		{"undo_changes", `{}`, "keyed [{/workspace true}]"},
		{"undo_changes", `{"revision":3,"path":"src"}`, "keyed [{/workspace/src true}]"},
		{"undo_changes", `{"run":"r","path":"src"}`, "keyed [{/workspace true}]"},
		{"undo_changes", `nonsense`, "keyed [{/workspace true}]"},
	} {
		e := d.tools[tt.tool].Effect(json.RawMessage(tt.args))
		if got := fmt.Sprintf("%s %v", e.Class, e.Touches); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.tool, tt.args, got, tt.want)
		}
	}
}

func TestNoToolsWithoutAHistory(t *testing.T) {
	r := &tool.Registry{}
	history.Add(r)
	if tools, err := r.Make(tool.Env{}, nil); err != nil || len(tools) != 0 {
		t.Errorf("%v, %v", tools, err)
	}
}

// full is a history that has no room for another revision.
type full struct{ workspace.History }

func (full) Snapshot(context.Context, workspace.Label) (workspace.Revision, bool, error) {
	return workspace.Revision{}, false, errs.New(errs.Limit, "quota of 1 MB of disk is used up")
}

// Where no revision can be made an undo is possible all the same, of what no
// revision has first.
func TestPlanUndo_withoutRoomForRevisions(t *testing.T) {
	d := newDesk(t, 0)
	d.step("a", "1", "r1", "c1")
	d.step("a", "2", "r1", "c2")
	past := history.Of(full{d.h})
	undoes := func(want uint64) {
		t.Helper()
		if p, err := past.PlanUndo(t.Context(), tool.PastUndo{}); err != nil || p.N != want {
			t.Errorf("it goes to revision %d, %v; want %d", p.N, err, want)
		}
	}
	undoes(1)
	d.write("a", "3")
	undoes(2)
}
