package supervisor_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// shell plays the sandbox: it fails where it is asked to.
var shell = fake{"execute", func(_ context.Context, r tool.Request) (tool.Result, error) {
	var a struct{ Command string }
	if err := json.Unmarshal(r.Args, &a); err != nil {
		return tool.Result{}, err
	}
	if strings.Contains(a.Command, "break") {
		return tool.Fail(tool.CodeExit, "it broke"), nil
	}
	return tool.Text("did: " + a.Command), nil
}}

// An agent that is a program needs no model: it is run once for each thing that is asked of
// the thread, and its end is that of the run.
func TestProgram(t *testing.T) {
	h := newHouse(t, shell)
	h.agents["coder"] = definition.Definition{Name: "coder", Description: "codes", Program: &definition.Program{Command: "code {task}"}, Tools: []string{"execute"}}
	none := model(func(context.Context, *llm.Request) (*llm.Response, error) {
		return nil, errs.New(errs.Internal, "a model was asked")
	})
	k := h.open(none)
	run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "coder", Input: text("fix it")})
	must(t, err)
	if run.Model != "program" {
		t.Errorf("the model is %q", run.Model)
	}
	const first = "did: export SKETE_TASK='fix it'\ncode \"$SKETE_TASK\""
	if r := await(t, k, run.ID, over); r.State != thread.RunSucceeded || r.Text != first {
		t.Errorf("%s: %q", r.State, r.Text)
	}
	must(t, k.Close())
	k = h.open(none)
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("now break it")})
	must(t, err)
	if r := await(t, k, next.ID, over); r.State != thread.RunFailed || r.Reason != runs.ReasonProgram || r.Text != "it broke" {
		t.Errorf("%s, %s: %q", r.State, r.Reason, r.Text)
	}
	h.check(run.Thread)
	for name, s := range map[string]runs.Start{
		"a model": {Thread: run.Thread, Input: text("x"), Model: "fast"}, "a plan": {Agent: "coder", Input: text("x"), Planning: true},
		"a form": {Agent: "coder", Input: text("x"), Schema: json.RawMessage(`{"type":"object"}`)},
	} {
		if _, err := k.Start(t.Context(), tenant, s); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program is started by another agent, as any sub-agent is.
func TestProgram_subagent(t *testing.T) {
	h := newHouse(t, shell)
	h.agents["default"] = definition.Definition{Name: "default", Subagents: map[string]definition.Definition{
		"coder": {Name: "coder", Description: "codes", Program: &definition.Program{Command: "code {task}"}, Tools: []string{"execute"}},
	}}
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 {
			return respond(call("c1", "task", `{"description":"fix it","subagent_type":"coder"}`))
		}
		return respond(llm.Text(last(req)))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
	must(t, err)
	if r := await(t, k, run.ID, over); r.State != thread.RunSucceeded || !strings.Contains(r.Text, `code "$SKETE_TASK"`) {
		t.Errorf("%s: %q", r.State, r.Text)
	}
}

// diskOfPrograms is a disk that tells which sandboxes are made.
type diskOfPrograms struct {
	disk
	specs []map[string]any
}

// Create implements supervisor.Machines.
func (f *diskOfPrograms) Create(_ context.Context, _, _ string, _ thread.RunID, _ string, spec map[string]any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	return "m1", nil
}

// A program works in the template that has its agent's name, if there is one and no other
// is named.
func TestProgram_template(t *testing.T) {
	h := newHouse(t, shell)
	f := &diskOfPrograms{}
	h.machines, h.template = f, func(_ context.Context, name string) bool { return name == "coder" || name == "talker" }
	program := &definition.Program{Command: "code {task}"}
	h.agents["coder"] = definition.Definition{Name: "coder", Program: program, Tools: []string{"execute"}, Sandbox: map[string]any{"language": "node", "memory_mb": 512.0}}
	h.agents["other"] = definition.Definition{Name: "other", Program: program, Tools: []string{"execute"}, Sandbox: map[string]any{"language": "node"}}
	h.agents["talker"] = definition.Definition{Name: "talker", Description: "a model"}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	for _, c := range []struct {
		start runs.Start
		want  map[string]any
	}{
		{runs.Start{Agent: "coder"}, map[string]any{"template": "coder", "memory_mb": 512.0}},
		{runs.Start{Agent: "coder", Spec: map[string]any{"template": "mine"}}, map[string]any{"template": "mine", "language": "node", "memory_mb": 512.0}},
		{runs.Start{Agent: "coder", Spec: map[string]any{"language": "python"}}, map[string]any{"language": "python", "memory_mb": 512.0}},
		{runs.Start{Agent: "other"}, map[string]any{"language": "node"}},
		{runs.Start{Agent: "talker"}, nil},
	} {
		c.start.Input = text("fix it")
		run, err := k.Start(t.Context(), tenant, c.start)
		must(t, err)
		await(t, k, run.ID, over)
		got := f.specs[len(f.specs)-1]
		delete(got, "models")
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s with %v:\n%s", c.start.Agent, c.start.Spec, diff)
		}
	}
}
