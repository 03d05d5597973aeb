package agent

import (
	"context"
	"sync"
	"time"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file ends an operation when its run is cancelled, or when its time is up.
//
// It costs a goroutine only once there is news. A cancelWatcher is ended by the caller that
// made it; Look may be called from any goroutine, at any time.

// cancelWatchConfig is of a cancelWatcher.
type cancelWatchConfig struct {
	// Asked reports whether a cancel was asked for. It is called from a
	// goroutine of the watcher, never twice at once.
	Asked func(context.Context) bool
	Cause error         // of the context that ends
	Pause time.Duration // between two looks, however much news there is
}

// cancelWatcher is over one operation.
type cancelWatcher struct {
	c      cancelWatchConfig
	ctx    context.Context // of the operation
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu    sync.Mutex // guards what follows
	looks bool
	again bool // there was more news meanwhile
	ended bool
}

// newCancelWatcher returns a cancelWatcher; end it.
func newCancelWatcher(ctx context.Context, c cancelWatchConfig) *cancelWatcher {
	l := &cancelWatcher{c: c}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// Context is the operation's. It ends with Cause when a cancel was asked for.
func (l *cancelWatcher) Context() context.Context { return l.ctx }

// Look says that a cancel may have been asked for. It does not block.
func (l *cancelWatcher) Look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
	case l.looks:
		l.again = true
	default:
		l.looks = true
		l.wg.Go(l.run)
	}
}

func (l *cancelWatcher) run() {
	for {
		if l.c.Asked(l.ctx) {
			l.cancel(l.c.Cause)
			return
		}
		if !l.rest() || !l.more() {
			return
		}
	}
}

// rest waits for the pause; false = the operation ended.
func (l *cancelWatcher) rest() bool {
	timer := time.NewTimer(l.c.Pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// more reports whether there was news since the last look.
func (l *cancelWatcher) more() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks, l.again = l.again, false
	return l.looks
}

// End ends the operation's context and waits for the look under way.
func (l *cancelWatcher) End() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cancel(nil)
	l.wg.Wait()
}

// timedPause is between two looks at how long a run has waited that waits.
const timedPause = 100 * time.Millisecond

// timed returns a context that ends with tool.ErrTimeUp when the run has worked as
// long as it may. A limit that is changed meanwhile holds, and the time in which a call asks
// a person does not count. Precondition: the run does not wait for people.
func (r *Runner) timed(ctx context.Context) (context.Context, func()) {
	left, bounded := r.s.TimeLeft(r.c.Now())
	if !bounded {
		return ctx, func() {}
	}
	limit, waited := r.s.Run.Budget.Wall, r.waitedNow()
	timed, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	armed := make(chan struct{}) // timer is set
	timer = time.AfterFunc(max(left, 0), func() {
		<-armed
		now, paused := r.limitNow(timed), r.waitedNow()
		if more := now - limit + paused - waited; more > 0 {
			limit, waited = now, paused // before the timer may fire again
			timer.Reset(max(more, timedPause))
		} else if now > 0 {
			cancel(tool.ErrTimeUp)
		}
	})
	close(armed)
	return timed, func() {
		timer.Stop()
		cancel(nil)
	}
}

// waitedNow is how long the run has waited for people by now. It may be called from any
// goroutine.
func (r *Runner) waitedNow() time.Duration {
	w := r.waited.Load()
	if w == nil {
		return 0
	}
	if w.since.IsZero() {
		return w.before
	}
	return w.before + max(r.c.Now().Sub(w.since), 0)
}

// waitTime is how long a run has waited for people, and since when it does; zero = it does not.
type waitTime struct {
	before time.Duration
	since  time.Time
}

// limitNow is the run's limit of time, 0 = none, with changes that are in the log
// and not taken in yet. It may be called from any goroutine.
func (r *Runner) limitNow(ctx context.Context) time.Duration {
	at := r.at.Load() // first: what is taken in meanwhile is read twice
	limit := time.Duration(r.limit.Load())
	for e, err := range r.c.Log.Load(ctx, r.c.Thread, at+1) {
		if err != nil {
			break
		}
		if b, is := e.Body.(thread.BudgetChanged); is {
			limit = b.Budget.Wall
		}
	}
	return limit
}
