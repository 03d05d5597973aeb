package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
)

// machine is one guest that we follow.
type machine struct {
	id      sandbox.ID
	p       *Provider
	channel *channel.Host
	guest   *wire.Client
	watch   *hostproc.Watch
	gone    chan struct{} // closed when exit is set
	closed  chan struct{}
	once    sync.Once
	wg      sync.WaitGroup

	mu        sync.Mutex
	exit      sandbox.Exit
	destroyed bool
}

// follow makes the machine of a running guest; host may be nil.
func (p *Provider) follow(id sandbox.ID, ref hostproc.Ref, host *channel.Host) (*machine, error) {
	watch, err := hostproc.Open(ref)
	if err != nil {
		return nil, err
	}
	if host == nil {
		if host, err = channel.Listen(filepath.Join(p.dir(id), socketName)); err != nil {
			_ = watch.Close()
			return nil, err
		}
	}
	m := &machine{id: id, p: p, channel: host, watch: watch, gone: make(chan struct{}), closed: make(chan struct{})}
	m.guest = wire.NewClient(m.Dial)
	m.wg.Add(1)
	go m.mourn()
	p.mu.Lock()
	p.machines[id] = m
	p.mu.Unlock()
	return m, nil
}

// mourn waits for the guest's end and writes down how it came.
func (m *machine) mourn() {
	defer m.wg.Done()
	select {
	case <-m.watch.Done():
	case <-m.closed:
		return
	}
	m.mu.Lock()
	m.exit = exitOf(m.destroyed, m.watch.Status())
	m.mu.Unlock()
	close(m.gone)
	_ = m.channel.Close()
}

func exitOf(destroyed bool, st hostproc.Status) sandbox.Exit {
	e := sandbox.Exit{Time: time.Now(), Reason: sandbox.ReasonExited}
	switch {
	case destroyed:
		e.Reason = sandbox.ReasonDestroyed
	case st.Known && st.Signal != 0:
		e.Reason, e.Detail = sandbox.ReasonKilled, "signal "+unix.SignalName(st.Signal)
	case st.Known:
		e.Detail = fmt.Sprintf("status %d", st.Code)
	default:
		e.Detail = "this kernel does not tell how"
	}
	return e
}

// ID implements sandbox.Machine.
func (m *machine) ID() sandbox.ID { return m.id }

// Dial implements sandbox.Machine.
func (m *machine) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	return m.channel.Dial(ctx, port)
}

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// awaitGuest returns when the guest has answered; early, if it ends.
func (m *machine) awaitGuest(ctx context.Context) error {
	hello, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-m.gone:
			cancel()
		case <-stop:
		}
	}()
	_, err := m.guest.Hello(hello)
	if err == nil {
		return nil
	}
	select {
	case <-m.gone:
		return errs.Wrap(errs.Unavailable, err, "the guest ended before it answered (%s)", m.exitNow().Reason)
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the guest: %w", errors.Join(ctx.Err(), err))
	}
	return errs.Wrap(errs.Unavailable, err, "the guest does not answer as it should")
}

func (m *machine) exitNow() sandbox.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

func (m *machine) ended() bool {
	select {
	case <-m.gone:
		return true
	case <-m.closed:
		return true
	default:
		return false
	}
}

// Pause implements sandbox.Machine.
func (m *machine) Pause(context.Context) error {
	return errs.New(errs.Unsupported, "the process provider cannot pause")
}

// Resume implements sandbox.Machine.
func (m *machine) Resume(context.Context) error {
	return errs.New(errs.Unsupported, "the process provider cannot pause")
}

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-m.gone:
		return m.exitNow(), nil
	default:
	}
	select {
	case <-m.gone:
		return m.exitNow(), nil
	case <-m.closed:
		return sandbox.Exit{}, errs.New(errs.Unavailable, "the server let go of sandbox %s", m.id)
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Snapshot implements sandbox.Machine.
func (m *machine) Snapshot(context.Context, string, func(context.Context) error) error {
	return errs.New(errs.Unsupported, "provider process cannot snapshot").WithHint("stop the sandbox; its files are kept")
}

// Destroy implements sandbox.Machine.
func (m *machine) Destroy(ctx context.Context) error { return m.p.Destroy(ctx, m.id) }

// Close implements sandbox.Machine.
func (m *machine) Close() error {
	m.once.Do(func() {
		close(m.closed)
		m.wg.Wait()
		_ = m.watch.Close()
		m.guest.Close()
		_ = m.channel.Close()
		m.p.mu.Lock()
		if m.p.machines[m.id] == m {
			delete(m.p.machines, m.id)
		}
		m.p.mu.Unlock()
	})
	return nil
}
