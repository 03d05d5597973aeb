package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// box is the Manager's side of one sandbox.
//
// Lock order: write, then Manager.mu, then mu. Only write is held over slow
// work, and that only over one write to the registry.
type box struct {
	id     ID     // never changes
	tenant string // never changes

	charged usage // guarded by Manager.mu

	write    sync.Mutex // guards revision, and orders writes of the record
	revision uint64

	mu      sync.Mutex // guards all below
	rec     record
	gone    bool // the record is deleted and the Manager has forgotten the box
	flight  *flight
	machine Machine
	client  *wire.Client
	volume  Volume
	unwatch context.CancelFunc // ends the watch over machine

	uses     int
	used     time.Time // end of the last use, for idleness; monotonic
	deadline time.Time // TTL's end; monotonic; zero = none
	timer    *time.Timer
	failures int       // in a row, of work on this box
	notUntil time.Time // the Manager itself tries nothing before; monotonic
}

// kind names slow work on a box.
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

// flight is slow work under way on a box; there is one at a time. It runs in
// a goroutine of the Manager's, so that it does not end with the caller.
type flight struct {
	kind    kind
	cancel  context.CancelFunc
	waiters int  // guarded by box.mu
	undone  bool // guarded by box.mu: nobody is left who wants it; joining is too late
	done    chan struct{}
	err     error // set before done is closed
}

// job is what a flight does. ready is asked under box.mu before it starts: an
// error ends the call, and errDone ends it well.
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

// do runs j on b, or joins the same kind of work under way, or waits for
// another kind to end first (a destroy ends a start or a create). A caller that goes
// away does not end the work, except that a create with no caller left is
// undone.
func (m *Manager) do(ctx context.Context, b *box, j job) error {
	for {
		b.mu.Lock()
		f := b.flight
		switch {
		case f == nil:
			if err := j.ready(); err != nil {
				b.mu.Unlock()
				if err == errDone {
					err = nil
				}
				return err
			}
			if f = m.launch(b, j); f == nil {
				b.mu.Unlock()
				return errClosing
			}
		case f.kind == j.kind && !f.undone:
			f.waiters++
		default:
			if j.kind == kindDestroy && (f.kind == kindCreate || f.kind == kindStart) {
				f.cancel()
			}
			b.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		b.mu.Unlock()
		return b.await(ctx, f)
	}
}

// launch starts a flight with one waiter; nil = the Manager is closing.
//
// Preconditions: b.mu is held and b has no flight.
func (m *Manager) launch(b *box, j job) *flight {
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	if j.kind == kindCreate || j.kind == kindStart {
		// What makes a machine ends when the server does; what takes one away is finished.
		ctx, cancel = context.WithTimeout(m.ctx, flightTimeout)
	}
	f := &flight{kind: j.kind, cancel: cancel, waiters: 1, done: make(chan struct{})}
	b.flight = f
	started := m.spawn(func() {
		defer cancel()
		m.fly(ctx, b, f, j)
	})
	if !started {
		cancel()
		b.flight = nil
		return nil
	}
	return f
}

func (m *Manager) fly(ctx context.Context, b *box, f *flight, j job) {
	err := j.run(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.undone = f.undone || f.waiters == 0 && j.undo != nil; f.undone && err == nil {
		b.mu.Unlock()
		err = errors.Join(context.Canceled, j.undo())
		b.mu.Lock()
	}
	b.holdOff(err)
	f.err = err
	b.flight = nil
	m.arm(b)
	close(f.done)
}

// await waits for a flight that counts us as a waiter.
func (b *box) await(ctx context.Context, f *flight) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	f.waiters--
	alone := f.waiters == 0 && f.kind == kindCreate && b.flight == f
	if alone {
		f.undone = true
		f.cancel()
	}
	b.mu.Unlock()
	if alone {
		<-f.done // the caller may rely on nothing being left
	}
	return ctx.Err()
}

// info is what users see of the box now.
//
// Preconditions: b.mu is held.
func (b *box) info() Info {
	i := b.rec.Info.clone()
	switch {
	case b.uses > 0:
		i.LastUsedAt = time.Now().Round(0)
	case b.used.After(i.LastUsedAt):
		i.LastUsedAt = b.used.Round(0)
	}
	return i
}

func (b *box) record() record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec
}

func (b *box) snapshot() Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info()
}

// usable returns nil if the guest can be called, or says why not.
//
// Preconditions: b.mu is held.
func (b *box) usable() error {
	switch b.rec.Info.State {
	case Running:
		if b.machine == nil || b.rec.Plan != planNone {
			return errs.New(errs.Conflict, "sandbox %s is stopping", b.id)
		}
		return nil
	case Creating:
		return errs.New(errs.Conflict, "sandbox %s is still starting", b.id).WithHint("try again in a moment")
	case Paused:
		return errs.New(errs.Conflict, "sandbox %s is paused", b.id).WithHint("resume it first: `skete vm resume %s`", b.id)
	case Stopped:
		return errs.New(errs.Conflict, "sandbox %s is stopped (%s)", b.id, b.rec.Info.Reason).WithHint("start it first: `skete vm start %s`", b.id)
	case Failed:
		return errs.New(errs.Conflict, "sandbox %s has failed (%s)", b.id, b.rec.Info.Reason).
			WithHint("its files are kept; start it again: `skete vm start %s`", b.id)
	}
	return errDestroyed(b.id)
}

func errDestroyed(id ID) error {
	return errs.New(errs.NotFound, "sandbox %s was destroyed", id)
}

// takeMachine takes the machine out of the box, so that nobody else uses it.
func (b *box) takeMachine() Machine {
	b.mu.Lock()
	defer b.mu.Unlock()
	machine := b.machine
	b.machine = nil
	if b.unwatch != nil {
		b.unwatch()
		b.unwatch = nil
	}
	if b.client != nil {
		b.client.Close()
		b.client = nil
	}
	return machine
}
