package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// batch runs the calls of one step. Goroutines run tools and report by
// landings; everything else happens in the Runner's own goroutine.
type batch struct {
	r        *Runner
	ctx      context.Context // of tools
	cancel   context.CancelCauseFunc
	stop     func() // of the clock
	running  map[string]tool.Effect
	inFlight int // goroutines that will report
	landings chan landing
	gates    map[string]gate // verdicts so far, by call
	forms    chan formAsked
	asking   map[string]formAsked // forms that are in the log without an answer, by call
	lost     error                // see Config.Patient
}

// landing is a report of a goroutine: a plan, or the end.
type landing struct {
	call   *runs.Call
	plan   *planned
	result *tool.Result
	files  []thread.FileChange
	err    error
	took   time.Duration
}

type planned struct {
	data []byte
	done *tool.Result
}

// newBatch returns a batch of n calls, each of which reports at most twice.
func (r *Runner) newBatch(ctx context.Context, n int) *batch {
	b := &batch{
		r: r, running: map[string]tool.Effect{}, landings: make(chan landing, 2*n), gates: map[string]gate{},
		forms: make(chan formAsked), asking: map[string]formAsked{},
	}
	ctx, b.stop = r.timed(ctx)
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// end lets go of what the batch holds.
func (b *batch) end() {
	b.cancel(nil)
	b.stop()
}

// runTools brings the open calls to their ends. waiting: only people or other
// threads can bring on what is left. started are calls whose tool.started has
// just been written.
func (r *Runner) runTools(ctx context.Context, b *batch) (waiting bool, err error) {
	if b == nil {
		b = r.newBatch(ctx, len(r.s.Open()))
	}
	defer b.end()
	for {
		if r.s.Run.Cancel != nil {
			b.cancel(tool.ErrCancelled)
		} else if b.lost != nil || interrupted(b.ctx) != nil {
			// Nothing more begins here.
		} else if err := b.advance(ctx); err != nil {
			return false, b.abandon(err)
		}
		if err := b.answerForms(ctx); err != nil {
			return false, b.abandon(err)
		}
		if len(b.running) == 0 && b.lost != nil && r.s.Run.Cancel == nil {
			return false, b.lost
		}
		if len(b.running) == 0 {
			return len(r.s.Open()) > 0 && interrupted(b.ctx) == nil, nil
		}
		if err := b.await(ctx); err != nil {
			return false, b.abandon(err)
		}
	}
}

// advance decides what can be decided and starts what can be started.
func (b *batch) advance(ctx context.Context) error {
	bodies, ready := b.judge(ctx, b.r.s.Open())
	if err := b.r.append(ctx, bodies...); err != nil {
		return err
	}
	if len(bodies) > 0 {
		ready = nil // look again: the log may have moved
		for _, c := range b.r.s.Open() {
			if b.mayRun(c) {
				ready = append(ready, c)
			}
		}
	}
	plain, planners := b.choose(ready)
	starts := make([]thread.Body, 0, len(plain))
	for _, c := range plain {
		if c.Started == nil {
			starts = append(starts, b.r.started(c, nil, b.gates[c.ID].args))
		}
	}
	if err := b.r.append(ctx, starts...); errors.Is(err, errReplan) {
		b.r.Notify() // a cancel came in between: nothing begins, and what runs is to end
	} else if err != nil {
		return err
	}
	b.begin(plain, planners, starts)
	return nil
}

// begin lets calls run, or plan. starts are the events that were written for
// some of them; the others had been started by an earlier driver.
func (b *batch) begin(plain, planners []*runs.Call, starts []thread.Body) {
	fresh := map[string]bool{}
	for _, s := range starts {
		fresh[s.(thread.ToolStarted).Call] = true
	}
	for _, c := range append(plain, planners...) {
		switch {
		case b.r.s.Run.Cancel != nil: // nothing begins any more
			delete(b.running, c.ID)
		case slices.Contains(planners, c):
			b.plan(c)
		default:
			b.launch(c, !fresh[c.ID])
		}
	}
}

// choose picks from the calls that may run those that can begin now: not more
// than may run at once, and none that clashes with one that runs or waits
// before it. Calls that plan get their tool.started later.
func (b *batch) choose(ready []*runs.Call) (plain, planners []*runs.Call) {
	limit := b.r.s.Agent.Limits.ParallelMax
	if limit <= 0 {
		limit = parallelMax
	}
	var ahead []tool.Effect // of calls that wait
	for _, c := range ready {
		effect := b.effect(c)
		if len(b.running) >= limit || b.clashes(effect, ahead) {
			ahead = append(ahead, effect)
			continue
		}
		b.running[c.ID] = effect
		if b.r.plans(c.Name) && c.Started == nil {
			planners = append(planners, c)
		} else {
			plain = append(plain, c)
		}
	}
	return plain, planners
}

func (b *batch) effect(c *runs.Call) tool.Effect {
	if args := b.gates[c.ID].args; args != nil {
		return b.r.tools[c.Name].Effect(args)
	}
	return b.r.effect(c)
}

func (b *batch) clashes(e tool.Effect, ahead []tool.Effect) bool {
	with := func(o tool.Effect) bool {
		for _, t := range e.Touches {
			if slices.ContainsFunc(o.Touches, t.Clashes) {
				return true
			}
		}
		return false
	}
	for _, o := range b.running {
		if with(o) {
			return true
		}
	}
	return slices.ContainsFunc(ahead, with)
}

// await takes in one piece of news.
func (b *batch) await(ctx context.Context) error {
	var expiry <-chan time.Time
	if next := b.r.expires(); !next.IsZero() {
		timer := time.NewTimer(next.Sub(b.r.c.Now()))
		defer timer.Stop()
		expiry = timer.C
	}
	select {
	case l := <-b.landings:
		return b.land(ctx, l)
	case f := <-b.forms:
		return b.askForm(ctx, f)
	case <-b.r.poke:
		return b.r.catchUp(ctx)
	case <-expiry:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// land writes down what a goroutine reports, together with whatever else has
// come in.
func (b *batch) land(ctx context.Context, l landing) error {
	var bodies []thread.Body
	var starts []landing
	for more := true; more; {
		b.inFlight--
		switch {
		case l.plan != nil && l.plan.done == nil && l.err == nil && interrupted(b.ctx) != nil:
			delete(b.running, l.call.ID) // it does not begin any more
		case l.plan != nil && l.plan.done == nil && l.err == nil:
			starts = append(starts, l)
			bodies = append(bodies, b.r.started(l.call, l.plan.data, b.gates[l.call.ID].args))
		default:
			delete(b.running, l.call.ID)
			if b.r.c.Patient && errs.Temporary(l.err) && b.ctx.Err() == nil {
				b.lost = fmt.Errorf("call %s of %s: %w", l.call.ID, l.call.Name, l.err)
			} else if body, ok := b.r.completed(b.ctx, l); ok {
				bodies = append(append(bodies, b.withdrawn(l.call)...), body)
				bodies = append(bodies, b.r.heard(ctx, l)...)
			}
		}
		more = false
		if len(bodies) < landingsMax {
			select {
			case l = <-b.landings:
				more = true
			default:
			}
		}
	}
	if err := b.r.append(ctx, bodies...); err != nil && !errors.Is(err, errReplan) {
		return err
	}
	for _, s := range starts {
		if s.call.Started == nil { // a cancel came in between
			delete(b.running, s.call.ID)
			continue
		}
		b.launch(s.call, false)
	}
	return nil
}

// landingsMax bounds how many results go into one append.
const landingsMax = 8

// abandon waits for the goroutines when the Runner cannot go on. What has
// ended well is written down if that is still possible; what was started and
// has not stays started: the next driver picks it up.
func (b *batch) abandon(err error) error {
	b.cancel(err)
	timeout := time.NewTimer(toolGrace + time.Second)
	defer timeout.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), toolGrace)
	defer cancel()
	for b.inFlight > 0 {
		select {
		case l := <-b.landings:
			b.inFlight--
			if l.err != nil || l.plan != nil || errors.Is(err, ErrFenced) {
				continue
			}
			if aerr := b.r.append(ctx, b.r.resultOf(l.call, l)); aerr != nil {
				b.r.c.Logger.Warn("a result came too late to be kept", "call", l.call.ID, "err", aerr)
			}
		case <-timeout.C:
			return err
		}
	}
	return err
}

// plan asks a tool what it wants to note before it acts.
func (b *batch) plan(c *runs.Call) {
	req := b.r.request(c, b.gates[c.ID].args)
	planner := b.r.tools[c.Name].(tool.Planner) // plans said so
	b.fly(c, func(ctx context.Context) landing {
		data, done, err := planner.Plan(ctx, req)
		l := landing{plan: &planned{data: data, done: done}, err: err}
		if done != nil {
			l.result = done
		}
		return l
	})
}

// launch runs a call whose tool.started is durable.
func (b *batch) launch(c *runs.Call, again bool) {
	req := b.r.request(c, nil)
	req.Again = again
	req.Moved = again && c.Started.Machine != "" && c.Started.Machine != b.r.c.Machine
	if b.r.inquires(c.Name) {
		req.Ask = func(ctx context.Context, f thread.Form) (tool.FormAnswer, error) { return b.ask(ctx, c, f) }
	}
	run := b.r.around(c, req)
	var files []thread.FileChange
	b.fly(c, func(ctx context.Context) landing {
		ctx = tool.WithRecorder(ctx, func(f thread.FileChange) { files = append(files, f) })
		result, err := run(ctx)
		return landing{result: &result, files: files, err: err}
	})
}

// fly runs f with a deadline, and reports whatever becomes of it: its result,
// its panic, or that it did not come back.
func (b *batch) fly(c *runs.Call, f func(context.Context) landing) {
	b.inFlight++
	limit := b.r.timeout(c)
	began := b.r.c.Now()
	ctx, cancel := b.limited(c, limit)
	var landed sync.Once
	land := func(l landing) {
		landed.Do(func() {
			l.call, l.took = c, b.r.c.Now().Sub(began)
			if l.err != nil && !errors.Is(l.err, tool.ErrWaiting) && ctx.Err() != nil && b.ctx.Err() == nil {
				result := tool.Fail(tool.CodeTimeout, fmt.Sprintf("The tool did not finish in %v.", limit))
				l.result, l.plan, l.err = &result, nil, nil
			}
			b.landings <- l
		})
	}
	back := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // for a tool that does not heed its context
		grace := time.NewTimer(toolGrace)
		defer grace.Stop()
		select {
		case <-back:
		case <-grace.C:
			land(landing{err: fmt.Errorf("it did not come back: %w", context.Cause(ctx))})
		}
	})
	go func() {
		defer cancel()
		defer close(back)
		l := b.guarded(ctx, c, f)
		stop()
		land(l)
	}()
}

// limited returns the context of a call. What is told to a machine has a deadline.
func (b *batch) limited(c *runs.Call, limit time.Duration) (context.Context, context.CancelFunc) {
	if b.r.inquires(c.Name) {
		return tool.WithTimeLimit(b.ctx, limit, context.DeadlineExceeded)
	}
	return context.WithTimeout(b.ctx, limit)
}

// guarded runs f and makes a panic an error.
func (b *batch) guarded(ctx context.Context, c *runs.Call, f func(context.Context) landing) (l landing) {
	defer func() {
		if p := recover(); p != nil {
			b.r.c.Logger.Error("a tool panicked", "tool", c.Name, "call", c.ID, "panic", fmt.Sprintf("%.200v", p), "stack", string(debug.Stack()))
			l = landing{err: fmt.Errorf("panic: %.200v", p)}
		}
	}()
	return f(ctx)
}

// timeouter is a tool that knows how long a call may take.
type timeouter interface {
	Timeout(args []byte) time.Duration
}

func (r *Runner) timeout(c *runs.Call) time.Duration {
	limit := r.s.Agent.Limits.ToolTimeout
	if limit <= 0 {
		limit = toolTimeout
	}
	if p := r.s.Agent.Program; p != nil {
		limit = max(limit, p.Time()+programGrace)
	}
	if t, ok := r.tools[c.Name].(timeouter); ok {
		limit = max(limit, t.Timeout(c.EffectiveArgs())+toolGrace)
	}
	return limit
}

func (r *Runner) effect(c *runs.Call) tool.Effect {
	return r.tools[c.Name].Effect(c.EffectiveArgs())
}

// request is what a tool gets. args are those that a hook made, before they
// are in tool.started.
func (r *Runner) request(c *runs.Call, args []byte) tool.Request {
	req := tool.Request{
		Key: Key(r.c.Thread, c.ID), Call: c.ID, Thread: r.c.Thread, Run: r.s.Run.ID, Args: c.EffectiveArgs(),
		Emit: func(text string) { r.c.News(News{Call: c.ID, Output: text}) },
	}
	if args != nil {
		req.Args = args
	}
	if c.Started != nil {
		req.Key, req.Plan = c.Started.Key, c.Started.Plan
	}
	return req
}

func (r *Runner) started(c *runs.Call, plan, args []byte) thread.ToolStarted {
	s := thread.ToolStarted{Call: c.ID, Tool: c.Name, Key: Key(r.c.Thread, c.ID), Plan: plan, Machine: r.c.Machine, Args: args}
	if effective := c.EffectiveArgs(); args == nil && !bytes.Equal(effective, c.Args) {
		s.Args = effective
	}
	return s
}

// completed makes the event that ends a call; false: it has not ended.
func (r *Runner) completed(ctx context.Context, l landing) (thread.ToolCompleted, bool) {
	c := l.call
	switch {
	case l.err == nil:
		return r.resultOf(c, l), true
	case errors.Is(l.err, tool.ErrWaiting):
		r.parked[c.ID] = true
		return thread.ToolCompleted{}, false
	case errors.Is(context.Cause(ctx), tool.ErrCancelled):
		return failed(c, tool.CodeCancelled, "The run was cancelled while this ran."), true
	case errors.Is(context.Cause(ctx), tool.ErrTimeUp):
		return failed(c, tool.CodeTimeout, "The time of the run was up while this ran."), true
	case ctx.Err() != nil:
		return thread.ToolCompleted{}, false // the server stops; the next driver goes on
	}
	r.c.Logger.Error("a tool broke", "tool", c.Name, "call", c.ID, "err", l.err)
	return failed(c, tool.CodeInternal, "The platform failed while this was carried out: it may have been done, in part, wholly or not at all. The server's log says why."), true
}

// resultOf makes the event of a result, moving to blobs what is too large for
// the log, and to a file what is too large for the model.
func (r *Runner) resultOf(c *runs.Call, l landing) thread.ToolCompleted {
	res, took := l.result, l.took
	if c.Started != nil { // perhaps by an earlier driver, or it went on elsewhere
		took = max(took, r.c.Now().Sub(c.StartedAt))
	}
	done := thread.ToolCompleted{
		Call: c.ID, Tool: c.Name, Blocks: res.Blocks, Failed: res.Failed, Code: res.Code, Exit: res.Exit, Bytes: res.Bytes,
		Took: took, Files: l.files, Todos: res.Todos, PlanAccepted: res.PlanAccepted, Compact: res.Compact, Skill: res.Skill, Usage: res.Usage, CostUSD: res.CostUSD, Steps: res.Steps,
	}
	if err := prompt.OffloadResult(r.c.Blobs, &done, r.resultTokensMax(), res.Whole); err != nil {
		r.c.Logger.Error("a result could not be kept", "call", c.ID, "err", err)
		lost := failed(c, tool.CodeInternal, "It was done, but its output could not be kept; the server's log says why.")
		lost.Exit, lost.Files, lost.Took = done.Exit, done.Files, done.Took
		return lost
	}
	return done
}
