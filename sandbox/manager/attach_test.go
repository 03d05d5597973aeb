package manager_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// held is a host on which the attach of one sandbox hangs until it is let go.
type held struct {
	w     *world
	slow  sandbox.ID
	all   []sandbox.ID
	reach chan struct{} // closed when it hangs
	letGo func()
}

// holdAttach makes n sandboxes, and a server that finds them hangs at the first.
func holdAttach(t *testing.T, n int) *held {
	t.Helper()
	h := &held{w: newWorld(t), reach: make(chan struct{})}
	m := h.w.open(t, h.w.config(nil))
	for range n {
		h.all = append(h.all, create(t, m, "t", sandbox.Spec{}).ID)
	}
	h.slow = h.all[0]
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	h.letGo = sync.OnceFunc(func() { close(gate) })
	reached := sync.OnceFunc(func() { close(h.reach) })
	h.w.setSlow(func(step, id string) {
		if step == "attach" && id == string(h.slow) {
			reached()
			<-gate
		}
	})
	return h
}

// open opens a manager that hangs.
func (h *held) open(t *testing.T) *manager.Manager {
	t.Helper()
	m, err := manager.Open(t.Context(), h.w.config(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.letGo(); _ = m.Close() })
	<-h.reach
	return m
}

func hello(ctx context.Context, m *manager.Manager, id sandbox.ID) error {
	c, release, err := m.Guest(ctx, "t", id)
	if err != nil {
		return err
	}
	defer release()
	_, err = c.Hello(ctx)
	return err
}

// A machine whose attach hangs keeps neither the start of the server waiting nor
// any other sandbox; a call to it waits for it alone, and the machine is as it was.
func TestOpen_anAttachThatHangsKeepsNoOtherWaiting(t *testing.T) {
	h := holdAttach(t, 40) // more than are attached at the same time
	m := h.open(t)
	for _, id := range h.all[1:] {
		if err := hello(t.Context(), m, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	made := create(t, m, "t", sandbox.Spec{})
	if _, err := m.Stop(t.Context(), "t", made.ID); err != nil {
		t.Errorf("stop of a new one: %v", err)
	}
	eventually(t, "all others are attached", func() bool { done, total := m.Attaching(); return done == 39 && total == 40 })
	i, err := m.Get(t.Context(), "t", h.slow)
	if err != nil || i.State != sandbox.Running || !strings.Contains(i.Waiting, "39 of 40") {
		t.Errorf("the one that hangs: %s, waiting for %q, %v", i.State, i.Waiting, err)
	}
	answered := make(chan error)
	go func() { answered <- hello(t.Context(), m, h.slow) }()
	select {
	case err := <-answered:
		t.Fatalf("a call to the one that hangs did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	h.letGo()
	if err := <-answered; err != nil {
		t.Errorf("a call that waited: %v", err)
	}
	if err := m.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i, err := m.Get(t.Context(), "t", h.slow); err != nil || i.Waiting != "" || i.State != sandbox.Running {
		t.Errorf("afterwards: %s, waiting for %q, %v", i.State, i.Waiting, err)
	}
	if h.w.creates != 41 {
		t.Errorf("%d machines were booted, want 41", h.w.creates)
	}
	h.w.check(t, m, "t")
}

// What a call waits for is attached at once, however many before it hang.
func TestOpen_aCallDoesNotWaitForATurn(t *testing.T) {
	h := holdAttach(t, 40)
	gate := make(chan struct{})
	wanted := h.all[39]
	h.w.setSlow(func(step, id string) {
		if step == "attach" && id != string(wanted) {
			<-gate
		}
	})
	m, err := manager.Open(t.Context(), h.w.config(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer close(gate)
	if err := hello(t.Context(), m, wanted); err != nil {
		t.Error(err)
	}
}

// A call waits for some time, and is then told what it waited for; the sandbox is
// not lost for that.
func TestOpen_aCallIsToldWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holdAttach(t, 3)
		m := h.open(t)
		for what, call := range map[string]func() error{
			"guest": func() error { return hello(t.Context(), m, h.slow) },
			"stop":  func() error { _, err := m.Stop(t.Context(), "t", h.slow); return err },
			"files": func() error {
				return m.Files(t.Context(), "t", h.slow, func(context.Context, sandbox.Files) error { return nil })
			},
		} {
			err := call()
			wantClass(t, what, err, errs.Unavailable)
			if err == nil || !strings.Contains(err.Error(), "still being attached") {
				t.Errorf("%s: %v", what, err)
			}
		}
		h.letGo()
		if err := m.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := hello(t.Context(), m, h.slow); err != nil {
			t.Error(err)
		}
		_ = m.Close()
		h.w.end()
	})
}

// A sandbox can be destroyed, and the server stopped, while attaches hang that
// heed their context.
func TestOpen_anAttachThatHangsIsGivenUp(t *testing.T) {
	h := holdAttach(t, 3)
	m := h.open(t)
	done := make(chan error)
	go func() { done <- m.Destroy(t.Context(), "t", h.slow) }()
	eventually(t, "the destroy waits", func() bool { return manager.Waiters(m, "t") > 0 })
	h.letGo() // the fake heeds nothing
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := m.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(h.w.ids(), h.slow) {
		t.Error("its machine is still there")
	}
	h.w.check(t, m, "t")
	if err := hello(t.Context(), m, h.slow); errs.Of(err) != errs.NotFound {
		t.Errorf("afterwards: %v", err)
	}
}

// A server that stops while it attaches leaves all as it was.
func TestOpen_aServerThatStopsWhileItAttachesLosesNothing(t *testing.T) {
	h := holdAttach(t, 3)
	m, err := manager.Open(t.Context(), h.w.config(nil))
	if err != nil {
		t.Fatal(err)
	}
	<-h.reach
	closed := make(chan error)
	go func() { closed <- m.Close() }()
	h.letGo()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	h.w.setSlow(nil)
	m = h.w.open(t, h.w.config(nil))
	for _, id := range h.all {
		if err := hello(t.Context(), m, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	h.w.check(t, m, "t")
	if _, _, err := m.Guest(t.Context(), "other", h.slow); errs.Of(err) != errs.NotFound {
		t.Errorf("of another tenant: %v", err)
	}
}

// The keys of commands belong to the sandbox, whatever its machine is called.
func TestOpen_keepsTheKeysOfAWarmMachinesSandbox(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.warmed(nil, 1))
	waitWarm(t, m, 1)
	id := create(t, m, "t", sandbox.Spec{}).ID
	if slices.Contains(w.ids(), id) {
		t.Fatal("it was not made from a warm machine")
	}
	keys := filepath.Join(w.dir, "sandboxes", "keys", string(id))
	if err := errors.Join(os.MkdirAll(filepath.Dir(keys), 0o700), os.WriteFile(keys, nil, 0o600), m.Close()); err != nil {
		t.Fatal(err)
	}
	w.open(t, w.config(nil))
	if _, err := os.Stat(keys); err != nil {
		t.Error(err)
	}
}
