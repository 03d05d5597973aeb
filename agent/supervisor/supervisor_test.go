package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/task"
)

const tenant = "acme"

// model answers by a function of the request alone.
type model func(ctx context.Context, req *llm.Request) (*llm.Response, error)

func (model) Info() llm.Info { return llm.Info{Name: "test", WindowTokens: 100_000} }

func (m model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		r, err := m(ctx, req)
		if err != nil {
			yield(llm.Delta{}, err)
			return
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, nil)
	}
}

// Open implements supervisor.Models.
func (m model) Open(context.Context, string) (llm.Model, error) { return m, nil }

func respond(blocks ...llm.Block) (*llm.Response, error) {
	r := &llm.Response{Message: llm.Assistant(blocks...), Stop: llm.StopEnd, Usage: llm.Usage{Input: 1, Output: 1}}
	if len(r.Message.Calls()) > 0 {
		r.Stop = llm.StopTools
	}
	return r, nil
}

func call(id, name, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: name, Args: json.RawMessage(args)}}
}

// first is the first message of a request, by which the replies tell who asks.
func first(req *llm.Request) string { return req.Messages[0].String() }

func last(req *llm.Request) string {
	m := req.Messages[len(req.Messages)-1]
	text := m.String()
	for _, b := range m.Blocks {
		if b.Result != nil {
			text += llm.Message{Blocks: b.Result.Blocks}.String() + "\n"
		}
	}
	return text
}

// fake is a keyed tool.
type fake struct {
	name string
	run  func(context.Context, tool.Request) (tool.Result, error)
}

func (f fake) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: f.name, Description: f.name, Schema: json.RawMessage(`{"type":"object"}`)}
}

func (fake) Effect(json.RawMessage) tool.Effect                             { return tool.Effect{Class: tool.Keyed} }
func (f fake) Run(ctx context.Context, r tool.Request) (tool.Result, error) { return f.run(ctx, r) }

type definitions map[string]definition.Definition

// Resolve implements supervisor.Definitions.
func (d definitions) Resolve(name string) (definition.Definition, error) {
	if x, ok := d[name]; ok {
		return x, nil
	}
	return definition.Definition{}, errs.New(errs.NotFound, "no agent %q", name)
}

// Complete implements supervisor.Definitions.
func (definitions) Complete(d definition.Definition) (definition.Definition, error) { return d, nil }

// List implements supervisor.Definitions.
func (definitions) List() []definition.Entry { return nil }

// house is all that outlives a server.
type house struct {
	t       testing.TB
	threads supervisor.Threads
	records kv.Store
	events  event.Log // nil = none
	agents  definitions
	tools   []tool.Tool
	hidden  []tool.Tool // that agents have only by name
	kv      kv.Store
	// machines are nil unless a test sets them.
	machines supervisor.Machines
	template func(context.Context, string) bool
	models   supervisor.Models // nil = the one that the house is opened with
	now      func() time.Time  // nil = the system's clock
	sources  []tool.Source
	ended    func(runs.Run, *thread.RunEnded) // nil = none is told
}

func newHouse(t testing.TB, tools ...tool.Tool) *house {
	return &house{
		t: t, threads: &thread.Memories{}, records: kvtest.NewMemory(), kv: kvtest.NewMemory(), tools: tools,
		agents: definitions{"default": {Name: "default", Subagents: map[string]definition.Definition{"helper": {Name: "helper", Description: "helps"}}}},
	}
}

func (h *house) open(m model) *supervisor.Supervisor {
	h.t.Helper()
	return h.openNode("n", m)
}

func (h *house) openNode(node string, m model) *supervisor.Supervisor {
	h.t.Helper()
	k, err := h.try(node, m)
	must(h.t, err)
	h.t.Cleanup(func() { _ = k.Close() })
	return k
}

func (h *house) try(node string, m model) (*supervisor.Supervisor, error) {
	registry := &tool.Registry{}
	for _, x := range h.tools {
		registry.Add(x.Spec().Name, func(tool.Env) (tool.Tool, error) { return x, nil })
	}
	for _, x := range h.hidden {
		registry.AddHidden(x.Spec().Name, func(tool.Env) (tool.Tool, error) { return x, nil })
	}
	task.Add(registry)
	task.AddAsk(registry)
	models := h.models
	if models == nil {
		models = m
	}
	return supervisor.Open(h.t.Context(), supervisor.Config{
		Threads: h.threads, Records: h.records, Events: h.events, Models: models, Definitions: h.agents, Tools: registry, Sources: h.sources, Machines: h.machines, Template: h.template, Node: node, Now: h.now, NameOf: names.of, Ended: h.ended,
		Patience: llm.RetryPolicy{Wait: time.Millisecond, Attempts: 2},
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func text(s string) []llm.Block { return []llm.Block{llm.Text(s)} }

// await watches a run's log until its record is as wanted.
func await(t testing.TB, k *supervisor.Supervisor, id thread.RunID, want func(runs.Run) bool) runs.Run {
	t.Helper()
	var run runs.Run
	patience.Try(t, 20*time.Second, "a run", func() error {
		var err error
		if run, err = k.Get(t.Context(), tenant, id); err != nil || want(run) {
			return err
		}
		return fmt.Errorf("it stays %+v", run)
	})
	return run
}

func over(r runs.Run) bool  { return r.State.Final() }
func waits(r runs.Run) bool { return r.State == thread.RunInterrupted }

func (h *house) check(id thread.ID) []thread.Event {
	h.t.Helper()
	log, err := h.threads.Log(h.t.Context(), tenant)
	must(h.t, err)
	var events []thread.Event
	for e, err := range log.Load(context.Background(), id, 1) {
		must(h.t, err)
		events = append(events, e)
	}
	must(h.t, thread.Check(events))
	return events
}

func TestStart_succeeds(t *testing.T) {
	h := newHouse(t)
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) { return respond(llm.Text("42")) })
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("What is 6*7?\nthink"), Key: "k1", By: "anna", Labels: map[string]string{"a": "b"}})
	must(t, err)
	got := await(t, k, run.ID, over)
	if got.State != thread.RunSucceeded || got.Text != "42" || got.Title != "What is 6*7?" || got.Steps != 1 || got.Usage.Total() != 2 {
		t.Fatalf("%+v", got)
	}
	h.check(run.Thread)
	again, err := k.Start(t.Context(), tenant, runs.Start{Input: text("What is 6*7?\nthink"), Key: "k1", By: "anna"})
	must(t, err)
	if again.ID != run.ID {
		t.Error("the same key is another run")
	}
	if _, err := k.Start(t.Context(), tenant, runs.Start{Input: text("else"), Key: "k1"}); !errs.Is(err, errs.Conflict) {
		t.Errorf("another task under the same key: %v", err)
	}
	if _, err := k.Get(t.Context(), "other", run.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("another tenant sees it: %v", err)
	}
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("and 7*7?")})
	must(t, err)
	await(t, k, next.ID, over)
	h.check(run.Thread)
	page, err := k.List(t.Context(), tenant, runs.Filter{PageSize: 1})
	must(t, err)
	if len(page.Runs) != 1 || page.Runs[0].ID != next.ID || page.Next == "" {
		t.Fatalf("%+v", page)
	}
	page, err = k.List(t.Context(), tenant, runs.Filter{PageSize: 1, PageToken: page.Next})
	must(t, err)
	if len(page.Runs) != 1 || page.Runs[0].ID != run.ID || page.Next != "" {
		t.Fatalf("%+v", page)
	}
	must(t, k.Delete(t.Context(), tenant, run.Thread))
	if _, err := k.Get(t.Context(), tenant, run.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("deleted, and still there: %v", err)
	}
}

func TestStart_refuses(t *testing.T) {
	k := newHouse(t).open(nil)
	for name, s := range map[string]runs.Start{
		"no task":         {},
		"no such agent":   {Input: text("x"), Agent: "nobody"},
		"no such thread":  {Input: text("x"), Thread: thread.NewID()},
		"a sub-agent's":   {Input: text("x"), Thread: thread.NewID().Sub("c1")},
		"agent of thread": {Input: text("x"), Thread: thread.NewID(), Agent: "default"},
		"too much":        {Input: text(strings.Repeat("x", 5<<20))},
		"negative budget": {Input: text("x"), Budget: thread.Budget{Steps: -1}},
		"a tool call":     {Input: []llm.Block{call("c1", "x", "{}")}},
		"an empty label":  {Input: text("x"), Labels: map[string]string{"": "x"}},
		"a host's file":   {Input: text("x"), Model: "script//etc/passwd"},
		"one inline":      {Input: text("x"), Inline: &definition.Definition{Name: "x", Model: "script//etc/passwd"}},
		"one beneath": {Input: text("x"), Inline: &definition.Definition{
			Name:      "x",
			Subagents: map[string]definition.Definition{"y": {Model: "script//etc/passwd"}},
		}},
	} {
		if _, err := k.Start(t.Context(), tenant, s); errs.Of(err) == errs.Internal || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A run goes on in the next server: what was under way is picked up by its key.
func TestRestart_goesOn(t *testing.T) {
	started, attempts := make(chan string, 4), 0
	var mu sync.Mutex
	release := make(chan struct{})
	long := fake{"long", func(ctx context.Context, r tool.Request) (tool.Result, error) {
		mu.Lock()
		attempts++
		mu.Unlock()
		started <- r.Key
		select {
		case <-release:
			return tool.Text(fmt.Sprintf("again %v", r.Again)), nil
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
	}}
	h := newHouse(t, long)
	replies := model(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 {
			return respond(call("c1", "long", `{}`))
		}
		return respond(llm.Text(last(req)))
	})
	k := h.open(replies)
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
	must(t, err)
	key := <-started
	must(t, k.Close())
	k = h.open(replies)
	if again := <-started; again != key {
		t.Errorf("the key was %s and is %s", key, again)
	}
	close(release)
	if got := await(t, k, run.ID, over); got.Text != "again true\n" {
		t.Fatalf("%+v", got)
	}
	h.check(run.Thread)
}

// A run that has ended, but whose record could not say so before the thread's next run
// began, gets its end all the same: in this server, or in the next one.
func TestRun_overtaken(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			h := newHouse(t)
			records := kvtest.NewMemory()
			h.records = records
			var first atomic.Pointer[runs.Run]
			var away atomic.Bool
			records.Fail = func(op, key string) error {
				if run := first.Load(); away.Load() && op == "update" && run != nil && strings.HasSuffix(key, string(run.ID)) {
					return errs.New(errs.Unavailable, "the store is away")
				}
				return nil
			}
			asked := make(chan struct{})
			replies := model(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
				if last(req) == "one" {
					<-asked
				}
				return respond(llm.Text("answer to " + last(req)))
			})
			k := h.open(replies)
			one, err := k.Start(t.Context(), tenant, runs.Start{Input: text("one")})
			must(t, err)
			first.Store(&one)
			await(t, k, one.ID, func(r runs.Run) bool { return r.State == thread.RunRunning })
			away.Store(true)
			close(asked)
			log, err := k.Log(t.Context(), tenant)
			must(t, err)
			patience.Until(t, 20*time.Second, "the end in the log", func() bool {
				for e, err := range log.Load(t.Context(), one.Thread, 1) {
					must(t, err)
					if _, is := e.Body.(thread.RunEnded); is {
						return true
					}
				}
				return false
			})
			two, err := k.Start(t.Context(), tenant, runs.Start{Thread: one.Thread, Input: text("two")})
			must(t, err)
			if restart {
				must(t, k.Close())
				k = h.open(replies)
			}
			away.Store(false)
			for _, run := range []runs.Run{two, one} {
				got := await(t, k, run.ID, over)
				if want := "answer to " + run.Title; got.State != thread.RunSucceeded || got.Text != want || got.Steps != 1 {
					t.Errorf("%+v, want %s", got, want)
				}
			}
			h.check(one.Thread)
		})
	}
}

func TestApproval_survivesARestart(t *testing.T) {
	var ran []string
	h := newHouse(t, fake{"act", func(_ context.Context, r tool.Request) (tool.Result, error) {
		ran = append(ran, string(r.Args))
		return tool.Text("ok"), nil
	}})
	h.agents["careful"] = definition.Definition{Name: "careful", Rules: []definition.Rule{{Action: definition.Ask, Tools: []string{"act"}}}}
	replies := model(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 {
			return respond(call("c1", "act", `{"n":1}`))
		}
		return respond(llm.Text("done"))
	})
	k := h.open(replies)
	run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "careful", Input: text("go")})
	must(t, err)
	await(t, k, run.ID, waits)
	must(t, k.Close())
	k = h.open(replies)
	if got := await(t, k, run.ID, waits); got.Waiting != 1 {
		t.Fatalf("%+v", got)
	}
	list, err := k.Approvals(t.Context(), tenant, run.ID)
	must(t, err)
	if len(list) != 1 || list[0].Call != "c1" || string(list[0].Args) != `{"n":1}` {
		t.Fatalf("%+v", list)
	}
	edit := runs.Decide{Call: "c1", Decision: thread.Edit, Args: json.RawMessage(`{"n":2}`), By: "anna"}
	for name, bad := range map[string]runs.Decide{
		"no object":    {Call: "c1", Decision: thread.Edit, Args: json.RawMessage(`[]`)},
		"no such call": {Call: "c9", Decision: thread.Approve},
		"no decision":  {Call: "c1", Decision: "maybe"},
		"no text":      {Call: "c1", Decision: thread.Respond},
		"other thread": {Thread: thread.NewID(), Call: "c1", Decision: thread.Approve},
	} {
		if err := k.Decide(t.Context(), tenant, run.ID, []runs.Decide{bad}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	// Two people at once: one wins.
	answers := make(chan error, 2)
	for range 2 {
		go func() { answers <- k.Decide(t.Context(), tenant, run.ID, []runs.Decide{edit}) }()
	}
	one, two := <-answers, <-answers
	if (one == nil) == (two == nil) || !errs.Is(errors.Join(one, two), errs.Conflict) {
		t.Fatalf("%v, %v", one, two)
	}
	await(t, k, run.ID, over)
	if diff := cmp.Diff([]string{`{"n":2}`}, ran); diff != "" {
		t.Fatal(diff)
	}
	h.check(run.Thread)
}

// Three sub-agents work at once; one fails, the others do not care. The parent
// holds no goroutine meanwhile.
func TestSubagents(t *testing.T) {
	h := newHouse(t)
	together := make(chan struct{}, 3)
	all := make(chan struct{})
	k := h.open(func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
		switch who := first(req); {
		case who == "root" && req.Step == 1:
			return respond(call("t1", "task", `{"description":"one","subagent_type":"helper"}`),
				call("t2", "task", `{"description":"two","subagent_type":"helper"}`), call("t3", "task", `{"description":"bad","subagent_type":"helper"}`))
		case who == "root":
			return respond(llm.Text(last(req)))
		}
		together <- struct{}{}
		if len(together) == 3 {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if first(req) == "bad" {
			return nil, &llm.Error{Trouble: llm.BadRequest}
		}
		return respond(llm.Text("result of " + first(req)))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root")})
	must(t, err)
	got := await(t, k, run.ID, over)
	for _, want := range []string{"result of one", "result of two", "ended as failed"} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("%q is not in %q", want, got.Text)
		}
	}
	if got.Usage.Total() != 8 {
		t.Errorf("the run and what is beneath it used %+v", got.Usage)
	}
	h.check(run.Thread)
	for _, c := range []string{"t1", "t2", "t3"} {
		h.check(run.Thread.Sub(c))
	}
	page, err := k.List(t.Context(), tenant, runs.Filter{Subagents: true})
	must(t, err)
	if len(page.Runs) != 4 {
		t.Errorf("%d runs", len(page.Runs))
	}
}

// What a sub-agent asks is asked at the root, and answered in its own thread.
func TestSubagents_askAtTheRoot(t *testing.T) {
	acts := 0
	h := newHouse(t, fake{"act", func(context.Context, tool.Request) (tool.Result, error) { acts++; return tool.Text("ok"), nil }})
	d := h.agents["default"]
	d.Rules = []definition.Rule{{Action: definition.Ask, Tools: []string{"act"}}}
	h.agents["default"] = d
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		switch {
		case first(req) == "root" && req.Step == 1:
			return respond(call("t1", "task", `{"description":"sub","subagent_type":"helper"}`))
		case first(req) == "sub" && req.Step == 1:
			return respond(call("c1", "act", `{}`))
		}
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root")})
	must(t, err)
	await(t, k, run.ID, waits)
	list, err := k.Approvals(t.Context(), tenant, run.ID)
	must(t, err)
	if len(list) != 1 || list[0].Thread != run.Thread.Sub("t1") {
		t.Fatalf("%+v", list)
	}
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Thread: list[0].Thread, Call: "c1", Decision: thread.Approve, By: "anna"}}))
	if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded || acts != 1 {
		t.Fatalf("%+v, %d", got, acts)
	}
}

// A sub-agent sees its task alone, or the conversation before it, as what it is.
func TestSubagents_inherit(t *testing.T) {
	for args, sees := range map[string]bool{`"inherit":true,`: true, ``: false} {
		h := newHouse(t)
		k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
			all := ""
			for _, m := range req.Messages {
				all += m.String()
			}
			if strings.HasSuffix(all, "sub") {
				return respond(llm.Text(fmt.Sprint(strings.Contains(all, "the word is heliotrope"), strings.Count(all, "</note>"))))
			}
			if req.Step == 1 {
				return respond(call("t1", "task", `{`+args+`"description":"sub","subagent_type":"helper"}`))
			}
			return respond(llm.Text(last(req)))
		})
		run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("the word is heliotrope</note>")})
		must(t, err)
		want := "false 0\n"
		if sees {
			want = "true 1\n"
		}
		if got := await(t, k, run.ID, over); got.Text != want {
			t.Errorf("%q: %q", args, got.Text)
		}
		h.check(run.Thread.Sub("t1"))
	}
}

func TestSubagents_cancelEndsTheTree(t *testing.T) {
	h := newHouse(t)
	asked := make(chan struct{}, 1)
	k := h.open(func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
		if first(req) == "root" {
			return respond(call("t1", "task", `{"description":"sub","subagent_type":"helper"}`))
		}
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root")})
	must(t, err)
	<-asked
	_, err = k.Cancel(t.Context(), tenant, run.ID, "anna", "")
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunCancelled {
		t.Fatalf("%+v", got)
	}
	page, err := k.List(t.Context(), tenant, runs.Filter{Thread: run.Thread.Sub("t1")})
	must(t, err)
	if got := await(t, k, page.Runs[0].ID, over); got.State != thread.RunCancelled {
		t.Fatalf("%+v", got)
	}
	h.check(run.Thread)
}

// A sub-agent in the background wakes its parent, also when that is done.
func TestSubagents_background(t *testing.T) {
	h := newHouse(t)
	goOn := make(chan struct{})
	k := h.open(func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
		switch {
		case first(req) == "sub":
			<-goOn
			return respond(llm.Text("found it"))
		case len(req.Messages) == 1:
			return respond(call("t1", "task", `{"description":"sub","subagent_type":"helper","background":true}`))
		}
		return respond(llm.Text("told: " + last(req)))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root")})
	must(t, err)
	await(t, k, run.ID, over)
	close(goOn)
	var page runs.Page
	for len(page.Runs) < 2 || !page.Runs[0].State.Final() {
		page, err = k.List(t.Context(), tenant, runs.Filter{Thread: run.Thread})
		must(t, err)
		<-time.After(time.Millisecond)
	}
	if !strings.Contains(page.Runs[0].Text, "found it") {
		t.Fatalf("%+v", page.Runs[0])
	}
	h.check(run.Thread)
}

func TestForkOfAForkAndRewind(t *testing.T) {
	h := newHouse(t, fake{"act", func(_ context.Context, r tool.Request) (tool.Result, error) { return tool.Text("ok"), nil }})
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 && len(req.Messages) == 1 {
			return respond(call("c1", "act", `{}`))
		}
		return respond(llm.Text(fmt.Sprintf("%d messages, last %q", len(req.Messages), last(req))))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("root")})
	must(t, err)
	await(t, k, run.ID, over)
	events := h.check(run.Thread)
	at := uint64(slices.IndexFunc(events, func(e thread.Event) bool { return e.Body.Kind() == thread.ToolStarted{}.Kind() }) + 1)
	fork, err := k.Fork(t.Context(), tenant, run.ID, at, runs.Start{Input: text("differently")})
	must(t, err)
	got := await(t, k, fork.ID, over)
	if got.State != thread.RunSucceeded || !strings.Contains(got.Text, "differently") || got.Fork.Thread != run.Thread || got.Fork.Seq != at {
		t.Fatalf("%+v", got)
	}
	h.check(fork.Thread)
	again, err := k.Fork(t.Context(), tenant, fork.ID, got.Last, runs.Start{Input: text("once more")})
	must(t, err)
	if got := await(t, k, again.ID, over); !strings.Contains(got.Text, "once more") {
		t.Fatalf("%+v", got)
	}
	h.check(again.Thread)
	if _, err := k.Fork(t.Context(), tenant, run.ID, 1000, runs.Start{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	_, err = k.Rewind(t.Context(), tenant, run.ID, 4, false, "anna")
	must(t, err)
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("from here")})
	must(t, err)
	if got := await(t, k, next.ID, over); got.Text != `2 messages, last "from here"` && !strings.Contains(got.Text, "from here") {
		t.Fatalf("%+v", got)
	}
	h.check(run.Thread)
}

// Runs that wait cost neither a goroutine nor much memory.
func TestWaiting_costsLittle(t *testing.T) {
	const n = 300
	h := newHouse(t, fake{"act", func(context.Context, tool.Request) (tool.Result, error) { return tool.Text("ok"), nil }})
	h.agents["careful"] = definition.Definition{Name: "careful", Rules: []definition.Rule{{Action: definition.Ask}}}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(call("c1", "act", `{}`)) })
	before := runtime.NumGoroutine()
	waiting := make([]runs.Run, n)
	for i := range waiting {
		var err error
		waiting[i], err = k.Start(t.Context(), tenant, runs.Start{Agent: "careful", Input: text("go")})
		must(t, err)
	}
	for _, r := range waiting {
		await(t, k, r.ID, waits)
	}
	for deadline := time.Now().Add(patience.Of(5 * time.Second)); runtime.NumGoroutine() > before+5; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines for %d waiting that wait; %d before", runtime.NumGoroutine(), n, before)
		}
	}
	if _, err := k.Cancel(t.Context(), tenant, waiting[0].ID, "", ""); err != nil {
		t.Fatal(err)
	}
	await(t, k, waiting[0].ID, over)
}

func TestCorruptLog_stopsAndSays(t *testing.T) {
	h := newHouse(t)
	block := make(chan struct{})
	k := h.open(func(ctx context.Context, _ *llm.Request) (*llm.Response, error) {
		select {
		case <-block:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
	must(t, err)
	must(t, k.Close())
	log, err := h.threads.Log(t.Context(), tenant)
	must(t, err)
	head, err := log.Head(t.Context(), run.Thread)
	must(t, err)
	_, err = log.Append(t.Context(), run.Thread, head, thread.New(run.ID, thread.ToolStarted{Call: "ghost", Tool: "x", Key: "k"}))
	must(t, err)
	k = h.open(nil)
	got := await(t, k, run.ID, over)
	if got.State != thread.RunFailed || !strings.Contains(got.Text, fmt.Sprint(head+1)) {
		t.Fatalf("%+v", got)
	}
}

// A record without a run, as a server leaves it that dies while it starts one,
// is completed by the same start; without that it ends, and says why.
func TestStart_cutShort(t *testing.T) {
	h := newHouse(t)
	replies := model(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("42")) })
	start := runs.Start{Input: text("What is 6*7?"), Key: "k1"}
	threads := h.threads
	h.threads = &deaf{Threads: threads}
	k := h.open(replies)
	if _, err := k.Start(t.Context(), tenant, start); err == nil {
		t.Fatal("a start without a log succeeded")
	}
	if _, err := k.Start(t.Context(), tenant, runs.Start{Input: text("else")}); err == nil {
		t.Fatal("a start without a log succeeded")
	}
	page, err := k.List(t.Context(), tenant, runs.Filter{})
	must(t, err)
	for _, r := range page.Runs {
		if r.State != thread.RunPending {
			t.Errorf("nobody can say whether it has begun, and it is %+v", r)
		}
	}
	must(t, k.Close())
	h.threads = threads
	k = h.open(replies)
	run, err := k.Start(t.Context(), tenant, start)
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded {
		t.Errorf("%+v", got)
	}
	page, err = k.List(t.Context(), tenant, runs.Filter{})
	must(t, err)
	for _, r := range page.Runs {
		if r.ID != run.ID {
			if got := await(t, k, r.ID, over); got.Reason != "not_started" {
				t.Errorf("%+v", got)
			}
		}
	}
	if len(page.Runs) != 2 {
		t.Errorf("%d runs", len(page.Runs))
	}
	h.check(run.Thread)
}

// deaf are threads whose logs take nothing, and do not say so.
type deaf struct{ supervisor.Threads }

// Log implements supervisor.Threads.
func (d *deaf) Log(ctx context.Context, tenant string) (thread.Log, error) {
	l, err := d.Threads.Log(ctx, tenant)
	return deafLog{l}, err
}

type deafLog struct{ thread.Log }

func (deafLog) Append(context.Context, thread.ID, uint64, ...thread.Event) (uint64, error) {
	return 0, errs.New(errs.Unavailable, "no answer")
}

// cutShort begins a start whose server dies before it has written a log.
func (h *house) cutShort(start runs.Start) {
	h.t.Helper()
	threads := h.threads
	h.threads = &deaf{Threads: threads}
	k := h.open(nil)
	if _, err := k.Start(h.t.Context(), tenant, start); err == nil {
		h.t.Fatal("a start without a log succeeded")
	}
	must(h.t, k.Close())
	h.threads = threads
}

// A start that is repeated while the one that was cut short is being given up waits for that, and
// begins the run then.
func TestStart_cutShortAndRepeated(t *testing.T) {
	h := newHouse(t)
	start := runs.Start{Input: text("What is 6*7?"), Key: "k1"}
	h.cutShort(start)
	w := &watchful{Threads: h.threads, begins: make(chan struct{})}
	h.threads = w
	given := make(chan struct{})
	h.ended = func(r runs.Run, _ *thread.RunEnded) {
		if r.Reason != runs.ReasonNotStarted {
			return
		}
		close(given)
		select { // there is time for the start
		case <-w.begins:
			t.Error("the run began while it was given up")
		case <-time.After(300 * time.Millisecond):
		}
	}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("42")) })
	<-given
	run, err := k.Start(t.Context(), tenant, start)
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded {
		t.Errorf("%+v", got)
	}
	h.check(run.Thread)
}

// watchful are threads that tell of the first append.
type watchful struct {
	supervisor.Threads
	begins chan struct{}
	once   sync.Once
}

// Log implements supervisor.Threads.
func (w *watchful) Log(ctx context.Context, tenant string) (thread.Log, error) {
	l, err := w.Threads.Log(ctx, tenant)
	return watchfulLog{l, w}, err
}

type watchfulLog struct {
	thread.Log
	w *watchful
}

func (l watchfulLog) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	l.w.once.Do(func() { close(l.w.begins) })
	return l.Log.Append(ctx, id, after, events...)
}

// directory has the names of ids.
type directory map[string]string

var names = directory{"key_1": "ana"}

func (d directory) of(_ context.Context, id string) string { return d[id] }
