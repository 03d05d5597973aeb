package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// settled waits until nothing goes on in a tree, and returns its runs.
func settled(t *testing.T, k *supervisor.Supervisor, root thread.ID) []runs.Run {
	t.Helper()
	var all []runs.Run
	same := 0 // looks in a row: the list is behind what happens
	patience.Try(t, 20*time.Second, "a tree that comes to rest", func() error {
		before := len(all)
		page, err := k.List(t.Context(), tenant, runs.Filter{Subagents: true, PageSize: 200})
		if err != nil {
			return err
		}
		all = page.Runs
		if same++; len(all) != before {
			same = 0
		}
		for _, r := range all {
			if !r.State.Final() {
				same = 0
				return fmt.Errorf("%s is %s", r.ID, r.State)
			}
		}
		if same < 10 {
			return errors.New("it was not looked at long enough")
		}
		return nil
	})
	return all
}

func stepsOf(all []runs.Run) (steps int) {
	for _, r := range all {
		steps += r.Steps
	}
	return steps
}

// background calls a helper that goes on by itself.
func background(n int) llm.Block {
	return call(fmt.Sprint("t", n), "task", `{"description":"sub","subagent_type":"helper","background":true}`)
}

// Sub-agents in the background wake their parent, which starts the next one: the
// budget of the run is that of all of it, and its wake-ups end.
func TestTree_wakeUpsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		budget            thread.Budget
		least, steps, all int // at least; at most
	}{
		"three steps":  {thread.Budget{Steps: 3}, 3, 3, 3}, // news before the second step: it starts another, which may do nothing
		"ten steps":    {thread.Budget{Steps: 10}, 9, 11, 8},
		"many tokens":  {thread.Budget{Tokens: 20}, 9, 12, 10}, // two a step
		"no budget":    {thread.Budget{}, 30, 200, 140},
		"time is left": {thread.Budget{Wall: time.Hour}, 30, 200, 140},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
				if first(req) == "sub" {
					return respond(llm.Text("found it"))
				}
				if m := req.Messages[len(req.Messages)-1]; m.Blocks[0].Result == nil { // a message, not a result: start the next one
					return respond(background(len(req.Messages)))
				}
				return respond(llm.Text("I wait."))
			})
			run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root"), Budget: c.budget})
			must(t, err)
			all := settled(t, k, run.Thread)
			if n := stepsOf(all); n > c.steps || n < c.least || len(all) > c.all {
				t.Errorf("%d steps in %d runs", n, len(all))
			}
			h.check(run.Thread)
			// What came last is not lost: the next message finds it.
			next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("well?"), Budget: thread.Budget{Steps: 1}})
			must(t, err)
			settled(t, k, next.Thread)
			h.check(run.Thread)
		})
	}
}

// Many at once share what there is: nothing goes on for long once it is used up, in
// the foreground and in the background.
func TestTree_oneBudgetForAll(t *testing.T) {
	for name, c := range map[string]struct {
		budget thread.Budget
		how    string
	}{
		"steps, in the background": {thread.Budget{Steps: 30}, `,"background":true`}, "steps, in the foreground": {thread.Budget{Steps: 30}, ""},
		"tokens, in the background": {thread.Budget{Tokens: 60}, `,"background":true`}, "tokens, in the foreground": {thread.Budget{Tokens: 60}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			look := fake{"look", func(context.Context, tool.Request) (tool.Result, error) {
				return tool.Text(time.Now().String()), nil
			}}
			h := newHouse(t, look)
			k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
				if first(req) == "root" && req.Step == 1 {
					var calls []llm.Block
					for i := range 5 {
						calls = append(calls, call(fmt.Sprint("t", i), "task", `{"description":"sub","subagent_type":"helper"`+c.how+`}`))
					}
					return respond(calls...)
				}
				return respond(call(fmt.Sprintf("c%s%d", strings.ReplaceAll(first(req), " ", ""), req.Step), "look", fmt.Sprintf(`{"n":%d}`, req.Step)))
			})
			run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root"), Budget: c.budget})
			must(t, err)
			all := settled(t, k, run.Thread)
			if n := stepsOf(all); n < 25 || n > 30+6 { // a step of each may be under way
				t.Errorf("%d steps", n)
			}
			for _, r := range all {
				if r.State == thread.RunSucceeded {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// A cancel ends the tree, also when its root is at rest.
func TestTree_cancelAtRest(t *testing.T) {
	h := newHouse(t)
	k := h.open(func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
		switch {
		case first(req) == "sub":
			<-ctx.Done()
			return nil, context.Cause(ctx)
		case req.Step == 1:
			return respond(background(1))
		}
		return respond(llm.Text("I wait."))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root")})
	must(t, err)
	got := await(t, k, run.ID, over)
	if got.Background != 1 {
		t.Errorf("%d go on in the background", got.Background)
	}
	_, err = k.Cancel(t.Context(), tenant, run.ID, "anna", "enough")
	must(t, err)
	all := settled(t, k, run.Thread)
	if len(all) != 2 { // none was woken by the end of the other
		t.Errorf("%d runs", len(all))
	}
	for _, r := range all {
		if want := map[bool]thread.RunState{true: thread.RunSucceeded, false: thread.RunCancelled}[r.ID == run.ID]; r.State != want {
			t.Errorf("%s: %s", r.ID, r.State)
		}
	}
}
