package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// model answers by a function of the request alone, as after a restart it must.
type model struct {
	info  llm.Info
	reply func(*llm.Request) (*llm.Response, error)
	wait  <-chan struct{} // nil = answer at once
}

func (m *model) Info() llm.Info { return m.info }

func (m *model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if m.wait != nil {
			select {
			case <-m.wait:
			case <-ctx.Done():
				yield(llm.Delta{}, ctx.Err())
				return
			}
		}
		r, err := m.reply(req)
		if err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if !yield(llm.Delta{Kind: llm.DeltaText, Text: r.Message.String()}, nil) {
			return
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, nil)
	}
}

// steps answers the n-th model call of a run with the n-th reply.
func steps(replies ...llm.Message) func(*llm.Request) (*llm.Response, error) {
	return func(req *llm.Request) (*llm.Response, error) {
		if req.Step == 0 { // a summary
			return respond(llm.Assistant(llm.Text("a summary"))), nil
		}
		if req.Step > len(replies) {
			return nil, &llm.Error{Trouble: llm.BadRequest, Cause: fmt.Errorf("no reply %d", req.Step)}
		}
		return respond(replies[req.Step-1]), nil
	}
}

func respond(m llm.Message) *llm.Response {
	stop := llm.StopEnd
	if len(m.Calls()) > 0 {
		stop = llm.StopTools
	}
	return &llm.Response{Message: m, Stop: stop, Usage: llm.Usage{Input: 10, Output: 5}}
}

func call(id, name, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: name, Args: json.RawMessage(args)}}
}

func say(text string) llm.Message { return llm.Assistant(llm.Text(text)) }

// guest stands in for the machine: it outlives the drivers.
type guest struct {
	mu   sync.Mutex
	runs map[string]int // by key, of keyed tools; by call, of the others
}

func (g *guest) count(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[string]int{}
	}
	g.runs[key]++
	return g.runs[key]
}

// fake is a tool of any class.
type fake struct {
	name  string
	class tool.Class
	touch bool
	run   func(context.Context, tool.Request) (tool.Result, error)
}

func (f fake) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: f.name, Description: f.name, Schema: json.RawMessage(`{"type":"object"}`)}
}

func (f fake) Effect(args json.RawMessage) tool.Effect {
	e := tool.Effect{Class: f.class}
	var a struct{ Path string }
	if f.touch && json.Unmarshal(args, &a) == nil {
		e.Touches = []tool.Touch{{Path: a.Path, Write: true}}
	}
	return e
}

func (f fake) Run(ctx context.Context, req tool.Request) (tool.Result, error) { return f.run(ctx, req) }

// toolsOf are a reading, a keyed and a once-only tool that count their effects.
func toolsOf(g *guest) []tool.Tool {
	return []tool.Tool{
		fake{name: "look", class: tool.Read, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
			return tool.Text("seen " + r.Call), nil
		}},
		fake{name: "act", class: tool.Keyed, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
			g.mu.Lock()
			known := g.runs[r.Key] > 0
			g.mu.Unlock()
			if !known {
				g.count(r.Key)
			}
			return tool.Text("done " + string(r.Args)), nil
		}},
		fake{name: "fire", class: tool.Once, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
			g.count(r.Call)
			return tool.Text("fired"), nil
		}},
	}
}

// world is a thread with what drives it.
type world struct {
	t     testing.TB
	log   thread.Log
	blobs thread.Blobs
	id    thread.ID
	model llm.Model
	tools []tool.Tool
	check tool.Tool
	now   func() time.Time
	// grants are those of Config.
	grants func(context.Context) ([]policy.Grant, error)
}

func newWorld(t testing.TB, d definition.Definition, m llm.Model, tools ...tool.Tool) *world {
	t.Helper()
	return newWorldOn(t, nil, d, m, tools...)
}

// newWorldOn is newWorld over a given log; nil = one in memory.
func newWorldOn(t testing.TB, log thread.Log, d definition.Definition, m llm.Model, tools ...tool.Tool) *world {
	t.Helper()
	return newWorldOf(t, log, thread.RunStarted{}, d, m, tools...)
}

// newWorldOf is newWorldOn with a run that begins in a given way.
func newWorldOf(t testing.TB, log thread.Log, started thread.RunStarted, d definition.Definition, m llm.Model, tools ...tool.Tool) *world {
	t.Helper()
	started.Budget = d.Limits.Budget
	memory := thread.NewMemory()
	w := &world{t: t, log: memory, blobs: memory, id: thread.NewID(), model: m, tools: tools}
	if log != nil {
		w.log = log
	}
	content, err := json.Marshal(d)
	must(t, err)
	run := thread.NewRunID()
	_, err = w.log.Append(t.Context(), w.id, 0,
		thread.New(run, thread.Opened{Agent: content, Name: d.Name}),
		thread.New(run, started),
		thread.New(run, thread.Input{From: "user", Blocks: []llm.Block{llm.Text("do it")}}))
	must(t, err)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) events() []thread.Event {
	w.t.Helper()
	var events []thread.Event
	for e, err := range w.log.Load(context.Background(), w.id, 1) {
		must(w.t, err)
		events = append(events, e)
	}
	return events
}

func (w *world) state() *runs.State {
	w.t.Helper()
	s, err := runs.FoldState(w.events())
	must(w.t, err)
	return s
}

func (w *world) runner() *agent.Runner {
	w.t.Helper()
	r, err := agent.New(agent.Config{
		Thread: w.id, State: w.state(), Log: w.log, Blobs: w.blobs, Model: w.model, Tools: w.tools, Check: w.check, Now: w.now, Grants: w.grants,
		Patience: llm.RetryPolicy{Wait: time.Millisecond, WaitMax: time.Millisecond},
	})
	must(w.t, err)
	return r
}

func (w *world) run() agent.Outcome {
	w.t.Helper()
	o, err := w.runner().Run(w.t.Context())
	must(w.t, err)
	return o
}

// append appends as another writer than the runner.
func (w *world) append(bodies ...thread.Body) {
	w.t.Helper()
	s := w.state()
	for _, b := range bodies {
		_, err := w.log.Append(w.t.Context(), w.id, s.Seq, thread.New(s.Run.ID, b))
		must(w.t, err)
		s = w.state()
	}
}

func (w *world) kinds() []thread.Kind {
	var kinds []thread.Kind
	for _, e := range w.events() {
		kinds = append(kinds, e.Body.Kind())
	}
	return kinds
}

// pure proves that every prompt was a function of the log before it.
func (w *world) pure() {
	w.t.Helper()
	events := w.events()
	var specs []llm.ToolSpec
	for _, x := range w.tools {
		specs = append(specs, x.Spec())
	}
	for _, e := range events {
		done, ok := e.Body.(thread.ModelCompleted)
		if !ok {
			continue
		}
		s, err := runs.FoldState(events[:done.Through])
		must(w.t, err)
		p, err := prompt.NewBuilder(w.blobs).Build(context.Background(), s, prompt.Spec{Tools: specs, Model: w.model.Info()})
		must(w.t, err)
		if p.Hash != done.Prompt {
			w.t.Fatalf("the prompt of event %d cannot be built from the log", e.Seq)
		}
	}
}

func (w *world) well() {
	w.t.Helper()
	must(w.t, thread.Check(w.events()))
	w.pure()
}

func TestRun_story(t *testing.T) {
	g := &guest{}
	w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(
		llm.Assistant(llm.Text("I look."), call("c1", "look", `{}`), call("c2", "act", `{"n":1}`)),
		llm.Assistant(call("c3", "fire", `{}`)),
		say("It is done."),
	)}, toolsOf(g)...)
	if o := w.run(); !o.Ended {
		t.Fatalf("%+v", o)
	}
	s := w.state()
	if diff := cmp.Diff(&thread.RunEnded{State: thread.RunSucceeded, Reason: "done", Text: "It is done."}, s.Run.Ended); diff != "" {
		t.Fatal(diff)
	}
	if s.Run.Steps != 3 || s.Run.Usage.Total() != 45 {
		t.Errorf("%d steps, %+v", s.Run.Steps, s.Run.Usage)
	}
	want := []thread.Kind{
		"thread.opened", "run.started", "input", "model.completed", "tool.started", "tool.started", "tool.completed",
		"tool.completed", "model.completed", "tool.started", "tool.completed", "model.completed", "run.ended",
	}
	if diff := cmp.Diff(want, w.kinds()); diff != "" {
		t.Fatal(diff)
	}
	w.well()
}

// failing is a log that breaks at one append: before it, or after it landed.
type failing struct {
	thread.Log
	n, at int
	after bool
}

var errKilled = errors.New("killed")

func (f *failing) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	f.n++
	if f.n == f.at && !f.after {
		return 0, errKilled
	}
	seq, err := f.Log.Append(ctx, id, after, events...)
	if f.n == f.at && f.after {
		return 0, errKilled
	}
	if f.n > f.at {
		return 0, errKilled // a dead driver writes nothing more
	}
	return seq, err
}

// Whatever append a driver dies at, the next one goes on: nothing finished is
// done again, what is keyed happened once, what may happen once did at most once.
func TestRun_goesOnAfterDeathAtEveryAppend(t *testing.T) {
	replies := []llm.Message{
		llm.Assistant(call("c1", "look", `{}`), call("c2", "act", `{"n":1}`), call("c3", "fire", `{}`)),
		llm.Assistant(call("c4", "act", `{"n":2}`), call("c5", "act", `{"n":3}`)),
		say("It is done."),
	}
	for at := 1; at <= 9; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", at, after), func(t *testing.T) {
				g := &guest{}
				w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(replies...)}, toolsOf(g)...)
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
				for _, id := range []string{"c2", "c4", "c5"} {
					if n := g.runs[agent.Key(w.id, id)]; n != 1 {
						t.Errorf("%s acted %d times", id, n)
					}
				}
				if g.runs["c3"] > 1 {
					t.Errorf("fired %d times", g.runs["c3"])
				}
				if code := w.state().Call("c3").Completed.Code; g.runs["c3"] == 0 && code != tool.CodeInterrupted {
					t.Errorf("it never fired, and the model was told %q", code)
				}
				w.well()
			})
		}
	}
}

func TestRun_waitsForPeople(t *testing.T) {
	d := definition.Definition{Name: "a", Rules: []definition.Rule{{Action: definition.Ask, Tools: []string{"act"}}}}
	replies := steps(
		llm.Assistant(call("c1", "look", `{}`), call("c2", "act", `{"n":1}`), call("c3", "act", `{"n":2}`)),
		say("ok"),
	)
	cases := map[string]struct {
		decide thread.ApprovalDecided
		acts   int
		text   string
	}{
		"approve": {thread.ApprovalDecided{Decision: thread.Approve}, 1, `done {"n":1}`},
		"edit":    {thread.ApprovalDecided{Decision: thread.Edit, Args: json.RawMessage(`{"n":7}`)}, 1, `done {"n":7}`},
		"reject":  {thread.ApprovalDecided{Decision: thread.Reject, Text: "no"}, 0, "The call was rejected: no"},
		"respond": {thread.ApprovalDecided{Decision: thread.Respond, Text: "it is 5"}, 0, "it is 5"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := &guest{}
			w := newWorld(t, d, &model{reply: replies}, toolsOf(g)...)
			if o := w.run(); o.Ended {
				t.Fatal("it did not wait")
			}
			s := w.state()
			if s.Call("c1").Completed == nil || !s.Call("c2").Waits() || len(g.runs) != 0 {
				t.Fatalf("the sibling did not run, or what waits did: %v", g.runs)
			}
			if s.RunState(time.Now()) != thread.RunInterrupted {
				t.Errorf("state %s", s.RunState(time.Now()))
			}
			c.decide.Call, c.decide.By = "c2", "anna"
			w.append(c.decide)
			if o := w.run(); o.Ended {
				t.Fatal("the other one is undecided")
			}
			if got := g.runs[agent.Key(w.id, "c2")]; got != c.acts {
				t.Errorf("acted %d times", got)
			}
			w.append(thread.ApprovalDecided{Call: "c3", Decision: thread.Approve, By: "bob"})
			if o := w.run(); !o.Ended {
				t.Fatalf("%+v", o)
			}
			if got := (llm.Message{Blocks: w.state().Call("c2").Completed.Blocks}).String(); got != c.text {
				t.Errorf("the model reads %q", got)
			}
			w.well()
		})
	}
}

// Arguments that are too long for an event are those that run and that rules look at,
// with hooks as without.
func TestRun_longArguments(t *testing.T) {
	args := `{"command":"rm ` + strings.Repeat("x", 2*thread.InlineBytesMax) + `"}`
	for name, c := range map[string]struct {
		hook  hook.Hook
		rules []definition.Rule
		want  string
	}{
		"no hook":              {nil, nil, args},
		"a hook":               {hook.Chain(hook.Base{}), nil, args},
		"a rule":               {nil, []definition.Rule{{Action: definition.Deny, Commands: []string{"rm *"}}}, ""},
		"a rule beside a hook": {hook.Chain(hook.Base{}), []definition.Rule{{Action: definition.Deny, Commands: []string{"rm *"}}}, ""},
	} {
		got := ""
		act := fake{name: "execute", class: tool.Keyed, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
			got = string(r.Args)
			return tool.Text("ok"), nil
		}}
		w := newWorld(t, definition.Definition{Name: "a", Rules: c.rules}, &model{reply: steps(llm.Assistant(call("c1", "execute", args)), say("ok"))}, act)
		r, err := agent.New(agent.Config{Thread: w.id, State: w.state(), Log: w.log, Blobs: w.blobs, Model: w.model, Tools: w.tools, Hook: c.hook})
		must(t, err)
		_, err = r.Run(t.Context())
		must(t, err)
		if got != c.want {
			t.Errorf("%s: %.60q of %d bytes ran", name, got, len(got))
		}
		w.well()
	}
}

// A model that sees images is shown what a tool read, also in the runs that follow.
func TestRun_showsImages(t *testing.T) {
	image := fake{name: "look", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
		return tool.Result{Whole: true, Blocks: []llm.Block{
			llm.Text("a.png"), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: strings.Repeat("f", 64), Data: []byte("png")}},
		}}, nil
	}}
	var seen []string
	reply := steps(llm.Assistant(call("c1", "look", `{}`)), say("A dot."))
	m := &model{info: llm.Info{Media: true}, reply: func(req *llm.Request) (*llm.Response, error) {
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				if b.Result != nil {
					seen = append(seen, string(b.Result.Blocks[1].Media.Data))
				}
			}
		}
		return reply(req)
	}}
	w := newWorld(t, definition.Definition{Name: "a"}, m, image)
	if o := w.run(); !o.Ended || w.state().Run.Ended.State != thread.RunSucceeded {
		t.Fatalf("%+v", w.state().Run)
	}
	if d := cmp.Diff([]string{"png"}, seen); d != "" {
		t.Error(d)
	}
	w.well()
}

// losing forgets every blob.
type losing struct{ thread.Blobs }

func (losing) Get(context.Context, string) ([]byte, error) {
	return nil, errs.New(errs.NotFound, "no blob")
}

// A run whose log names what is gone ends at once, says how to go back, and the
// conversation can be taken back.
func TestRun_endsWhenItsLogCannotBeRead(t *testing.T) {
	image := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: strings.Repeat("a", 64)}}
	large := call("c1", "act", `{"x":"`+strings.Repeat("x", thread.InlineBytesMax)+`"}`)
	for name, c := range map[string]struct {
		before []thread.Body
		event  int
	}{
		"an image that a person sent": {[]thread.Body{thread.Input{From: "user", Blocks: []llm.Block{image}}}, 4},
		"the message of an open call": {[]thread.Body{thread.ModelCompleted{Message: llm.Assistant(call("c1", "act", `{}`)), Blob: strings.Repeat("b", 64), Through: 3}}, 4},
		"nothing yet":                 {nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guest{}
			w := newWorld(t, definition.Definition{Name: "a"}, &model{info: llm.Info{Media: true}, reply: steps(llm.Assistant(large), say("ok"))}, toolsOf(g)...)
			w.append(c.before...)
			w.blobs = losing{w.blobs}
			if o := w.run(); !o.Ended {
				t.Fatalf("%+v", o)
			}
			s := w.state()
			ended := s.Run.Ended
			back := fmt.Sprintf("`skete rewind %s --to %d`", s.Run.ID, c.event-1)
			if ended.State != thread.RunFailed || ended.Reason != runs.ReasonLog || !strings.Contains(ended.Text, back) || !strings.Contains(ended.Text, "is not stored") {
				t.Fatalf("%+v", ended)
			}
			if len(g.runs) != 0 {
				t.Errorf("a call ran without its arguments: %v", g.runs)
			}
			if err := runs.MayRewind(s, uint64(c.event-1)); err != nil {
				t.Errorf("it cannot be taken back: %v", err)
			}
			must(t, thread.Check(w.events()))
		})
	}
}

func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

// A limit of time ends whatever is under way, and what there is by then is kept.
func TestRun_timeIsUp(t *testing.T) {
	const wall = 5 * time.Second
	slow := func(ctx context.Context, _ tool.Request) (tool.Result, error) { // as execute does
		select {
		case <-time.After(time.Minute):
			return tool.Text("whole"), nil
		case <-ctx.Done():
			return tool.Fail(tool.CodeTimeout, "half of it"), nil
		}
	}
	deaf := func(context.Context, tool.Request) (tool.Result, error) {
		<-time.After(20 * time.Second)
		return tool.Text("whole"), nil
	}
	parks := func(context.Context, tool.Request) (tool.Result, error) { return tool.Result{}, tool.ErrWaiting }
	one := llm.Assistant(call("c1", "act", `{"path":"/a"}`))
	for name, c := range map[string]struct {
		reply func(*llm.Request) (*llm.Response, error)
		wait  time.Duration // of the model
		run   func(context.Context, tool.Request) (tool.Result, error)
		took  time.Duration
		want  map[string]string // results
	}{
		"a model call":                {reply: steps(say("late")), wait: 40 * time.Second, took: wall},
		"a tool that hands in":        {reply: steps(one), run: slow, took: wall, want: map[string]string{"c1": "half of it"}},
		"a tool that does not listen": {reply: steps(one), run: deaf, took: wall + 5*time.Second, want: map[string]string{"c1": "The time of the run was up while this ran."}},
		"a call behind another": {
			reply: steps(llm.Assistant(call("c1", "act", `{"path":"/a"}`), call("c2", "act", `{"path":"/a"}`))), run: slow, took: wall,
			want: map[string]string{"c1": "half of it", "c2": "The run was ended before this call had a result."},
		},
		"what goes on elsewhere": {reply: steps(one), run: parks, took: wall, want: map[string]string{"c1": "The run was ended before this call had a result."}},
		"a model that fails": {reply: func(*llm.Request) (*llm.Response, error) {
			return nil, &llm.Error{Trouble: llm.Overloaded, RetryAfter: time.Minute}
		}, took: wall},
		"a result in time": {reply: steps(say("done")), wait: wall - time.Millisecond, took: wall - time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := definition.Definition{Name: "a", Limits: definition.Limits{Budget: thread.Budget{Wall: wall}}}
				began := time.Now()
				m := &model{reply: c.reply}
				if c.wait > 0 {
					m.wait = after(c.wait)
				}
				var late atomic.Bool // a call began that had no time left
				act := fake{name: "act", class: tool.Keyed, touch: true, run: func(ctx context.Context, r tool.Request) (tool.Result, error) {
					if r.Call == "c2" {
						late.Store(true)
					}
					return c.run(ctx, r)
				}}
				w := newWorld(t, d, m, act)
				o := w.run()
				if !o.Ended { // it waits for what goes on elsewhere
					<-time.After(time.Until(o.Expires))
					o = w.run()
				}
				s := w.state()
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %v", took)
				}
				state, reason := thread.RunTimedOut, runs.ReasonWall
				if c.took < wall {
					state, reason = thread.RunSucceeded, runs.ReasonDone
				}
				if !o.Ended || s.Run.Ended.State != state || s.Run.Ended.Reason != reason {
					t.Errorf("%+v", s.Run.Ended)
				}
				for id, want := range c.want {
					if got := (llm.Message{Blocks: s.Call(id).Completed.Blocks}).String(); got != want {
						t.Errorf("%s: %q", id, got)
					}
				}
				if late.Load() {
					t.Error("a call began that had no time left")
				}
				must(t, thread.Check(w.events()))
				<-time.After(time.Minute) // what did not listen ends too
			})
		})
	}
}

// What a call took counts from its start, also when it goes on elsewhere or another
// driver takes it up.
func TestRun_tookCountsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parked := true
		act := fake{name: "act", class: tool.Keyed, run: func(context.Context, tool.Request) (tool.Result, error) {
			if parked {
				return tool.Result{}, tool.ErrWaiting
			}
			return tool.Text("ok"), nil
		}}
		w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(llm.Assistant(call("c1", "act", `{}`)), say("ok"))}, act)
		if o := w.run(); o.Ended {
			t.Fatalf("%+v", o)
		}
		<-time.After(10 * time.Second)
		parked = false
		w.run()
		if took := w.state().Call("c1").Completed.Took; took != 10*time.Second {
			t.Errorf("%v", took)
		}
	})
}

// More time that a person gives while the model thinks holds for that call too.
func TestRun_moreTime(t *testing.T) {
	for name, c := range map[string]struct {
		wall, took time.Duration
		state      thread.RunState
	}{
		"more":     {30 * time.Second, 20 * time.Second, thread.RunSucceeded},
		"a little": {8 * time.Second, 8 * time.Second, thread.RunTimedOut},
		"no limit": {0, 20 * time.Second, thread.RunSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := definition.Definition{Name: "a", Limits: definition.Limits{Budget: thread.Budget{Wall: 5 * time.Second}}}
				began := time.Now()
				w := newWorld(t, d, &model{reply: steps(say("done")), wait: after(20 * time.Second)})
				time.AfterFunc(3*time.Second, func() { w.append(thread.BudgetChanged{Budget: thread.Budget{Wall: c.wall}}) })
				w.run()
				if s := w.state(); s.Run.Ended.State != c.state || time.Since(began) != c.took {
					t.Errorf("after %v: %+v", time.Since(began), s.Run.Ended)
				}
			})
		})
	}
}

func TestRun_approvalExpires(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := definition.Definition{Name: "a", Rules: []definition.Rule{{Action: definition.Ask, Expires: time.Hour}}}
	w := newWorld(t, d, &model{reply: steps(llm.Assistant(call("c1", "act", `{}`)), say("ok"))}, toolsOf(&guest{})...)
	w.now = func() time.Time { return now }
	if o := w.run(); o.Ended || !o.Expires.Equal(now.Add(time.Hour)) {
		t.Fatalf("%+v", o)
	}
	now = now.Add(time.Hour)
	if o := w.run(); !o.Ended {
		t.Fatalf("%+v", o)
	}
	if d := w.state().Call("c1").Decided; d.By != "expiry" || d.Decision != thread.Reject {
		t.Fatalf("%+v", d)
	}
	w.well()
}

func TestRun_cancel(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	hang := fake{name: "hang", class: tool.Keyed, run: func(ctx context.Context, _ tool.Request) (tool.Result, error) {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return tool.Result{}, ctx.Err()
	}}
	w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(llm.Assistant(call("c1", "hang", `{}`)))}, hang)
	r := w.runner()
	done := make(chan error, 1)
	go func() { _, err := r.Run(t.Context()); done <- err }()
	<-started
	w.append(thread.CancelAsked{By: "anna", Reason: "enough"})
	r.Notify()
	must(t, <-done)
	if cause := <-ended; !errors.Is(cause, tool.ErrCancelled) {
		t.Errorf("the tool was ended because of %v", cause)
	}
	s := w.state()
	if s.Run.Ended.State != thread.RunCancelled || s.Run.Ended.Text != "enough" || s.Call("c1").Completed.Code != tool.CodeCancelled {
		t.Fatalf("%+v", s.Run.Ended)
	}
	w.well()
}

func TestRun_cancelWhileTheModelThinks(t *testing.T) {
	m := &model{wait: make(chan struct{})}
	w := newWorld(t, definition.Definition{Name: "a"}, m)
	r := w.runner()
	done := make(chan error, 1)
	go func() { _, err := r.Run(t.Context()); done <- err }()
	w.append(thread.CancelAsked{By: "anna"})
	r.Notify()
	must(t, <-done)
	if s := w.state(); s.Run.Ended.State != thread.RunCancelled {
		t.Fatalf("%+v", s.Run.Ended)
	}
}

// What is sent while a step is under way is read before the next one.
func TestRun_messagesQueueIn(t *testing.T) {
	var w *world
	var seen string
	poke := fake{name: "poke", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
		w.append(thread.Input{ID: "m1", From: "user", Blocks: []llm.Block{llm.Text("hurry")}})
		return tool.Text("ok"), nil
	}}
	m := &model{reply: func(req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 {
			return respond(llm.Assistant(call("c1", "poke", `{}`))), nil
		}
		seen = req.Messages[len(req.Messages)-1].String()
		return respond(say("yes")), nil
	}}
	w = newWorld(t, definition.Definition{Name: "a"}, m, poke)
	w.run()
	if seen != "hurry" {
		t.Fatalf("the last message was %q", seen)
	}
	w.well()
}

// A driver that was replaced stops, and starts nothing.
func TestRun_fenced(t *testing.T) {
	g := &guest{}
	m := &model{reply: steps(llm.Assistant(call("c1", "fire", `{}`)), say("ok"))}
	w := newWorld(t, definition.Definition{Name: "a"}, m, toolsOf(g)...)
	old := w.runner()
	w.append(thread.Claimed{Node: "other", Term: 1})
	if _, err := old.Run(t.Context()); !errors.Is(err, agent.ErrFenced) {
		t.Fatalf("%v", err)
	}
	if len(g.runs) != 0 {
		t.Fatal("the replaced driver fired")
	}
	if o := w.run(); !o.Ended {
		t.Fatalf("%+v", o)
	}
}

// The end of a run is told, also when the thread's next run has begun before the driver
// looks: that is not another driver's doing.
func TestRun_endsBeforeTheNext(t *testing.T) {
	w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(say("ok"))})
	next := thread.NewRunID()
	var r *agent.Runner
	r, err := agent.New(agent.Config{
		Thread: w.id, State: w.state(), Log: w.log, Blobs: w.blobs, Model: w.model, Tools: w.tools, Now: w.now,
		Applied: func(e thread.Event) {
			if _, is := e.Body.(thread.RunEnded); !is {
				return
			}
			_, err := w.log.Append(t.Context(), w.id, e.Seq, thread.New(next, thread.RunStarted{By: "test"}))
			must(t, err)
			r.Notify()
		},
	})
	must(t, err)
	if o, err := r.Run(t.Context()); err != nil || !o.Ended {
		t.Fatalf("%+v, %v", o, err)
	}
	if s := w.state(); s.Run.ID != next {
		t.Fatalf("the log is at %s", s.Run.ID)
	}
}

func TestRun_odd(t *testing.T) {
	many := llm.Message{Role: llm.RoleAssistant}
	for i := range 40 {
		many.Blocks = append(many.Blocks, call("", "look", fmt.Sprintf(`{"i":%d}`, i)))
	}
	cases := map[string]struct {
		reply llm.Message
		code  string // of the first call
		calls int
	}{
		"unknown tool":  {llm.Assistant(call("c1", "nothing", `{}`)), tool.CodeUnknownTool, 1},
		"no JSON":       {llm.Assistant(call("c1", "look", `{"a":`)), tool.CodeArgs, 1},
		"JSON, a list":  {llm.Assistant(call("c1", "look", `[1]`)), tool.CodeArgs, 1},
		"no arguments":  {llm.Assistant(call("c1", "look", ``)), "", 1},
		"no id":         {llm.Assistant(call("", "look", `{}`)), "", 1},
		"the same id":   {llm.Assistant(call("c1", "look", `{}`), call("c1", "look", `{}`)), "", 2},
		"an odd id":     {llm.Assistant(call("../../x y", "look", `{}`)), "", 1},
		"many calls":    {many, "", 24},
		"a panic":       {llm.Assistant(call("c1", "boom", `{}`)), tool.CodeInternal, 1},
		"an error":      {llm.Assistant(call("c1", "broken", `{}`)), tool.CodeInternal, 1},
		"a huge result": {llm.Assistant(call("c1", "huge", `{}`)), "", 1},
		"a large one":   {llm.Assistant(call("c1", "large", `{}`)), "", 1},
		"large words":   {llm.Assistant(llm.Text(strings.Repeat("x", 100_000)), call("c1", "look", `{"big":"`+strings.Repeat("y", 50_000)+`"}`)), "", 1},
		"empty":         {llm.Message{Role: llm.RoleAssistant}, "", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tools := append(toolsOf(&guest{}),
				fake{name: "boom", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) { panic("boom") }},
				fake{name: "broken", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
					return tool.Result{}, errors.New("secret path /root/x")
				}},
				fake{name: "huge", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
					return tool.Text(strings.Repeat("0123456789\n", 100_000)), nil
				}},
				fake{name: "large", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) {
					return tool.Text(strings.Repeat("0123456789\n", 5_000)), nil
				}},
			)
			w := newWorld(t, definition.Definition{Name: "a"}, &model{info: llm.Info{WindowTokens: 200_000}, reply: steps(c.reply, say("ok"))}, tools...)
			if o := w.run(); !o.Ended || w.state().Run.Ended.State != thread.RunSucceeded {
				t.Fatalf("%+v %+v", o, w.state().Run.Ended)
			}
			item := w.state().Items[1]
			if len(item.Calls) != c.calls {
				t.Fatalf("%d calls", len(item.Calls))
			}
			if c.calls > 0 && item.Calls[0].Completed.Code != c.code {
				t.Errorf("code %q", item.Calls[0].Completed.Code)
			}
			for _, e := range w.events() {
				b, _ := json.Marshal(e)
				if len(b) > thread.EventBytesMax || strings.Contains(string(b), "/root/x") {
					t.Errorf("event %d: %d bytes", e.Seq, len(b))
				}
			}
			w.well()
		})
	}
}

// 300 results of 50 KB go through a window of 32k tokens.
func TestRun_smallWindow(t *testing.T) {
	const n = 300
	read := fake{name: "read", class: tool.Read, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
		return tool.Text(strings.Repeat(r.Call+" 0123456789 0123456789 0123456789\n", 50<<10/40)), nil
	}}
	m := &model{info: llm.Info{WindowTokens: 32_000}, reply: func(req *llm.Request) (*llm.Response, error) {
		tokens := 0
		for _, x := range req.Messages {
			tokens += prompt.Tokens(x.Blocks)
		}
		if tokens > 30_000 {
			return nil, &llm.Error{Trouble: llm.Overflow}
		}
		switch {
		case req.Step == 0:
			return respond(say("so far so good")), nil
		case req.Step <= n:
			return respond(llm.Assistant(call(fmt.Sprintf("c%d", req.Step), "read", fmt.Sprintf(`{"i":%d}`, req.Step)))), nil
		}
		return respond(say("ok")), nil
	}}
	w := newWorld(t, definition.Definition{Name: "a", Limits: definition.Limits{Budget: thread.Budget{Steps: 400}}}, m, read)
	if o := w.run(); !o.Ended || w.state().Run.Ended.State != thread.RunSucceeded {
		t.Fatalf("%+v %+v", o, w.state().Run.Ended)
	}
	files := w.state().Archive()
	for _, id := range []string{"c1", "c150", "c300"} {
		content, err := w.blobs.Get(t.Context(), files[runs.ResultFile(id)].Blob)
		must(t, err)
		if len(content) < 40<<10 || !strings.HasPrefix(string(content), id+" ") {
			t.Errorf("%s: %d bytes", id, len(content))
		}
	}
	w.well()
}

// A window that is configured too large costs one failure, whether the server says
// how large it is or not, and the thread remembers it.
func TestRun_wrongWindow(t *testing.T) {
	const real, n = 8000, 60
	for name, says := range map[string]bool{"the server says it": true, "the server is silent": false} {
		t.Run(name, func(t *testing.T) {
			read := fake{name: "read", class: tool.Read, run: func(_ context.Context, r tool.Request) (tool.Result, error) {
				return tool.Text(strings.Repeat(r.Call+" 0123456789\n", 200)), nil
			}}
			failures := 0
			m := &model{info: llm.Info{Name: "m", WindowTokens: 200_000}, reply: func(req *llm.Request) (*llm.Response, error) {
				tokens := 0
				for _, x := range req.Messages {
					tokens += prompt.Tokens(x.Blocks) * 3 / 2 // this server makes more tokens of a text
				}
				if tokens > real {
					failures++
					e := &llm.Error{Trouble: llm.Overflow}
					if says {
						e.WindowTokens, e.PromptTokens = real, tokens
					}
					return nil, e
				}
				switch {
				case req.Step == 0:
					return respond(say("so far so good")), nil
				case req.Step%n != 0:
					return &llm.Response{Message: llm.Assistant(call(fmt.Sprintf("c%d", failures*1000+req.Step), "read", `{}`)), Stop: llm.StopTools}, nil
				}
				return &llm.Response{Message: say("ok"), Stop: llm.StopEnd}, nil
			}}
			w := newWorld(t, definition.Definition{Name: "a"}, m, read)
			for range 2 {
				if o := w.run(); !o.Ended || w.state().Run.Ended.State != thread.RunSucceeded {
					t.Fatalf("%+v", w.state().Run.Ended)
				}
				run := thread.NewRunID()
				_, err := w.log.Append(t.Context(), w.id, w.state().Seq,
					thread.New(run, thread.RunStarted{}), thread.New(run, thread.Input{From: "user", Blocks: []llm.Block{llm.Text("more")}}))
				must(t, err)
			}
			if failures != 1 {
				t.Errorf("%d prompts were too long", failures)
			}
		})
	}
}

// Honest polling goes on, and a run in circles ends with a sentence about it.
func TestRun_pollsAndCircles(t *testing.T) {
	for name, c := range map[string]struct {
		command, text string
		state         thread.RunState
	}{
		"polling": {"sleep 1; test -f done || echo not yet", "It is there.", thread.RunSucceeded},
		"circles": {"cat a", "It went in circles: The agent called execute 5 times with the same arguments and got the same result each time.", thread.RunFailed},
	} {
		look := fake{name: "execute", class: tool.Keyed, run: func(context.Context, tool.Request) (tool.Result, error) { return tool.Text("not yet"), nil }}
		m := &model{reply: func(req *llm.Request) (*llm.Response, error) {
			if req.Step > 12 {
				return respond(say("It is there.")), nil
			}
			return respond(llm.Assistant(call(fmt.Sprint("c", req.Step), "execute", fmt.Sprintf(`{"command":%q}`, c.command)))), nil
		}}
		w := newWorld(t, definition.Definition{Name: "a"}, m, look)
		w.run()
		if ended := w.state().Run.Ended; ended == nil || ended.State != c.state || ended.Text != c.text {
			t.Errorf("%s: %+v", name, ended)
		}
	}
}

func TestRun_budgets(t *testing.T) {
	for name, b := range map[string]thread.Budget{"steps": {Steps: 3}, "tokens": {Tokens: 40}} {
		t.Run(name, func(t *testing.T) {
			n := 0
			m := &model{reply: func(req *llm.Request) (*llm.Response, error) {
				n++
				return respond(llm.Assistant(call("", "look", fmt.Sprintf(`{"n":%d}`, req.Step)))), nil
			}}
			w := newWorld(t, definition.Definition{Name: "a", Limits: definition.Limits{Budget: b}}, m, toolsOf(&guest{})...)
			w.run()
			if s := w.state(); s.Run.Ended.State != thread.RunFailed || s.Run.Ended.Reason != name || n != 3 {
				t.Fatalf("%+v after %d", s.Run.Ended, n)
			}
			w.well()
		})
	}
}

// Attempts that failed are in the log, and the one that worked says its number.
func TestRun_attempts(t *testing.T) {
	n := 0
	m := &model{reply: func(*llm.Request) (*llm.Response, error) {
		if n++; n < 3 {
			return nil, &llm.Error{Trouble: llm.Overloaded, Status: 529}
		}
		return respond(say("ok")), nil
	}}
	w := newWorld(t, definition.Definition{Name: "a"}, m)
	w.run()
	want := []thread.Kind{"thread.opened", "run.started", "input", "model.failed", "model.failed", "model.completed", "run.ended"}
	if diff := cmp.Diff(want, w.kinds()); diff != "" {
		t.Fatal(diff)
	}
	if got := w.state().Items[1].Step.Attempt; got != 3 {
		t.Errorf("attempt %d", got)
	}
	m.reply = func(*llm.Request) (*llm.Response, error) { return nil, &llm.Error{Trouble: llm.Refused, Status: 401} }
	w = newWorld(t, definition.Definition{Name: "a"}, m)
	w.run()
	if e := w.state().Run.Ended; e.State != thread.RunFailed || e.Reason != "model" || !strings.Contains(e.Text, "key") {
		t.Fatalf("%+v", e)
	}
}

func TestRun_aFullLogStopsTheDriver(t *testing.T) {
	w := newWorld(t, definition.Definition{Name: "a"}, &model{reply: steps(say("ok"))})
	w.log = full{w.log}
	if _, err := w.runner().Run(t.Context()); !errs.Is(err, errs.Limit) {
		t.Fatalf("%v", err)
	}
}

type full struct{ thread.Log }

func (full) Append(context.Context, thread.ID, uint64, ...thread.Event) (uint64, error) {
	return 0, errs.New(errs.Limit, "no space left")
}

// planning is a fake that plans.
type planning struct {
	fake
	plan func(context.Context) error
}

// Plan implements tool.Planner.
func (p planning) Plan(ctx context.Context, _ tool.Request) (json.RawMessage, *tool.Result, error) {
	return json.RawMessage(`{}`), nil, p.plan(ctx)
}

// A tool, or its plan, whose time is over has failed by the clock, and not for
// reasons of the platform; what only planned has not run.
func TestRun_toolTimeout(t *testing.T) {
	untilDone := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	ran := false
	w := newWorld(t, definition.Definition{Name: "a", Limits: definition.Limits{ToolTimeout: 20 * time.Millisecond}},
		&model{reply: steps(llm.Assistant(call("c1", "slow", `{}`), call("c2", "thinks", `{}`)), say("ok"))},
		fake{name: "slow", class: tool.Keyed, run: func(ctx context.Context, _ tool.Request) (tool.Result, error) {
			return tool.Result{}, untilDone(ctx)
		}},
		planning{fake{name: "thinks", class: tool.Keyed, run: func(context.Context, tool.Request) (tool.Result, error) {
			ran = true
			return tool.Text("done"), nil
		}}, untilDone})
	w.run()
	for _, c := range w.state().Items[1].Calls {
		if c.Completed.Code != tool.CodeTimeout {
			t.Errorf("%s: %+v", c.Name, c.Completed)
		}
	}
	if ran {
		t.Error("a call whose plan did not come back was run")
	}
	w.well()
}

// intruder lets another writer append right before an append that is chosen.
type intruder struct {
	thread.Log
	before func([]thread.Event) bool
	append func()
}

func (i *intruder) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	if i.before(events) {
		i.append()
	}
	return i.Log.Append(ctx, id, after, events...)
}

// A cancel that comes in while another call of the step is about to start
// still ends the one that runs, as a cancel.
func TestRun_cancelWhileACallStarts(t *testing.T) {
	causes := make(chan error, 1)
	ran := false
	w := newWorld(t, definition.Definition{Name: "a", Limits: definition.Limits{ParallelMax: 2}},
		&model{reply: steps(llm.Assistant(call("c1", "long", `{}`), call("c2", "quick", `{}`), call("c3", "last", `{}`)))},
		fake{name: "long", class: tool.Keyed, run: func(ctx context.Context, _ tool.Request) (tool.Result, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return tool.Result{}, ctx.Err()
		}},
		fake{name: "quick", class: tool.Keyed, run: func(context.Context, tool.Request) (tool.Result, error) { return tool.Text("ok"), nil }},
		fake{name: "last", class: tool.Keyed, run: func(context.Context, tool.Request) (tool.Result, error) {
			ran = true
			return tool.Text("ok"), nil
		}})
	i := &intruder{Log: w.log}
	i.before = func(events []thread.Event) bool {
		s, is := events[0].Body.(thread.ToolStarted)
		return is && s.Call == "c3" && w.state().Run.Cancel == nil
	}
	i.append = func() {
		_, _ = i.Log.Append(t.Context(), w.id, w.state().Seq, thread.New(w.state().Run.ID, thread.CancelAsked{}))
	}
	w.log = i
	w.run()
	if cause := <-causes; !errors.Is(cause, tool.ErrCancelled) {
		t.Errorf("the running call ended because of %v", cause)
	}
	if ended := w.state().Run.Ended; ended.State != thread.RunCancelled || ran {
		t.Errorf("%+v, the last call ran: %v", ended, ran)
	}
	if done := w.state().Call("c1").Completed; done.Code != tool.CodeCancelled {
		t.Errorf("%+v", done)
	}
	w.well()
}
