package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// signalled is the cause of a context that a signal ended.
type signalled syscall.Signal

func (s signalled) Error() string { return fmt.Sprintf("interrupted by signal %d", int(s)) }

// forwardsMax is how many signals go to the guest before the next one ends us.
const forwardsMax = 3

// signals leads the signals that we get to whoever shall have them: the
// command in the sandbox while one runs, else ourselves.
type signals struct {
	target atomic.Pointer[func(syscall.Signal)]
	sent   atomic.Int32
}

// CatchSignals returns a context that ends by the first signal that nobody
// else takes. A broken pipe becomes an error of the write.
func (a *App) CatchSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case s := <-ch:
				if sig := s.(syscall.Signal); sig != syscall.SIGPIPE {
					a.signals.take(sig, cancel)
				}
			}
		}
	})
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		wg.Wait()
		cancel(nil)
	}
}

func (s *signals) take(sig syscall.Signal, cancel context.CancelCauseFunc) {
	if f := s.target.Load(); f != nil && s.sent.Add(1) <= forwardsMax {
		(*f)(sig)
		return
	}
	cancel(signalled(sig))
}

// Forward sends signals to f until the returned function is called.
func (a *App) Forward(f func(syscall.Signal)) (stop func()) {
	a.signals.sent.Store(0)
	a.signals.target.Store(&f)
	return func() { a.signals.target.Store(nil) }
}
