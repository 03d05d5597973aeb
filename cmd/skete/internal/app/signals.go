package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// signalled is the cause of a context that a signal ended.
type signalled syscall.Signal

func (s signalled) Error() string { return fmt.Sprintf("interrupted by signal %d", int(s)) }

// leavesAt is the signal, counted from the start of a command, by which we
// leave it. The ones before go to the command alone.
const leavesAt = 3

// leaveTimeout is how long a leave in order may take: to kill the command, and
// to look what became of it. A write that blocks would hold us for ever.
const leaveTimeout = 10 * time.Second

// signals leads the signals that we get to where they belong: the command in
// the sandbox while one runs, else ourselves.
type signals struct {
	target atomic.Pointer[target]
	sent   atomic.Int32
}

// target is a command that gets our signals.
type target struct {
	send func(syscall.Signal)
	say  func(format string, args ...any)
}

// CatchSignals returns a context that ends by the first signal that is not sent
// to a command (Forward). A broken pipe becomes an error of the write.
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
	t := s.target.Load()
	if t == nil {
		cancel(signalled(sig))
		return
	}
	switch n := s.sent.Add(1); {
	case n < leavesAt:
		t.send(sig)
		if n == leavesAt-1 && sig == syscall.SIGINT {
			t.say("skete: once more leaves the command and kills it")
		}
	case n == leavesAt:
		cancel(signalled(sig))
		time.AfterFunc(leaveTimeout, func() { s.exit(t, sig) })
	default:
		s.exit(t, sig)
	}
}

// exit ends us without waiting for anything.
func (s *signals) exit(t *target, sig syscall.Signal) {
	t.say("skete: left without waiting; the command may go on (`skete vm ps`)")
	os.Exit(128 + int(sig))
}

// Forward sends signals to f until the returned function is called. The third
// one ends the run's context, and one more the program.
func (a *App) Forward(f func(syscall.Signal)) (stop func()) {
	a.signals.sent.Store(0)
	a.signals.target.Store(&target{f, func(format string, args ...any) { fmt.Fprintf(a.Err, format+"\n", args...) }})
	return func() {
		if a.signals.sent.Load() < leavesAt {
			a.signals.target.Store(nil)
		} // else what is left to do can be cut short
	}
}
