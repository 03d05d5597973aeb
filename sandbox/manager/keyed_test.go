package manager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// forkIDs forks three, by the key "k".
func forkIDs(t *testing.T, m *manager.Manager, of sandbox.ID) (ids []string, err error) {
	t.Helper()
	infos, err := m.Fork(t.Context(), "t", of, sandbox.ForkRequest{Count: 3, Key: "k", Changes: sandbox.Changes{Name: "copy"}})
	for _, i := range infos {
		ids = append(ids, string(i.ID))
	}
	return ids, err
}

// snapshotIDs takes a snapshot, by the key "k".
func snapshotIDs(t *testing.T, m *manager.Manager, of sandbox.ID) (ids []string, err error) {
	t.Helper()
	s, err := m.Snapshot(t.Context(), "t", of, sandbox.SnapshotRequest{Name: "copy", Key: "k"})
	return []string{string(s.ID)}, err
}

// A server dies at any step of a fork or a snapshot that has a key. The same
// request to the next server gives what was acknowledged, or all of it now:
// never more than was asked for, and forks that go on from one moment.
func TestCrash_theSameKeyGivesTheSame(t *testing.T) {
	for name, do := range map[string]func(*testing.T, *manager.Manager, sandbox.ID) ([]string, error){
		"fork": forkIDs, "snapshot": snapshotIDs,
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%t", name, after), func(t *testing.T) {
				for step := 1; ; step++ {
					if step > 100 {
						t.Fatal("it never ends")
					}
					w := newWorld(t)
					g := &gate{}
					m, err := openSettled(t.Context(), w.config(g))
					if err != nil {
						t.Fatal(err)
					}
					id := create(t, m, "t", sandbox.Spec{}).ID
					w.write(t, id, "before")
					g.mu.Lock()
					g.dieAt, g.after = g.steps+step, after
					g.mu.Unlock()
					acked, err := do(t, m, id)
					died := g.died()
					g.mu.Lock()
					g.dead = true
					g.mu.Unlock()
					_ = m.Close()
					m = w.open(t, w.config(nil))
					w.write(t, id, "later")
					for range 2 {
						again, aerr := do(t, m, id)
						if aerr != nil || err == nil && !slices.Equal(again, acked) {
							t.Fatalf("dead at step %d: %v, %v; acknowledged was %v, %v", step, again, aerr, acked, err)
						}
						acked, err = again, nil
					}
					countCopies(t, w, m, name, step)
					w.check(t, m, "t")
					_ = m.Close()
					if !died {
						t.Logf("%d steps", step-1)
						return
					}
				}
			})
		}
	}
}

func countCopies(t *testing.T, w *world, m *manager.Manager, name string, step int) {
	t.Helper()
	page, err := m.List(t.Context(), "t", sandbox.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, i := range page.Items {
		if strings.HasPrefix(i.Spec.Name, "copy") { // forks are numbered
			texts[w.read(i.ID)] = true
		}
	}
	snapshots, forks := len(m.ListSnapshots(t.Context(), "t")), len(page.Items)-1
	if name == "fork" && (forks != 3 || snapshots != 0 || len(texts) != 1) || name == "snapshot" && (snapshots != 1 || forks != 0) {
		t.Errorf("dead at step %d: %d forks, %d snapshots, files of %v", step, forks, snapshots, texts)
	}
}

// Many ask with one key at once: they get the same, also when the original is
// gone. The key is refused for anything else.
func TestKey_oneForkForAll(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	other := create(t, m, "t", sandbox.Spec{}).ID
	var all [8][]string
	var wg sync.WaitGroup
	for n := range all {
		wg.Go(func() {
			var err error
			do := forkIDs
			if n%2 == 1 {
				do = snapshotIDs
			}
			if all[n], err = do(t, m, id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := m.Destroy(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	for n, ids := range all {
		do := forkIDs
		if n%2 == 1 {
			do = snapshotIDs
		}
		if again, err := do(t, m, id); err != nil || !slices.Equal(again, ids) || !slices.Equal(ids, all[n%2]) {
			t.Errorf("%v, then %v, %v", ids, again, err)
		}
	}
	_, err := forkIDs(t, m, other)
	wantClass(t, "the key for another's fork", err, errs.Conflict)
	_, err = m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: 2, Key: "k", Changes: sandbox.Changes{Name: "copy"}})
	wantClass(t, "the key for fewer", err, errs.Conflict)
	_, err = m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: 4, Key: "k", Changes: sandbox.Changes{Name: "copy"}})
	wantClass(t, "the key for more", err, errs.Conflict)
	_, err = snapshotIDs(t, m, other)
	wantClass(t, "the key for another's snapshot", err, errs.Conflict)
	_, err = m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{Name: "copy", Key: "k", DiskOnly: true})
	wantClass(t, "the key for another kind of snapshot", err, errs.Conflict)
	_, err = m.Fork(t.Context(), "t", other, sandbox.ForkRequest{Key: "a\nb"})
	wantClass(t, "no key", err, errs.Invalid)
	_, err = m.Snapshot(t.Context(), "t", other, sandbox.SnapshotRequest{Key: "a\nb"})
	wantClass(t, "no key", err, errs.Invalid)
	page, err := m.List(t.Context(), "t", sandbox.Filter{})
	if err != nil || len(page.Items) != 1+3 {
		t.Errorf("%d sandboxes, %v", len(page.Items), err)
	}
	w.check(t, m, "t")
}

// A fork that failed left nothing: its key can be tried again.
func TestKey_afterAForkThatFailed(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	running := func() (n int) {
		page, err := m.List(t.Context(), "t", sandbox.Filter{})
		if err != nil {
			t.Error(err)
		}
		for _, i := range page.Items {
			if i.State == sandbox.Running {
				n++
			}
		}
		return n
	}
	var boots atomic.Int32
	w.setBoot(func(context.Context, sandbox.ID) error {
		if boots.Add(1) != 3 {
			return nil
		}
		eventually(t, "the others run", func() bool { return running() == 3 })
		return errs.New(errs.Unavailable, "no machine for this one")
	})
	_, err := forkIDs(t, m, id)
	wantClass(t, "one does not boot", err, errs.Unavailable)
	if n := running(); n != 1 {
		t.Errorf("%d run", n)
	}
	ids, err := forkIDs(t, m, id)
	if err != nil || len(ids) != 3 {
		t.Errorf("%v, %v", ids, err)
	}
	for _, id := range ids {
		isState(t, m, sandbox.ID(id), sandbox.Running, "")
	}
	w.check(t, m, "t")
}
