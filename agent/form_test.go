package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// inquiring is a tool whose calls ask a person while they run.
type inquiring struct{ fake }

func (inquiring) Inquires() bool { return true }

var colour = thread.Form{From: "paint", Message: "Which colour?", Schema: json.RawMessage(`{"type":"object","properties":{"colour":{"type":"string","enum":["red","blue"]}},"required":["colour"]}`)}

// painting asks, as often as it is to, and says what it was told.
func painting(g *guest, class tool.Class, times int) tool.Tool {
	return inquiring{fake{name: "paint", class: class, run: func(ctx context.Context, r tool.Request) (tool.Result, error) {
		g.count(r.Call)
		told := ""
		for range times {
			a, err := r.Ask(ctx, colour)
			if err != nil {
				return tool.Result{}, err
			}
			told += fmt.Sprintf("%s %s;", a.Decision, a.Content)
		}
		return tool.Text(told), nil
	}}}
}

// drives runs the world's thread in the background.
func (w *world) drives(ctx context.Context) (r *agent.Runner, done chan error) {
	r, done = w.runner(), make(chan error, 1)
	go func() {
		_, err := r.Run(ctx)
		done <- err
	}()
	synctest.Wait()
	return r, done
}

// decides answers as a person does, by the rules for that.
func (w *world) decides(r *agent.Runner, d runs.Decide) error {
	w.t.Helper()
	decided, err := d.Check(w.state().Call(d.Call))
	if err != nil {
		return err
	}
	w.append(decided)
	r.Notify()
	synctest.Wait()
	return nil
}

// A call that runs asks a person, who takes longer than the call and the run may; the call
// goes on with what was said.
func TestForm(t *testing.T) {
	for name, c := range map[string]struct {
		first runs.Decide
		want  string
	}{
		"accept":    {runs.Decide{Decision: thread.Respond, Text: `{ "colour": "red" }`}, `respond {"colour":"red"};respond {"colour":"blue"};`},
		"one field": {runs.Decide{Decision: thread.Respond, Text: " red "}, `respond {"colour":"red"};respond {"colour":"blue"};`},
		"decline":   {runs.Decide{Decision: thread.Reject, Text: "no"}, `reject ;respond {"colour":"blue"};`},
		"dismiss":   {runs.Decide{Decision: thread.Dismiss}, `dismiss ;respond {"colour":"blue"};`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &guest{}
				d := definition.Definition{Name: "a"}
				d.Limits.Wall, d.Limits.ToolTimeout = time.Hour, time.Minute
				w := newWorld(t, d, &model{reply: steps(llm.Assistant(call("c1", "paint", `{}`)), say("ok"))}, painting(g, tool.Once, 2))
				r, done := w.drives(t.Context())
				for i, decide := range []runs.Decide{c.first, {Decision: thread.Respond, Text: "blue"}} {
					s := w.state()
					if form := s.Call("c1").Form(); form == nil || form.Message != colour.Message || s.RunState(time.Now()) != thread.RunInterrupted {
						t.Fatalf("question %d: it does not wait: %v", i+1, w.kinds())
					}
					<-time.After(10 * time.Hour)
					synctest.Wait()
					decide.Call, decide.By = "c1", "ann"
					if err := w.decides(r, runs.Decide{Call: "c1", Decision: thread.Respond, Text: "green", By: "ann"}); err == nil || !strings.Contains(err.Error(), "fit") {
						t.Errorf("an answer that does not fit: %v", err)
					}
					must(t, w.decides(r, decide))
				}
				must(t, <-done)
				s := w.state()
				if got := resultOf(s, "c1"); got != c.want || g.runs["c1"] != 1 || s.Run.Ended.State != thread.RunSucceeded {
					t.Errorf("%q after %d runs, %+v", got, g.runs["c1"], s.Run.Ended)
				}
				w.well()
			})
		})
	}
}

// What a call asked whose driver is gone is dismissed, and the call is not made again unless
// it only reads: then it asks anew.
func TestForm_itsDriverDies(t *testing.T) {
	for class, want := range map[tool.Class]string{tool.Once: "The server stopped while this ran", tool.Read: `respond {"colour":"red"};`} {
		synctest.Test(t, func(t *testing.T) {
			g := &guest{}
			w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(llm.Assistant(call("c1", "paint", `{}`)), say("ok"))}, painting(g, class, 1))
			ctx, kill := context.WithCancelCause(t.Context())
			_, done := w.drives(ctx)
			kill(errors.New("killed"))
			if err := <-done; err == nil {
				t.Fatal("it ended")
			}
			if w.state().Call("c1").Form() == nil {
				t.Fatalf("it did not ask: %v", w.kinds())
			}
			w.append(thread.Claimed{Node: "b", Term: 1})
			r, done := w.drives(t.Context())
			if class == tool.Read {
				must(t, w.decides(r, runs.Decide{Call: "c1", Decision: thread.Respond, Text: "red", By: "ann"}))
			}
			must(t, <-done)
			if got := resultOf(w.state(), "c1"); !strings.Contains(got, want) {
				t.Errorf("%s: %q", class, got)
			}
			w.well()
		})
	}
}

// A form ends with its call, by a cancel, and with its time.
func TestForm_isWithdrawn(t *testing.T) {
	impatient := inquiring{fake{name: "paint", class: tool.Once, run: func(ctx context.Context, r tool.Request) (tool.Result, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := r.Ask(ctx, colour)
		return tool.Text(fmt.Sprint(err)), nil
	}}}
	for name, c := range map[string]struct {
		tool tool.Tool
		then func(w *world, r *agent.Runner)
		want string
	}{
		"by its call": {impatient, func(*world, *agent.Runner) { <-time.After(2 * time.Second) }, "context deadline exceeded"},
		"its time":    {painting(&guest{}, tool.Once, 1), func(*world, *agent.Runner) { <-time.After(25 * time.Hour) }, "dismiss ;"},
		"by a cancel": {painting(&guest{}, tool.Once, 1), func(w *world, r *agent.Runner) {
			w.append(thread.CancelAsked{By: "ann"})
			r.Notify()
		}, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(llm.Assistant(call("c1", "paint", `{}`)), say("ok"))}, c.tool)
				r, done := w.drives(t.Context())
				if w.state().Call("c1").Form() == nil {
					t.Fatal("it does not ask")
				}
				c.then(w, r)
				must(t, <-done)
				if got := resultOf(w.state(), "c1"); !strings.Contains(got, c.want) {
					t.Errorf("%q", got)
				}
				w.well()
			})
		})
	}
}
