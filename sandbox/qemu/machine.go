package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel/mux"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
	"github.com/skete-dev/skete/sandbox/qemu/qmp"
)

// record is what a later process must know to attach; it is written when QEMU
// runs.
type record struct {
	QEMU   hostproc.Ref `json:"qemu"`
	Paused bool         `json:"paused,omitempty"`
	Shape  commandShape `json:"shape"`
	// Shared: the memory is a snapshot's, with changes that QEMU alone knows.
	Shared bool `json:"shared,omitempty"`
}

const recordName = "machine.json"

func readRecord(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// writeRecord replaces the file in one step: a reader after a crash finds the
// old or the new one.
func writeRecord(dir string, r record) error {
	return writeJSON(filepath.Join(dir, recordName), r)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// machine is one QEMU that we follow.
type machine struct {
	id       sandbox.ID
	p        *Provider
	line     *mux.Line
	guest    *wire.Client
	watch    *hostproc.Watch
	rec      record // as it was at first; paused below is what holds
	lifetime *shared.Lifetime
	ctx      context.Context
	cancel   context.CancelFunc // ends what follows QEMU
	wg       sync.WaitGroup

	turn   chan struct{} // held by who stops or moves QEMU; never together with mu
	paused bool          // by who holds turn

	mu        sync.Mutex
	control   *qmp.Client   // nil: being dialled
	dialled   chan struct{} // closed when control is there
	cause     *sandbox.Exit // that the guest's end was seen to have
	words     tail
	wordsFrom io.Closer
}

// follow makes the machine of a running QEMU.
func (p *Provider) follow(id sandbox.ID, rec record) (*machine, error) {
	watch, err := hostproc.Open(rec.QEMU)
	if err != nil {
		return nil, err
	}
	m := &machine{
		id: id, p: p, watch: watch, rec: rec, paused: rec.Paused,
		lifetime: shared.NewLifetime(id), turn: make(chan struct{}, 1), dialled: make(chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.line = mux.Open(func(ctx context.Context) (net.Conn, error) {
		return privdropDial(ctx, filepath.Join(p.dir(id), channelName))
	}, p.c.Serve.For(id))
	m.guest = wire.NewClient(m.Dial)
	m.wg.Go(m.awaitExit)
	m.wg.Go(m.attend)
	p.machines.Put(id, m)
	return m, nil
}

// hear keeps the last of QEMU's own words, for who asks why it ended.
func (m *machine) hear(from *os.File) {
	m.mu.Lock()
	m.wordsFrom = from
	m.mu.Unlock()
	m.wg.Go(func() {
		defer from.Close()
		buf := make([]byte, 1<<10)
		for {
			n, err := from.Read(buf)
			m.mu.Lock()
			m.words.add(buf[:n])
			m.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

// awaitExit waits for QEMU's end and writes down how it came.
func (m *machine) awaitExit() {
	select {
	case <-m.watch.Done():
	case <-m.lifetime.Closed():
		return
	}
	m.mu.Lock()
	cause, words := m.cause, m.words.String()
	m.mu.Unlock()
	exit := m.lifetime.End(func(destroyed bool) sandbox.Exit { return m.p.exitOf(m.id, destroyed, cause, m.watch.Status()) })
	_ = m.line.Close()
	m.p.c.Log.Info("qemu: machine ended", "id", m.id, "reason", exit.Reason, "detail", exit.Detail, "qemu", words)
}

// exitOf names the reason.
func (p *Provider) exitOf(id sandbox.ID, destroyed bool, cause *sandbox.Exit, st hostproc.Status) sandbox.Exit {
	e := sandbox.Exit{Time: time.Now()}
	switch {
	case destroyed:
		e.Reason = sandbox.ReasonDestroyed
	case cause != nil:
		e.Reason, e.Detail = cause.Reason, cause.Detail
	case p.cgroups != nil && p.group(id).OOMKills() > 0:
		e.Reason = sandbox.ReasonOutOfMemory
		e.Detail = fmt.Sprintf("the kernel ended QEMU at its limit; %d MiB were in use at most", p.group(id).MemoryMax()>>20)
	case st.Known && st.Signal != 0:
		e.Reason = sandbox.ReasonKilled
		e.Detail = "signal " + unix.SignalName(st.Signal)
	case st.Known:
		e.Reason = sandbox.ReasonExited
		e.Detail = fmt.Sprintf("status %d", st.Code)
	default:
		e.Reason = sandbox.ReasonExited
		e.Detail = "this kernel does not tell how"
	}
	return e
}

// ID implements sandbox.Machine.
func (m *machine) ID() sandbox.ID { return m.id }

// Dial implements sandbox.Machine.
func (m *machine) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	return m.lifetime.Dial(func() (net.Conn, error) { return m.line.Dial(ctx, port) })
}

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// awaitGuest returns when the guest has answered; early, if the machine ends.
func (m *machine) awaitGuest(ctx context.Context) error {
	err := m.lifetime.AwaitGuest(ctx, m.guest)
	if err != nil && !m.lifetime.Ended() {
		m.logConsole()
	}
	return err
}

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) { return m.lifetime.Wait(ctx) }

// Pause implements sandbox.Machine.
func (m *machine) Pause(ctx context.Context) error { return m.setPaused(ctx, true) }

// Resume implements sandbox.Machine.
func (m *machine) Resume(ctx context.Context) error { return m.setPaused(ctx, false) }

// take waits for the right to stop and move QEMU.
func (m *machine) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.lifetime.Ended() {
		<-m.turn
		return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	return nil
}

// setPaused writes the record before a pause and after a resume: a server
// that dies in between takes the machine for paused, which costs the next one
// nothing but a Hello, where the opposite would make it wait for a guest that
// cannot answer.
func (m *machine) setPaused(ctx context.Context, paused bool) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	defer func() { <-m.turn }()
	if m.paused == paused {
		return nil
	}
	was, rec, verb := m.rec, m.rec, "cont"
	was.Paused, rec.Paused = !paused, paused
	if paused {
		verb = "stop"
		if err := writeRecord(m.p.dir(m.id), rec); err != nil {
			return fmt.Errorf("pause %s: %w", m.id, err)
		}
	}
	if err := m.command(ctx, verb, nil, nil); err != nil {
		if paused { // it may or may not be: going on makes it certain
			_ = m.command(context.WithoutCancel(ctx), "cont", nil, nil)
			_ = writeRecord(m.p.dir(m.id), was)
		}
		return fmt.Errorf("%s %s: %w", verb, m.id, err)
	}
	m.paused = paused
	if !paused {
		return writeRecord(m.p.dir(m.id), rec)
	}
	return nil
}

// Destroy implements sandbox.Machine.
func (m *machine) Destroy(ctx context.Context) error { return m.p.Destroy(ctx, m.id) }

// Close implements sandbox.Machine.
func (m *machine) Close() error {
	m.lifetime.Release(func() {
		m.cancel()
		m.mu.Lock()
		if m.wordsFrom != nil {
			_ = m.wordsFrom.Close()
		}
		m.mu.Unlock()
		m.wg.Wait()
		_ = m.watch.Close()
		m.guest.Close()
		_ = m.line.Close()
		m.p.machines.Drop(m.id, m)
	})
	return nil
}
