package manager_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
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
		"ending":        func(m *manager.Manager, id sandbox.ID) error { _, err := m.Stop(ctx, "t", id); return err },
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
			c.Ending = func(_ context.Context, _ string, id sandbox.ID, _ sandbox.Files, _ bool) {
				w.step("ending", string(id))
			}
			c.Detaching = func(host sandbox.ID) { w.step("detaching", string(host)) }
			m := w.open(t, c)
			slow := create(t, m, "t", sandbox.Spec{}).ID
			w.whileSlow(t, m, slow, step, func() error {
				if do == nil {
					return nil
				}
				return do(m, slow)
			}, nil)
		})
	}
}

// whileSlow does something that makes one sandbox hang in a step, and meanwhile
// all that can be done to others; then, if not nil, is called once it hangs.
func (w *world) whileSlow(t *testing.T, m *manager.Manager, slow sandbox.ID, step string, do func() error, then func()) {
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
	stuck.Go(func() {
		if err := do(); err != nil {
			t.Errorf("the slow one: %v", err)
		}
	})
	patience.Within(t, 30*time.Second, "the slow step", func() { <-reached })
	if then != nil {
		then()
	}
	for _, tenant := range []string{"t", "other"} {
		patience.Within(t, time.Minute, "the sandboxes of "+tenant+", which wait for the slow one", func() { wholeLife(t, w, m, tenant) })
	}
}

// A sandbox that hangs while it is held still, goes on, is cut off, mended or
// stopped for its tenant's quota keeps no other from all of that.
func TestOneSlowSandbox_theDisksOfOthersAreWatched(t *testing.T) {
	steps := map[string]struct {
		hangs string // in which step of the host
		do    func(*testing.T, *world, *manager.Manager, sandbox.ID)
	}{
		"hold still": {"pause", func(_ *testing.T, w *world, _ *manager.Manager, id sandbox.ID) {
			w.setFree(near)
			w.grow(id)
		}},
		"go on": {"resume", func(t *testing.T, w *world, m *manager.Manager, id sandbox.ID) {
			w.fill(t, m, "t", id)
			w.setFree(plenty)
		}},
		"cut off":    {"end", func(_ *testing.T, w *world, _ *manager.Manager, id sandbox.ID) { w.setReadOnly(id) }},
		"mend":       {"mend", func(_ *testing.T, w *world, _ *manager.Manager, id sandbox.ID) { w.setReadOnly(id) }},
		"over quota": {"end", func(_ *testing.T, w *world, _ *manager.Manager, id sandbox.ID) { w.exceed(id) }},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.open(t, w.watched(w.config(nil)))
			slow := create(t, m, "t", sandbox.Spec{}).ID
			w.whileSlow(t, m, slow, step.hangs, func() error {
				step.do(t, w, m, slow)
				return nil
			}, func() {
				w.setFree(plenty)
				w.use(slow, 0)
				eventually(t, "there is room again", func() bool { return w.host.Begin() == nil })
			})
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
	if w.isWatched {
		watchedLife(t, w, m, tenant, info.ID)
	}
	did("destroy", m.Destroy(ctx, tenant, info.ID))
}

// watchedLife is all that the watch over the disks does to a sandbox.
func watchedLife(t *testing.T, w *world, m *manager.Manager, tenant string, id sandbox.ID) {
	is := func(state sandbox.State, reason string) func() bool {
		return func() bool {
			i, err := m.Get(t.Context(), tenant, id)
			return err == nil && i.State == state && i.Reason == reason
		}
	}
	restart := func() {
		if _, err := m.Start(t.Context(), tenant, id); err != nil {
			t.Error(err)
		}
	}
	w.fill(t, m, tenant, id)
	w.setFree(plenty)
	eventually(t, "what was held still goes on", is(sandbox.Running, ""))
	w.setReadOnly(id)
	eventually(t, "what became read-only is stopped", is(sandbox.Stopped, sandbox.ReasonReadOnly))
	eventually(t, "what became read-only is mended", func() bool { return w.mended(id) > 0 })
	restart()
	w.exceed(id)
	eventually(t, "what exceeds its tenant's quota is stopped", is(sandbox.Stopped, sandbox.ReasonDiskQuota))
	w.use(id, 0)
	restart()
}

// A workspace that became read-only while there was no room is mended by itself
// once there is, also by a server that did not see it happen.
func TestReadOnly_isMendedOnceThereIsRoom(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted=", restarted), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.watched(w.config(nil))
			m := w.open(t, c)
			id := create(t, m, "t", sandbox.Spec{}).ID
			tried := make(chan struct{})
			try := sync.OnceFunc(func() { close(tried) })
			w.setSlow(func(at, _ string) {
				if at == "mend" {
					try()
				}
			})
			w.setMendErr(errs.New(errs.Unavailable, "no room"))
			w.setReadOnly(id)
			patience.Within(t, 30*time.Second, "the first try", func() { <-tried })
			isState(t, m, id, sandbox.Stopped, sandbox.ReasonReadOnly)
			if restarted {
				m = reopen(t, w, m, c)
			}
			w.setMendErr(nil)
			eventually(t, "it is mended", func() bool { return w.mended(id) == 1 })
			isState(t, m, id, sandbox.Stopped, sandbox.ReasonReadOnly)
			if _, err := m.Start(t.Context(), "t", id); err != nil {
				t.Error(err)
			}
		})
	}
}
