package manager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// heldWatch is a registry whose watches stand still while they are held.
type heldWatch struct {
	kv.Store
	mu   sync.Mutex
	goOn chan struct{} // closed: they go on
}

func newHeldWatch(r kv.Store) *heldWatch {
	h := &heldWatch{Store: r, goOn: make(chan struct{})}
	close(h.goOn)
	return h
}

func (h *heldWatch) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	goOn := make(chan struct{})
	h.goOn = goOn
	return func() { close(goOn) }
}

func (h *heldWatch) Watch(ctx context.Context, prefix string, visit func(kv.Change) error) error {
	return h.Store.Watch(ctx, prefix, func(c kv.Change) error {
		h.mu.Lock()
		goOn := h.goOn
		h.mu.Unlock()
		select {
		case <-goOn:
			return visit(c)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// twoNodes opens two managers on two hosts and one store; the second one's watches
// can be held.
func twoNodes(t *testing.T, w *world, l sandbox.Limits) (one, two *manager.Manager, other *world, held *heldWatch) {
	t.Helper()
	other = newWorld(t)
	other.registry, other.events = w.registry, w.events
	c, d := w.config(nil), other.config(nil)
	c.Leases, c.Limits = &fakeLeases{}, l
	held = newHeldWatch(d.Registry)
	d.Node, d.Leases, d.Limits, d.Registry = "two", &fakeLeases{}, l, held
	one, two = w.open(t, c), other.open(t, d)
	synctest.Wait()
	return one, two, other, held
}

func TestNodes_knowWhatTheOthersMake(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		one, two, _, _ := twoNodes(t, w, sandbox.Limits{})
		info := create(t, one, "t", sandbox.Spec{Name: "web"})
		snap, err := one.Snapshot(t.Context(), "t", info.ID, sandbox.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		elsewhere := func(what string, err error) {
			t.Helper()
			wantClass(t, what, err, errs.Conflict)
			if text := errs.Public(err); !strings.Contains(text, `another node, "one"`) {
				t.Errorf("%s: %s", what, text)
			}
		}
		_, err = two.Get(t.Context(), "t", info.ID)
		elsewhere("a sandbox", err)
		findName(t, two, "t", "web", info.ID)
		findName(t, two, "t", string(info.ID[:8]), info.ID)
		_, err = two.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "web"}})
		wantClass(t, "a name of another node's sandbox", err, errs.Exists)
		_, err = two.GetSnapshot(t.Context(), "t", snap.ID)
		elsewhere("a snapshot", err)
		_, err = two.GetSnapshot(t.Context(), "stranger", snap.ID)
		wantClass(t, "another tenant's snapshot", err, errs.NotFound)
		if used := two.Used("t"); used.Sandboxes != 1 {
			t.Errorf("two counts %+v", used)
		}

		if err := one.DeleteSnapshot(t.Context(), "t", snap.ID); err != nil {
			t.Fatal(err)
		}
		if err := one.Destroy(t.Context(), "t", info.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = two.GetSnapshot(t.Context(), "t", snap.ID)
		wantClass(t, "a snapshot that is gone", err, errs.NotFound)
		if used := two.Used("t"); used.Sandboxes != 0 {
			t.Errorf("two counts %+v", used)
		}
		create(t, two, "t", sandbox.Spec{Name: "web"})
	})
}

// Of two nodes at the limit exactly one wins, also where one has not heard of what
// the other has just made.
func TestNodes_quotaIsCountedInTheStore(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		one, two, other, held := twoNodes(t, w, sandbox.Limits{Sandboxes: 2, TenantCPUs: 2})
		stopped := create(t, two, "t", sandbox.Spec{CPUs: 1})
		if _, err := two.Stop(t.Context(), "t", stopped.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		release := held.hold()
		first := create(t, one, "t", sandbox.Spec{CPUs: 2})
		late := make(chan error, 2)
		go func() {
			_, err := two.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{CPUs: 1}})
			late <- err
		}()
		go func() {
			_, err := two.Start(t.Context(), "t", stopped.ID)
			late <- err
		}()
		synctest.Wait()
		if len(late) > 0 || len(other.ids()) > 0 {
			t.Errorf("it did not wait: %d calls ended, machines %v", len(late), other.ids())
		}
		release()
		for range 2 {
			wantClass(t, "what comes second", <-late, errs.Limit)
		}
		wantState(t, two, stopped.ID, sandbox.Stopped, sandbox.ReasonStopped)
		if page, err := two.List(t.Context(), "t", sandbox.Filter{}); err != nil || len(page.Items) != 1 || len(other.ids()) > 0 {
			t.Errorf("left: %+v, %v, machines %v", page.Items, err, other.ids())
		}
		if used := two.Used("t"); used.Sandboxes != 2 || used.CPUs != 2 {
			t.Errorf("two counts %+v", used)
		}

		if err := one.Destroy(t.Context(), "t", first.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := two.Start(t.Context(), "t", stopped.ID); err != nil {
			t.Errorf("start with room: %v", err)
		}
		create(t, two, "t", sandbox.Spec{CPUs: 1})
	})
}

// A store that does not tell what other nodes have lets nothing be made that may be
// too much.
func TestNodes_noAnswerIsNoRoom(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		_, two, other, held := twoNodes(t, w, sandbox.Limits{})
		release := held.hold()
		defer release()
		began := time.Now()
		_, err := two.Create(t.Context(), "t", sandbox.CreateRequest{})
		wantClass(t, "create", err, errs.Unavailable)
		if len(other.ids()) > 0 || time.Since(began) > time.Minute {
			t.Errorf("after %s there are %v", time.Since(began), other.ids())
		}
	})
}
