package supervisor

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// This file reads and writes threads that another goroutine may drive: it folds
// one, appends behind what others write, copies a beginning.
//
// The log's fence makes all of it safe while others write at the same time.

// tries bounds how often a driver may be faster.
const tries = 50

// foldLog reads a thread. NotFound: there is none.
func foldLog(ctx context.Context, log thread.Log, id thread.ID) (*runs.State, error) {
	return foldUntil(ctx, log, id, func(thread.Event) bool { return false })
}

// foldUntil reads a thread to the event that is the last, or to its end.
func foldUntil(ctx context.Context, log thread.Log, id thread.ID, last func(thread.Event) bool) (*runs.State, error) {
	s := runs.NewState()
	for e, err := range log.Load(ctx, id, 1) {
		if err != nil {
			return nil, err
		}
		if err := s.Apply(e); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		if last(e) {
			break
		}
	}
	if s.Seq == 0 {
		return nil, errs.New(errs.NotFound, "no thread %s", id)
	}
	return s, nil
}

// foldTo reads a thread to the end of one of its runs; nil: that is not there.
func foldTo(ctx context.Context, log thread.Log, id thread.ID, run thread.RunID) (*runs.State, error) {
	found := false
	s, err := foldUntil(ctx, log, id, func(e thread.Event) bool {
		_, is := e.Body.(thread.RunEnded)
		found = is && e.Run == run
		return found
	})
	if err != nil || !found {
		return nil, err
	}
	return s, nil
}

// eventsOf are the events of a run that bodies make.
func eventsOf(run thread.RunID, bodies []thread.Body) []thread.Event {
	events := make([]thread.Event, len(bodies))
	for i, b := range bodies {
		events[i] = thread.New(run, b)
	}
	return events
}

// appendTo appends and applies, behind what others have just appended. ErrFenced:
// one of them drives the thread now.
func appendTo(ctx context.Context, log thread.Log, id thread.ID, s *runs.State, bodies ...thread.Body) error {
	events := eventsOf(s.Run.ID, bodies)
	for try := 1; ; try++ {
		_, err := log.Append(ctx, id, s.Seq, events...)
		if err == nil {
			break
		}
		if !errs.Is(err, errs.Conflict) || try == tries {
			return err
		}
		if err := agent.CatchUp(ctx, log, id, s, s.Apply); err != nil {
			return err
		}
	}
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// appendDecided appends events that do not come from the driver. look decides from the
// thread as it is; no bodies = nothing to do.
func appendDecided(ctx context.Context, log thread.Log, id thread.ID, look func(*runs.State) ([]thread.Body, error)) (seq uint64, wrote bool, err error) {
	s, err := foldLog(ctx, log, id)
	if err != nil {
		return 0, false, err
	}
	for range tries {
		bodies, err := look(s)
		if err != nil || len(bodies) == 0 {
			return s.Seq, false, err
		}
		seq, err := log.Append(ctx, id, s.Seq, eventsOf(s.Run.ID, bodies)...)
		if !errs.Is(err, errs.Conflict) {
			return seq, err == nil, err
		}
		// The driver was faster. Only what it wrote is read now: a fold of all
		// would give it the time to be so again.
		for e, err := range log.Load(ctx, id, s.Seq+1) {
			if err == nil {
				err = s.Apply(e)
			}
			if err != nil {
				return 0, false, err
			}
		}
	}
	return 0, false, errs.New(errs.Unavailable, "%s moves too fast to be written to", id)
}

// eventsUpTo reads the first events of a thread.
func eventsUpTo(ctx context.Context, log thread.Log, id thread.ID, at uint64) ([]thread.Event, error) {
	var events []thread.Event
	for e, err := range log.Load(ctx, id, 1) {
		if err != nil {
			return nil, err
		}
		if events = append(events, e); e.Seq == at {
			return events, nil
		}
	}
	if len(events) == 0 {
		return nil, errs.New(errs.NotFound, "no thread %s", id)
	}
	return nil, errs.New(errs.Invalid, "%s has the events 1 to %d; there is no %d", id, len(events), at)
}

// eventsOfRun reads the events of one run, "" = of all.
func eventsOfRun(ctx context.Context, log thread.Log, id thread.ID, run thread.RunID) ([]thread.Event, error) {
	var events []thread.Event
	for e, err := range log.Load(ctx, id, 1) {
		if err != nil {
			return nil, err
		}
		if run == "" || e.Run == run {
			events = append(events, e)
		}
	}
	return events, nil
}

// openApprovals lists the calls of a thread that wait for a person.
func openApprovals(ctx context.Context, blobs thread.Blobs, id thread.ID, s *runs.State) ([]runs.Approval, error) {
	var list []runs.Approval
	if s.Run == nil || s.Run.Ended != nil || s.Run.Cancel != nil { // what a person ends asks nothing any more
		return nil, nil
	}
	for _, c := range s.Open() {
		if !c.Waits() {
			continue
		}
		args, err := askedOf(ctx, blobs, s, c)
		if err != nil {
			return nil, err
		}
		list = append(list, runs.Approval{
			Ask: c.Asked.Ask,
			Run: s.Run.ID, Thread: id, Agent: s.Agent.Name, Call: c.ID, Tool: c.Name, Args: args,
			Reason: c.Asked.Reason, Allowed: c.Asked.Allowed, Asked: c.AskedAt, Expires: c.Asked.Expires, Seq: c.AskedSeq,
		})
	}
	return list, nil
}

// lastWords are the text of the last step.
func lastWords(ctx context.Context, blobs thread.Blobs, s *runs.State) (string, error) {
	last := s.Last()
	if last == nil {
		return "", nil
	}
	m, err := prompt.Message(ctx, blobs, last)
	return m.String(), err
}

// askedOf is what a person is asked about a call that waits: its arguments, or the form
// that it wants to have filled in while it runs.
func askedOf(ctx context.Context, blobs thread.Blobs, s *runs.State, c *runs.Call) (json.RawMessage, error) {
	if form := c.Form(); form != nil {
		return json.Marshal(form)
	}
	return callArgs(ctx, blobs, s, c)
}

// callArgs returns the arguments of an open call whole.
func callArgs(ctx context.Context, blobs thread.Blobs, s *runs.State, c *runs.Call) (json.RawMessage, error) {
	last := s.Last()
	if last.Step.Blob == "" || c.Asked != nil && c.Asked.Args != nil {
		return c.EffectiveArgs(), nil
	}
	m, err := prompt.Message(ctx, blobs, last)
	if err != nil {
		return nil, err
	}
	for _, x := range m.Calls() {
		if x.ID == c.ID {
			return x.Args, nil
		}
	}
	return c.Args, nil
}
