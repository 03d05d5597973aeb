// Package machine is what providers have in common: which machines this process
// follows, creates that a destroy may overtake, and how a machine's end is told.
//
//	t := machine.NewTable[*vm]()
//	m, err := t.Create(ctx, id, machine.Making[*vm]{Dir: dir, Boot: …, Clear: …, …})
//	err = t.Destroy(ctx, id, destroyTimeout, clear)
//
//	type vm struct { lifetime *machine.Lifetime; … }
//	m.lifetime.End(func(destroyed bool) sandbox.Exit { … }) // by the goroutine that watches it
//	exit, err := m.lifetime.Wait(ctx)
//
// It knows nothing of processes, containers and control groups. All methods are
// safe for concurrent use.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// ErrDestroyed is the cause with which Destroy ends a Create.
var ErrDestroyed = errs.New(errs.Conflict, "the sandbox was destroyed while it was being created")

// ErrClosed is the cause with which Close ends a Create.
var ErrClosed = errs.New(errs.Unavailable, "the server is being stopped")

// followed is what a Table keeps: a pointer to a provider's machine.
type followed interface {
	comparable
	io.Closer
}

// Table has the machines of one provider that this process follows, and the
// creates and other work that are under way.
type Table[M followed] struct {
	mu       sync.Mutex
	machines map[sandbox.ID]M
	creating map[sandbox.ID]*flight
	closed   bool
}

// flight is a Create or other Work under way. Destroy cancels it and waits for its end; so does
// Close with a Create.
type flight struct {
	boots  bool // it is a Create
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// NewTable returns an empty one.
func NewTable[M followed]() *Table[M] {
	return &Table[M]{machines: map[sandbox.ID]M{}, creating: map[sandbox.ID]*flight{}}
}

// Making is how a machine is made.
type Making[M followed] struct {
	// Dir is made first: it is the claim on the ID among all processes and, for
	// List, the sign that there may be something. Clear removes it, last.
	Dir string
	// Boot makes everything in it, and Puts the machine.
	Boot func(ctx context.Context) (M, error)
	// Clear removes whatever Boot may have made.
	Clear func(ctx context.Context) error
	// Slots has room for as many as may boot at once; nil = no bound.
	Slots chan struct{}
	// BootTimeout is for a Create whose context has no deadline.
	BootTimeout, ClearTimeout time.Duration
}

// Create makes a machine; when that fails nothing is left, or the error says
// what could not be removed. Exists: the ID is in use, here or by its directory.
func (t *Table[M]) Create(ctx context.Context, id sandbox.ID, how Making[M]) (M, error) {
	var none M
	ctx, land, err := t.takeOff(ctx, id, how.BootTimeout)
	if err != nil {
		return none, err
	}
	defer land()
	if how.Slots != nil {
		select {
		case how.Slots <- struct{}{}:
			defer func() { <-how.Slots }()
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	if err := os.Mkdir(how.Dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return none, errs.New(errs.Exists, "sandbox %s exists", id)
		}
		return none, fmt.Errorf("create %s: %w", id, err)
	}
	m, err := how.Boot(ctx)
	if err == nil {
		return m, nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrDestroyed), errors.Is(cause, ErrClosed):
		err = cause
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = errors.Join(ctx.Err(), err)
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), how.ClearTimeout)
	defer cancel()
	return none, errors.Join(fmt.Errorf("create %s: %w", id, err), how.Clear(cleanup))
}

// takeOff registers the Create, so that a Destroy finds it. The returned
// function must be called when nothing more will be made.
func (t *Table[M]) takeOff(ctx context.Context, id sandbox.ID, timeout time.Duration) (context.Context, func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, ErrClosed
	}
	if _, known := t.machines[id]; known || t.creating[id] != nil {
		return nil, nil, errs.New(errs.Exists, "sandbox %s exists", id)
	}
	stop := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, stop = context.WithTimeout(ctx, timeout)
	}
	ctx, land := t.register(ctx, id, true)
	return ctx, func() { land(); stop() }, nil
}

// Work lets a Destroy overtake work on a machine that runs, as it overtakes a
// Create: it ends the returned context, by ErrDestroyed, and waits for the
// returned function. Unavailable: something else is under way on the ID.
func (t *Table[M]) Work(ctx context.Context, id sandbox.ID) (context.Context, func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.creating[id] != nil {
		return nil, nil, errs.New(errs.Unavailable, "sandbox %s is being made, or written down", id)
	}
	ctx, land := t.register(ctx, id, false)
	return ctx, land, nil
}

// register lets a Destroy find what is under way on an ID. t.mu is held.
func (t *Table[M]) register(ctx context.Context, id sandbox.ID, boots bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &flight{boots: boots, cancel: cancel, done: make(chan struct{})}
	t.creating[id] = f
	return ctx, func() {
		cancel(nil)
		t.mu.Lock()
		delete(t.creating, id)
		t.mu.Unlock()
		close(f.done)
	}
}

// Destroy ends a Create of the ID or Work on it that is under way and waits for
// its end; then it calls clear, with a timeout.
func (t *Table[M]) Destroy(ctx context.Context, id sandbox.ID, timeout time.Duration, clear func(context.Context) error) error {
	t.mu.Lock()
	f := t.creating[id]
	t.mu.Unlock()
	if f != nil {
		f.cancel(ErrDestroyed)
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := clear(ctx); err != nil {
		return fmt.Errorf("destroy %s: %w", id, err)
	}
	return nil
}

// Put makes a machine known.
func (t *Table[M]) Put(id sandbox.ID, m M) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[id] = m
}

// Drop forgets a machine, unless another has taken its place.
func (t *Table[M]) Drop(id sandbox.ID, m M) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.machines[id] == m {
		delete(t.machines, id)
	}
}

// Known returns the machine of an ID; the zero value if there is none.
func (t *Table[M]) Known(id sandbox.ID) M {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[id]
}

// Close ends the Creates that are under way, waits until they have cleared what they made, and
// closes all machines, which live on. No Create begins after it: what machines share can be
// removed then.
func (t *Table[M]) Close() error {
	t.land()
	t.mu.Lock()
	ms := make([]M, 0, len(t.machines))
	for _, m := range t.machines {
		ms = append(ms, m)
	}
	t.mu.Unlock()
	var err error
	for _, m := range ms {
		err = errors.Join(err, m.Close())
	}
	return err
}

// land ends the Creates that are under way, and waits for their ends.
func (t *Table[M]) land() {
	t.mu.Lock()
	t.closed = true
	var flights []*flight
	for _, f := range t.creating {
		if f.boots {
			flights = append(flights, f)
		}
	}
	t.mu.Unlock()
	for _, f := range flights {
		f.cancel(ErrClosed)
	}
	for _, f := range flights {
		<-f.done
	}
}
