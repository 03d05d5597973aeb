package ui

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/test/browser"
)

// act runs a function of workspace.mjs, as do runs one of page.mjs.
func act[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	return browser.Run[T](w.t, w.page, "workspace.mjs", w.args(name, args))
}

// planned is what the dialog of a way back says.
type planned struct {
	Plan      string   `json:"plan"`
	Title     string   `json:"title"`
	Text      string   `json:"text"`
	Problem   string   `json:"problem"`
	Paths     []string `json:"paths"`
	Fresh     []string `json:"fresh"` // new in this plan
	Conflicts []string `json:"conflicts"`
	Does      string   `json:"does"` // on the button
	Ready     bool     `json:"ready"`
	WasReady  bool     `json:"wasReady"` // before the conflicts were decided
	Calls     []string `json:"calls"`
}

// outcome is what a page says became of a plan.
type outcome struct {
	Done    string   `json:"done"` // undo, redo, restore, revert; "" = it was not done
	Same    string   `json:"same"` // true = it says that the files are those of the revision
	Said    string   `json:"said"`
	Problem string   `json:"problem"`
	Next    planned  `json:"next"` // the dialog, if it is still there
	Calls   []string `json:"calls"`
}

// root is the hash of the files as they are now, by the API.
func (w *world) root(sandbox string) (root string) {
	w.t.Helper()
	h := w.c.Sandbox(sandbox).History()
	w.until("the files are those of a revision", func() error {
		p, err := h.Page(w.ctx(), 1, "")
		if err != nil {
			return err
		}
		if p.Unsaved != nil || p.Current == 0 {
			return fmt.Errorf("current %d, unsaved %+v", p.Current, p.Unsaved)
		}
		r, err := h.Get(w.ctx(), p.Current)
		root = r.Root
		return err
	})
	return root
}

// files are the files of a workspace as a shell sees them: names and hashes.
func (w *world) files(sandbox string) string {
	w.t.Helper()
	r, err := w.c.Sandbox(sandbox).WithoutRevisions().RunCommand(w.ctx(), api.RunCommand{Command: "cd /workspace && find . -type f | sort | xargs -r sha256sum"})
	w.ok(err)
	if r.ExitCode != 0 {
		w.t.Fatalf("exit code %d: %s", r.ExitCode, r.Err)
	}
	return string(r.Out)
}

// cat is what a file of the workspace holds; "gone" = there is none.
func (w *world) cat(sandbox, name string) string {
	w.t.Helper()
	r, err := w.c.Sandbox(sandbox).WithoutRevisions().RunCommand(w.ctx(), api.RunCommand{Command: "cat /workspace/" + name + " 2>/dev/null || echo gone"})
	w.ok(err)
	return strings.TrimSpace(string(r.Out))
}

func (w *world) revisions(sandbox string) (list []api.Revision) {
	w.t.Helper()
	for r, err := range w.c.Sandbox(sandbox).History().Revisions(w.ctx(), client.RevisionFilter{}) {
		w.ok(err)
		list = append(list, r)
	}
	slices.Reverse(list)
	return list
}

// changing is the number of the n-th revision, from 0, that changed a path.
func (w *world) changing(sandbox, path string, n int) uint64 {
	w.t.Helper()
	for _, r := range w.revisions(sandbox) {
		c, err := w.c.Sandbox(sandbox).History().Get(w.ctx(), r.N)
		w.ok(err)
		if slices.ContainsFunc(c.Files, func(f api.PathChange) bool { return f.Path == path }) {
			if n == 0 {
				return r.N
			}
			n--
		}
	}
	w.t.Fatalf("no revision changed %s", path)
	return 0
}

func applied(calls []string) bool {
	return slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "history/apply 2") })
}

// worked starts a run by the API, opens its page, and waits for its end.
func (w *world) worked(model string, r api.StartRun) api.Run {
	w.t.Helper()
	r.Keep = true
	run := w.ended(w.run(model, r).ID)
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	return run
}

func executes(commands ...string) string {
	text := "replies:\n"
	for _, c := range commands {
		text += fmt.Sprintf("  - calls: [{name: execute, args: {command: %s}}]\n", quoted(c))
	}
	return text + "else: {text: done}\n"
}

// ten are the paths that the script ten changes at last: made, changed and removed.
var ten = []string{"f1", "f2", "f3", "f4", "f5", "f6", "f7", "g1", "g2", "g3"}

var tenScript = executes(
	"for i in 1 2 3 4 5 6 7; do echo old $i > f$i; done; echo stays > stays",
	"for i in 1 2 3 4 5; do echo new $i > f$i; done; rm f6 f7; for i in 1 2 3; do echo made > g$i; done",
)

// Scenario 7: the plan of an undo is what the undo does, to leave it does nothing, and it can
// be taken back; by keys and buttons, and by keys alone (scenario 20).
func TestUndo_doesWhatItsPlanSaid(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"ten": tenScript}})
	check := func(t *testing.T, sandbox string, plan planned) (before, after string) {
		t.Helper()
		slices.Sort(plan.Paths)
		if !slices.Equal(plan.Paths, ten) || !strings.Contains(plan.Text, "10 paths change") {
			t.Errorf("the plan has %v: %s", plan.Paths, plan.Text)
		}
		if applied(plan.Calls) {
			t.Errorf("the plan was not agreed to, and yet: %v", plan.Calls)
		}
		p, err := w.c.Sandbox(sandbox).History().Page(w.ctx(), 1, "")
		w.ok(err)
		r, err := w.c.Sandbox(sandbox).History().Get(w.ctx(), p.Undo)
		w.ok(err)
		return r.Root, w.root(sandbox)
	}
	t.Run("Mouse", func(t *testing.T) {
		w := w.with(t)
		run := w.worked("ten", api.StartRun{})
		sb := run.Sandbox
		files := w.files(sb)
		before, after := check(t, sb, act[planned](w, "plan", nil))
		if kept := act[outcome](w, "keep", nil); applied(kept.Calls) || w.root(sb) != after || w.files(sb) != files {
			t.Errorf("the undo was left alone, and yet: %v, root %s", kept.Calls, w.root(sb))
		}
		act[planned](w, "plan", nil)
		w.did(sb, act[outcome](w, "apply", nil), "undo", before)
		if got := w.cat(sb, "f1") + w.cat(sb, "f6") + w.cat(sb, "g1") + w.cat(sb, "stays"); got != "old 1old 6gonestays" {
			t.Errorf("the files are %s", got)
		}
		act[planned](w, "press", map[string]any{"name": "Redo"})
		w.did(sb, act[outcome](w, "apply", nil), "redo", after)
		if now := w.files(sb); now != files {
			t.Errorf("after the redo there is\n%snot\n%s", now, files)
		}
	})
	t.Run("MachinePage", func(t *testing.T) {
		w := w.with(t)
		sb := w.worked("ten", api.StartRun{}).Sandbox
		do[any](w, "open", map[string]any{"path": "/vms/" + sb + "/changes"})
		before, after := check(t, sb, act[planned](w, "press", map[string]any{"name": "Undo"}))
		if before == after {
			t.Error("the undo would change nothing")
		}
		w.did(sb, act[outcome](w, "apply", nil), "undo", before)
	})
	t.Run("Keyboard", func(t *testing.T) {
		w := w.with(t)
		started := act[struct {
			ID    string `json:"id"`
			Model string `json:"model"`
		}](w, "keyboard", map[string]any{"model": "ten"})
		if started.Model != "ten" {
			t.Fatalf("the keys chose the model %q", started.Model)
		}
		sb := w.ended(started.ID).Sandbox
		files := w.files(sb)
		before, after := check(t, sb, act[planned](w, "keysPlan", nil))
		if w.root(sb) != after || w.files(sb) != files {
			t.Errorf("the undo was left alone, and yet the root is %s", w.root(sb))
		}
		w.did(sb, act[outcome](w, "keysApply", nil), "undo", before)
		w.did(sb, act[outcome](w, "keysApply", map[string]any{"name": "Redo"}), "redo", after)
		if now := w.files(sb); now != files {
			t.Errorf("after the redo there is\n%snot\n%s", now, files)
		}
	})
	w.clean()
}

// did asserts that a page says that a way back was done, and that it was.
func (w *world) did(sandbox string, got outcome, way, root string) {
	w.t.Helper()
	if got.Done != way || got.Same != "true" || !applied(got.Calls) {
		w.t.Errorf("the page says %+v", got)
	}
	if now := w.root(sandbox); now != root {
		w.t.Errorf("after the %s the root is %s, not %s", way, now, root)
	}
}

// Scenario 8: an undo while a command runs, or with parts of the machine dead, is done or says
// why not; what a page says of it is so.
func TestUndo_saysWhatIsSoUnderLoadAndDeath(t *testing.T) {
	w := newWorld(t, setup{cold: true, scripts: map[string]string{
		"busy": executes("echo one > a", "echo two > a; echo two > b; until test -e go; do sleep 0.1; done; echo three > c"),
		"two":  executes("echo one > a", "echo two > a; echo two > b"),
	}})
	// truthful compares what a page says with what is so.
	truthful := func(t *testing.T, sb string, got outcome) (done bool) {
		t.Helper()
		t.Logf("done %q, same %q, problem %q: %s", got.Done, got.Same, got.Problem, got.Said)
		a, b := w.cat(sb, "a"), w.cat(sb, "b")
		switch {
		case got.Done == "undo" && got.Same == "true":
			if a != "one" || b != "gone" {
				t.Errorf("the page says that all is as before, and yet a is %q and b %q", a, b)
			}
		case got.Done == "undo":
			if got.Same != "false" {
				t.Errorf("the page does not say whether the files are those of the revision: %s", got.Said)
			}
		case got.Problem == "" && !strings.Contains(got.Next.Text, "changed meanwhile"):
			t.Errorf("it was not done, and the page does not say why: %+v", got)
		case slices.Contains(got.Calls, "POST history/apply 409") && (a != "two" || b != "two"):
			t.Errorf("the server refused it, and yet a is %q and b %q", a, b)
		}
		return got.Done == "undo"
	}
	t.Run("Command", func(t *testing.T) {
		w := w.with(t)
		run := w.run("busy", api.StartRun{Keep: true})
		w.until("the command has written", func() error {
			now, err := w.c.Run(run.ID).Get(w.ctx())
			if err != nil {
				return err
			}
			run = now
			if run.Sandbox == "" {
				return errors.New("no machine yet")
			}
			if b := w.cat(run.Sandbox, "b"); b != "two" {
				return fmt.Errorf("b is %q", b)
			}
			return nil
		})
		do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
		act[planned](w, "plan", nil)
		if !truthful(t, run.Sandbox, act[outcome](w, "apply", nil)) {
			t.Error("an undo beside a command was not done")
		}
		_, err := w.c.Sandbox(run.Sandbox).Files().Write(w.ctx(), "/workspace/go", nil, client.WriteOptions{})
		w.ok(err)
		w.ended(run.ID)
		if c := w.cat(run.Sandbox, "c"); c != "three" {
			t.Errorf("the command went on and wrote %q", c)
		}
	})
	t.Run("Supervisor", func(t *testing.T) {
		w := w.with(t)
		run := w.worked("two", api.StartRun{Spec: map[string]any{"root": true}})
		act[planned](w, "plan", nil)
		w.killSupervisor(run.Sandbox)
		if !truthful(t, run.Sandbox, act[outcome](w, "apply", nil)) {
			t.Error("an undo after the death of the supervisor was not done")
		}
	})
	t.Run("Machine", func(t *testing.T) {
		w := w.with(t)
		run := w.worked("two", api.StartRun{})
		act[planned](w, "plan", nil)
		w.killMachine(run.Sandbox)
		if got := act[outcome](w, "apply", nil); got.Done != "undo" || !strings.Contains(got.Said, "through the host") {
			t.Errorf("an undo right after the death of the machine: %+v", got)
		} else if _, err := w.c.Sandbox(run.Sandbox).Start(w.ctx()); err != nil {
			t.Error(err)
		} else {
			truthful(t, run.Sandbox, got)
		}
	})
	t.Run("DeadMachine", func(t *testing.T) {
		w := w.with(t)
		run := w.worked("two", api.StartRun{})
		w.killMachine(run.Sandbox)
		w.until("the machine is known to be dead", func() error {
			sb, err := w.c.Sandbox(run.Sandbox).Get(w.ctx())
			if err == nil && sb.State != "failed" && sb.State != "stopped" {
				err = errors.New(sb.State)
			}
			return err
		})
		if plan := act[planned](w, "plan", nil); !strings.Contains(plan.Text, "through the host") {
			t.Errorf("the plan does not say how it would be done: %s", plan.Text)
		}
		got := act[outcome](w, "apply", nil)
		_, err := w.c.Sandbox(run.Sandbox).Start(w.ctx())
		w.ok(err)
		if !truthful(t, run.Sandbox, got) || !strings.Contains(got.Said, "through the host") {
			t.Errorf("an undo without a machine: %+v", got)
		}
	})
	t.Run("DevServer", func(t *testing.T) {
		w := w.with(t)
		run := w.worked("two", api.StartRun{})
		s := w.c.Sandbox(run.Sandbox).Services()
		_, err := s.Declare(w.ctx(), api.ServiceSpec{Name: "web", Command: "exec sleep 1000", Ports: []int{8000}, Restart: "never"}, time.Minute)
		w.ok(err)
		now, err := s.Get(w.ctx(), "web")
		w.ok(err)
		w.ok(w.c.Sandbox(run.Sandbox).SignalProcess(w.ctx(), now.ProcessKey, syscall.SIGKILL))
		w.until("the service has failed", func() error {
			if now, err = s.Get(w.ctx(), "web"); err == nil && now.State != "failed" {
				err = errors.New(now.State)
			}
			return err
		})
		do[any](w, "open", map[string]any{"path": "/runs/" + run.ID + "?pane=preview", "row": true})
		act[string](w, "word", map[string]any{"want": "web crashed"})
		act[planned](w, "plan", nil)
		if !truthful(t, run.Sandbox, act[outcome](w, "apply", nil)) {
			t.Error("an undo beside a dead server was not done")
		}
	})
	w.clean()
}

// killSupervisor ends the program of the guest that talks to the host, as a crash does.
func (w *world) killSupervisor(sandbox string) {
	w.t.Helper()
	const kill = `n=0; for p in /proc/[0-9]*; do if tr '\0' ' ' < $p/cmdline | grep -q 'skete-guest supe[r]vise\|guest supe[r]vise\| supe[r]vise '; then kill -9 ${p##*/} && n=$((n+1)); fi; done; echo $n`
	r, err := w.c.Sandbox(sandbox).WithoutRevisions().RunCommand(w.ctx(), api.RunCommand{Command: kill, User: "root"})
	w.ok(err)
	if n, _ := strconv.Atoi(strings.TrimSpace(string(r.Out))); n != 1 {
		w.t.Fatalf("%q supervisors were killed: %s", r.Out, r.Err)
	}
}

// killMachine ends the processes of a machine of gVisor, as the host's memory running out does.
func (w *world) killMachine(id string) {
	w.t.Helper()
	killed := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f)
		if program, args, _ := strings.Cut(string(line), "\x00"); !strings.HasPrefix(filepath.Base(program), "runsc-sandbox") || !strings.Contains(args, id) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		w.t.Fatal("no process of the machine")
	}
}

// Scenario 9: one step is taken back and later ones stay; where that is not clear nothing is
// written before a person has chosen; what has become stale is not done.
func TestRevert_takesBackOneStep(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{
		"steps": executes("echo base > a", "echo bee > b", "echo cee > c", "echo mid > a", "echo late > a"),
	}})
	run := w.worked("steps", api.StartRun{})
	sb := run.Sandbox
	at := func(t *testing.T, n uint64) planned {
		t.Helper()
		do[any](w, "open", map[string]any{"path": fmt.Sprintf("/runs/%s?rev=%d", run.ID, n), "row": true})
		return act[planned](w, "press", map[string]any{"name": "Revert only this"})
	}
	t.Run("Clean", func(t *testing.T) {
		w := w.with(t)
		if plan := at(t, w.changing(sb, "b", 0)); !slices.Equal(plan.Paths, []string{"b"}) || len(plan.Conflicts) > 0 {
			t.Errorf("the plan is %+v", plan)
		}
		if got := act[outcome](w, "apply", nil); got.Done != "revert" || !applied(got.Calls) {
			t.Errorf("the page says %+v", got)
		}
		if got := w.cat(sb, "a") + w.cat(sb, "b") + w.cat(sb, "c"); got != "lategonecee" {
			t.Errorf("the files are %s", got)
		}
	})
	t.Run("Conflict", func(t *testing.T) {
		w := w.with(t)
		root, files := w.root(sb), w.files(sb)
		plan := at(t, w.changing(sb, "a", 1))
		if !slices.Equal(plan.Conflicts, []string{"a"}) || plan.Ready {
			t.Errorf("the plan is %+v", plan)
		}
		plan = act[planned](w, "choose", map[string]any{"choice": "take"})
		if !slices.Equal(plan.Paths, []string{"a"}) || plan.WasReady {
			t.Errorf("the plan is %+v", plan)
		}
		if w.root(sb) != root || w.files(sb) != files || applied(plan.Calls) {
			t.Errorf("something was written before all was agreed to: %s", w.root(sb))
		}
		if got := act[outcome](w, "apply", nil); got.Done != "revert" || !applied(got.Calls) {
			t.Errorf("the page says %+v", got)
		}
		if got := w.cat(sb, "a") + w.cat(sb, "c"); got != "basecee" {
			t.Errorf("the files are %s", got)
		}
	})
	t.Run("Stale", func(t *testing.T) {
		w := w.with(t)
		do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
		old := act[planned](w, "plan", nil)
		_, err := w.c.Sandbox(sb).Files().Write(w.ctx(), "/workspace/outside", []byte("not to be lost\n"), client.WriteOptions{})
		w.ok(err)
		root := w.root(sb)
		got := act[outcome](w, "apply", nil)
		if !slices.Contains(got.Calls, "POST history/apply 409") || applied(got.Calls) {
			t.Errorf("of a stale plan the page asked %v", got.Calls)
		}
		if got.Done != "" || got.Next.Plan == old.Plan || !strings.Contains(got.Next.Text, "The files changed meanwhile") || !slices.Contains(got.Next.Fresh, "outside") {
			t.Errorf("after a stale plan the page says %+v", got)
		}
		if now := w.root(sb); now != root || w.cat(sb, "outside") != "not to be lost" {
			t.Errorf("a stale plan changed the root to %s", now)
		}
		if got := act[outcome](w, "apply", nil); got.Done != "undo" || got.Same != "true" {
			t.Errorf("the page says %+v", got)
		}
	})
	w.clean()
}
