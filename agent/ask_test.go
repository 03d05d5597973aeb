package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// asking is a tool that puts its calls before a person.
type asking struct {
	fake
	kind thread.AskKind
}

func (a asking) Asks() thread.AskKind { return a.kind }

// askTools are a question and a plan, beside those of toolsOf.
func askTools(g *guest) []tool.Tool {
	question := asking{fake{name: "ask", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
		panic("a question is not run")
	}}, thread.AskQuestion}
	plan := asking{fake{name: "plan", class: tool.Read, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
		return tool.Result{Blocks: []llm.Block{llm.Text("accepted " + string(r.Args))}, PlanAccepted: true, Todos: []thread.Todo{{Content: "x", Status: "pending"}}}, nil
	}}, thread.AskPlan}
	task := fake{name: "task", class: tool.Keyed, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
		g.count(r.Call)
		return tool.Text("found"), nil
	}}
	return append(toolsOf(g), question, plan, task)
}

func resultOf(s *runs.State, call string) string {
	return llm.Message{Blocks: s.Call(call).Completed.Blocks}.String()
}

// A question waits whatever the rules allow, and its answer is the result.
func TestAsk_question(t *testing.T) {
	allow := definition.Definition{Name: "a", Rules: []definition.Rule{{Action: definition.Allow}}}
	for name, c := range map[string]struct {
		decided thread.ApprovalDecided
		text    string
		failed  bool
	}{
		"answer": {thread.ApprovalDecided{Decision: thread.Respond, Text: "SQLite"}, "SQLite", false},
		"none":   {thread.ApprovalDecided{Decision: thread.Reject, Text: "decide yourself"}, "The call was rejected: decide yourself", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guest{}
			w := newWorld(t, allow, &model{reply: steps(llm.Assistant(call("c1", "ask", `{"question":"which?"}`), call("c2", "act", `{}`)), say("ok"))}, askTools(g)...)
			if o := w.run(); o.Ended {
				t.Fatal("it did not wait")
			}
			asked := w.state().Call("c1").Asked
			if asked.Ask != thread.AskQuestion || !cmp.Equal(asked.Allowed, []thread.Decision{thread.Respond, thread.Reject}) || w.state().Call("c2").Completed == nil {
				t.Fatalf("%+v", asked)
			}
			c.decided.Call, c.decided.By = "c1", "ann"
			w.append(c.decided)
			w.run()
			s := w.state()
			if s.Run.Ended == nil || resultOf(s, "c1") != c.text || s.Call("c1").Completed.Failed != c.failed {
				t.Errorf("%+v, %q", s.Run.Ended, resultOf(s, "c1"))
			}
			w.well()
		})
	}
}

func TestAsk_aRuleCanForbidIt(t *testing.T) {
	d := definition.Definition{Name: "a", Rules: []definition.Rule{{Action: definition.Deny, Tools: []string{"ask"}, Reason: "nobody is there"}}}
	w := newWorld(t, d, &model{reply: steps(llm.Assistant(call("c1", "ask", `{}`)), say("ok"))}, askTools(&guest{})...)
	if o := w.run(); !o.Ended || !strings.Contains(resultOf(w.state(), "c1"), "nobody is there") {
		t.Errorf("%+v", o)
	}
}

// Before a plan is accepted only what reads is done, by sub-agents too, which are held
// to the same; afterwards everything.
func TestAsk_plan(t *testing.T) {
	g := &guest{}
	w := newWorldOf(t, nil, thread.RunStarted{Planning: true}, definition.Definition{Name: "a"}, &model{reply: steps(
		llm.Assistant(call("c1", "look", `{}`), call("c2", "act", `{"n":1}`), call("c3", "task", `{}`)),
		llm.Assistant(call("c4", "plan", `{"plan":"first"}`), call("c5", "fire", `{}`)),
		llm.Assistant(call("c6", "plan", `{"plan":"second"}`)),
		llm.Assistant(call("c7", "act", `{"n":2}`)),
		say("done"),
	)}, askTools(g)...)
	w.run()
	s := w.state()
	if asked := s.Call("c4").Asked; asked.Ask != thread.AskPlan || !cmp.Equal(asked.Allowed, []thread.Decision{thread.Approve, thread.Edit, thread.Reject}) {
		t.Fatalf("%+v", asked)
	}
	if !s.Run.Planning || s.Call("c2").Completed.Code != tool.CodeDenied || s.Call("c5").Completed.Code != tool.CodeDenied ||
		s.Call("c1").Completed.Failed || g.runs["c3"] != 1 || len(g.runs) != 1 {
		t.Fatalf("it did more than read: %v", g.runs)
	}
	w.append(thread.ApprovalDecided{Call: "c4", Decision: thread.Reject, Text: "smaller steps", By: "ann"})
	w.run()
	if s = w.state(); !s.Run.Planning || !s.Call("c6").Waits() {
		t.Fatal("a plan that was not accepted ended the planning")
	}
	w.append(thread.ApprovalDecided{Call: "c6", Decision: thread.Edit, Args: json.RawMessage(`{"plan":"third"}`), By: "ann"})
	if o := w.run(); !o.Ended {
		t.Fatalf("%+v", o)
	}
	s = w.state()
	if s.Run.Planning || resultOf(s, "c6") != `accepted {"plan":"third"}` || len(s.Todos) != 1 || s.Call("c7").Completed.Failed {
		t.Errorf("%+v, %q", s.Todos, resultOf(s, "c6"))
	}
	w.well()
}

func TestAsk_goesOnAfterDeathAtEveryAppend(t *testing.T) {
	for at := 1; at <= 12; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", at, after), func(t *testing.T) {
				g := &guest{}
				w := newWorldOf(t, nil, thread.RunStarted{Planning: true}, definition.Definition{Name: "a"}, &model{reply: steps(
					llm.Assistant(call("c1", "ask", `{}`), call("c2", "act", `{"n":1}`)),
					llm.Assistant(call("c3", "plan", `{}`)),
					llm.Assistant(call("c4", "act", `{"n":2}`)),
					say("done"),
				)}, askTools(g)...)
				answers := map[string]thread.ApprovalDecided{
					"c1": {Decision: thread.Respond, Text: "yes"}, "c3": {Decision: thread.Approve},
				}
				whole := w.log
				broken := &failing{Log: whole, at: at, after: after}
				w.log = broken
				for n := uint64(1); w.state().Run.Ended == nil; n++ {
					if n > 20 {
						t.Fatal("it does not come on")
					}
					_, err := w.runner().Run(t.Context())
					w.log = whole
					if err != nil {
						w.append(thread.Claimed{Node: "b", Term: n})
					} else {
						w.log = broken
					}
					for _, c := range w.state().Open() {
						if d, ok := answers[c.ID]; ok && c.Waits() {
							d.Call, d.By = c.ID, "ann"
							w.log = whole
							w.append(d)
						}
					}
				}
				s := w.state()
				if s.Run.Ended.State != thread.RunSucceeded || len(g.runs) != 1 || s.Call("c2").Completed.Code != tool.CodeDenied || resultOf(s, "c1") != "yes" {
					t.Errorf("%+v, %v", s.Run.Ended, g.runs)
				}
				w.log = whole
				w.well()
			})
		}
	}
}

// A question that is not answered holds nothing, and ends by itself where a rule says so.
func TestAsk_expires(t *testing.T) {
	now := time.Now()
	d := definition.Definition{Name: "a", Rules: []definition.Rule{{Action: definition.Ask, Tools: []string{"ask"}, Expires: time.Hour}}}
	w := newWorld(t, d, &model{reply: steps(llm.Assistant(call("c1", "ask", `{}`)), say("ok"))}, askTools(&guest{})...)
	w.now = func() time.Time { return now }
	if o := w.run(); o.Ended || !o.Expires.Equal(now.Add(time.Hour).UTC().Truncate(time.Microsecond)) {
		t.Fatalf("%+v", o)
	}
	now = now.Add(2 * time.Hour)
	if o := w.run(); !o.Ended || !strings.Contains(resultOf(w.state(), "c1"), "no decision came in time") {
		t.Errorf("%+v", o)
	}
	w.well()
}

// played is a model that knows what people decided in the run that it plays.
type played struct {
	model
	decided map[string]thread.ApprovalDecided
}

func (p *played) Decided(call string) (thread.ApprovalDecided, bool) {
	d, ok := p.decided[call]
	return d, ok
}

func TestAsk_aReplayAnswersAsThen(t *testing.T) {
	m := &played{
		model{reply: steps(
			llm.Assistant(call("c1", "ask", `{}`), call("c2", "ask", `{}`)), llm.Assistant(call("c3", "plan", `{}`)), say("ok"))},
		map[string]thread.ApprovalDecided{
			"c1": {Call: "c1", Decision: thread.Respond, Text: "yes", By: "ann"}, "c3": {Call: "c3", Decision: thread.Approve, By: "ann"},
		},
	}
	w := newWorldOf(t, nil, thread.RunStarted{Planning: true}, definition.Definition{Name: "a"}, m, askTools(&guest{})...)
	if o := w.run(); !o.Ended {
		t.Fatalf("%+v", o)
	}
	s := w.state()
	if resultOf(s, "c1") != "yes" || !s.Call("c2").Completed.Failed || s.Run.Planning || s.Run.Ended.State != thread.RunSucceeded {
		t.Errorf("%q, %+v", resultOf(s, "c1"), s.Run)
	}
	w.well()
}

// A summary that is asked for is made before the next model call, once.
func TestRun_compactAsked(t *testing.T) {
	long := strings.Repeat("word ", 3000)
	compactTool := fake{name: "compact", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
		return tool.Result{Blocks: []llm.Block{llm.Text("ok")}, Compact: &thread.CompactAsked{By: "agent", Focus: "the port"}}, nil
	}}
	for name, byTool := range map[string]bool{"by hand": false, "by the model": true} {
		t.Run(name, func(t *testing.T) {
			var systems []string
			next := call("c2", "look", `{}`)
			if byTool {
				next = call("c2", "compact", `{}`)
			}
			replies := steps(llm.Assistant(llm.Text(long), call("c1", "look", `{}`)), llm.Assistant(next), say("done"))
			m := &model{info: llm.Info{WindowTokens: 100_000}, reply: func(req *llm.Request) (*llm.Response, error) {
				if req.Step == 0 {
					systems = append(systems, req.System[0].Text)
				}
				return replies(req)
			}}
			g := &guest{}
			w := newWorld(t, definition.Definition{Name: "a"}, m, append(toolsOf(g), compactTool)...)
			if !byTool {
				w.append(thread.CompactAsked{By: "ann", Focus: "the port"}) // there is nothing yet: it is forgotten
				asked := false
				w.log = &intruder{Log: w.log, before: func(events []thread.Event) bool {
					done, is := events[0].Body.(thread.ToolCompleted)
					return is && done.Call == "c1" && !asked
				}, append: func() {
					asked = true
					w.append(thread.CompactAsked{By: "ann", Focus: "the port"})
				}}
			}
			w.run()
			if len(systems) != 1 || !strings.Contains(systems[0], "Above all keep what is about: the port") {
				t.Fatalf("%d summaries: %.300q", len(systems), systems)
			}
			s := w.state()
			if s.CompactAsked != nil || s.Items[0].Summary == nil || s.Run.Ended.Text != "done" {
				t.Errorf("%+v, %+v", s.CompactAsked, s.Run.Ended)
			}
			w.well()
		})
	}
}

// What was approved beforehand runs without asking, and the log says by what; where that
// cannot be read, and where a rule denies, it does not.
func TestAsk_approvedBeforehand(t *testing.T) {
	allow := []policy.Grant{{By: "skill forms version 0123", Rules: []definition.Rule{{Action: definition.Allow, Tools: []string{"act"}}}}}
	for name, x := range map[string]struct {
		action string
		grants []policy.Grant
		err    error
		ends   bool
		runs   int
	}{
		"asked":            {definition.Ask, allow, nil, true, 1},
		"nothing":          {definition.Ask, nil, nil, false, 0},
		"cannot be read":   {definition.Ask, allow, errors.New("no store"), false, 0},
		"denied":           {definition.Deny, allow, nil, true, 0},
		"allowed by rules": {definition.Allow, allow, nil, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guest{}
			d := definition.Definition{Name: "a", Rules: []definition.Rule{{Action: x.action, Tools: []string{"act"}}}}
			w := newWorld(t, d, &model{reply: steps(llm.Assistant(call("c1", "act", `{"n":1}`)), say("ok"))}, toolsOf(g)...)
			w.grants = func(context.Context) ([]policy.Grant, error) { return x.grants, x.err }
			if o := w.run(); o.Ended != x.ends || len(g.runs) != x.runs {
				t.Fatalf("%+v, %v", o, g.runs)
			}
			c := w.state().Call("c1")
			if by := c.Decided; (name == "asked") != (by != nil) || by != nil && (by.By != allow[0].By || by.Decision != thread.Approve) {
				t.Errorf("%+v", by)
			}
			w.well()
		})
	}
}
