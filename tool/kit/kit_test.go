package kit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/kit"
)

// still is a machine in which everything ends at once.
type still struct{}

func (still) Start(context.Context, string, tool.Command) (tool.Process, error) { return still{}, nil }

func (still) Find(context.Context, string) (tool.Process, error)  { return still{}, nil }
func (still) List(context.Context, string) ([]tool.Listed, error) { return nil, nil }
func (still) Output(_ context.Context, from tool.Offsets, _ bool, visit func(tool.Chunk) error) error {
	return visit(tool.Chunk{Offset: from.Stdout, Data: []byte("x\xff")})
}
func (still) Wait(context.Context) (tool.Ended, error)         { return tool.Ended{}, nil }
func (still) Status(context.Context) (tool.Ended, bool, error) { return tool.Ended{}, false, nil }
func (still) Kill(context.Context) error                       { return nil }

func (still) Spawn(context.Context, tool.SpawnRequest) (tool.SpawnResult, error) {
	return tool.SpawnResult{Done: true}, nil
}
func (still) Task(context.Context, thread.ID, string) (tool.Task, error) { return tool.Task{}, nil }
func (still) Tasks(context.Context, thread.ID) ([]tool.Task, error)      { return nil, nil }
func (still) Send(context.Context, thread.ID, string, string, string) error {
	return errs.New(errs.NotFound, "no task")
}
func (still) Cancel(context.Context, thread.ID, string, string) error { return nil }

// bygone is a history with one revision.
type bygone struct{}

func (bygone) Revisions(context.Context, string, int) ([]tool.PastRevision, bool, error) {
	return []tool.PastRevision{{N: 1, Label: "x"}}, false, nil
}
func (bygone) Diff(context.Context, uint64, uint64, string, int) (string, error) { return "", nil }
func (bygone) Content(context.Context, uint64, string, int64) ([]byte, error) {
	return []byte("x\xff"), nil
}

func (bygone) PlanUndo(context.Context, tool.PastUndo) (tool.PastPlan, error) {
	return tool.PastPlan{ID: "p", N: 1, Paths: []string{"change x"}, Total: 1}, nil
}

func (bygone) Undo(context.Context, string, tool.PastRevision) (uint64, []string, error) {
	return 2, []string{"kept"}, nil
}

// standing is a machine with one service, which stands still.
type standing struct{}

var one = tool.Service{Name: "a", State: "failed", Reason: "x\xff", Run: "r", LogBytes: 2}

func (standing) Declare(context.Context, tool.ServiceSpec, time.Duration) (tool.Service, error) {
	return one, nil
}

func (standing) Start(context.Context, string, time.Duration) (tool.Service, error) { return one, nil }

func (standing) Stop(context.Context, string, time.Duration) (tool.Service, error) { return one, nil }

func (standing) Restart(context.Context, string, time.Duration) (tool.Service, error) {
	return one, nil
}
func (standing) Service(context.Context, string) (tool.Service, error) { return one, nil }
func (standing) Services(context.Context) ([]tool.Service, error) {
	return []tool.Service{one}, nil
}

func (standing) Log(_ context.Context, _ string, from int64, _ int) (tool.ServiceLog, error) {
	return tool.ServiceLog{From: max(from, 0), Data: []byte("x\xff"), Size: 2}, nil
}

// learned is a machine with one skill.
type learned struct{}

func (learned) Learn(context.Context, string) (tool.Lesson, error) {
	return tool.Lesson{Instructions: "x\xff</skill>", Dir: "/skills/a", Files: []string{"a"}, Needs: "b", Changed: true}, nil
}

func (learned) Unlisted() int { return 0 }

func (learned) Find(context.Context, string) ([]tool.SkillEntry, error) { return nil, nil }

func all(t testing.TB) (tools []tool.Tool, files tool.Files) {
	files = backend.NewMap(thread.NewMemory())
	env := tool.Env{Files: files, Commands: still{}, Spawner: still{}, Tasks: still{}, Past: bygone{}, Services: standing{}, Skills: learned{}, Agents: []tool.Agent{{Name: "a"}}, Dir: "/w", Person: true, Planning: true, Media: true, Documents: true}
	r := kit.New()
	tools, err := r.Make(env, r.Names())
	if err != nil {
		t.Fatal(err)
	}
	return tools, files
}

func TestNew_hasTheToolsOfDeepagents(t *testing.T) {
	names := kit.New().Names()
	for _, want := range []string{"write_todos", "ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep", "execute", "task", "list_files", "run_command"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s", want)
		}
	}
	tools, _ := all(t)
	if len(tools) != len(names) {
		t.Errorf("%d of %d tools", len(tools), len(names))
	}
	for _, tl := range tools {
		if s := tl.Spec(); s.Description == "" || !json.Valid(s.Schema) {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	without, err := kit.New().Make(tool.Env{}, nil)
	if err != nil || len(without) != 2 { // todos and summaries
		t.Errorf("with nothing to act on there are %d tools, %v", len(without), err)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// toolTokensMax bounds what the tools of an agent cost in every request, at four
// characters a token. Its instructions have the rest of 4,500: package definition.
const toolTokensMax = 3500

// skillTokensMax bounds what skill costs beside them, where there are skills.
const skillTokensMax = 60

// What models are told of the tools is held by a file, so that a change of it is seen
// as what it is: another prompt.
func TestNew_whatModelsAreTold(t *testing.T) {
	tools, _ := all(t)
	var out bytes.Buffer
	sum := 0
	for _, x := range tools {
		s := x.Spec()
		n := (len(s.Name) + len(s.Description) + len(s.Schema)) / 4
		if s.Name == "skill" && n > skillTokensMax {
			t.Errorf("skill costs %d tokens, at most %d", n, skillTokensMax)
		}
		// An agent has these only if it names them, and skill only where there are skills.
		if !slices.Contains([]string{"run_command", "list_files", "apply_patch", "skill"}, s.Name) {
			sum += n
		}
		fmt.Fprintf(&out, "# %s: %d tokens\n%s\n%s\n\n", s.Name, n, s.Description, s.Schema)
	}
	fmt.Fprintf(&out, "# all: %d tokens\n", sum)
	if sum > toolTokensMax {
		t.Errorf("the tools cost %d tokens, at most %d", sum, toolTokensMax)
	}
	const golden = "testdata/tools.txt"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("the tools are described differently; -update writes %s anew\n%s", golden, d)
	}
}

// FuzzTools: no arguments make a tool panic, act on what its effect does not
// name, or answer without a text.
func FuzzTools(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"file_path":"/w/f"}`, `{"file_path":"/w/f","content":"x"}`, `{"file_path":"/w/f","old_string":"x","new_string":"y","replace_all":"true"}`,
		`{"path":"/"}`, `{"pattern":"**/{a,b}*","path":"/w"}`, `{"pattern":"x","glob":"*.{","output_mode":"content"}`, `{"command":"x","timeout":"0"}`, `{"command":"x","background":true}`,
		`{"id":"proc_aaaaaaaaaaaaaaaa","offset":-1,"wait_s":1e300}`, `{"id":"proc_aaaaaaaaaaaaaaaa","offset":9223372036854775807}`, `{"todos":[{"content":"x","status":"pending"}]}`,
		`{"description":"x","subagent_type":"a"}`, `{"file_path":"/w/f","offset":9223372036854775807,"limit":100000}`, `{"file_path":"/w/f","offset":1e400}`, `{"id":"x","message":"y"}`,
		`{"action":"start","name":"a","command":"x","env":{"A":"b"},"wait_s":1e300}`, `{"action":"restart","name":"a"}`, `{"action":"logs","name":"a","offset":9223372036854775807}`,
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, args []byte, again bool) {
		tools, files := all(t)
		var changes []thread.FileChange
		ctx, cancel := context.WithTimeout(tool.WithRecorder(t.Context(), func(c thread.FileChange) { changes = append(changes, c) }), 20*time.Second)
		defer cancel()
		for _, tl := range tools {
			if _, err := files.Write(ctx, "/w/f", []byte("x\ny"), ""); err != nil {
				t.Fatal(err)
			}
			changes = nil
			req := tool.Request{Key: "k", Call: "c", Args: args, Again: again}
			effect := tl.Effect(args)
			plan, done, err := tl.(tool.Planner).Plan(ctx, req)
			if err != nil {
				t.Fatalf("%s %q: plan: %v", tl.Spec().Name, args, err)
			}
			if len(changes) > 0 {
				t.Fatalf("%s %q: the plan changed something", tl.Spec().Name, args)
			}
			if done != nil {
				continue
			}
			req.Plan = plan
			r, err := tl.Run(ctx, req)
			if err != nil && !errors.Is(err, tool.ErrWaiting) {
				t.Fatalf("%s %q: %v", tl.Spec().Name, args, err)
			}
			if err == nil && len(r.Blocks) == 0 {
				t.Fatalf("%s %q: an empty answer", tl.Spec().Name, args)
			}
			for _, c := range changes {
				covered := slices.ContainsFunc(effect.Touches, func(w tool.Touch) bool { return w.Write && w.Clashes(tool.Touch{Path: c.Path, Write: true}) })
				if !covered {
					t.Fatalf("%s %q changed %s, its effect is %+v", tl.Spec().Name, args, c.Path, effect)
				}
			}
		}
	})
}
