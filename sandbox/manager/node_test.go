package manager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/store"
)

// fakeLeases give one lease, and take it away when the test says so.
type fakeLeases struct {
	mu    sync.Mutex
	taken bool // by another server
	lost  chan struct{}
	held  int
}

func (l *fakeLeases) Hold(context.Context, string, string, time.Duration) (<-chan struct{}, func(context.Context) error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken {
		return nil, nil, errs.New(errs.Exists, "held by another")
	}
	l.lost = make(chan struct{})
	l.held++
	return l.lost, func(context.Context) error { return nil }, nil
}

func (l *fakeLeases) take(taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = taken
	if taken {
		close(l.lost)
	}
}

func TestNode_noChangesWithoutItsLease(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		l := &fakeLeases{}
		c := w.config(nil)
		c.Leases = l
		m := w.open(t, c)
		id := create(t, m, "t", sandbox.Spec{}).ID
		l.take(true)
		synctest.Wait()
		_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
		wantClass(t, "create without the lease", err, errs.Unavailable)
		_, err = m.Stop(t.Context(), "t", id)
		wantClass(t, "stop without the lease", err, errs.Unavailable)
		if len(w.ids()) != 1 {
			t.Error("the machine was taken away")
		}
		l.take(false)
		pass(time.Minute)
		if _, err := m.Stop(t.Context(), "t", id); err != nil {
			t.Errorf("stop with the lease back: %v", err)
		}
		if l.held != 2 {
			t.Errorf("held %d times", l.held)
		}
	})
}

// Two servers on one store cannot be the same node; one that comes back after
// a crash need not wait for its own lease to expire.
func TestNode_oneServerEach(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	leases, err := s.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, elsewhere := newWorld(t), newWorld(t)
	c := w.config(nil)
	c.Leases = leases
	m := w.open(t, c)
	other := elsewhere.config(nil)
	other.Leases = leases
	_, err = manager.Open(t.Context(), other)
	wantClass(t, "the same node on another host", err, errs.Exists)
	other.Node = "two"
	elsewhere.open(t, other)
	// A crash: the lease is not given back, the directory's lock is free.
	crashed := c
	crashed.Leases = keptLeases{leases}
	m = reopen(t, w, m, crashed)
	_ = m.Close()
	w.open(t, c)
}

// keptLeases never give a lease back, as a server that crashes.
type keptLeases struct{ l *store.Leases }

func (k keptLeases) Hold(ctx context.Context, key, holder string, ttl time.Duration) (<-chan struct{}, func(context.Context) error, error) {
	lost, _, err := k.l.Hold(ctx, key, holder, ttl)
	return lost, func(context.Context) error { return nil }, err
}

// A sandbox whose record is another node's is not found missing: who asks for
// it learns where it is, and what is of it on this host stays.
func TestRecordsOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	c.Node = "first"
	m := w.open(t, c)
	info := create(t, m, "t", sandbox.Spec{Name: "web"})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	c.Node = "second"
	other := w.open(t, c)
	for what, err := range map[string]error{
		"stop":    func() error { _, err := other.Stop(t.Context(), "t", info.ID); return err }(),
		"destroy": other.Destroy(t.Context(), "t", info.ID),
	} {
		wantClass(t, what, err, errs.Conflict)
		if text := errs.Public(err); !strings.Contains(text, "another node") || !strings.Contains(text, "first") {
			t.Errorf("%s: %s", what, text)
		}
	}
	if id, err := other.Find(t.Context(), "t", "web"); id != info.ID || err != nil {
		t.Errorf("by name: %q, %v", id, err)
	}
	_, err := other.Find(t.Context(), "stranger", "web")
	wantClass(t, "by name, of another tenant", err, errs.NotFound)
	_, err = other.Get(t.Context(), "stranger", info.ID)
	wantClass(t, "of another tenant", err, errs.NotFound)
	_, err = other.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "web"}})
	wantClass(t, "a name of another node's sandbox", err, errs.Exists)
	if w.machine(info.ID) == nil {
		t.Error("its machine was ended")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	c.Node, c.Formerly = "third", []string{"first"} // the first one, with an identity now
	third := w.open(t, c)
	if i, err := third.Stop(t.Context(), "t", info.ID); err != nil || i.State != sandbox.Stopped {
		t.Errorf("under its new name: %s, %v", i.State, err)
	}
	findName(t, third, "t", "web", info.ID)
}
