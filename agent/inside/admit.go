package inside

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// This file holds what an agent wants to append against what a Runner would write. What
// passes is made the host's own: its times, its costs.

// attempt is an append of which it is not known whether it happened: the same again
// has to be the same events.
type attempt struct {
	after  uint64
	said   []byte
	events []thread.Event
	taken  []*spent
}

// append appends what the agent did, and returns the events as the log has them.
func (h *Host) append(ctx context.Context, after uint64, events []thread.Event) ([]thread.Event, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout) // half of an append is none of the agent's business
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(events) == 0 {
		return nil, errs.New(errs.Invalid, "nothing to append")
	}
	if err := h.catchUp(ctx, after); err != nil {
		return nil, err
	}
	if after != h.p.State.Seq {
		return nil, errs.New(errs.Conflict, "the thread does not end at %d", after)
	}
	a, err := h.attempt(ctx, after, events)
	if err != nil {
		return nil, err
	}
	if _, err = h.p.Log.Append(ctx, h.p.Thread, after, a.events...); err != nil {
		h.checker = nil // it knows events that are not there
		h.untake(a, err)
		return nil, err
	}
	h.last = attempt{}
	for _, s := range a.taken {
		h.paid.Told(thread.Spent{Steps: 1, Usage: s.usage, CostUSD: s.cost})
	}
	for _, e := range a.events {
		if err := h.p.State.Apply(e); err != nil {
			return nil, err
		}
		if h.p.Applied != nil {
			h.p.Applied(e)
		}
	}
	return a.events, nil
}

// untake keeps an attempt that may have happened, and gives back what one took that
// did not.
func (h *Host) untake(a attempt, err error) {
	if errs.Temporary(err) {
		h.last = a
		return
	}
	h.last = attempt{}
	h.done = append(a.taken, h.done...)
}

// catchUp takes in what others appended up to where the agent is.
func (h *Host) catchUp(ctx context.Context, after uint64) error {
	s := h.p.State
	if after <= s.Seq {
		return nil
	}
	h.checker = nil
	err := agent.CatchUp(ctx, h.p.Log, h.p.Thread, s, func(e thread.Event) error {
		err := s.Apply(e)
		if err == nil && h.p.Applied != nil {
			h.p.Applied(e)
		}
		return err
	})
	if err == agent.ErrFenced { //nolint:errorlint // CatchUp returns it as it is
		h.fenced = true
	}
	return err
}

// attempt admits events, or returns those of the attempt before.
func (h *Host) attempt(ctx context.Context, after uint64, events []thread.Event) (attempt, error) {
	said, err := encode(events)
	if err != nil {
		return attempt{}, errs.Wrap(errs.Invalid, err, "the events cannot be read")
	}
	if h.last.events != nil && h.last.after == after && bytes.Equal(h.last.said, said) {
		return h.last, nil
	}
	if len(h.last.taken) > 0 { // whatever became of it, it did not happen: the log ends before it
		h.done = append(h.last.taken, h.done...)
		h.last = attempt{}
	}
	a := admission{h: h, s: h.p.State, now: h.p.Now().UTC().Truncate(time.Microsecond), calls: map[string]*runs.Call{}}
	out := make([]thread.Event, len(events))
	for i, e := range events {
		if e.Run != a.s.Run.ID {
			return attempt{}, refused("an event of another run")
		}
		body, err := a.admit(e.Body)
		if about, is := body.(thread.Context); is && err == nil {
			body, err = h.tellSkills(ctx, about)
		}
		if err != nil {
			return attempt{}, err
		}
		out[i] = thread.Event{At: a.now, Run: e.Run, Body: body}
	}
	if err := h.check(ctx, out); err != nil {
		return attempt{}, err
	}
	h.free += a.free
	h.done = h.done[a.taken:]
	return attempt{after: after, said: said, events: out, taken: a.took}, nil
}

// check holds the events against the rules of every log.
func (h *Host) check(ctx context.Context, events []thread.Event) error {
	if h.checker == nil {
		h.checker = &thread.Checker{}
		for e, err := range h.p.Log.Load(ctx, h.p.Thread, 1) {
			if err == nil && e.Seq <= h.p.State.Seq {
				err = h.checker.Add(e)
			}
			if err != nil {
				h.checker = nil
				return err
			}
		}
	}
	for i, e := range events {
		e.Seq = h.p.State.Seq + uint64(i) + 1
		if err := h.checker.Add(e); err != nil {
			h.checker = nil
			return errs.Wrap(errs.Denied, err, "the agent in the sandbox wants to append what makes no sense: %s", errs.Public(err))
		}
	}
	return nil
}

// admission is of the events of one append.
type admission struct {
	h     *Host
	s     *runs.State
	now   time.Time
	calls map[string]*runs.Call // that these events ask for
	free  int
	taken int // of Host.done
	took  []*spent
}

func refused(format string, args ...any) error {
	return errs.New(errs.Denied, "the agent in the sandbox may not append "+format, args...)
}

// admit returns the body as the log may have it.
func (a *admission) admit(body thread.Body) (thread.Body, error) {
	switch b := body.(type) {
	case thread.ModelCompleted:
		return a.model(b)
	case thread.ModelFailed:
		b.Wait = max(b.Wait, 0)
		return b, a.unbacked()
	case thread.ToolStarted:
		return a.started(b)
	case thread.ToolCompleted:
		return a.completed(b)
	case thread.ApprovalAsked:
		if _, err := a.open(b.Call); err != nil {
			return nil, err
		}
		if b.Ask == thread.AskForm || b.Form != nil { // of tools that are not there
			return nil, refused("a form")
		}
		return b, nil
	case thread.ApprovalDecided:
		return a.expired(b)
	case thread.Input:
		if b.From != "skete" && b.From != "hook" || b.ID != "" || b.Spent != (thread.Spent{}) {
			return nil, refused("a message from %.40q", b.From)
		}
		return b, a.unbacked()
	case thread.Context:
		b.Now, b.Note = a.now.Truncate(24*time.Hour), a.h.p.Machine.Note
		b.Tools, b.LeftOut = "", a.h.leftOut
		return b, a.unbacked()
	case thread.Cleared:
		return b, a.unbacked()
	case thread.Compacted:
		b.Usage, b.Cost = a.takeAll()
		return b, a.unbacked()
	case thread.CheckStarted, thread.CheckEnded:
		return a.check(body)
	case thread.RunEnded:
		if !b.State.Final() {
			return nil, refused("an end that is %.20q", b.State)
		}
		return b, nil
	case nil:
		return nil, refused("nothing")
	}
	return nil, refused("%.40q", body.Kind())
}

// unbacked bounds the events that no call of the model stands behind.
func (a *admission) unbacked() error {
	if a.free++; a.h.free+a.free > eventsEach*(a.h.asked+1) {
		return refused("that many events")
	}
	return nil
}

// model makes the answer that was given the one that is told.
func (a *admission) model(b thread.ModelCompleted) (thread.Body, error) {
	waiting := a.h.done[a.taken:]
	if len(waiting) == 0 {
		return nil, refused("an answer that the model did not give")
	}
	last := waiting[len(waiting)-1] // those before it were of no use
	a.taken += len(waiting)
	a.took = append(a.took, last)
	b.Usage, b.CostUSD, b.Took = last.usage, last.cost, last.took
	b.Model = cmp.Or(last.model, a.h.model.Info().ID)
	for _, c := range b.Message.Calls() {
		a.calls[c.ID] = &runs.Call{Call: *c}
	}
	return b, nil
}

// takeAll is what all the answers cost that were not told yet.
func (a *admission) takeAll() (usage llm.Usage, cost float64) {
	for _, s := range a.h.done[a.taken:] {
		usage, cost = usage.Add(s.usage), cost+s.cost
		a.took = append(a.took, s)
	}
	a.taken = len(a.h.done)
	return usage, cost
}

// open returns a call that has no result.
func (a *admission) open(id string) (*runs.Call, error) {
	c := a.calls[id]
	if c == nil {
		c = a.s.Call(id)
	}
	if c == nil || c.Completed != nil {
		return nil, refused("what is of no open call: %.60q", id)
	}
	return c, nil
}

func (a *admission) started(b thread.ToolStarted) (thread.Body, error) {
	c, err := a.open(b.Call)
	switch {
	case err != nil:
		return nil, err
	case c.Started != nil:
		return nil, refused("the start of a call that was started")
	case c.Waits() || c.Decided != nil && c.Decided.Decision != thread.Approve && c.Decided.Decision != thread.Edit:
		return nil, refused("the start of a call that was not allowed")
	case b.Key != agent.Key(a.h.p.Thread, b.Call) || b.Machine != a.h.p.MachineID:
		return nil, refused("a start elsewhere")
	}
	return b, nil
}

func (a *admission) completed(b thread.ToolCompleted) (thread.Body, error) {
	c, err := a.open(b.Call)
	if err != nil {
		return nil, err
	}
	if c.Waits() && !b.Failed {
		return nil, refused("the result of a call that was not allowed")
	}
	if b.PlanAccepted && (c.Asked == nil || c.Asked.Ask != thread.AskPlan || c.Decided == nil || c.Decided.Decision == thread.Reject) {
		return nil, refused("a plan that was not accepted")
	}
	below := a.h.spawned[b.Call] // by the sub-agent's own log
	b.Usage, b.CostUSD, b.Steps, b.Revision = below.Usage, below.CostUSD, below.Steps, ""
	if b.Took = max(b.Took, 0); c.Started != nil && !c.StartedAt.IsZero() {
		b.Took = max(a.now.Sub(c.StartedAt), 0)
	}
	return b, nil
}

// expired is the one decision that an agent may write: that there was none in time.
func (a *admission) expired(b thread.ApprovalDecided) (thread.Body, error) {
	c, err := a.open(b.Call)
	if err != nil {
		return nil, err
	}
	if b.By != "expiry" || b.Decision != thread.Reject || c.Asked == nil || c.Asked.Expires.IsZero() || a.now.Before(c.Asked.Expires) {
		return nil, refused("a decision")
	}
	return b, nil
}

func (a *admission) check(body thread.Body) (thread.Body, error) {
	switch b := body.(type) {
	case thread.CheckStarted:
		if b.Machine != a.h.p.MachineID {
			return nil, refused("a check elsewhere")
		}
		return b, a.unbacked()
	case thread.CheckEnded:
		b.Usage, b.CostUSD = a.takeAll()
		b.Took = max(a.now.Sub(a.s.Run.Check.OpenAt), 0)
		return b, a.unbacked()
	}
	return nil, refused("this")
}
