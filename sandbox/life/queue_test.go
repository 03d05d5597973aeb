package life

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/sandbox"
)

// world is a queue in a bubble.
type world struct {
	*testing.T
	q     *jobQueue
	close context.CancelFunc // the server stops
	mu    sync.Mutex         // the queue's
	ended []error            // how work ended
	open  atomic.Bool
}

func queued(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{T: t, close: cancel}
		w.open.Store(true)
		w.q = &jobQueue{
			Mu: &w.mu, Ctx: ctx, Ended: func(err error) { w.ended = append(w.ended, err) },
			Spawn: func(f func()) bool {
				if w.open.Load() {
					go f()
				}
				return w.open.Load()
			},
		}
		test(w)
	})
}

// work is a job that lasts until it is told to end, or its context does.
type work struct {
	job
	runs, undone atomic.Int32
	finish       chan error
}

func newWork(kind jobKind) *work {
	w := &work{finish: make(chan error)}
	w.job = job{Kind: kind, Ready: func() error { return nil }, Run: func(ctx context.Context) error {
		w.runs.Add(1)
		select {
		case err := <-w.finish:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	return w
}

func (w *work) undoable() *work {
	w.Undo = func() error { w.undone.Add(1); return nil }
	return w
}

// do begins a call, and returns how it ends.
func (w *world) do(ctx context.Context, j job) chan error {
	end := make(chan error, 1)
	go func() { end <- w.q.Do(ctx, j) }()
	synctest.Wait()
	return end
}

func (w *world) waits(what string, end chan error) {
	w.Helper()
	synctest.Wait()
	if len(end) > 0 {
		w.Errorf("%s has ended: %v", what, <-end)
	}
}

func (w *world) ends(what string, end chan error, want error) {
	w.Helper()
	if err := <-end; !errors.Is(err, want) || want == nil && err != nil {
		w.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestQueue_theSameKindIsDoneOnce(t *testing.T) {
	queued(t, func(w *world) {
		start := newWork("starting")
		a, b := w.do(w.Context(), start.job), w.do(w.Context(), start.job)
		if n := w.q.Waiters(); n != 2 {
			w.Errorf("%d wait", n)
		}
		failed := errors.New("failed")
		start.finish <- failed
		w.ends("the first", a, failed)
		w.ends("the second", b, failed)
		if start.runs.Load() != 1 || len(w.ended) != 1 || w.q.Kind() != "" || w.q.Waiters() != 0 {
			w.Errorf("it ran %d times, ended %v, and is now %q", start.runs.Load(), w.ended, w.q.Kind())
		}
	})
}

func TestQueue_anotherKindWaitsForItsTurn(t *testing.T) {
	queued(t, func(w *world) {
		start, stop := newWork("starting"), newWork("stopping")
		a, b := w.do(w.Context(), start.job), w.do(w.Context(), stop.job)
		ctx, cancel := context.WithCancel(w.Context())
		impatient := w.do(ctx, stop.job)
		cancel()
		w.ends("one that does not wait", impatient, context.Canceled)
		w.waits("the second", b)
		if stop.runs.Load() != 0 {
			w.Error("two at once")
		}
		start.finish <- nil
		w.ends("the first", a, nil)
		synctest.Wait()
		stop.finish <- nil
		w.ends("the second", b, nil)
	})
}

func TestQueue_whatWinsCutsShortWhatIsMortal(t *testing.T) {
	for _, mortal := range []bool{true, false} {
		queued(t, func(w *world) {
			start, destroy := newWork("starting"), newWork("destroying")
			start.Mortal, destroy.Wins = mortal, true
			a, b := w.do(w.Context(), start.job), w.do(w.Context(), destroy.job)
			if mortal {
				w.ends("what was under way", a, context.Canceled)
			} else {
				w.waits("what was under way", a)
				start.finish <- nil
				w.ends("what was under way", a, nil)
			}
			synctest.Wait()
			destroy.finish <- nil
			w.ends("what wins", b, nil)
		})
	}
}

// Work goes on when its callers go away, unless it can be undone: then nothing is
// left of it when the last of them returns.
func TestQueue_callersThatGoAway(t *testing.T) {
	queued(t, func(w *world) {
		start := newWork("starting")
		ctx, cancel := context.WithCancel(w.Context())
		a := w.do(ctx, start.job)
		cancel()
		w.ends("the caller", a, context.Canceled)
		b := w.do(w.Context(), start.job)
		start.finish <- nil
		w.ends("one that comes later", b, nil)
		if start.runs.Load() != 1 {
			w.Errorf("it ran %d times", start.runs.Load())
		}
	})
	queued(t, func(w *world) {
		create := newWork("creating").undoable()
		ctx, cancel := context.WithCancel(w.Context())
		a, b := w.do(ctx, create.job), w.do(w.Context(), create.job)
		cancel()
		w.ends("one of two", a, context.Canceled)
		create.finish <- nil
		w.ends("the other", b, nil)
		if create.undone.Load() != 0 {
			w.Error("it was undone under a caller that waits")
		}
	})
	queued(t, func(w *world) {
		create := newWork("creating").undoable()
		done := make(chan struct{}) // it has come to its end when it is told to stop
		create.Run = func(ctx context.Context) error {
			create.runs.Add(1)
			<-ctx.Done()
			<-done
			return nil
		}
		ctx, cancel := context.WithCancel(w.Context())
		a := w.do(ctx, create.job)
		cancel()
		w.waits("the last caller", a)
		next := newWork("creating")
		again := w.do(w.Context(), next.job) // joins nothing that is to be undone
		w.waits("one that comes now", again)
		close(done)
		w.ends("the last caller", a, context.Canceled)
		if create.undone.Load() != 1 {
			w.Errorf("undone %d times", create.undone.Load())
		}
		synctest.Wait()
		if w.q.Kind() != "creating" || create.runs.Load() != 1 {
			w.Errorf("the next one does not run: %q", w.q.Kind())
		}
		next.finish <- nil
		w.ends("it", again, nil)
	})
}

func TestQueue_ready(t *testing.T) {
	queued(t, func(w *world) {
		start, no := newWork("starting"), errors.New("no")
		start.Ready = func() error { return errDone }
		w.ends("nothing to do", w.do(w.Context(), start.job), nil)
		start.Ready = func() error { return no }
		w.ends("refused", w.do(w.Context(), start.job), no)
		if start.runs.Load() != 0 {
			w.Error("it ran")
		}
	})
}

func TestQueue_aServerThatStops(t *testing.T) {
	queued(t, func(w *world) {
		start, stop := newWork("starting"), newWork("stopping")
		start.Mortal = true
		a, b := w.do(w.Context(), start.job), w.do(w.Context(), stop.job)
		w.close()
		w.ends("mortal work", a, context.Canceled)
		w.waits("all other", b)
		stop.finish <- nil
		w.ends("all other", b, nil)
		w.open.Store(false)
		w.ends("new work", w.do(w.Context(), start.job), sandbox.ErrClosing)
		if w.q.Kind() != "" {
			w.Errorf("%q is under way", w.q.Kind())
		}
	})
}

func TestQueue_deadlines(t *testing.T) {
	queued(t, func(w *world) {
		began := time.Now()
		w.ends("what hangs", w.do(w.Context(), newWork("starting").job), context.DeadlineExceeded)
		if took := time.Since(began); took != jobTimeout {
			w.Errorf("after %s", took)
		}
		own := newWork("creating")
		own.Bounded = true
		end := w.do(w.Context(), own.job)
		<-time.After(2 * jobTimeout)
		w.waits("what sees to its deadlines itself", end)
		own.finish <- nil
		w.ends("it", end, nil)
	})
}

// counted is a context that knows what hangs on it.
type counted struct {
	context.Context
	hang atomic.Int32
}

func (c *counted) Value(any) any { return nil }

func (c *counted) AfterFunc(func()) func() bool {
	c.hang.Add(1)
	return sync.OnceValue(func() bool { c.hang.Add(-1); return true })
}

// Work that is over leaves nothing with the server's context, which lives on.
func TestQueue_leavesNothing(t *testing.T) {
	queued(t, func(w *world) {
		parent := &counted{Context: w.q.Ctx}
		w.q.Ctx = parent
		for _, bounded := range []bool{true, false} {
			start := newWork("starting")
			start.Mortal, start.Bounded = true, bounded
			end := w.do(w.Context(), start.job)
			if parent.hang.Load() == 0 {
				w.Error("nothing hangs on the server's context while it runs")
			}
			start.finish <- nil
			w.ends("it", end, nil)
			synctest.Wait()
			if n := parent.hang.Load(); n != 0 {
				w.Errorf("bounded %v: %d contexts are left", bounded, n)
			}
		}
	})
}
