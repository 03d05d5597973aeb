package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// driver brings one thread on until it rests.
type driver struct {
	k      *Supervisor
	key    threadKey
	dirty  atomic.Bool
	runner atomic.Pointer[agent.Driver]
	news   atomic.Pointer[chan struct{}] // of an opening
}

// again says that there is news. Precondition: the Supervisor's lock is held.
func (d *driver) again() {
	d.dirty.Store(true)
	if r := d.runner.Load(); r != nil {
		(*r).Notify()
	}
	if news := d.news.Load(); news != nil {
		select {
		case *news <- struct{}{}:
		default:
		}
	}
}

func (d *driver) drive() {
	for d.once() {
	}
}

// once drives until the thread rests; true: there was news meanwhile.
func (d *driver) once() (again bool) {
	d.dirty.Store(false)
	rest, err := d.guarded()
	d.runner.Store(nil)
	k := d.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.dirty.Load() && k.ctx.Err() == nil {
		return true
	}
	delete(k.active, d.key)
	e := k.byID[d.key]
	if e == nil {
		e = &entry{} // of no run that is known: the timer alone brings the thread back
	}
	e.waits = err == nil && rest
	if err == nil {
		e.retry, e.failures = 0, 0
		return false
	}
	e.retry = min(max(2*e.retry, retryFirst), retryMax)
	e.failures++
	if errors.Is(err, agent.ErrFenced) {
		e.retry, e.failures = fencedRetry, 0
	}
	e.retryAt = k.c.Now().Add(e.retry)
	if k.ctx.Err() == nil {
		t := d.key
		k.timers[t] = time.AfterFunc(e.retry, func() { k.wake(t) })
	}
	return false
}

// guarded is drive with its errors told and its panics caught.
func (d *driver) guarded() (rest bool, err error) {
	k := d.k
	defer func() {
		if p := recover(); p != nil {
			k.c.Log.Error("a driver panicked", "thread", d.key.id, "panic", fmt.Sprintf("%.200v", p), "stack", string(debug.Stack()))
			rest, err = false, errs.New(errs.Internal, "a driver panicked")
		}
	}()
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-k.ctx.Done():
		return false, k.ctx.Err()
	}
	rest, err = d.leased(k.ctx)
	switch {
	case err == nil || k.ctx.Err() != nil || errors.Is(err, agent.ErrFenced):
	case errs.Is(err, errs.NotFound) && k.deleted(d.key):
		return true, nil
	case errs.Is(err, errs.Corrupt), errs.Is(err, errs.Unsupported):
		// Trying again does not help, and guessing is not ours: it stops here.
		k.c.Log.Error("a thread cannot go on", "thread", d.key.id, "err", err)
		k.fail(d.key, err)
		return true, nil
	default:
		k.c.Log.Warn("a thread could not be driven; it will be tried again", "thread", d.key.id, "err", err)
	}
	return rest, err
}

// deleted forgets the run of a thread that is no longer there.
func (k *Supervisor) deleted(t threadKey) bool {
	log, _, err := k.logOf(k.ctx, t.tenant)
	if err != nil {
		return false
	}
	if head, err := log.Head(k.ctx, t.id); err != nil || head > 0 {
		return false
	}
	k.mu.Lock()
	e := k.byID[t]
	k.mu.Unlock()
	if e != nil {
		k.forget(e)
	}
	return true
}

// fail marks the records of the runs of a thread whose log cannot be driven.
func (k *Supervisor) fail(t threadKey, cause error) {
	for _, e := range k.of(t) {
		if e.snapshot().State.Final() {
			continue
		}
		_ = k.leave(k.ctx, e, definition.AfterRun{})
		_ = k.save(k.ctx, e, func(r *runs.Run) {
			r.State, r.Reason, r.Text, r.Ended = thread.RunFailed, string(errs.Of(cause)), runs.Explain(cause), k.c.Now().UTC()
		})
		k.over(e, nil)
		k.forget(e)
		k.parentOf(t)
	}
}

// leased drives while this server holds the thread's lease.
func (d *driver) leased(ctx context.Context) (rest bool, err error) {
	k := d.k
	if k.c.Leases == nil {
		return d.load(ctx)
	}
	lost, release, err := k.c.Leases.Hold(ctx, "thread/"+d.key.tenant+"/"+string(d.key.id), k.node, leaseTTL)
	if errs.Is(err, errs.Exists) {
		return false, agent.ErrFenced // another server drives; the sweep looks again
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lost:
			cancel(agent.ErrFenced)
		case <-ctx.Done():
		}
	}()
	return d.load(ctx)
}

// load folds the log and drives what there is to drive.
func (d *driver) load(ctx context.Context) (rest bool, err error) {
	k := d.k
	log, blobs, err := k.logOf(ctx, d.key.tenant)
	if err != nil {
		return false, err
	}
	s, err := foldLog(ctx, log, d.key.id)
	if errs.Is(err, errs.NotFound) {
		return true, k.unbegun(ctx, d.key, "")
	}
	if err != nil {
		return false, err
	}
	e, err := k.entryOf(ctx, d.key, s)
	if err != nil {
		return false, err
	}
	if e == nil {
		return true, k.unbegun(ctx, d.key, "")
	}
	if err := k.overtaken(ctx, log, d.key, e.id); err != nil {
		return false, err
	}
	next := s.Next(k.c.Now())
	if next.Kind == runs.Idle || next.Kind == runs.Wait && !s.AsksForm() { // whose driver is gone
		if err := k.settle(ctx, e, s, agent.Outcome{Ended: next.Kind == runs.Idle, Expires: next.Expires}); err != nil {
			return false, err
		}
		return true, k.unbegun(ctx, d.key, e.id)
	}
	outcome, err := d.run(ctx, log, blobs, s, e)
	if err != nil {
		return false, err
	}
	return true, k.settle(ctx, e, s, outcome)
}

// entryOf returns the entry of a thread's current run, nil when there is none,
// or only one that a fork copied. A run that is in the log has a record: it was
// written first.
func (k *Supervisor) entryOf(ctx context.Context, t threadKey, s *runs.State) (*entry, error) {
	if s.Run == nil {
		return nil, nil
	}
	e, err := k.find(ctx, t.tenant, s.Run.ID)
	if err != nil {
		return nil, err
	}
	if e.thread != t.id {
		return nil, nil
	}
	k.remember(e)
	return e, nil
}

// settle writes down how a thread rests, and tells who waits for it.
func (k *Supervisor) settle(ctx context.Context, e *entry, s *runs.State, o agent.Outcome) error {
	t := threadKey{e.tenant, e.thread}
	if o.Ended { // first: a record that says that all is over is not looked at again
		k.release(t)
		if !e.snapshot().State.Final() {
			k.ended(t, s)
		}
		if err := k.reportSubagent(ctx, t, s); err != nil {
			return err
		}
		if err := k.leave(ctx, e, s.Agent.AfterRun); err != nil {
			return err
		}
	}
	if err := k.save(ctx, e, func(r *runs.Run) { runs.Project(r, s, k.c.Now()) }); err != nil {
		return err
	}
	if o.Ended {
		k.over(e, s.Run.Ended)
	}
	k.later(t, o.Expires)
	if o.Ended {
		if err := k.dismissSubagents(ctx, t, s.Run.Ended.State); err != nil {
			return err
		}
		k.rests(e, s)
		k.parentOf(t)
	}
	return nil
}

// patient reports whether a drive that loses its machine should be begun anew.
func (k *Supervisor) patient(e *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.failures < failuresMax
}

// parentOf wakes the thread that waits for a sub-agent.
func (k *Supervisor) parentOf(t threadKey) {
	if parent, _ := t.id.Parent(); parent != "" {
		k.wake(threadKey{t.tenant, parent})
	}
}
