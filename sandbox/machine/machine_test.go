package machine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type vm struct {
	closed bool
	err    error
}

func (v *vm) Close() error { v.closed = true; return v.err }

// making makes machines in a directory; clears counts.
type making struct {
	machine.Making[*vm]
	clears int
}

func newMaking(t *testing.T, boot func(context.Context) (*vm, error)) *making {
	m := &making{}
	m.Making = machine.Making[*vm]{
		Dir: filepath.Join(t.TempDir(), "claim"), BootTimeout: time.Minute, ClearTimeout: time.Minute, Boot: boot,
		Clear: func(ctx context.Context) error {
			m.clears++
			return errors.Join(ctx.Err(), os.RemoveAll(m.Dir))
		},
	}
	return m
}

func TestCreate_oneForAnID(t *testing.T) {
	tab, id := machine.NewTable[*vm](), sandbox.NewID()
	boot := func(ctx context.Context) (*vm, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a boot without a deadline")
		}
		v := &vm{}
		tab.Put(id, v)
		return v, nil
	}
	m := newMaking(t, boot)
	v, err := tab.Create(t.Context(), id, m.Making)
	if err != nil || tab.Known(id) != v {
		t.Fatalf("%v, %v", v, err)
	}
	if _, err := tab.Create(t.Context(), id, m.Making); !errs.Is(err, errs.Exists) || m.clears != 0 {
		t.Errorf("a known one: %v, cleared %d times", err, m.clears)
	}
	// Another process has it: nothing of it may be touched.
	if _, err := machine.NewTable[*vm]().Create(t.Context(), id, m.Making); !errs.Is(err, errs.Exists) || m.clears != 0 {
		t.Errorf("another's: %v, cleared %d times", err, m.clears)
	}
	tab.Drop(id, &vm{})
	if tab.Known(id) != v {
		t.Error("another's drop has forgotten it")
	}
	v.err = errors.New("x")
	if err := tab.Close(); !errors.Is(err, v.err) || !v.closed {
		t.Errorf("close: %v, %v", err, v.closed)
	}
	tab.Drop(id, v)
	if tab.Known(id) != nil {
		t.Error("it is still known")
	}
}

func TestCreate_thatFailsIsCleared(t *testing.T) {
	why := errors.New("why")
	m := newMaking(t, func(context.Context) (*vm, error) { return nil, why })
	tab, id := machine.NewTable[*vm](), sandbox.NewID()
	for n := range 2 { // the ID is free again
		if _, err := tab.Create(t.Context(), id, m.Making); !errors.Is(err, why) || m.clears != n+1 {
			t.Errorf("%v, cleared %d times", err, m.clears)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.Boot = func(context.Context) (*vm, error) { cancel(); return nil, why }
	if _, err := tab.Create(ctx, id, m.Making); !errors.Is(err, context.Canceled) || !errors.Is(err, why) || m.clears != 3 {
		t.Errorf("a caller that went away: %v, cleared %d times", err, m.clears)
	}
}

func TestCreate_waitsForASlot(t *testing.T) {
	m := newMaking(t, func(context.Context) (*vm, error) { return &vm{}, nil })
	m.Slots = make(chan struct{}, 1)
	m.Slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := machine.NewTable[*vm]().Create(ctx, sandbox.NewID(), m.Making); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(m.Dir); err == nil {
		t.Error("it has claimed its name while it waited")
	}
	<-m.Slots
	if _, err := machine.NewTable[*vm]().Create(t.Context(), sandbox.NewID(), m.Making); err != nil || len(m.Slots) != 0 {
		t.Errorf("%v, %d slots taken", err, len(m.Slots))
	}
}

// What machines share is removed after a Close: no Create may be making anything then.
func TestClose_overtakesACreate(t *testing.T) {
	tab, id := machine.NewTable[*vm](), sandbox.NewID()
	booting := make(chan struct{})
	m := newMaking(t, func(ctx context.Context) (*vm, error) {
		close(booting)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	created := make(chan error, 1)
	go func() {
		_, err := tab.Create(t.Context(), id, m.Making)
		created <- err
	}()
	<-booting
	if err := tab.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(m.Dir); err == nil || m.clears != 1 {
		t.Errorf("after the close its claim is there (%v), cleared %d times", err, m.clears)
	}
	if err := <-created; !errors.Is(err, machine.ErrClosed) {
		t.Errorf("create: %v", err)
	}
	if _, err := tab.Create(t.Context(), sandbox.NewID(), m.Making); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a create after the close: %v", err)
	}
}

func TestDestroy_overtakesACreate(t *testing.T) {
	tab, id := machine.NewTable[*vm](), sandbox.NewID()
	booting, release := make(chan struct{}), make(chan struct{})
	m := newMaking(t, func(ctx context.Context) (*vm, error) {
		close(booting)
		<-ctx.Done()
		<-release
		return nil, ctx.Err()
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := tab.Create(t.Context(), id, m.Making); !errors.Is(err, machine.ErrDestroyed) {
			t.Errorf("create: %v", err)
		}
	})
	<-booting
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tab.Destroy(gone, id, time.Minute, func(context.Context) error { t.Error("cleared side by side"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a destroy that cannot wait: %v", err)
	}
	wg.Go(func() {
		err := tab.Destroy(t.Context(), id, time.Minute, func(context.Context) error {
			if m.clears != 1 {
				t.Error("it did not wait for the create's end")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	close(release)
	wg.Wait()
	why := errors.New("why")
	if err := tab.Destroy(t.Context(), id, time.Minute, func(context.Context) error { return why }); !errors.Is(err, why) {
		t.Errorf("destroy: %v", err)
	}
}

func TestDestroy_overtakesWorkOnAMachine(t *testing.T) {
	tab, id := machine.NewTable[*vm](), sandbox.NewID()
	tab.Put(id, &vm{})
	ctx, land, err := tab.Work(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tab.Work(t.Context(), id); !errs.Is(err, errs.Unavailable) {
		t.Errorf("two at once: %v", err)
	}
	landed := false
	var wg sync.WaitGroup
	wg.Go(func() {
		err := tab.Destroy(t.Context(), id, time.Minute, func(context.Context) error {
			if !landed {
				t.Error("it did not wait for the work's end")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, machine.ErrDestroyed) {
		t.Errorf("the work was ended by %v", cause)
	}
	landed = true
	land()
	wg.Wait()
	_, land, err = tab.Work(t.Context(), id)
	if err != nil {
		t.Fatalf("work after work: %v", err)
	}
	land()
}

func TestFate(t *testing.T) {
	f := machine.NewLifetime("sbx_x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Wait(ctx); !errors.Is(err, context.Canceled) || f.Ended() {
		t.Errorf("before its end: %v, %v", err, f.Ended())
	}
	f.Doom(true)
	for range 2 { // the second has no effect
		got := f.End(func(destroyed bool) sandbox.Exit {
			f.Doom(false)
			if destroyed {
				return sandbox.Exit{Reason: sandbox.ReasonDestroyed}
			}
			return sandbox.Exit{Reason: sandbox.ReasonKilled}
		})
		if got.Reason != sandbox.ReasonDestroyed {
			t.Errorf("ended by %q", got.Reason)
		}
	}
	closes := 0
	for range 2 {
		f.Release(func() { closes++ })
	}
	if closes != 1 {
		t.Errorf("let go %d times", closes)
	}
	// Its end is known although we have let go of it, and ctx is over.
	if e, err := f.Wait(ctx); err != nil || e.Reason != sandbox.ReasonDestroyed {
		t.Errorf("after its end: %+v, %v", e, err)
	}
	f.Settle(t.Context())

	f = machine.NewLifetime("sbx_x")
	f.Release(func() {})
	if _, err := f.Wait(t.Context()); !errs.Is(err, errs.Unavailable) || !f.Ended() {
		t.Errorf("one that we let go of: %v", err)
	}
	f.Settle(t.Context())
}

func TestDial_afterTheEndThereIsNone(t *testing.T) {
	f := machine.NewLifetime(sandbox.NewID())
	dial := func() (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		return near, nil
	}
	conn, err := f.Dial(dial)
	if err != nil || conn == nil {
		t.Fatalf("dial a machine that runs: %v, %v", conn, err)
	}
	during := func() (net.Conn, error) {
		c, err := dial()
		f.End(func(bool) sandbox.Exit { return sandbox.Exit{Reason: sandbox.ReasonKilled} })
		conn = c
		return c, err
	}
	if c, err := f.Dial(during); c != nil || !errs.Is(err, errs.Unavailable) {
		t.Errorf("the machine ended while it was dialled: %v, %v", c, err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("its connection is open: %v", err)
	}
	if c, err := f.Dial(func() (net.Conn, error) { panic("dialled") }); c != nil || !errs.Is(err, errs.Unavailable) {
		t.Errorf("dial a machine that ended: %v, %v", c, err)
	}
}
