package life

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// This file lends a sandbox's workspace to what works on it beside its
// machine, and takes it back before it goes away.

// freezeTimeout is what a guest gets to stop its commands; one that does not
// answer is frozen as a whole.
const freezeTimeout = 5 * time.Second

// borrows are the calls that work on a sandbox's files beside its machine. They
// end, or are ended, before the workspace is taken away.
type borrows struct {
	mu     sync.Mutex
	closed bool
	n      int
	idle   chan struct{} // closed when n is 0 again; nil while no Recall waits
	cancel map[int]context.CancelFunc
	next   int
}

// Borrow counts a call, whose context ends with the borrow; false: not now.
func (l *borrows) Borrow(ctx context.Context) (lent context.Context, release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, false
	}
	lent, cancel := context.WithCancel(ctx)
	if l.cancel == nil {
		l.cancel = map[int]context.CancelFunc{}
	}
	n := l.next
	l.next++
	l.n++
	l.cancel[n] = cancel
	return lent, func() {
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.cancel, n)
		if l.n--; l.n == 0 && l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
	}, true
}

// Recall ends all borrows, waits for them, and lends nothing until Reopen.
func (l *borrows) Recall() {
	l.mu.Lock()
	l.closed = true
	for _, cancel := range l.cancel {
		cancel()
	}
	if l.n == 0 {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	<-idle
}

// Reopen lends again.
func (l *borrows) Reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}

// freezeFiles stops what writes to the workspace: the commands, by their guest; a
// machine whose guest does not answer as a whole. What can be stopped in
// neither way goes on, and the caller's care for a moving tree has to do.
func freezeFiles(ctx context.Context, m sandbox.Machine) (thaw func(), err error) {
	asked, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	after := context.WithoutCancel(ctx)
	err = snapshot.Halt(asked, m.Guest())
	if err == nil {
		return func() {
			ctx, cancel := context.WithTimeout(after, freezeTimeout)
			defer cancel()
			_ = snapshot.Thaw(ctx, m.Guest()) // else the guest does it by itself, later
		}, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if perr := m.Pause(after); perr != nil {
		if errs.Is(perr, errs.Unsupported) {
			return func() {}, nil
		}
		return nil, errors.Join(err, perr)
	}
	return func() { _ = m.Resume(after) }, nil
}

// holdFilesStill is Freeze where nothing moves anyway.
func holdFilesStill(context.Context) (thaw func(), err error) { return func() {}, nil }

// errBusy says that a sandbox cannot lend its workspace now.
func errBusy(id sandbox.ID) error {
	return errs.New(errs.Conflict, "sandbox %s is on its way to another state", id).WithHint("try again in a moment")
}
