package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Waits.
const (
	retryMin  = 100 * time.Millisecond
	retryMax  = 5 * time.Second
	dialRetry = 50 * time.Millisecond
	dialMax   = 10 * time.Second // of a dial without a deadline
	// silentDialMax is of a dial while the service is known not to answer: the call that
	// it is for fails soon, and its client may repeat it.
	silentDialMax = 1500 * time.Millisecond
)

// machine is one that we follow.
type machine struct {
	id       sandbox.ID
	p        *Provider
	record   record
	guest    *wire.Client
	lifetime *shared.Lifetime
	stop     context.CancelFunc
	wg       sync.WaitGroup

	pausing sync.Mutex // one change at a time; taken before mu

	mu     sync.Mutex // guards all below
	paused bool
	heard  time.Time // when the service last said that there is the machine
	silent error     // what it did not answer since; nil: it does
	missed bool      // the newest dial had no answer

	look chan struct{} // has the service asked now; one is enough
}

func (p *Provider) follow(id sandbox.ID, r record, paused bool) *machine {
	ctx, stop := context.WithCancel(context.Background())
	m := &machine{id: id, p: p, record: r, stop: stop, lifetime: shared.NewLifetime(id), paused: paused, heard: time.Now(), look: make(chan struct{}, 1)}
	m.guest = wire.NewClient(m.Dial)
	m.wg.Go(func() { m.keep(ctx) })
	m.wg.Go(func() { m.await(ctx) })
	p.machines.Put(id, m)
	return m
}

// end notes how the machine ended.
func (m *machine) end(reason, detail string) {
	e := m.lifetime.End(func(destroyed bool) sandbox.Exit {
		if destroyed {
			reason, detail = sandbox.ReasonDestroyed, ""
		}
		return sandbox.Exit{Reason: reason, Detail: detail, Time: time.Now()}
	})
	m.stop()
	m.p.c.Log.Info("a machine elsewhere ended", "provider", m.p.c.Name, "id", m.id, "reason", e.Reason, "detail", e.Detail)
}

// keep winds the machine's time up until it has ended or ctx has. A service that was
// silent for as long as that time is has ended it.
func (m *machine) keep(ctx context.Context) {
	wait := time.Duration(0)
	for m.rest(ctx, wait) == nil {
		err := m.p.c.Service.Keep(ctx, m.record.Place, m.p.c.Keep)
		if err != nil && ctx.Err() == nil { // one that is paused may not be wound up, and lives
			_, err = m.p.c.Service.Look(ctx, m.record.Place)
		}
		if ctx.Err() != nil {
			return
		}
		since, again := m.note(err)
		switch {
		case errs.Is(err, errs.NotFound):
			m.end(sandbox.ReasonLost, "the service has no such machine any more, and does not tell how it ended ("+errs.Public(err)+")")
			return
		case err != nil && since >= m.p.c.Keep:
			m.end(sandbox.ReasonLost, fmt.Sprintf("its service was asked for %s, and would have ended it by then: %s", since.Round(time.Second), errs.Public(err)))
			return
		case err == nil:
			wait = m.p.c.Keep / 3
		case again:
			wait = min(max(2*wait, retryMin), retryMax, m.p.c.Keep/3)
		default:
			wait = retryMin
		}
	}
}

// rest waits, until a dial had no answer at the longest.
func (m *machine) rest(ctx context.Context, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.look:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// note remembers whether the service answers, and returns for how long it did not, and
// whether that was so before.
func (m *machine) note(err error) (since time.Duration, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	again = m.silent != nil
	if err == nil {
		if again {
			m.p.c.Log.Info("the service of a machine answers again", "provider", m.p.c.Name, "id", m.id)
		}
		m.heard, m.silent, m.missed = time.Now(), nil, false
		return 0, again
	}
	if !again {
		m.p.c.Log.Warn("the service of a machine does not answer", "provider", m.p.c.Name, "id", m.id, "error", err)
	}
	m.silent = err
	return time.Since(m.heard), again
}

// await waits for the end of the guest's program.
func (m *machine) await(ctx context.Context) {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		began := time.Now()
		how, err := m.p.c.Service.Await(ctx, m.record.Place, m.record.Program)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			m.end(sandbox.ReasonExited, how)
			return
		}
		if time.Since(began) > retryMax {
			wait = retryMin
		}
		if _, err := m.p.c.Service.Look(ctx, m.record.Place); errs.Is(err, errs.NotFound) && ctx.Err() == nil {
			m.end(sandbox.ReasonLost, "the service has no such machine any more, and does not tell how it ended ("+errs.Public(err)+")")
			return
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// ID implements sandbox.Machine.
func (m *machine) ID() sandbox.ID { return m.id }

// Dial implements sandbox.Machine. It waits for a guest that does not listen yet, or is
// being started anew; for a service that is known not to answer it waits a moment.
func (m *machine) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	return m.lifetime.Dial(func() (net.Conn, error) {
		limited, cancel := m.limit(ctx)
		defer cancel()
		conn, err := m.dial(limited, port)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = errs.Wrap(errs.Unavailable, err, "the machine, which is elsewhere, does not answer").WithCode(errs.Unreachable)
		}
		m.dialled(err)
		return conn, err
	})
}

// limit bounds a dial.
func (m *machine) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missed || m.silent != nil {
		return context.WithTimeout(ctx, silentDialMax)
	}
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, dialMax)
}

// dialled remembers whether a dial had an answer. At the first that had none the service
// is asked how it is, so that a slow one is not given up for long.
func (m *machine) dialled(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.missed = false
	case errs.Code(err) == errs.Unreachable && !m.missed:
		m.missed = true
		select {
		case m.look <- struct{}{}:
		default:
		}
	}
}

func (m *machine) dial(ctx context.Context, port uint32) (net.Conn, error) {
	const name = "a stream to the machine"
	for wait := dialRetry; ; wait = min(2*wait, time.Second) {
		at, header, err := m.p.c.Service.Address(ctx, m.record.Place, m.record.Port)
		if err != nil {
			return nil, err
		}
		conn, err := channel.DialSocket(ctx, at, header, m.record.Token, port)
		if err == nil || ctx.Err() != nil {
			return conn, errors.Join(err, ctx.Err())
		}
		closed := false
		if no, ok := errors.AsType[*channel.NoSocketError](err); ok {
			closed = no.Status == http.StatusBadGateway && !m.isPaused()
			err = refused(call{name: name}, no.Status, []byte(no.Body))
			if errs.Is(err, errs.NotFound) { // of a proxy: whether there is the machine says the API
				err = errs.Wrap(errs.Unavailable, err, "%s", errs.Public(err))
			}
		} else if errs.Of(err) == errs.Internal {
			err = silent(call{name: name}, err)
		}
		if !closed {
			return nil, err
		}
		select {
		case <-m.lifetime.Gone():
			return nil, err
		case <-m.lifetime.Closed():
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// Guest implements sandbox.Machine.
func (m *machine) Guest() *wire.Client { return m.guest }

// Wait implements sandbox.Machine.
func (m *machine) Wait(ctx context.Context) (sandbox.Exit, error) { return m.lifetime.Wait(ctx) }

func (m *machine) isPaused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paused
}

func (m *machine) setPaused(paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = paused
}

// Pause implements sandbox.Machine.
func (m *machine) Pause(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if !m.p.c.Service.CanPause() {
		return errs.New(errs.Unsupported, "provider %s cannot pause", m.p.c.Name)
	}
	if m.lifetime.Ended() {
		return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	if m.isPaused() {
		return nil
	}
	m.setPaused(true) // no dial waits for it from here
	err := m.p.c.Service.Pause(ctx, m.record.Place)
	if err != nil {
		m.setPaused(false)
	}
	return err
}

// Resume implements sandbox.Machine.
func (m *machine) Resume(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if !m.p.c.Service.CanPause() {
		return errs.New(errs.Unsupported, "provider %s cannot pause", m.p.c.Name)
	}
	if m.lifetime.Ended() {
		return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	if !m.isPaused() {
		return nil
	}
	if err := m.p.c.Service.Resume(ctx, m.record.Place, m.p.c.Keep); err != nil {
		return err
	}
	m.setPaused(false)
	return nil
}

// Snapshot implements sandbox.Machine.
func (m *machine) Snapshot(context.Context, string, func(context.Context) error) error {
	return m.p.errNoSnapshot()
}

// Destroy implements sandbox.Machine.
func (m *machine) Destroy(ctx context.Context) error { return m.p.Destroy(ctx, m.id) }

// Close implements sandbox.Machine.
func (m *machine) Close() error {
	m.lifetime.Release(func() {
		m.stop()
		m.wg.Wait()
		m.guest.Close()
		m.p.machines.Drop(m.id, m)
	})
	return nil
}
