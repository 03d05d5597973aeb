package firecracker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/api"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// vsockPort is where the guest listens; each stream then says which port of
// the channel it wants.
const vsockPort = 1024

// guestSocket is where streams of the guest arrive, in the machine's directory.
const guestSocket = "guest.sock"

// cleanEnd is the detail of a machine whose guest ended it.
const cleanEnd = "the guest ended"

// Limits.
const (
	attachTimeout = 30 * time.Second // of an Attach whose context has no deadline
	helloTimeout  = 5 * time.Second  // of one attempt to reach a guest that boots
	helloPause    = 5 * time.Millisecond
	drainTime     = 30 * time.Millisecond
	tailBytesMax  = 2 << 10
)

// machine is one Firecracker that we follow.
type machine struct {
	id       sandbox.ID
	p        *Provider
	jail     jail.Jail
	api      *api.Client
	guest    *wire.Client
	watch    *hostproc.Watch
	lifetime *shared.Lifetime
	wg       sync.WaitGroup

	opMu sync.Mutex // held while the machine's state changes; taken before mu
	rec  record     // guarded by opMu from follow on
	told bool       // the halted guest will find that its streams are gone; guarded by opMu

	countMu   sync.Mutex // guards the next two
	counts    counts
	uncounted []byte // the beginning of a line

	guests *channel.Acceptor // nil: the guest opens no streams

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	open  chan struct{} // closed while streams may be opened
}

// follow makes the machine of a running Firecracker.
func (p *Provider) follow(id sandbox.ID, rec record) (*machine, error) {
	watch, err := hostproc.Open(rec.Process)
	if err != nil {
		return nil, err
	}
	m := &machine{
		id: id, p: p, jail: p.jailOf(id, rec), watch: watch, rec: rec,
		lifetime: shared.NewLifetime(id), conns: map[net.Conn]struct{}{}, open: make(chan struct{}),
	}
	close(m.open)
	m.api = api.New(func(ctx context.Context) (net.Conn, error) { return m.jail.Dial(ctx, jail.APISocket) })
	if m.guests, err = p.acceptGuests(id, m.jail); err != nil {
		m.api.Close()
		_ = watch.Close()
		return nil, err
	}
	m.guest = wire.NewClient(m.Dial)
	m.wg.Add(1)
	go m.awaitExit()
	p.machines.Put(id, m)
	return m, nil
}

// acceptGuests serves the streams that the guest opens, where Firecracker looks
// for a port of the host: a socket in the jail, made outside of it, since the
// directory belongs to a user that is not to be trusted. nil: none are served.
func (p *Provider) acceptGuests(id sandbox.ID, j jail.Jail) (*channel.Acceptor, error) {
	if p.c.Serve == nil {
		return nil, nil
	}
	path := filepath.Join(p.dir(id), guestSocket)
	a, err := channel.Accept(path, p.c.Serve.For(id))
	if err != nil {
		return nil, err
	}
	if err := j.ShowSocket(path, fmt.Sprintf("%s_%d", jail.VsockSocket, wire.VsockHostPort)); err != nil {
		_ = a.Close()
		return nil, fmt.Errorf("show the guest's socket to Firecracker: %w", err)
	}
	return a, nil
}

// awaitExit waits for Firecracker's end and writes down how it came.
func (m *machine) awaitExit() {
	defer m.wg.Done()
	select {
	case <-m.watch.Done():
	case <-m.lifetime.Closed():
		return
	}
	exit := m.lifetime.End(func(destroyed bool) sandbox.Exit { return m.exitOf(destroyed, m.watch.Status()) })
	m.breakStreams()
	if m.guests != nil {
		_ = m.guests.Close()
	}
	m.p.c.Log.Info("firecracker: machine ended", "id", m.id, "reason", exit.Reason, "detail", exit.Detail)
}

// exitOf names the reason. The process is rarely our child, and few kernels
// tell others how it ended; but Firecracker says goodbye when it can.
func (m *machine) exitOf(destroyed bool, st hostproc.Status) sandbox.Exit {
	e := sandbox.Exit{Time: time.Now()}
	clean, said := m.jail.Ending()
	switch {
	case destroyed:
		e.Reason = sandbox.ReasonDestroyed
	case m.p.cgroups != nil && m.p.cgroups.Group(m.p.group(m.id)).OOMKills() > 0:
		e.Reason, e.Detail = sandbox.ReasonOutOfMemory, "the kernel ended the machine at its limit"
	case said && clean:
		e.Reason, e.Detail = sandbox.ReasonExited, cleanEnd
	case said:
		e.Reason, e.Detail = sandbox.ReasonExited, "Firecracker ended with an error"
	case st.Known && st.Signal == 0:
		e.Reason, e.Detail = sandbox.ReasonExited, fmt.Sprintf("status %d", st.Code)
	case st.Known:
		e.Reason, e.Detail = sandbox.ReasonKilled, "signal "+unix.SignalName(st.Signal)
	default:
		e.Reason, e.Detail = sandbox.ReasonKilled, "Firecracker ended without a word"
	}
	return e
}

// ID implements sandbox.Machine.
func (m *machine) ID() sandbox.ID { return m.id }

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// Dial implements sandbox.Machine. While the machine is paused it waits.
func (m *machine) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	for {
		m.mu.Lock()
		open := m.open
		m.mu.Unlock()
		select {
		case <-open:
		case <-m.lifetime.Gone():
			return nil, m.notRunning()
		case <-m.lifetime.Closed():
			return nil, m.notRunning()
		case <-ctx.Done():
			return nil, errs.Wrap(errs.Unavailable, ctx.Err(), "sandbox %s is paused", m.id)
		}
		raw, err := m.jail.Dial(ctx, jail.VsockSocket)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, errs.Wrap(errs.Unavailable, err, "sandbox %s cannot be reached", m.id)
		}
		c := &stream{Conn: raw, m: m}
		if !m.track(c) {
			_ = raw.Close()
			continue // paused in between
		}
		if err := c.greet(ctx, port); err != nil {
			return nil, err
		}
		return c, nil
	}
}

func (m *machine) notRunning() error {
	return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
}

// stream is a connection into the machine; all are known, because all must be
// closed before the machine is paused.
type stream struct {
	net.Conn
	m *machine
}

func (c *stream) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c)
	c.m.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends our half.
func (c *stream) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errs.New(errs.Unsupported, "this stream has no halves")
}

// greet asks Firecracker for the guest's vsock port, then the guest for the
// channel's. Where nothing listens yet, Firecracker just closes.
func (c *stream) greet(ctx context.Context, port uint32) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Conn.Close() })
	defer stop()
	deadline, _ := ctx.Deadline()
	err := wire.Connect(c, vsockPort, deadline)
	if err == nil {
		err = wire.Connect(c, port, deadline)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// track remembers a stream; false: there may be none now.
func (m *machine) track(c *stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.open:
		m.conns[c] = struct{}{}
		return true
	default:
		return false
	}
}

// shut closes all streams; none can be opened until reopen.
func (m *machine) shut() {
	m.mu.Lock()
	m.open = make(chan struct{})
	m.mu.Unlock()
	m.breakStreams()
}

func (m *machine) reopen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.open:
	default:
		close(m.open)
	}
}

func (m *machine) breakStreams() {
	m.guest.Close()
	if m.guests != nil {
		m.guests.Break()
	}
	m.mu.Lock()
	conns := make([]net.Conn, 0, len(m.conns))
	for c := range m.conns {
		conns = append(conns, c)
	}
	m.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// whileAlive ends the context when the machine does.
func (m *machine) whileAlive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	m.wg.Go(func() {
		select {
		case <-m.lifetime.Gone():
			cancel()
		case <-done:
		}
	})
	var once sync.Once
	return ctx, func() { once.Do(func() { close(done) }); cancel() }
}

// awaitGuest returns when the guest has answered. It asks again and again: a
// guest that does not listen yet looks like one that hangs up.
func (m *machine) awaitGuest(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, helloTimeout)
		_, err := m.guest.Hello(try)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), errs.Wrap(errs.Unavailable, err, "the guest does not answer"))
		}
		if !errs.Is(err, errs.Unavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("ask the guest: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(helloPause):
		}
	}
}

// explain adds what Firecracker and the guest's kernel said to an error of a
// boot, for the operator.
func (m *machine) explain(err error) error {
	select {
	case <-m.lifetime.Gone():
		e := m.lifetime.Exit()
		err = errs.Wrap(errs.Unavailable, err, "the machine ended before its guest answered (%s)", e.Detail)
	default:
	}
	for _, name := range []string{jail.Log, jail.Console} {
		if tail, rerr := m.jail.ReadTail(name, tailBytesMax); rerr == nil && len(tail) > 0 {
			err = fmt.Errorf("%w; %s ends with %q", err, name, strings.ToValidUTF8(string(tail), "?"))
		}
	}
	return err
}

// reconcile makes an attached machine what its record says. A server that
// died during a snapshot left it paused.
func (m *machine) reconcile(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attachTimeout)
		defer cancel()
	}
	ctx, stop := m.whileAlive(ctx)
	defer stop()
	m.opMu.Lock()
	defer m.opMu.Unlock()
	if _, err := m.api.Await(ctx); err != nil {
		return err
	}
	info, err := m.api.GetInfo(ctx)
	if err != nil {
		return err
	}
	paused := info.State == api.Paused
	switch {
	case paused && m.rec.Paused:
		m.shut()
		return nil // cannot answer, and need not
	case paused:
		if err := m.wake(ctx); err != nil {
			return err
		}
	case m.rec.Paused: // it died before it could pause
		m.rec.Paused = false
		if err := writeRecord(m.p.dir(m.id), m.rec); err != nil {
			return err
		}
	}
	if err := m.awaitGuest(ctx); err != nil {
		return err
	}
	return m.p.limitCPU(m.id, m.rec.CPUs)
}

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) { return m.lifetime.Wait(ctx) }

// Pause implements sandbox.Machine. It breaks all streams.
func (m *machine) Pause(ctx context.Context) error {
	m.opMu.Lock()
	defer m.opMu.Unlock()
	if m.lifetime.Ended() {
		return m.notRunning()
	}
	if m.rec.Paused {
		return nil
	}
	m.rec.Paused = true
	err := writeRecord(m.p.dir(m.id), m.rec)
	if err == nil {
		err = m.halt(ctx)
	}
	if err == nil {
		return nil
	}
	m.rec.Paused = false
	return errors.Join(fmt.Errorf("pause %s: %w", m.id, err), m.goOn(ctx), writeRecord(m.p.dir(m.id), m.rec))
}

// Resume implements sandbox.Machine.
func (m *machine) Resume(ctx context.Context) error {
	m.opMu.Lock()
	defer m.opMu.Unlock()
	if m.lifetime.Ended() {
		return m.notRunning()
	}
	if !m.rec.Paused {
		return nil
	}
	if err := m.wake(ctx); err != nil {
		return fmt.Errorf("resume %s: %w", m.id, err)
	}
	m.rec.Paused = false
	m.reopen()
	return writeRecord(m.p.dir(m.id), m.rec)
}

// halt closes all streams, lets the guest notice, and stops the virtual cpus.
// Until 1.17, Firecracker may spin for ever if packets of a stream are under
// way when a machine is paused and resumed. See also wake.
func (m *machine) halt(ctx context.Context) error {
	m.shut()
	select {
	case <-time.After(drainTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := m.api.GetInfo(ctx); err != nil { // it has done all that came before
		return err
	}
	return m.api.Pause(ctx)
}

// goOn is the way back from halt, however far it came.
func (m *machine) goOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attachTimeout)
	defer cancel()
	defer m.reopen()
	info, err := m.api.GetInfo(ctx)
	if err != nil || info.State != api.Paused {
		return err
	}
	return m.wake(ctx)
}

// vsockFixed is the first version that needs no help from wake.
var vsockFixed = api.Version{Major: 1, Minor: 17}

// wake lets a halted machine go on. Before 1.17, Firecracker then waits for
// the guest to acknowledge that all streams were reset, which only a snapshot
// tells the guest: after a plain pause no stream can be opened any more (its
// issue 6074, change 6100). So the guest is told, by a snapshot that has
// nowhere to go: it fails when everything but the writing is done.
func (m *machine) wake(ctx context.Context) error {
	if !m.told && !m.api.Version().AtLeast(vsockFixed) {
		const nowhere = "nowhere/file"
		err := m.api.CreateSnapshot(ctx, api.CreateSnapshot{Type: "Full", StatePath: nowhere, MemoryPath: nowhere})
		if _, refused := errors.AsType[*api.Fault](err); !refused {
			return errors.Join(errs.New(errs.Internal, "the guest cannot be told of its pause"), err)
		}
	}
	if err := m.api.Resume(ctx); err != nil {
		return err
	}
	m.told = false
	return nil
}

// Snapshot implements sandbox.Machine.
func (m *machine) Snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error {
	m.opMu.Lock()
	defer m.opMu.Unlock()
	if m.lifetime.Ended() {
		return m.notRunning()
	}
	err := error(nil)
	if !m.rec.Paused {
		err = m.halt(ctx)
	}
	if err == nil {
		err = m.write(ctx, dir)
	}
	if err == nil && frozen != nil {
		err = frozen(ctx)
	}
	if !m.rec.Paused {
		if rerr := m.goOn(ctx); rerr != nil { // it cannot go on: it has ended
			_ = m.rec.Process.Signal(unix.SIGKILL)
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", m.id, err)
	}
	return nil
}

// write fills dir while nothing moves; the manifest comes last.
func (m *machine) write(ctx context.Context, dir string) error {
	defer os.Remove(m.jail.Path(jail.State))
	defer os.Remove(m.jail.Path(jail.Memory))
	// A restored machine has the files it came from under these names, mapped
	// or read already; they must not be written.
	for _, name := range []string{jail.State, jail.Memory} {
		if err := os.Remove(m.jail.Path(name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	err := m.api.CreateSnapshot(ctx, api.CreateSnapshot{Type: "Full", StatePath: jail.State, MemoryPath: jail.Memory})
	if err != nil {
		return err
	}
	m.told = true
	for name, target := range map[string]string{jail.State: savedState, jail.Memory: savedMemory} {
		if err := m.jail.Take(name, filepath.Join(dir, target)); err != nil {
			return err
		}
	}
	layer, err := m.jail.Open(jail.Layer)
	if err != nil {
		return err
	}
	defer layer.Close()
	if info, err := layer.Stat(); err != nil || info.Size() != m.rec.Shape.LayerBytes {
		return errors.Join(errs.New(errs.Corrupt, "the root's layer has changed its size"), err)
	}
	if err := copySaved(layer, filepath.Join(dir, savedLayer)); err != nil {
		return err
	}
	return writeSaved(dir, m.rec.Shape)
}

// Destroy implements sandbox.Machine.
func (m *machine) Destroy(ctx context.Context) error { return m.p.Destroy(ctx, m.id) }

// Close implements sandbox.Machine.
func (m *machine) Close() error {
	m.lifetime.Release(func() {
		m.breakStreams()
		if m.guests != nil {
			_ = m.guests.Close()
		}
		m.wg.Wait()
		_ = m.watch.Close()
		m.guest.Close()
		m.api.Close()
		m.p.machines.Drop(m.id, m)
	})
	return nil
}
