package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
)

// Lifetime is how a machine ends, or that we let go of it. It ends once.
type Lifetime struct {
	id     sandbox.ID
	gone   chan struct{} // closed when exit is set
	closed chan struct{}
	ending sync.Once
	letGo  sync.Once

	mu     sync.Mutex
	exit   sandbox.Exit
	doomed bool
}

// NewLifetime is that of a machine that runs.
func NewLifetime(id sandbox.ID) *Lifetime {
	return &Lifetime{id: id, gone: make(chan struct{}), closed: make(chan struct{})}
}

// Gone is closed when the machine has ended, Closed when we have let go of it.
func (f *Lifetime) Gone() <-chan struct{} { return f.gone }

// Closed is closed when we have let go of the machine.
func (f *Lifetime) Closed() <-chan struct{} { return f.closed }

// Doom says whether the machine is about to be destroyed: then that is the
// reason of its end.
func (f *Lifetime) Doom(doomed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doomed = doomed
}

// End notes the end, as exit tells it, and returns what was noted.
func (f *Lifetime) End(exit func(destroyed bool) sandbox.Exit) sandbox.Exit {
	f.ending.Do(func() {
		f.mu.Lock()
		doomed := f.doomed
		f.mu.Unlock()
		e := exit(doomed)
		f.mu.Lock()
		f.exit = e
		f.mu.Unlock()
		close(f.gone)
	})
	return f.Exit()
}

// Exit is how it ended; zero before Gone.
func (f *Lifetime) Exit() sandbox.Exit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exit
}

// Ended reports whether it has ended, or we have let go of it.
func (f *Lifetime) Ended() bool {
	select {
	case <-f.gone:
		return true
	case <-f.closed:
		return true
	default:
		return false
	}
}

// Wait is sandbox.Machine's.
func (f *Lifetime) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-f.gone:
		return f.Exit(), nil
	default:
	}
	select {
	case <-f.gone:
		return f.Exit(), nil
	case <-f.closed:
		return sandbox.Exit{}, errs.New(errs.Unavailable, "the server let go of sandbox %s", f.id)
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Dial is sandbox.Machine's: dial's connection, unless the machine ended or we
// let go of it. What answers a dial can outlive the process whose end is the
// machine's by a moment; who was told of the end gets no connection any more.
func (f *Lifetime) Dial(dial func() (net.Conn, error)) (net.Conn, error) {
	if f.Ended() {
		return nil, f.notRunning()
	}
	conn, err := dial()
	if err != nil || !f.Ended() {
		return conn, err
	}
	_ = conn.Close()
	return nil, f.notRunning()
}

func (f *Lifetime) notRunning() error {
	return errs.New(errs.Unavailable, "sandbox %s does not run", f.id)
}

// Settle waits until the end is noted, we let go of the machine, or ctx is over:
// so Wait learns the reason before what it needs goes.
func (f *Lifetime) Settle(ctx context.Context) {
	select {
	case <-f.gone:
	case <-f.closed:
	case <-ctx.Done():
	}
}

// Release makes every Wait return, and then calls do; once in all.
func (f *Lifetime) Release(do func()) {
	f.letGo.Do(func() {
		close(f.closed)
		do()
	})
}

// AwaitGuest returns when the guest has answered; early, if the machine ends.
func (f *Lifetime) AwaitGuest(ctx context.Context, guest *wire.Client) error {
	hello, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-f.gone:
			cancel()
		case <-stop:
		}
	}()
	_, err := guest.Hello(hello)
	if err == nil {
		return nil
	}
	select {
	case <-f.gone:
		e := f.Exit()
		return errs.Wrap(errs.Unavailable, err, "the machine ended before its guest answered (%s, %s)", e.Reason, e.Detail)
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the guest: %w", errors.Join(ctx.Err(), err))
	}
	return errs.Wrap(errs.Unavailable, err, "the guest does not answer as it should")
}
