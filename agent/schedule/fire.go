package schedule

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
)

// loop fires what is due until the Scheduler is closed.
func (s *Scheduler) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.fireDue())
	}
}

// fireDue begins with what is due, the oldest first, and returns how long it is until
// the next look.
func (s *Scheduler) fireDue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := s.now(), lookEvery
	var due []*entry
	for _, of := range s.tenants {
		for _, e := range of {
			if e.busy || e.s.Node != s.c.Node || e.s.Next.IsZero() {
				continue
			}
			at := later(e.s.Next, e.after)
			if at.After(now) {
				wait = min(wait, at.Sub(now))
				continue
			}
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int { return a.s.Next.Compare(b.s.Next) })
	for _, e := range due[:min(len(due), firingMax-s.firing)] { // who is released wakes the loop for the others
		e.busy = true
		s.firing++
		s.wg.Go(func() { s.fire(e) })
	}
	return wait
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fire decides about the time that is due, and tries again later when it cannot.
func (s *Scheduler) fire(e *entry) {
	err := s.settle(s.ctx, e)
	known, _ := s.snapshot(e)
	s.mu.Lock()
	s.firing--
	last := e.tries+1 >= failuresMax
	s.mu.Unlock()
	if err != nil && s.ctx.Err() == nil {
		s.c.Log.Warn("a schedule could not be fired", "schedule", known.ID, "tenant", known.Tenant, "due", known.Next, "error", err)
		if last {
			err = s.fired(s.ctx, e, Firing{Due: known.Next, Error: runs.Explain(err)})
		}
	}
	if errs.Is(err, errs.NotFound) { // it was removed
		err = nil
	}
	s.release(e, err)
}

// settle decides about the time that is due and writes down what became of it. An
// error says that this could not be done yet: the same again, also by another server
// after this one was killed anywhere in here, goes on where it was.
func (s *Scheduler) settle(ctx context.Context, e *entry) error {
	known, _ := s.snapshot(e)
	if known.Next.IsZero() || known.Next.After(s.now()) {
		return nil
	}
	run, err := s.c.Runs.Keyed(ctx, known.Tenant, known.key(known.Next))
	if err == nil { // it was started, and not written down
		return s.fired(ctx, e, Firing{Due: known.Next, Run: run.ID, Thread: run.Thread})
	}
	if !errs.Is(err, errs.NotFound) {
		return err
	}
	due, missed := latest(e.times, known.Next, s.now())
	if missed > 0 {
		s.c.Log.Info("times of a schedule were missed", "schedule", known.ID, "tenant", known.Tenant, "from", known.Next, "missed", missed)
		// First the record, then the start: no time but the record's Next may have a run.
		if known, err = s.miss(ctx, e, known.Next, due, missed); err != nil || !known.Next.Equal(due) {
			return err
		}
	}
	return s.begin(ctx, e, known, due)
}

// begin starts the run of a time, unless one is under way.
func (s *Scheduler) begin(ctx context.Context, e *entry, known Schedule, due time.Time) error {
	under, err := s.underWay(ctx, known)
	if err != nil {
		return err
	}
	if under != "" {
		s.c.Log.Info("a time of a schedule is skipped: a run is under way", "schedule", known.ID, "tenant", known.Tenant, "due", due, "run", under)
		return s.skip(ctx, e, due)
	}
	run, err := s.c.Runs.Start(ctx, known.Tenant, known.startOf(due, known.key(due)))
	if errs.Temporary(err) || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	if err != nil {
		s.c.Log.Warn("the run of a schedule could not be started", "schedule", known.ID, "tenant", known.Tenant, "due", due, "error", err)
		return s.fired(ctx, e, Firing{Due: due, Error: runs.Explain(err)})
	}
	return s.fired(ctx, e, Firing{Due: due, Run: run.ID, Thread: run.Thread})
}

// miss leaves out the times from one on until another, which becomes the next one.
func (s *Scheduler) miss(ctx context.Context, e *entry, from, until time.Time, missed int) (Schedule, error) {
	return s.change(ctx, e, func(r *Schedule) {
		if r.Next.Equal(from) {
			r.Next, r.Missed = until, r.Missed+missed
		}
	})
}

// skip leaves a time out because the run before it is under way.
func (s *Scheduler) skip(ctx context.Context, e *entry, due time.Time) error {
	return s.settled(ctx, e, due, func(r *Schedule) { r.Skipped++ })
}

// fired writes down what became of a time.
func (s *Scheduler) fired(ctx context.Context, e *entry, f Firing) error {
	return s.settled(ctx, e, f.Due, func(r *Schedule) { r.Last = &f })
}

// settled writes something down about a time, and goes on to the next one.
func (s *Scheduler) settled(ctx context.Context, e *entry, due time.Time, write func(*Schedule)) error {
	before, _ := s.snapshot(e)
	_, err := s.change(ctx, e, func(r *Schedule) {
		if !r.Settled.Before(due) {
			return // another server was faster
		}
		r.Settled = due
		if r.Next.Equal(due) { // else it was paused meanwhile
			r.Next = e.times.next(due)
		}
		write(r)
	})
	if err == nil {
		// A server that is behind may repeat the start of this time; never that of the one before.
		s.forgetKey(ctx, before, before.Settled)
	}
	return err
}

// forgetKey removes the key of a time that is settled. It is no harm if it stays.
func (s *Scheduler) forgetKey(ctx context.Context, of Schedule, due time.Time) {
	if due.IsZero() {
		return
	}
	if err := s.c.Runs.ForgetKey(ctx, of.Tenant, of.key(due)); err != nil {
		s.c.Log.Debug("the key of a start could not be forgotten", "schedule", of.ID, "due", due, "error", err)
	}
}
