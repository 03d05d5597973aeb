package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
)

// A run is entered in two places: its record first, then the log. This file
// sees to it that a server that dies in between leaves nothing half: the same
// start again completes it, and a record whose start is not repeated ends as
// not_started.

const enterGrace = time.Minute // a start takes no longer

// enter writes the record of a run, then its first events, and lets it go. A
// record that is there already, of a start that was cut short, is taken over;
// events that are there already were written by a faster start of the same run.
// Conflict: the thread has moved.
func (k *Supervisor) enter(ctx context.Context, log thread.Log, run runs.Run, after uint64, bodies []thread.Body) (*entry, error) {
	defer k.entering.Lock(runKey{run.Tenant, run.ID})() // one that is repeated waits until the one that was cut short is given up
	run.Node = k.c.Node
	e, err := k.create(ctx, run)
	if errs.Is(err, errs.Exists) {
		if e, err = k.begun(ctx, run.Tenant, run.ID); e != nil || err != nil {
			return e, err
		}
		e, err = k.takeOver(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	// The caller may cancel ctx; what was begun is brought to its end.
	err = appendSurely(context.WithoutCancel(ctx), log, run.Thread, after, eventsOf(run.ID, bodies))
	switch {
	case err == nil:
	case errs.Is(err, errs.Conflict):
		if other, berr := k.begun(ctx, run.Tenant, run.ID); other != nil || berr != nil {
			return other, berr
		}
		fallthrough
	default:
		err = fmt.Errorf("open %s: %w", run.ID, err)
		if errs.Temporary(err) {
			k.wake(threadKey{run.Tenant, run.Thread}) // who drives it finds out whether it has begun
		} else {
			k.abort(context.WithoutCancel(ctx), e, err)
		}
		return nil, err
	}
	k.wake(threadKey{run.Tenant, run.Thread})
	return e, nil
}

// takeOver makes the record of a start that was cut short that of a new try.
func (k *Supervisor) takeOver(ctx context.Context, run runs.Run) (*entry, error) {
	e, err := k.find(ctx, run.Tenant, run.ID)
	if err != nil {
		return nil, err
	}
	if err = k.save(ctx, e, func(r *runs.Run) { *r = run }); err == nil {
		k.remember(e)
	}
	return e, err
}

// begun returns the entry of a run that is in its thread's log, nil when the
// run is not known or has only a record.
func (k *Supervisor) begun(ctx context.Context, tenant string, id thread.RunID) (*entry, error) {
	e, err := k.find(ctx, tenant, id)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	run := e.snapshot()
	if run.State.Final() && run.Reason != runs.ReasonNotStarted || run.Steps > 0 {
		return e, nil
	}
	log, _, err := k.logOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for x, err := range log.Load(ctx, run.Thread, 1) {
		if err != nil {
			return nil, err
		}
		if _, is := x.Body.(thread.RunStarted); is && x.Run == id {
			return e, nil
		}
	}
	return nil, nil
}

// abort ends a record whose run is not in the log.
func (k *Supervisor) abort(ctx context.Context, e *entry, cause error) {
	err := k.save(ctx, e, func(r *runs.Run) {
		r.State, r.Reason, r.Text, r.Ended = thread.RunFailed, runs.ReasonNotStarted, clip.Text(errs.Public(cause), runs.TextMax), k.c.Now().UTC()
	})
	if err != nil {
		k.c.Log.Warn("the record of a run that did not start could not be ended", "run", e.id, "err", err)
	} else {
		k.over(e, nil)
	}
	if err := k.leave(ctx, e, definition.AfterRun{}); err != nil { // of a fork
		k.c.Log.Warn("the sandbox of a run that did not start could not be let go", "run", e.id, "err", err)
	}
	k.forget(e)
}

// unbegun looks after a thread's records whose runs are not in the log; current is
// the run that is. Unavailable: it may still be on its way.
func (k *Supervisor) unbegun(ctx context.Context, t threadKey, current thread.RunID) error {
	for _, e := range k.of(t) {
		if e.id != current {
			if err := k.endUnbegun(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// endUnbegun ends the record of a run that is not in the log, unless it is being started.
func (k *Supervisor) endUnbegun(ctx context.Context, e *entry) error {
	defer k.entering.Lock(runKey{e.tenant, e.id})()
	if e.snapshot().State.Final() {
		return nil
	}
	if begun, err := k.begun(ctx, e.tenant, e.id); err != nil || begun != nil {
		return err // or it came in this moment: who wrote it wakes the thread
	}
	created := e.snapshot().Created
	if dead := k.c.Leases == nil && created.Before(k.opened); !dead && k.c.Now().Sub(created) < enterGrace { // dead: the process that began it
		return errs.New(errs.Unavailable, "the run %s is being started", e.id)
	}
	k.abort(ctx, e, errs.New(errs.Unavailable, "The server stopped while the run was being started.").WithHint("start it again"))
	return nil
}

// overtaken settles the runs of a thread whose end is in the log and not in their
// records: the server died in between, or the store was away, and the thread's next run
// has begun. Otherwise nothing would look at them again. One whose record does say so is
// still known because the rest of its end could not be done.
func (k *Supervisor) overtaken(ctx context.Context, log thread.Log, t threadKey, current thread.RunID) error {
	for _, e := range k.of(t) {
		if e.id == current {
			continue
		}
		s, err := foldTo(ctx, log, t.id, e.id)
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		if err := k.settle(ctx, e, s, agent.Outcome{Ended: true}); err != nil {
			return err
		}
	}
	return nil
}

// of returns the runs of a thread that are not forgotten, the oldest first.
func (k *Supervisor) of(t threadKey) []*entry {
	k.mu.Lock()
	var of []*entry
	for _, e := range k.runs {
		if e.tenant == t.tenant && e.thread == t.id {
			of = append(of, e)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(of, func(a, b *entry) int { return a.snapshot().Created.Compare(b.snapshot().Created) })
	return of
}
