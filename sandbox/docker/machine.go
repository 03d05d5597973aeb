package docker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Waits between two attempts to hear from an engine that broke off.
const (
	retryMin = 50 * time.Millisecond
	retryMax = 2 * time.Second
)

var errNoSnapshot = errs.New(errs.Unsupported, "provider docker cannot snapshot").WithHint("stop the sandbox; its files are kept")

// machine is one container that we follow.
type machine struct {
	id        sandbox.ID
	container string // the engine's id
	p         *Provider
	channel   *channel.Host
	guest     *wire.Client
	lifetime  *shared.Lifetime
	stop      context.CancelFunc // of the engine's wait
	wg        sync.WaitGroup

	pauseMu sync.Mutex // one change at a time
}

// follow makes the machine of a container that runs. host may be nil: then the
// channel is opened again at the place where the guest looks for it.
func (p *Provider) follow(id sandbox.ID, container string, host *channel.Host) (*machine, error) {
	if host == nil {
		var err error
		if host, err = p.listen(id); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &machine{
		id: id, container: container, p: p, channel: host, stop: stop,
		lifetime: shared.NewLifetime(id),
	}
	m.guest = wire.NewClient(m.Dial)
	m.wg.Go(func() { m.awaitExit(ctx) })
	p.machines.Put(id, m)
	return m, nil
}

// awaitExit waits for the container's end and writes down how it came. It returns
// without when the machine is closed.
func (m *machine) awaitExit(ctx context.Context) {
	exit, ok := m.p.await(ctx, m.container)
	if !ok {
		return
	}
	exit = m.lifetime.End(func(destroyed bool) sandbox.Exit {
		if destroyed {
			exit.Reason, exit.Detail = sandbox.ReasonDestroyed, ""
		}
		return exit
	})
	_ = m.channel.Close()
	m.p.c.Log.Info("docker: machine ended", "id", m.id, "reason", exit.Reason, "detail", exit.Detail)
}

// await returns how a started container ended; false: ctx has. The engine may
// break off or be away as long as it likes: containers live on without it, or
// it says afterwards that they did not.
func (p *Provider) await(ctx context.Context, container string) (sandbox.Exit, bool) {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		_, err := p.engine.Wait(ctx, container)
		if ctx.Err() != nil {
			return sandbox.Exit{}, false
		}
		if err == nil {
			wait = retryMin
		}
		var d engine.Details
		if !errs.Is(err, errs.NotFound) {
			d, err = p.engine.Inspect(ctx, container)
		}
		switch {
		case errs.Is(err, errs.NotFound):
			return sandbox.Exit{Reason: sandbox.ReasonKilled, Detail: "the container was removed", Time: time.Now()}, true
		case err == nil && !d.State.Running && d.State.Status != "created":
			return exitOf(d.State), true
		}
		select {
		case <-ctx.Done():
			return sandbox.Exit{}, false
		case <-time.After(wait):
		}
	}
}

// exitOf names the reason. Engines tell of a signal as shells do, by 128 and its
// number. OOMKilled says that the kernel ended some process at the limit; it is
// the reason only if the machine's first process was killed.
func exitOf(s engine.State) sandbox.Exit {
	e := sandbox.Exit{Reason: sandbox.ReasonExited, Detail: fmt.Sprintf("status %d", s.ExitCode), Time: s.FinishedAt}
	if e.Time.Year() < 2000 { // never set
		e.Time = time.Now()
	}
	signal := unix.Signal(s.ExitCode - 128)
	switch name := unix.SignalName(signal); {
	case s.ExitCode <= 128 || name == "":
	case s.OOMKilled && signal == unix.SIGKILL:
		e.Reason, e.Detail = sandbox.ReasonOutOfMemory, "the kernel ended the machine at its limit"
	default:
		e.Reason, e.Detail = sandbox.ReasonKilled, "signal "+name
	}
	return e
}

// ID implements sandbox.Machine.
func (m *machine) ID() sandbox.ID { return m.id }

// Dial implements sandbox.Machine.
func (m *machine) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	return m.lifetime.Dial(func() (net.Conn, error) { return m.channel.Dial(ctx, port) })
}

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) { return m.lifetime.Wait(ctx) }

// Pause implements sandbox.Machine.
func (m *machine) Pause(ctx context.Context) error {
	return m.setPaused(ctx, "pause", m.p.engine.Pause, true)
}

// Resume implements sandbox.Machine.
func (m *machine) Resume(ctx context.Context) error {
	return m.setPaused(ctx, "resume", m.p.engine.Unpause, false)
}

// setPaused asks the engine what is so before and, on an error, after: engines
// refuse what is so already, each with a status of its own. The engine's word
// is all the record there is, so a server that dies in between loses nothing.
func (m *machine) setPaused(ctx context.Context, what string, act func(context.Context, string) error, paused bool) error {
	m.pauseMu.Lock()
	defer m.pauseMu.Unlock()
	if m.lifetime.Ended() {
		return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	err := act(ctx, m.container)
	if err == nil {
		return nil
	}
	d, inspectErr := m.p.engine.Inspect(ctx, m.container)
	if inspectErr == nil && d.State.Running && d.State.Paused == paused {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, m.id, err)
}

// Snapshot implements sandbox.Machine. Engines can checkpoint only as an
// experiment, with CRIU installed.
func (m *machine) Snapshot(context.Context, string, func(context.Context) error) error {
	return errNoSnapshot
}

// Destroy implements sandbox.Machine.
func (m *machine) Destroy(ctx context.Context) error { return m.p.Destroy(ctx, m.id) }

// Close implements sandbox.Machine.
func (m *machine) Close() error {
	m.lifetime.Release(func() {
		m.stop()
		m.wg.Wait()
		m.guest.Close()
		_ = m.channel.Close()
		m.p.machines.Drop(m.id, m)
	})
	return nil
}
