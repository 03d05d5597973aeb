package manager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// A sandbox that hangs, at whatever is done to it, keeps no other waiting:
// neither one of its tenant nor of another.
func TestOneSlowSandbox_noOtherWaits(t *testing.T) {
	ctx := context.Background() // what hangs is not to be given up
	steps := map[string]func(*manager.Manager, sandbox.ID) error{
		"make volume":   func(m *manager.Manager, _ sandbox.ID) error { return makeOne(m) },
		"boot":          func(m *manager.Manager, _ sandbox.ID) error { return makeOne(m) },
		"record":        func(m *manager.Manager, id sandbox.ID) error { _, err := m.Stop(ctx, "t", id); return err },
		"end":           func(m *manager.Manager, id sandbox.ID) error { _, err := m.Stop(ctx, "t", id); return err },
		"detaching":     func(m *manager.Manager, id sandbox.ID) error { _, err := m.Stop(ctx, "t", id); return err },
		"detach volume": func(m *manager.Manager, id sandbox.ID) error { _, err := m.Stop(ctx, "t", id); return err },
		"remove volume": func(m *manager.Manager, id sandbox.ID) error { return m.Destroy(ctx, "t", id) },
		"pause":         func(m *manager.Manager, id sandbox.ID) error { _, err := m.Pause(ctx, "t", id); return err },
		"resume": func(m *manager.Manager, id sandbox.ID) error {
			_, err := m.Pause(ctx, "t", id)
			if err == nil {
				_, err = m.Resume(ctx, "t", id)
			}
			return err
		},
		"attach volume": func(m *manager.Manager, id sandbox.ID) error {
			_, err := m.Stop(ctx, "t", id)
			if err == nil {
				_, err = m.Start(ctx, "t", id)
			}
			return err
		},
		"dial": func(m *manager.Manager, id sandbox.ID) error {
			c, err := m.Dial(ctx, "t", id, 80)
			if err == nil {
				err = c.Close()
			}
			return err
		},
		"save": func(m *manager.Manager, id sandbox.ID) error {
			_, err := m.Snapshot(ctx, "t", id, sandbox.SnapshotRequest{})
			return err
		},
		"copy volume": func(m *manager.Manager, id sandbox.ID) error {
			_, err := m.Fork(ctx, "t", id, sandbox.ForkRequest{Count: 1})
			return err
		},
		"usage": nil, // the server looks by itself
	}
	for step, do := range steps {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.enforced = step != "usage"
			c := w.config(nil)
			c.Detaching = func(host sandbox.ID) { w.step("detaching", string(host)) }
			m := w.open(t, c)
			slow := create(t, m, "t", sandbox.Spec{}).ID
			gate, reached := make(chan struct{}), make(chan struct{})
			reach := sync.OnceFunc(func() { close(reached) })
			w.setSlow(func(at, id string) {
				if at != step || id != string(slow) && !strings.Contains("make volume, boot", step) {
					return
				}
				w.setSlow(nil) // the first is the slow one
				reach()
				<-gate
			})
			var stuck sync.WaitGroup
			defer stuck.Wait()
			defer close(gate)
			if do != nil {
				stuck.Go(func() {
					if err := do(m, slow); err != nil {
						t.Errorf("the slow one: %v", err)
					}
				})
			}
			patience.Within(t, 30*time.Second, "the slow step", func() { <-reached })
			for _, tenant := range []string{"t", "other"} {
				patience.Within(t, time.Minute, "the sandboxes of "+tenant+", which wait for the slow one", func() { wholeLife(t, w, m, tenant) })
			}
		})
	}
}

func makeOne(m *manager.Manager) error {
	_, err := m.Create(context.Background(), "t", sandbox.CreateRequest{})
	return err
}

// wholeLife does to a sandbox all that can be done.
func wholeLife(t *testing.T, w *world, m *manager.Manager, tenant string) {
	ctx := t.Context()
	info, err := m.Create(ctx, tenant, sandbox.CreateRequest{})
	if err != nil {
		t.Error(err)
		return
	}
	did := func(what string, err error) {
		if err != nil {
			t.Errorf("%s of %s: %v", what, tenant, err)
		}
	}
	_, err = m.List(ctx, tenant, sandbox.Filter{})
	did("list", err)
	_, release, err := m.Guest(ctx, tenant, info.ID)
	did("use", err)
	if err == nil {
		release()
	}
	_, err = m.Pause(ctx, tenant, info.ID)
	did("pause", err)
	_, err = m.Resume(ctx, tenant, info.ID)
	did("resume", err)
	snap, err := m.Snapshot(ctx, tenant, info.ID, sandbox.SnapshotRequest{})
	did("snapshot", err)
	did("delete of the snapshot", m.DeleteSnapshot(ctx, tenant, snap.ID))
	_, err = m.Fork(ctx, tenant, info.ID, sandbox.ForkRequest{Count: 2})
	did("fork", err)
	_, err = m.Stop(ctx, tenant, info.ID)
	did("stop", err)
	_, err = m.Start(ctx, tenant, info.ID)
	did("start", err)
	if !w.enforced {
		w.mu.Lock()
		w.usage[string(info.ID)] = 1 << 50
		w.mu.Unlock()
		eventually(t, "a disk that is too full is noticed", func() bool {
			i, err := m.Get(ctx, tenant, info.ID)
			return err == nil && i.State == sandbox.Stopped
		})
	}
	did("destroy", m.Destroy(ctx, tenant, info.ID))
}
