package process

import (
	"context"
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
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// machine is one guest that we follow.
type machine struct {
	id       sandbox.ID
	p        *Provider
	channel  *channel.Host
	guest    *wire.Client
	watch    *hostproc.Watch
	lifetime *shared.Lifetime
	wg       sync.WaitGroup
}

// follow makes the machine of a running guest; host may be nil.
func (p *Provider) follow(id sandbox.ID, ref hostproc.Ref, host *channel.Host) (*machine, error) {
	watch, err := hostproc.Open(ref)
	if err != nil {
		return nil, err
	}
	if host == nil {
		if host, err = channel.Listen(filepath.Join(p.dir(id), socketName), p.c.Serve.For(id)); err != nil {
			_ = watch.Close()
			return nil, err
		}
	}
	m := &machine{id: id, p: p, channel: host, watch: watch, lifetime: shared.NewLifetime(id)}
	m.guest = wire.NewClient(m.Dial)
	m.wg.Add(1)
	go m.awaitExit()
	p.machines.Put(id, m)
	return m, nil
}

// awaitExit waits for the guest's end and writes down how it came.
func (m *machine) awaitExit() {
	defer m.wg.Done()
	select {
	case <-m.watch.Done():
	case <-m.lifetime.Closed():
		return
	}
	m.lifetime.End(func(destroyed bool) sandbox.Exit { return exitOf(destroyed, m.watch.Status()) })
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
	return m.lifetime.Dial(func() (net.Conn, error) { return m.channel.Dial(ctx, port) })
}

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// Pause implements sandbox.Machine.
func (m *machine) Pause(context.Context) error {
	return errs.New(errs.Unsupported, "the process provider cannot pause")
}

// Resume implements sandbox.Machine.
func (m *machine) Resume(context.Context) error {
	return errs.New(errs.Unsupported, "the process provider cannot pause")
}

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) { return m.lifetime.Wait(ctx) }

// Snapshot implements sandbox.Machine.
func (m *machine) Snapshot(context.Context, string, func(context.Context) error) error {
	return errs.New(errs.Unsupported, "provider process cannot snapshot").WithHint("stop the sandbox; its files are kept")
}

// Destroy implements sandbox.Machine.
func (m *machine) Destroy(ctx context.Context) error { return m.p.Destroy(ctx, m.id) }

// Close implements sandbox.Machine.
func (m *machine) Close() error {
	m.lifetime.Release(func() {
		m.wg.Wait()
		_ = m.watch.Close()
		m.guest.Close()
		_ = m.channel.Close()
		m.p.machines.Drop(m.id, m)
	})
	return nil
}
