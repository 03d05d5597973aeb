package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// SilenceMax bounds how long a guest says nothing. One that lives says something
// every 10 s; a busy host may make it late.
const SilenceMax = 45 * time.Second

// ErrSilent is in the error of a stream whose guest does not answer.
var ErrSilent = errors.New("silent")

func errSilent() error {
	return errs.Wrap(errs.Conflict, ErrSilent, "the sandbox's guest does not answer: nothing came from it for %s", SilenceMax).
		WithHint("what runs in the sandbox may have stopped its supervisor; `skete vm stop` and `skete vm start` end that, and keep the files")
}

// listen makes the context of a stream, which ends when the guest is silent:
// when it has said nothing for too long in one wait, and still, which may be
// nil, does not say that its machine is held still.
func listen(ctx context.Context, still func(context.Context) bool) (context.Context, *silence, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &silence{still: still, ctx: ctx, cancel: cancel}, func() { cancel(nil) }
}

// silence cancels a stream whose guest says nothing while it is waited for.
type silence struct {
	still  func(context.Context) bool
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards all below
	timer   *time.Timer
	waiting int // counts up with each wait and its end: odd = a caller waits
}

func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	if s.timer == nil {
		s.timer = time.AfterFunc(SilenceMax, s.over)
		return
	}
	s.timer.Reset(SilenceMax)
}

func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	s.timer.Stop()
}

// over finds out whether the machine is held still.
func (s *silence) over() {
	s.mu.Lock()
	since := s.waiting
	s.mu.Unlock()
	still := s.still != nil && s.still(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.waiting != since || since%2 == 0: // it has come meanwhile
	case still:
		s.timer.Reset(SilenceMax)
	default:
		s.cancel(ErrSilent)
	}
}
