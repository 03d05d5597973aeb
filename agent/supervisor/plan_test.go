package supervisor_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// acts counts what was done.
func acts(n *int) tool.Tool {
	return fake{name: "act", run: func(context.Context, tool.Request) (tool.Result, error) {
		*n++
		return tool.Text("acted"), nil
	}}
}

func plan(id, steps string) llm.Block {
	return call(id, "submit_plan", `{"plan":"what I will do","steps":[`+steps+`]}`)
}

// What a run starts is held to reading as it is itself; the plan that is accepted
// becomes the todos; what follows may do everything.
func TestPlan(t *testing.T) {
	done, told := 0, ""
	h := newHouse(t, acts(&done))
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if first(req) == "sub" || strings.Contains(first(req), "wants to see a plan") && strings.Contains(req.Messages[1].String(), "sub") {
			if req.Step == 1 {
				return respond(call("s1", "act", `{}`))
			}
			return respond(llm.Text("the helper found: " + last(req)))
		}
		switch req.Step {
		case 1:
			return respond(call("c1", "task", `{"description":"sub","subagent_type":"helper"}`), call("c2", "act", `{}`))
		case 2:
			told = last(req)
			return respond(plan("c3", `"act"`))
		case 3:
			return respond(call("c4", "act", `{}`))
		}
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Planning: true})
	must(t, err)
	await(t, k, run.ID, func(r runs.Run) bool { return r.Waiting == 1 })
	if done != 0 || strings.Count(told, "has not been accepted yet") != 2 {
		t.Fatalf("%d acts before a plan; the model was told %s", done, told)
	}
	open, err := k.Approvals(t.Context(), tenant, run.ID)
	must(t, err)
	if open[0].Ask != thread.AskPlan {
		t.Fatalf("%+v", open)
	}
	if err := k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c3", Decision: thread.Approve, Always: true, By: "ann"}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("always, of a plan: %v", err)
	}
	if err := k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c3", Decision: thread.Respond, Text: "x", By: "ann"}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a response to a plan: %v", err)
	}
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c3", Decision: thread.Approve, By: "ann"}}))
	r := await(t, k, run.ID, over)
	if r.State != thread.RunSucceeded || done != 1 || len(r.Todos) != 1 || r.Todos[0].Content != "act" {
		t.Errorf("%+v, %d acts", r, done)
	}
}

// A run that ended before its plan was accepted goes on planning when it is resumed, and
// so does a fork of it.
func TestPlan_isKept(t *testing.T) {
	done := 0
	h := newHouse(t, acts(&done))
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if strings.Contains(last(req), "has not been accepted yet") {
			return respond(llm.Text("stopped"))
		}
		return respond(call("", "act", `{}`))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Planning: true, Budget: thread.Budget{Steps: 1}})
	must(t, err)
	r := await(t, k, run.ID, over)
	if r.Reason != runs.ReasonSteps {
		t.Fatalf("%+v", r)
	}
	again, err := k.Resume(t.Context(), tenant, run.ID, thread.Budget{Steps: 5}, "ann")
	must(t, err)
	await(t, k, again.ID, over)
	forked, err := k.Fork(t.Context(), tenant, run.ID, r.Last-1, runs.Start{Input: text("now")})
	must(t, err)
	await(t, k, forked.ID, over)
	if done != 0 {
		t.Errorf("%d acts without a plan", done)
	}
}

// A sub-agent of an earlier run is bound by no plan: one that only reads cannot let it
// do what it may not do itself.
func TestPlan_earlierSubagents(t *testing.T) {
	done, told := 0, ""
	h := newHouse(t, acts(&done))
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		switch {
		case first(req) == "sub" && strings.Contains(last(req), "act now"):
			return respond(call("", "act", `{}`))
		case first(req) == "sub":
			return respond(llm.Text("ready"))
		case strings.Contains(last(req), "plan it"):
			return respond(call("s1", "task_send", `{"id":"t1","message":"act now"}`))
		case req.Step == 1:
			return respond(call("t1", "task", `{"description":"sub","subagent_type":"helper"}`))
		}
		told = last(req)
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	await(t, k, run.ID, over)
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("plan it"), Planning: true})
	must(t, err)
	await(t, k, next.ID, over)
	if done != 0 || !strings.Contains(told, "has not been accepted yet") {
		t.Errorf("%d acts; the model was told %s", done, told)
	}
}

// A summary can be asked for while no run is under way: the next one begins with it.
func TestCompact(t *testing.T) {
	var summaries []string
	h := newHouse(t)
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 0 {
			summaries = append(summaries, req.System[0].Text)
			return respond(llm.Text("SUMMARY"))
		}
		return respond(llm.Text(strings.Repeat("long ", 2000) + first(req)))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	await(t, k, run.ID, over)
	for range 2 { // the second one changes nothing
		_, err = k.Compact(t.Context(), tenant, run.ID, "the port", "ann")
		must(t, err)
	}
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("go on")})
	must(t, err)
	r := await(t, k, next.ID, over)
	if len(summaries) != 1 || !strings.Contains(summaries[0], "the port") || !strings.Contains(r.Text, "long") {
		t.Fatalf("%d summaries; %.200q", len(summaries), r.Text)
	}
	if _, err := k.Compact(t.Context(), "other", run.ID, "", "eve"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a foreign run: %v", err)
	}
	if _, err := k.Compact(t.Context(), tenant, run.ID, strings.Repeat("x", runs.TextMax+1), "ann"); !errs.Is(err, errs.Limit) {
		t.Errorf("a long focus: %v", err)
	}
}

// sighted is a model that sees images, or does not.
type sighted bool

func (s sighted) Open(context.Context, string) (llm.Model, error) { return s, nil }

func (s sighted) Info() llm.Info {
	return llm.Info{Name: "m", WindowTokens: 100_000, Media: bool(s)}
}

func (s sighted) Stream(_ context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		seen := 0
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				if b.Media != nil {
					seen += len(b.Media.Data)
				}
			}
		}
		r, err := respond(llm.Text(strings.Repeat("seen ", seen)))
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, err)
	}
}

func TestStart_images(t *testing.T) {
	image := []llm.Block{llm.Text("what is it?"), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("xx")}}}
	h := newHouse(t)
	h.models = sighted(true)
	k := h.open(nil)
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: image})
	must(t, err)
	if r := await(t, k, run.ID, over); r.Text != "seen seen " {
		t.Errorf("%+v", r)
	}

	h = newHouse(t)
	h.models = sighted(false)
	k = h.open(nil)
	if _, err := k.Start(t.Context(), tenant, runs.Start{Input: image}); !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.Hint(err), "media: true") {
		t.Errorf("%v", err)
	}
	run, err = k.Start(t.Context(), tenant, runs.Start{Input: text("x")})
	must(t, err)
	if _, err := k.Send(t.Context(), tenant, run.ID, thread.Input{Blocks: image}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
	if _, err := k.Start(t.Context(), tenant, runs.Start{Input: text("x"), EndCheck: &thread.RunCheck{Command: "true"}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a check without a machine: %v", err)
	}
}
