package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// record is what a later process must know to attach; it is written when the
// sentry runs.
type record struct {
	Sentry hostproc.Ref `json:"sentry"`
	Gofer  hostproc.Ref `json:"gofer"`
	Paused bool         `json:"paused,omitempty"`
	// Suspended: the sentry is stopped by a signal; see machine.Suspend.
	Suspended bool `json:"stunned,omitempty"`
	// Program is what the machine runs; "" in records of earlier versions.
	Program string `json:"program,omitempty"`
	// Rootfs and DiskMB are what the machine was made with and a snapshot must
	// know; a record of an earlier version has no Rootfs.
	Rootfs string `json:"rootfs,omitempty"`
	DiskMB int    `json:"disk_mb,omitempty"`
	// RawSockets: the guest redirects connections (guest/capture).
	RawSockets bool `json:"raw_sockets,omitempty"`
	// Saving is the directory of a snapshot under way: the sentry ends when it
	// has written it, and another one goes on from there.
	Saving string `json:"saving,omitempty"`
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
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+recordName)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordName))
}

// machine is one sentry that we follow.
type machine struct {
	id       sandbox.ID
	p        *Provider
	channel  *channel.Host
	guest    *wire.Client
	kills    *memoryKills
	lifetime *shared.Lifetime
	next     chan struct{} // after a sentry ended for a snapshot: watch is of the one that goes on, or as it was
	wg       sync.WaitGroup

	pauseMu sync.Mutex // held while runsc works; mu may be taken under it
	paused  bool

	mu     sync.Mutex // guards all below
	rec    record     // but for Paused: paused is what holds
	watch  *hostproc.Watch
	saving bool          // the sentry will end, and that is no end
	lost   *sandbox.Exit // no other sentry could go on
}

// follow makes the machine of a running sentry. host may be nil: then the
// channel is opened again at the place where the guest looks for it.
func (p *Provider) follow(id sandbox.ID, rec record, host *channel.Host) (*machine, error) {
	watch, err := hostproc.Open(rec.Sentry)
	if err != nil {
		return nil, err
	}
	if host == nil {
		err := p.openDoor(id)
		if err == nil {
			host, err = p.listen(id)
		}
		if err := errors.Join(err, p.shutDoor(id)); err != nil {
			_ = watch.Close()
			return nil, err
		}
	}
	m := &machine{
		id: id, p: p, channel: host, watch: watch, rec: rec, paused: rec.Paused,
		lifetime: shared.NewLifetime(id), next: make(chan struct{}, 1),
	}
	m.kills = &memoryKills{count: m.oomKills, taken: map[string]bool{}}
	m.guest = wire.NewClient(m.Dial, connect.WithInterceptors(m.kills))
	m.wg.Add(1)
	go m.awaitExit()
	p.machines.Put(id, m)
	return m, nil
}

// awaitExit waits for the machine's end and writes down how it came.
func (m *machine) awaitExit() {
	defer m.wg.Done()
	var watch *hostproc.Watch
	for {
		rec, w, _ := m.now()
		watch = w
		select {
		case <-watch.Done():
		case <-m.lifetime.Closed():
			return
		}
		_, _ = unix.Wait4(rec.Gofer.PID, nil, unix.WNOHANG, nil) // if it is our child
		if _, _, saving := m.now(); !saving {
			break
		}
		select {
		case <-m.next:
		case <-m.lifetime.Closed():
			return
		}
		if _, w, _ := m.now(); w == watch {
			break // no sentry follows
		}
		_ = watch.Close()
	}
	exit := m.lifetime.End(func(destroyed bool) sandbox.Exit { return m.exitOf(destroyed, watch.Status()) })
	_ = m.channel.Close()
	m.p.c.Log.Info("gvisor: machine ended", "id", m.id, "reason", exit.Reason, "detail", exit.Detail)
}

// now is who the machine is.
func (m *machine) now() (rec record, watch *hostproc.Watch, saving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rec, m.watch, m.saving
}

// oomKills counts the processes of the machine that the kernel has killed for
// want of memory.
func (m *machine) oomKills() uint64 {
	if m.p.cgroups == nil {
		return 0
	}
	return m.p.group(m.id).OOMKills()
}

// exitOf names the reason. The kernel's out-of-memory killer may take any
// process of the group; whichever it was, the group's counter tells.
func (m *machine) exitOf(destroyed bool, st hostproc.Status) sandbox.Exit {
	m.mu.Lock()
	lost := m.lost
	m.mu.Unlock()
	e := sandbox.Exit{Time: time.Now()}
	switch {
	case lost != nil:
		return *lost
	case destroyed:
		e.Reason = sandbox.ReasonDestroyed
	case m.oomKills() > 0:
		e.Reason = sandbox.ReasonOutOfMemory
		e.Detail = fmt.Sprintf("the kernel ended the machine at its limit; %d MiB were in use at most", m.p.group(m.id).MemoryMax()>>20)
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
	return m.lifetime.Dial(func() (net.Conn, error) { return m.channel.Dial(ctx, port) })
}

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) { return m.lifetime.Wait(ctx) }

// Pause implements sandbox.Machine.
func (m *machine) Pause(ctx context.Context) error { return m.setPaused(ctx, true) }

// Resume implements sandbox.Machine.
func (m *machine) Resume(ctx context.Context) error { return m.setPaused(ctx, false) }

// setPaused writes the record before a pause and after a resume: a server
// that dies in between takes the machine for paused, which costs the next one
// nothing but a Hello, where the opposite would make it wait for a guest that
// cannot answer.
func (m *machine) setPaused(ctx context.Context, paused bool) error {
	m.pauseMu.Lock()
	defer m.pauseMu.Unlock()
	if m.lifetime.Ended() {
		return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	if m.paused == paused {
		return nil
	}
	was, _, _ := m.now()
	rec, verb := was, "resume"
	was.Paused, rec.Paused = !paused, paused
	if paused {
		verb = "pause"
		if err := writeRecord(m.p.dir(m.id), rec); err != nil {
			return fmt.Errorf("pause %s: %w", m.id, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := m.p.runsc(ctx, m.id, rec, verb, string(m.id)); err != nil {
		if paused { // it may or may not be: resume makes it certain
			again, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
			defer cancel()
			_ = m.p.runsc(again, m.id, rec, "resume", string(m.id))
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
		m.wg.Wait()
		_, watch, _ := m.now()
		_ = watch.Close()
		m.guest.Close()
		_ = m.channel.Close()
		m.p.machines.Drop(m.id, m)
	})
	return nil
}
