package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// shelf is a source of tools that tests change.
type shelf struct {
	mu    sync.Mutex
	tools []tool.External
	notes []string
	err   error
	call  func(context.Context, tool.Place, tool.External, tool.Request) (tool.Result, error)
	calls []string // names and data
	ended []string // keys
}

func (*shelf) Name() string { return "shelf" }

func (s *shelf) Covers(_, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.tools, func(e tool.External) bool { return e.Spec.Name == name })
}

func (s *shelf) Find(context.Context, tool.Place) ([]tool.External, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools), s.notes, s.err
}

func (s *shelf) Call(ctx context.Context, p tool.Place, e tool.External, req tool.Request) (tool.Result, error) {
	s.mu.Lock()
	s.calls = append(s.calls, e.Spec.Name+" "+string(e.Data))
	call := s.call
	s.mu.Unlock()
	if call != nil {
		return call(ctx, p, e, req)
	}
	return tool.Text(fmt.Sprintf("%s %s %s", e.Data, req.Args, p.Agent)), nil
}

func (s *shelf) Finish(_ context.Context, _ tool.Place, _ tool.External, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, key)
}

func (s *shelf) put(tools ...tool.External) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = tools
}

func (s *shelf) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// scan is a tool of the shelf in a version.
func scan(version string) tool.External {
	return tool.External{Spec: llm.ToolSpec{
		Name: "scan", Description: "scans " + version, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
	}, Class: tool.Keyed, Data: json.RawMessage(`"` + version + `"`)}
}

func toolNames(req *llm.Request) (names []string) {
	for _, s := range req.Tools {
		names = append(names, s.Name)
	}
	return names
}

func about(req *llm.Request, name string) string {
	for _, s := range req.Tools {
		if s.Name == name {
			return s.Description
		}
	}
	return ""
}

// A run keeps the tools with which it began, also in the next server, while other runs have
// what there is now; a tool that is gone from the source is called as it was found.
func TestSources_pinned(t *testing.T) {
	s := &shelf{}
	s.put(scan("v1"))
	h := newHouse(t)
	h.sources = []tool.Source{s}
	var asked []string
	proceed, waiting := make(chan struct{}), make(chan struct{}, 4)
	replies := model(func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
		asked = append(asked, about(req, "scan"))
		switch req.Step {
		case 1:
			return respond(call("c1", "scan", `{"n":"1"}`))
		case 2:
			waiting <- struct{}{}
			select {
			case <-proceed:
				return respond(call("c2", "scan", `{"n":2}`))
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return respond(llm.Text(last(req)))
	})
	k := h.open(replies)
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
	must(t, err)
	<-waiting
	s.put(scan("v2"))
	must(t, k.Close())
	k = h.open(replies)
	<-waiting
	s.put()
	close(proceed)
	if got := await(t, k, run.ID, over); got.Text != "\"v1\" {\"n\":2} default\n" {
		t.Fatalf("%+v", got)
	}
	for i, a := range asked {
		if a != "scans v1" {
			t.Errorf("prompt %d has %q", i+1, a)
		}
	}
	if d := cmp.Diff([]string{`scan "v1"`, `scan "v1"`}, s.calls); d != "" {
		t.Error(d)
	}
	patience.Until(t, 10*time.Second, "the source hears that both calls are over", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.ended) == 2 })
	h.check(run.Thread)
	s.put(scan("v3"))
	asked = nil
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("and again")})
	must(t, err)
	if await(t, k, next.ID, over); !slices.Contains(asked, "scans v3") {
		t.Errorf("the next run has %q", asked)
	}
	h.check(run.Thread)
}

// A call that must not be made twice is not, when the server ends while it runs; any other is,
// perhaps by the server that ends as well.
func TestSources_once(t *testing.T) {
	for class, once := range map[tool.Class]bool{tool.Once: true, "": true, tool.Keyed: false, tool.Read: false} {
		t.Run(string(class), func(t *testing.T) {
			e := scan("v1")
			e.Class = class
			s := &shelf{}
			s.put(e)
			started := make(chan bool, 100)
			s.call = func(ctx context.Context, _ tool.Place, _ tool.External, req tool.Request) (tool.Result, error) {
				started <- req.Again
				if req.Again {
					return tool.Text("done"), nil
				}
				<-ctx.Done()
				return tool.Result{}, ctx.Err()
			}
			h := newHouse(t)
			h.sources = []tool.Source{s}
			replies := model(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
				if req.Step == 1 {
					return respond(call("c1", "scan", `{}`))
				}
				return respond(llm.Text(last(req)))
			})
			k := h.open(replies)
			run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
			must(t, err)
			<-started
			must(t, k.Close())
			k = h.open(replies)
			got := await(t, k, run.ID, over)
			if n := s.called(); (n == 1) != once || strings.Contains(got.Text, "may have happened or not") != once {
				t.Errorf("%d calls, and the model heard %q", n, got.Text)
			}
			h.check(run.Thread)
		})
	}
}

// What cannot be had is left out and noted for people: the run goes on without it, and its
// prompt says nothing of it.
func TestSources_leftOut(t *testing.T) {
	task, bad, wide := scan("v1"), scan("v1"), scan("v1")
	task.Spec.Name = "task"
	bad.Spec.Name, bad.Spec.Schema = "bad", json.RawMessage(`{"$ref":"file:///etc/passwd"}`)
	wide.Spec.Name = "no name"
	s := &shelf{notes: []string{"the server x cannot be reached"}, err: errs.New(errs.Unavailable, "half of it is away")}
	s.put(scan("v1"), scan("v2"), task, bad, wide)
	h := newHouse(t)
	h.sources = []tool.Source{s, &shelf{err: errors.New("a secret of the host")}}
	var prompt string
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		data, err := json.Marshal(req)
		prompt = string(data)
		if !slices.Contains(toolNames(req), "scan") || about(req, "scan") != "scans v1" || strings.Contains(about(req, "task"), "scans") {
			return respond(llm.Text("lacks it"))
		}
		return cmpOr(err)
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded || got.Text != "fine" {
		t.Fatalf("%+v", got)
	}
	var told []string
	for _, e := range h.check(run.Thread) {
		if c, is := e.Body.(thread.Context); is {
			told = c.LeftOut
		}
	}
	all := strings.Join(told, "\n")
	for _, part := range []string{"x cannot be reached", "half of it is away", "the name scan is that of one of shelf", "the name task is that of a built-in one", `"bad"`, `"no name" is no name`} {
		if !strings.Contains(all, part) {
			t.Errorf("nothing is said of %q:\n%s", part, all)
		}
	}
	if strings.Contains(all, "secret of the host") || strings.Contains(prompt, "cannot be reached") {
		t.Errorf("too much is told: %s\n%s", all, prompt)
	}
}

func cmpOr(err error) (*llm.Response, error) {
	if err != nil {
		return nil, err
	}
	return respond(llm.Text("fine"))
}

// The agent's list of tools is about those of sources as about built-in ones, and a name
// that none has is refused when the run is started.
func TestSources_chosenByTheAgent(t *testing.T) {
	other := scan("v1")
	other.Spec.Name = "other"
	s := &shelf{}
	s.put(scan("v1"), other)
	h := newHouse(t)
	h.sources = []tool.Source{s}
	var names []string
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		names = toolNames(req)
		return respond(llm.Text("done"))
	})
	for _, tt := range []struct {
		tools []string
		want  string
	}{
		{nil, "[ask_user other scan task]"},
		{[]string{"scan"}, "[scan]"},
		{[]string{"s*", "task"}, "[scan task]"},
		{[]string{"!scan"}, "[ask_user other task]"},
		{[]string{"!task", "!other"}, "[ask_user scan]"},
		{[]string{"*", "!o*"}, "[ask_user scan task]"},
		{[]string{"!*"}, "[]"},
	} {
		d := h.agents["default"]
		d.Name, d.Tools = "a", tt.tools
		h.agents["a"] = d
		run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "a", Input: text("go")})
		must(t, err)
		if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded {
			t.Fatalf("%v: %+v", tt.tools, got)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "task_") })
		slices.Sort(names)
		if got := fmt.Sprint(names); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.tools, got, tt.want)
		}
	}
	h.agents["a"] = definition.Definition{Name: "a", Tools: []string{"scann"}}
	if _, err := k.Start(t.Context(), tenant, runs.Start{Agent: "a", Input: text("go")}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a tool that there is not: %v", err)
	}
}

// A tool that asks is put before a person, unless a rule of the agent speaks of it.
func TestSources_asks(t *testing.T) {
	e := scan("v1")
	e.Asks = true
	s := &shelf{}
	s.put(e)
	h := newHouse(t)
	h.sources = []tool.Source{s}
	h.agents["trusts"] = definition.Definition{Name: "trusts", Rules: []definition.Rule{{Tools: []string{"scan"}, Action: definition.Allow}}}
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 {
			return respond(call("c1", "scan", `{}`))
		}
		return respond(llm.Text(last(req)))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
	must(t, err)
	await(t, k, run.ID, waits)
	if s.called() != 0 {
		t.Error("it ran unasked")
	}
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c1", Decision: thread.Approve}}))
	await(t, k, run.ID, over)
	trusted, err := k.Start(t.Context(), tenant, runs.Start{Agent: "trusts", Input: text("go")})
	must(t, err)
	if got := await(t, k, trusted.ID, over); got.State != thread.RunSucceeded || s.called() != 2 {
		t.Errorf("%d calls: %+v", s.called(), got)
	}
}

// Tools that are too many for a prompt are found and called by two others; what is logged, and
// what rules and classes are about, is the tool that is meant.
func TestSources_tooMany(t *testing.T) {
	s := &shelf{}
	var many []tool.External
	for i := range 100 {
		e := scan("v1")
		e.Spec.Name, e.Spec.Description = fmt.Sprintf("shelf_%d", i), fmt.Sprintf("does the work of number w%d", i)
		e.Class = tool.Once
		many = append(many, e)
	}
	s.put(many...)
	h := newHouse(t)
	h.sources = []tool.Source{s}
	h.agents["careful"] = definition.Definition{Name: "careful", Rules: []definition.Rule{{Tools: []string{"shelf_43"}, Action: definition.Deny}}}
	var heard []string
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		heard = append(heard, last(req))
		if n := toolNames(req); !slices.Contains(n, "find_tools") || !slices.Contains(n, "use_tool") || slices.Contains(n, "shelf_42") {
			return respond(llm.Text(fmt.Sprint("the prompt has ", n)))
		}
		switch req.Step {
		case 1:
			return respond(call("c1", "find_tools", `{"query":"the w42 work"}`))
		case 2:
			return respond(
				call("c2", "use_tool", `{"name":"shelf_42","arguments":{"n":"7"}}`),
				call("c3", "use_tool", `{"name":"shelf_43","arguments":{}}`),
				call("c4", "use_tool", `{"name":"none"}`),
				call("c5", "use_tool", `{"name":"shelf_42","arguments":{"n":"x"}}`))
		}
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "careful", Input: text("go")})
	must(t, err)
	if got := await(t, k, run.ID, over); got.Text != "done" {
		t.Fatalf("%+v", got)
	}
	if !strings.HasPrefix(heard[1], "shelf_42: does the work of number w42\narguments: {") {
		t.Errorf("what was found: %.300s", heard[1])
	}
	var got []string
	for _, e := range h.check(run.Thread) {
		if c, is := e.Body.(thread.ToolCompleted); is && c.Call != "c1" {
			got = append(got, fmt.Sprintf("%s %s %q %.40s", c.Call, c.Tool, c.Code, c.Blocks[0].Text))
		}
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{
		`c2 shelf_42 "" "v1" {"n":7} careful`,
		`c3 shelf_43 "rejected" A rule refuses this call.`,
		`c4 use_tool "unknown_tool" There is no tool "none" to be used so. f`,
		`c5 shelf_42 "invalid_arguments" invalid arguments for shelf_42:` + "\n- n: exp",
	}, got); d != "" {
		t.Error(d)
	}
	if s.called() != 1 {
		t.Errorf("%d calls", s.called())
	}
}

// letting is a shelf that is told when no run of a thread is under way.
type letting struct {
	*shelf
	released chan string
}

func (l letting) Release(tenant string, id thread.ID) { l.released <- tenant + " " + string(id) }

// When a run is over its sources are told, before the caller can see that it is.
func TestSources_letGoAtTheEndOfARun(t *testing.T) {
	l := letting{&shelf{}, make(chan string, 4)}
	h := newHouse(t)
	h.sources = []tool.Source{l}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("fine")) })
	for range 2 {
		run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("go")})
		must(t, err)
		await(t, k, run.ID, over)
		select {
		case got := <-l.released:
			if got != tenant+" "+string(run.Thread) {
				t.Errorf("released %q", got)
			}
		default:
			t.Error("nothing was released")
		}
	}
}
