package life

import (
	"context"
	"errors"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// kind names slow work.
type kind string

const (
	kindCreate  kind = "being created"
	kindStart   kind = "starting"
	kindHalt    kind = "stopping"
	kindFreeze  kind = "pausing"
	kindThaw    kind = "resuming"
	kindDestroy kind = "being destroyed"
	kindTidy    kind = "being cleaned up"
)

// flight is slow work under way; there is one at a time. It runs in
// a goroutine of its own, so that it does not end with the caller.
type flight struct {
	kind    kind
	cancel  context.CancelFunc
	waiters int  // guarded by Keeper.mu
	undone  bool // guarded by Keeper.mu: nobody is left who wants it; joining is too late
	done    chan struct{}
	err     error // set before done is closed
}

// job is what a flight does. ready is asked under Keeper.mu before it starts:
// an error ends the call, and errDone ends it well.
type job struct {
	kind  kind
	ready func() error
	run   func(context.Context) error
	undo  func() error // of a run that went well, if nobody is left who wants it; may be nil
}

var errDone = errs.New(errs.Internal, "nothing is to be done") // never leaves the package

// flightTimeout bounds all slow work; a provider that hangs costs its own
// sandbox only.
const flightTimeout = 3 * time.Minute

// do runs j, or joins the same kind of work under way, or waits for another
// kind to end first (a destroy ends a start or a create). A caller that goes
// away does not end the work, except that a create with no caller left is
// undone.
func (k *Keeper) do(ctx context.Context, j job) error {
	for {
		k.mu.Lock()
		f := k.flight
		switch {
		case f == nil:
			if err := j.ready(); err != nil {
				k.mu.Unlock()
				if errors.Is(err, errDone) {
					return nil
				}
				return err
			}
			if f = k.launch(j); f == nil {
				k.mu.Unlock()
				return sandbox.ErrClosing
			}
		case f.kind == j.kind && !f.undone:
			f.waiters++
		default:
			if j.kind == kindDestroy && (f.kind == kindCreate || f.kind == kindStart) {
				f.cancel()
			}
			k.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		k.mu.Unlock()
		return k.await(ctx, f)
	}
}

// launch starts a flight with one waiter; nil = the server stops.
//
// Preconditions: k.mu is held and there is no flight.
func (k *Keeper) launch(j job) *flight {
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	if j.kind == kindCreate || j.kind == kindStart {
		cancel()
		// What makes a machine ends when the server does; what takes one away is finished.
		ctx, cancel = context.WithTimeout(k.d.Ctx, flightTimeout)
	}
	f := &flight{kind: j.kind, cancel: cancel, waiters: 1, done: make(chan struct{})}
	k.flight = f
	started := k.d.Spawn(func() {
		defer cancel()
		k.fly(ctx, f, j)
	})
	if !started {
		cancel()
		k.flight = nil
		return nil
	}
	return f
}

func (k *Keeper) fly(ctx context.Context, f *flight, j job) {
	err := j.run(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.undone = f.undone || f.waiters == 0 && j.undo != nil; f.undone && err == nil {
		k.mu.Unlock()
		err = errors.Join(context.Canceled, j.undo())
		k.mu.Lock()
	}
	k.holdOff(err)
	f.err = err
	k.flight = nil
	k.arm()
	close(f.done)
}

// await waits for a flight that counts us as a waiter.
func (k *Keeper) await(ctx context.Context, f *flight) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	k.mu.Lock()
	f.waiters--
	over := k.flight != f
	alone := !over && f.waiters == 0 && f.kind == kindCreate
	if alone {
		f.undone = true
		f.cancel()
	}
	k.mu.Unlock()
	switch {
	case over: // at the same moment: then what was done is the truth
		<-f.done
		return f.err
	case alone:
		<-f.done // the caller may rely on nothing being left
	}
	return ctx.Err()
}

// Waiters counts the callers that wait for work under way.
func (k *Keeper) Waiters() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight == nil {
		return 0
	}
	return k.flight.waiters
}
