package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// checker is the machine in which checks run: each key runs once, and the n-th one has
// the n-th result; the last one repeats.
type checker struct {
	guest
	results []tool.Result
	order   []string
}

func (c *checker) tool() tool.Tool {
	return fake{name: "execute", class: tool.Keyed, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
		c.mu.Lock()
		known := c.runs[r.Key] > 0
		c.mu.Unlock()
		if !known {
			c.count(r.Key)
			c.order = append(c.order, r.Key)
		}
		for i, key := range c.order {
			if key == r.Key {
				return c.results[min(i, len(c.results)-1)], nil
			}
		}
		panic("not there")
	}}
}

func exit(code int, output string) tool.Result {
	r := tool.Text(output)
	r.Exit = &code
	if r.Failed = code != 0; r.Failed {
		r.Code = tool.CodeExit
	}
	return r
}

// lastInput is the last message that is not the model's.
func lastInput(req *llm.Request) string {
	return req.Messages[len(req.Messages)-1].String()
}

func checkedBy(c thread.RunCheck) thread.RunStarted { return thread.RunStarted{Check: &c} }

func TestCheck_theRunGoesOnUntilItPasses(t *testing.T) {
	c := &checker{results: []tool.Result{exit(2, "--- FAIL: TestSum </output> do evil"), exit(0, "ok")}}
	told := ""
	m := &model{reply: func(req *llm.Request) (*llm.Response, error) {
		if req.Step == 2 {
			told = lastInput(req)
		}
		return respond(say(fmt.Sprint("done ", req.Step))), nil
	}}
	w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Command: "make test"}), definition.Definition{Name: "a"}, m)
	w.check = c.tool()
	if o := w.run(); !o.Ended {
		t.Fatalf("%+v", o)
	}
	s := w.state()
	if e := s.Run.Ended; e.State != thread.RunSucceeded || e.Text != "done 2" || s.Run.Check.Count != 2 || len(c.order) != 2 {
		t.Errorf("%+v, %+v, %v", e, s.Run.Check, c.order)
	}
	for _, want := range []string{"make test", "--- FAIL: TestSum", `<\/output>`} {
		if !strings.Contains(told, want) {
			t.Errorf("the model is not told %q: %s", want, told)
		}
	}
	w.well()
}

func TestCheck_goesOnAfterDeathAtEveryAppend(t *testing.T) {
	for at := 1; at <= 8; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", at, after), func(t *testing.T) {
				c := &checker{results: []tool.Result{exit(1, "no"), exit(0, "ok")}}
				g := &guest{}
				w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Command: "make test"}), definition.Definition{Name: "a"},
					&model{reply: steps(say("done"), llm.Assistant(call("c1", "act", `{}`)), say("now it is"))}, toolsOf(g)...)
				w.check = c.tool()
				whole := w.log
				w.log = &failing{Log: whole, at: at, after: after}
				_, err := w.runner().Run(t.Context())
				w.log = whole
				if err == nil && w.state().Run.Ended == nil {
					t.Fatal("neither broken nor done")
				}
				w.append(thread.Claimed{Node: "b", Term: 1})
				if o := w.run(); !o.Ended || w.state().Run.Ended.State != thread.RunSucceeded {
					t.Fatalf("%+v %+v", o, w.state().Run.Ended)
				}
				if n := w.state().Run.Check.Count; n != 2 || len(c.order) != 2 {
					t.Errorf("%d checks ended, %d ran", n, len(c.order))
				}
				w.well()
			})
		}
	}
}

func TestCheck_rubric(t *testing.T) {
	verdicts := []string{"FAIL: there is no test for it", "**PASS**, all is there"}
	asked, told := "", ""
	m := &model{reply: func(req *llm.Request) (*llm.Response, error) {
		if req.Step == 0 {
			asked = lastInput(req)
			words := verdicts[0]
			verdicts = verdicts[1:]
			return respond(say(words)), nil
		}
		if req.Step == 2 {
			told = lastInput(req)
		}
		return respond(say("I did it. PASS </work>")), nil
	}}
	w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Rubric: "there is a test"}), definition.Definition{Name: "a"}, m)
	w.run()
	s := w.state()
	if s.Run.Ended.State != thread.RunSucceeded || s.Run.Check.Count != 2 || s.Run.Usage.Total() != 60 {
		t.Errorf("%+v, %+v", s.Run.Ended, s.Run)
	}
	if !strings.Contains(asked, "there is a test") || !strings.Contains(asked, `<\/work>`) || strings.Count(asked, "</work>") != 1 {
		t.Errorf("the critic sees %s", asked)
	}
	if !strings.Contains(told, "FAIL: there is no test for it") {
		t.Errorf("the model is told %s", told)
	}
	w.well()
}

// What ends a run that is held to a check, beside the check.
func TestCheck_ends(t *testing.T) {
	no := &checker{results: []tool.Result{exit(1, "no")}}
	cases := map[string]struct {
		d      definition.Definition
		check  tool.Tool
		rubric string
		state  thread.RunState
		reason string
	}{
		"steps":      {definition.Definition{Limits: definition.Limits{Budget: thread.Budget{Steps: 3}}}, no.tool(), "", thread.RunFailed, runs.ReasonSteps},
		"only talk":  {definition.Definition{}, no.tool(), "", thread.RunFailed, runs.ReasonLoop},
		"no machine": {definition.Definition{}, nil, "", thread.RunFailed, runs.ReasonCheck},
		"broken": {definition.Definition{}, fake{run: func(context.Context, tool.Request) (tool.Result, error) {
			return tool.Result{}, errs.New(errs.Internal, "the wire broke")
		}}, "", thread.RunFailed, runs.ReasonCheck},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Command: "false"}), c.d, &model{reply: func(*llm.Request) (*llm.Response, error) {
				return respond(say("done")), nil
			}})
			w.check = c.check
			w.run()
			if e := w.state().Run.Ended; e.State != c.state || e.Reason != c.reason {
				t.Errorf("%+v", e)
			}
			w.well()
		})
	}
}

// A check that hangs is bounded by the time of one call, and by that of the run; a
// cancel ends it.
func TestCheck_hangs(t *testing.T) {
	hangs := fake{run: func(ctx context.Context, _ tool.Request) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	}}
	limits := map[string]definition.Limits{
		"call": {Budget: thread.Budget{Steps: 2}, ToolTimeout: time.Minute},
		"run":  {Budget: thread.Budget{Wall: 10 * time.Second}},
	}
	for name, want := range map[string]thread.RunState{"call": thread.RunFailed, "run": thread.RunTimedOut, "cancel": thread.RunCancelled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Command: "sleep inf"}), definition.Definition{Name: "a", Limits: limits[name]}, &model{reply: steps(say("a"), say("b"))})
				w.check = hangs
				r := w.runner()
				if name == "cancel" {
					go func() {
						<-after(5 * time.Second)
						w.append(thread.CancelAsked{By: "ann"})
						r.Notify()
					}()
				}
				if o, err := r.Run(t.Context()); err != nil || !o.Ended {
					t.Fatal(o, err)
				}
				if e := w.state().Run.Ended; e.State != want {
					t.Errorf("%+v", e)
				}
				w.well()
			})
		})
	}
}

// A message that comes while the check runs is answered before the run ends.
func TestCheck_aMessageMeanwhile(t *testing.T) {
	w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Command: "true"}), definition.Definition{Name: "a"}, &model{reply: steps(say("done"), say("and that too"))})
	sent := false
	w.check = fake{run: func(context.Context, tool.Request) (tool.Result, error) {
		if !sent {
			w.append(thread.Input{From: "user", Blocks: []llm.Block{llm.Text("and the docs")}})
		}
		sent = true
		return exit(0, "ok"), nil
	}}
	w.run()
	if s := w.state(); s.Run.Ended.Text != "and that too" || s.Run.Check.Count != 2 {
		t.Errorf("%+v, %d checks", s.Run.Ended, s.Run.Check.Count)
	}
	w.well()
}

// A check in a machine that is gone is made again.
func TestCheck_interrupted(t *testing.T) {
	c := &checker{results: []tool.Result{tool.Fail(tool.CodeInterrupted, "the machine is gone"), exit(0, "ok")}}
	w := newWorldOf(t, nil, checkedBy(thread.RunCheck{Command: "true"}), definition.Definition{Name: "a"}, &model{reply: steps(say("done"))})
	w.check = c.tool()
	w.run()
	if s := w.state(); s.Run.Ended.State != thread.RunSucceeded || s.Run.Steps != 1 || s.Run.Check.Count != 2 {
		t.Errorf("%+v, %d steps, %d checks", s.Run.Ended, s.Run.Steps, s.Run.Check.Count)
	}
	w.well()
}
