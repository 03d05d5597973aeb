package supervisor_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// catalog has models that answer with their names. What no name means may change.
type catalog struct{ usual string }

func (c *catalog) Open(_ context.Context, name string) (llm.Model, error) {
	switch name {
	case "":
		return named(c.usual), nil
	case "local", "paid", "other", "script/dir/file", "google":
		return named(name), nil
	}
	return nil, errs.New(errs.NotFound, "no model %q", name)
}

type named string

func (n named) Info() llm.Info {
	if n == "script/dir/file" { // as scripts do, which keep their folder to themselves
		return llm.Info{Name: "script/file", WindowTokens: 100_000}
	}
	return llm.Info{Name: string(n), WindowTokens: 100_000, Programs: n == "google"}
}

// A model that only programs can call is refused to an agent before it begins, whether it
// is named or the usual one, and granted to a program.
func TestModel_forPrograms(t *testing.T) {
	h := newHouse(t, shell)
	h.models = &catalog{usual: "google"}
	f := &diskOfPrograms{}
	h.machines = f
	h.agents["coder"] = definition.Definition{Name: "coder", Program: &definition.Program{Command: "code {task}"}, Tools: []string{"execute"}}
	k := h.open(nil)
	for _, s := range []runs.Start{{}, {Model: "google"}} {
		s.Input = text("go")
		if _, err := k.Start(t.Context(), tenant, s); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "programs in sandboxes") {
			t.Errorf("by %q: %v", s.Model, err)
		}
	}
	for _, model := range []string{"", "google"} {
		run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "coder", Model: model, Input: text("go")})
		must(t, err)
		await(t, k, run.ID, over)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, spec := range f.specs {
		if grant, _ := spec["models"].(map[string]any); fmt.Sprint(grant["models"]) != "[google]" {
			t.Errorf("it has %v", spec)
		}
	}
	if len(f.specs) != 2 {
		t.Errorf("%d sandboxes are made", len(f.specs))
	}
}

func (n named) Stream(_ context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		r, err := respond(llm.Text(string(n)))
		if first(req) == "ask a helper" && req.Step == 1 {
			r, err = respond(call("t1", "task", `{"description":"who are you?","subagent_type":"helper"}`))
		} else if first(req) == "ask a helper" {
			r, err = respond(llm.Text(string(n) + " and " + last(req)))
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, err)
	}
}

// A thread goes on with the model that it had, whatever the server would choose by
// now: a local run must not go on with a paid model by itself.
func TestModel_travelsWithTheThread(t *testing.T) {
	c := &catalog{usual: "local"}
	h := newHouse(t)
	h.models = c
	h.agents["own"] = definition.Definition{Name: "own", Model: "paid"}
	k := h.open(nil)
	model := func(r runs.Run, err error) string {
		t.Helper()
		must(t, err)
		got := await(t, k, r.ID, over)
		if got.State != thread.RunSucceeded {
			t.Fatalf("%+v", got)
		}
		return got.Text
	}
	for name, start := range map[string]struct {
		start runs.Start
		want  string
	}{
		"the usual one":      {runs.Start{}, "local"},
		"a named one":        {runs.Start{Model: "other"}, "other"},
		"the agent's":        {runs.Start{Agent: "own"}, "paid"},
		"not the agent's":    {runs.Start{Agent: "own", Model: "other"}, "other"},
		"a file's, a script": {runs.Start{Model: "script/dir/file", Operator: true}, "script/dir/file"},
	} {
		c.usual = "local"
		start.start.Input = text("go")
		run, err := k.Start(t.Context(), tenant, start.start)
		if got := model(run, err); got != start.want {
			t.Fatalf("%s: %s", name, got)
		}
		c.usual = "paid"
		next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("more")})
		if got := model(next, err); got != start.want || next.Model != start.want {
			t.Errorf("%s: it went on with %s, the record says %s", name, got, next.Model)
		}
		fork, err := k.Fork(t.Context(), tenant, run.ID, next.First-1, runs.Start{Input: text("else")})
		if got := model(fork, err); got != start.want || fork.Model != start.want {
			t.Errorf("%s: its fork has %s, the record says %s", name, got, fork.Model)
		}
		changed, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("more"), Model: "other"})
		if got := model(changed, err); got != "other" {
			t.Errorf("%s: asked for another one, it is %s", name, got)
		}
		after, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("more")})
		if got := model(after, err); got != "other" {
			t.Errorf("%s: after it was changed, it is %s", name, got)
		}
		_, err = k.Rewind(t.Context(), tenant, run.ID, run.First, false, "anna")
		must(t, err)
		back, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("more")})
		if got := model(back, err); got != "other" {
			t.Errorf("%s: after a rewind it is %s", name, got)
		}
	}
	c.usual = "local"
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("ask a helper"), Model: "other"})
	if got := model(run, err); got != "other and other\n" {
		t.Errorf("a sub-agent: %q", got)
	}
	if _, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("x"), Model: "none"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a model that is not there: %v", err)
	}
}

// lost is a catalog whose models are there until it is emptied.
type lost struct {
	model
	gone atomic.Bool
}

func (l *lost) Open(context.Context, string) (llm.Model, error) {
	if l.gone.Load() {
		return nil, errs.New(errs.NotFound, "no such model")
	}
	return l.model, nil
}

// A run that ends since its model is not configured any more leaves no call for the
// next run of the thread: what was asked for then must not happen now.
func TestModel_goneLeavesNoCall(t *testing.T) {
	var ran atomic.Int32
	h := newHouse(t, fake{"act", func(context.Context, tool.Request) (tool.Result, error) {
		ran.Add(1)
		return tool.Text("ok"), nil
	}})
	h.agents["careful"] = definition.Definition{Name: "careful", Rules: []definition.Rule{{Action: definition.Ask, Tools: []string{"act"}}}}
	c := &lost{model: func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if first(req) == "go" && len(req.Messages) == 1 {
			return respond(call("c1", "act", `{}`))
		}
		return respond(llm.Text("done"))
	}}
	h.models = c
	k := h.open(nil)
	run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "careful", Input: text("go")})
	must(t, err)
	await(t, k, run.ID, waits)
	must(t, k.Close())
	c.gone.Store(true)
	k = h.open(nil)
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c1", Decision: thread.Approve, By: "anna"}}))
	if got := await(t, k, run.ID, over); got.State != thread.RunFailed || got.Reason != runs.ReasonModel {
		t.Fatalf("%+v", got)
	}
	c.gone.Store(false)
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("more")})
	must(t, err)
	if got := await(t, k, next.ID, over); got.State != thread.RunSucceeded || ran.Load() != 0 {
		t.Errorf("%+v; the call ran %d times", got, ran.Load())
	}
	h.check(run.Thread)
}

// patcher is a model that was trained on patches.
type patcher struct{}

func (p patcher) Info() llm.Info {
	return llm.Info{Name: "p", WindowTokens: 100_000, Profile: llm.Profile{Edit: "apply_patch", Serial: true, Effort: "low", Advice: "One at a time."}}
}

func (p patcher) Stream(_ context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		says := fmt.Sprint(req.Serial, " ", req.Effort, " ", len(req.System) > 0 && strings.Contains(req.System[0].Text, "One at a time."))
		for _, t := range req.Tools {
			if t.Name == "edit_file" || t.Name == "apply_patch" {
				says += " " + t.Name
			}
		}
		r, err := respond(llm.Text(says))
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, err)
	}
}

func (p patcher) Open(context.Context, string) (llm.Model, error) { return p, nil }

// A family of models has its own tool for edits, unless the agent's file or a rule
// speaks of one: what is said of edit_file must not be walked around.
func TestModel_profile(t *testing.T) {
	h := newHouse(t, fake{name: "edit_file"})
	h.hidden = []tool.Tool{fake{name: "apply_patch"}}
	h.models = patcher{}
	ask := func(tools ...string) []definition.Rule {
		return []definition.Rule{{Action: definition.Ask, Tools: tools}}
	}
	k := h.open(nil)
	for name, c := range map[string]struct {
		d    definition.Definition
		want string
	}{
		"usual":                 {definition.Definition{}, "true low true apply_patch"},
		"a rule about all":      {definition.Definition{Rules: ask()}, "true low true apply_patch"},
		"a rule about another":  {definition.Definition{Rules: ask("execute")}, "true low true apply_patch"},
		"a rule about edits":    {definition.Definition{Rules: ask("edit_file")}, "true low true edit_file"},
		"a rule about globs":    {definition.Definition{Rules: ask("edit_*")}, "true low true edit_file"},
		"a hook about edits":    {definition.Definition{Hooks: []definition.CommandHook{{Event: "Stop", Tools: []string{"edit_file"}, Command: []string{"true"}}}}, "true low true edit_file"},
		"named":                 {definition.Definition{Tools: []string{"edit_file"}}, "true low true edit_file"},
		"not wanted":            {definition.Definition{Tools: []string{"!apply_patch"}}, "true low true edit_file"},
		"both are named":        {definition.Definition{Tools: []string{"edit_file", "apply_patch"}}, "true low true edit_file apply_patch"},
		"its own, and bare":     {definition.Definition{Effort: "high", Bare: true}, "true high false apply_patch"},
		"no edits, and no swap": {definition.Definition{Tools: []string{"!edit_file"}}, "true low true"},
	} {
		c.d.Name = "x"
		run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go"), Inline: &c.d})
		must(t, err)
		if got := await(t, k, run.ID, over); got.Text != c.want {
			t.Errorf("%s: %q, want %q", name, got.Text, c.want)
		}
	}
}
