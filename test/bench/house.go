package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/kit"
)

const tenant = key.DefaultTenant

// house is a server's brain without its doors.
type house struct {
	dir        string
	every      time.Duration // of syncing
	store      *store.Store
	supervisor *supervisor.Supervisor
	scripts    *scripts
	agent      definition.Definition
}

// open makes one in a directory of its own.
func open(ctx context.Context, every time.Duration) (*house, error) {
	dir, err := os.MkdirTemp("", "skete-bench-")
	if err != nil {
		return nil, err
	}
	h := &house{dir: dir, every: every, scripts: &scripts{byName: map[string]*script{}}, agent: definition.Definition{Name: "default", Instructions: "You work."}}
	if err := h.start(ctx); err != nil {
		h.close(&err)
		return nil, err
	}
	return h, nil
}

func (h *house) start(ctx context.Context) (err error) {
	if h.store, err = store.Open(ctx, store.Config{Dir: h.dir, SyncInterval: h.every}); err != nil {
		return err
	}
	return h.startSupervisor(ctx)
}

func (h *house) startSupervisor(ctx context.Context) error {
	records, err := h.store.KV(ctx, "runs")
	if err != nil {
		return err
	}
	tools := kit.New()
	tools.Add("look", func(tool.Env) (tool.Tool, error) { return look{}, nil })
	h.supervisor, err = supervisor.Open(ctx, supervisor.Config{
		Threads: h.store.Threads(), Records: records, Models: h.scripts, Definitions: single{h.agent},
		Tools: tools, Wire: h.store.Live(), Node: "bench",
	})
	return err
}

// stop ends the brain; its directory stays.
func (h *house) stop() error {
	var failed []error
	if h.supervisor != nil {
		failed = append(failed, h.supervisor.Close())
	}
	if h.store != nil {
		failed = append(failed, h.store.Close())
	}
	h.supervisor, h.store = nil, nil
	return errors.Join(failed...)
}

// close removes everything and adds what went wrong to err.
func (h *house) close(err *error) { *err = errors.Join(*err, h.stop(), os.RemoveAll(h.dir)) }

// begin starts a run that follows a script.
func (h *house) begin(ctx context.Context, s *script) (runs.Run, error) {
	s.over = make(chan struct{})
	return h.supervisor.Start(ctx, tenant, runs.Start{
		Input: []llm.Block{llm.Text("do it")}, Model: h.scripts.add(s), Budget: thread.Budget{Steps: s.steps + 2},
	})
}

// run drives a script to its end.
func (h *house) run(ctx context.Context, s *script) (runs.Run, error) {
	r, err := h.begin(ctx, s)
	if err != nil {
		return r, err
	}
	return h.await(ctx, s, r)
}

// await waits for the end of a run. It hardly looks before the script is over.
func (h *house) await(ctx context.Context, s *script, r runs.Run) (runs.Run, error) {
	final := func(r runs.Run) bool { return r.State.Final() }
	for over := false; !over && !final(r); {
		select {
		case <-s.over:
			over = true
		case <-ctx.Done():
			return r, context.Cause(ctx)
		case <-time.After(time.Second):
			var err error
			if r, err = h.supervisor.Get(ctx, tenant, r.ID); err != nil {
				return r, err
			}
		}
	}
	r, err := h.until(ctx, r.ID, final)
	if err == nil && (r.State != thread.RunSucceeded || s.failed != nil) {
		err = errors.Join(fmt.Errorf("the run is %s: %s", r.State, r.Text), s.failed)
	}
	return r, err
}

// until polls a run's record.
func (h *house) until(ctx context.Context, id thread.RunID, ok func(runs.Run) bool) (runs.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := h.supervisor.Get(ctx, tenant, id)
		if err != nil || ok(r) {
			return r, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r, fmt.Errorf("the run stays %s: %w", r.State, context.Cause(ctx))
		}
	}
}

// single is the only agent there is.
type single struct{ d definition.Definition }

// Resolve implements supervisor.Definitions.
func (s single) Resolve(string) (definition.Definition, error) { return s.d, nil }

// Complete implements supervisor.Definitions.
func (single) Complete(d definition.Definition) (definition.Definition, error) { return d, nil }

// List implements supervisor.Definitions.
func (single) List() []definition.Entry { return nil }

// scripts are models by name. Safe for concurrent use.
type scripts struct {
	mu     sync.Mutex
	byName map[string]*script
}

// add returns the name of a new model.
func (s *scripts) add(m *script) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("script-%d", len(s.byName))
	s.byName[name] = m
	return name
}

// Open implements supervisor.Models.
func (s *scripts) Open(_ context.Context, name string) (llm.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.byName[name]; m != nil {
		return m, nil
	}
	return nil, errs.New(errs.NotFound, "no script %s", name)
}

// script asks for calls of look, step after step, and then says that it is done.
type script struct {
	steps, calls int
	each         func(step int) error // before each answer; nil = nothing

	over   chan struct{} // closed with the last answer, or the first failure
	failed error
}

// Info implements llm.Model. The window has room for all steps.
func (*script) Info() llm.Info { return llm.Info{Name: "script", ID: "script", WindowTokens: 1 << 30} }

// Stream implements llm.Model.
func (s *script) Stream(_ context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if s.each != nil {
			if s.failed = s.each(req.Step); s.failed != nil {
				close(s.over)
				yield(llm.Delta{}, &llm.Error{Trouble: llm.BadRequest, Cause: s.failed})
				return
			}
		}
		r := &llm.Response{Message: llm.Assistant(llm.Text("I look.")), Stop: llm.StopTools, Usage: llm.Usage{Input: 10, Output: 5}}
		if req.Step > s.steps {
			r.Message, r.Stop = llm.Assistant(llm.Text("It is done.")), llm.StopEnd
			close(s.over)
		} else {
			for i := range s.calls {
				r.Message.Blocks = append(r.Message.Blocks, llm.Block{Kind: llm.KindCall, Call: &llm.Call{
					ID: fmt.Sprintf("call_%d_%d", req.Step, i), Name: "look", Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, req.Step*100+i)),
				}})
			}
		}
		if yield(llm.Delta{Kind: llm.DeltaText, Text: r.Message.String()}, nil) {
			yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, nil)
		}
	}
}

// look is a tool that does nothing.
type look struct{}

// Spec implements tool.Tool.
func (look) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "look", Description: "Looks.", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
}

// Effect implements tool.Tool.
func (look) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (look) Run(_ context.Context, r tool.Request) (tool.Result, error) {
	return tool.Text("seen " + string(r.Args)), nil
}

// processor is the time that this process has computed.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func medianTime(ds []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[len(sorted)/2]
}
