package manager_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/pool"
)

// warmed is a manager that keeps n machines warm.
func (w *world) warmed(g *gate, n int) manager.Config {
	c := w.config(g)
	c.Warm = pool.Config{Sizes: []pool.Size{{Size: n}}, AtOnce: 8}
	return c
}

func isWarm(m *manager.Manager) (n int) {
	for _, k := range m.Pool().Kinds {
		n += k.Warm
	}
	return n
}

func waitWarm(t *testing.T, m *manager.Manager, n int) {
	t.Helper()
	poll(t, fmt.Sprintf("%d are warm", n), func() bool { return isWarm(m) == n })
}

// poll waits for what another goroutine does.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	patience.Until(t, 20*time.Second, what, ok)
}

// left compares the counts of what the host holds: machines that were warm have
// names that are not their sandboxes'.
func (w *world) left(t *testing.T, machines, volumes int) {
	t.Helper()
	w.mu.Lock()
	m, v, a := len(w.machines), len(w.volumes), len(w.attached)
	w.mu.Unlock()
	dirs := 0
	entries, err := os.ReadDir(filepath.Join(w.dir, "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "sbx_") {
			dirs++
		}
	}
	if m != machines || dirs != machines || a != machines || v != volumes {
		t.Errorf("%d machines, %d directories, %d attached volumes, want %d; %d volumes, want %d", m, dirs, a, machines, v, volumes)
	}
}

// called finds the machine that takes itself for a sandbox.
func (w *world) called(id sandbox.ID) *fakeMachine {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.machines {
		f.mu.Lock()
		is := f.called == string(id)
		f.mu.Unlock()
		if is {
			return f
		}
	}
	return nil
}

func TestWarm_aCreateGetsAMachineThatIsThere(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.warmed(nil, 2))
	waitWarm(t, m, 2)
	w.mu.Lock()
	creates := w.creates
	w.mu.Unlock()
	w.setBoot(func(context.Context, sandbox.ID) error {
		return errs.New(errs.Unavailable, "nothing can be booted now")
	})
	info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k", Spec: sandbox.Spec{Env: map[string]string{"A": "b"}, Name: "x"}})
	if err != nil || info.State != sandbox.Running {
		t.Fatal(info.State, err)
	}
	f := w.called(info.ID)
	if f == nil || f.id == info.ID || f.env["A"] != "b" {
		t.Fatalf("the guest was not told who it is: %+v", f)
	}
	if again, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k", Spec: sandbox.Spec{Env: map[string]string{"A": "b"}, Name: "x"}}); err != nil || again.ID != info.ID {
		t.Errorf("the key gives %s, %v", again.ID, err)
	}
	if _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{MemoryMB: 300}}); err == nil {
		t.Error("a machine of another shape was given")
	}
	w.mu.Lock()
	if w.creates < creates {
		t.Error("nothing was tried")
	}
	w.mu.Unlock()
	w.setBoot(nil)
	if used := manager.Used(m, "t"); used.Sandboxes != 1 {
		t.Errorf("the tenant is charged for %+v", used)
	}

	// It is a sandbox like any other from here on.
	if _, err := m.Stop(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Start(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	if f := w.machine(f.id); f == nil {
		t.Error("it was started under another name, away from its workspace")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	w.left(t, 1, 1) // the pool is gone, the sandbox lives
	m = w.open(t, w.config(nil))
	if i, err := m.Get(t.Context(), "t", info.ID); err != nil || i.State != sandbox.Running {
		t.Errorf("after a restart: %s, %v", i.State, err)
	}
	if err := m.Destroy(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	w.left(t, 0, 0)
}

func TestWarm_aBurstGetsThemAll(t *testing.T) {
	const n = 60
	w := newWorld(t)
	c := w.warmed(nil, n)
	c.Limits.Sandboxes = 2 * n
	m := w.open(t, c)
	waitWarm(t, m, n)
	w.setBoot(func(context.Context, sandbox.ID) error {
		return errs.New(errs.Unavailable, "nothing can be booted now")
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[sandbox.ID]bool{}
	for range n {
		wg.Go(func() {
			info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[info.ID] = true
		})
	}
	wg.Wait()
	machines := map[sandbox.ID]bool{}
	for id := range ids {
		if f := w.called(id); f != nil {
			machines[f.id] = true
		}
	}
	if len(ids) != n || len(machines) != n {
		t.Errorf("%d sandboxes on %d machines", len(ids), len(machines))
	}
	for id := range ids {
		if err := m.Destroy(t.Context(), "t", id); err != nil {
			t.Error(err)
		}
	}
	_ = m.Close()
	w.left(t, 0, 0)
}

// claimEnds ends a machine at the moment in which it is claimed.
type claimEnds struct {
	gatedRegistry
	w *world
}

func (r claimEnds) Update(ctx context.Context, key string, value []byte, old uint64) (uint64, error) {
	if id, is := strings.CutPrefix(key, pool.Prefix); is && bytes.Contains(value, []byte(`"claimed"`)) {
		r.w.machine(sandbox.ID(id)).end(sandbox.ReasonKilled)
	}
	return r.gatedRegistry.Update(ctx, key, value, old)
}

func TestWarm_aMachineThatIsNoGoodIsReplacedAtOnce(t *testing.T) {
	w := newWorld(t)
	c := w.warmed(nil, 1)
	c.Registry = claimEnds{gatedRegistry{w, w.registry, nil}, w}
	m := w.open(t, c)
	waitWarm(t, m, 1)
	info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	if err != nil || info.State != sandbox.Running {
		t.Fatal(info.State, err)
	}
	if err := m.Destroy(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	w.left(t, 0, 0)
}

func TestWarm_withoutQuotaNothingIsClaimed(t *testing.T) {
	w := newWorld(t)
	c := w.warmed(nil, 1)
	c.Limits.Sandboxes = 1
	m := w.open(t, c)
	waitWarm(t, m, 1)
	if _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{MemoryMB: 300}}); err != nil {
		t.Fatal(err)
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	wantClass(t, "a create beyond the quota", err, errs.Limit)
	if isWarm(m) != 1 {
		t.Error("the machine is gone")
	}
	_ = m.Close()
}

// The server dies at each of its steps of a create that takes a warm machine,
// and of the pool beside it.
func TestCrash_everyStepOfAWarmCreateConverges(t *testing.T) {
	for _, refill := range []pool.Refill{pool.RefillBoot, pool.RefillSnapshot} {
		crashWarm(t, refill)
	}
}

func crashWarm(t *testing.T, refill pool.Refill) {
	volumes := 1 // of the sandbox, and of the snapshot
	if refill == pool.RefillSnapshot {
		volumes = 2
	}
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("%s,after=%v", refill, after), func(t *testing.T) {
			for step := 1; ; step++ {
				if step > 60 {
					t.Fatal("the create never ends")
				}
				w := newWorld(t)
				g := &gate{}
				c := w.warmed(g, 2)
				c.Warm.Refill = refill
				m, err := openSettled(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				waitWarm(t, m, 2)
				g.mu.Lock()
				g.dieAt, g.after = g.steps+step, after
				g.mu.Unlock()
				_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
				acked, died := err == nil, g.died()
				g.mu.Lock()
				g.dead = true
				g.mu.Unlock()
				_ = m.Close()

				config := w.warmed(nil, 1)
				config.Warm.Refill = refill
				m = w.open(t, config)
				waitWarm(t, m, 1)
				got := state(t, m)
				if acked && got != sandbox.Running || got != gone && got != sandbox.Running {
					t.Errorf("dead at step %d (acknowledged: %v): %s", step, acked, got)
				}
				info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
				if err != nil || info.State != sandbox.Running {
					t.Errorf("dead at step %d: again: %s, %v", step, info.State, err)
				}
				_ = m.Close()
				w.left(t, 1, volumes)
				m = w.open(t, w.config(nil))
				if err := m.Destroy(t.Context(), "t", info.ID); err != nil {
					t.Error(err)
				}
				w.left(t, 0, 0)
				w.noSnapshots(t)
				_ = m.Close()
				if !died {
					t.Logf("%d steps", step-1)
					return
				}
			}
		})
	}
}

func TestWarm_isInUse(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.warmed(nil, 1))
	waitWarm(t, m, 1)
	if !m.InUse("hash-of-host") || m.InUse("another") {
		t.Error("a template could be removed beneath a warm machine")
	}
	_ = m.Close()
}

// noSnapshots fails the test if the host has files of any snapshot.
func (w *world) noSnapshots(t *testing.T) {
	t.Helper()
	if dirs, err := filepath.Glob(filepath.Join(w.dir, "sandboxes", "snapshots", "snp_*")); err != nil || len(dirs) > 0 {
		t.Errorf("left of snapshots: %q, %v", dirs, err)
	}
}

// What a sandbox has got came from a snapshot of the pool's: that stays, over
// restarts and without a pool, until the machine is gone.
func TestWarm_theSnapshotStaysAsLongAsAMachineFromIt(t *testing.T) {
	for _, how := range []string{"stop", "destroy"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			c := w.warmed(nil, 2)
			c.Warm.Refill = pool.RefillSnapshot
			c.Limits.Snapshots = 1
			m := w.open(t, c)
			var ids []sandbox.ID
			for range 3 { // the first is the one that was saved
				waitWarm(t, m, 2)
				info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if f := w.called(info.ID); f == nil || f.still {
					t.Errorf("%s stands still, or has no machine that knows it", info.ID)
				}
				ids = append(ids, info.ID)
			}
			if _, err := m.Snapshot(t.Context(), "t", ids[0], sandbox.SnapshotRequest{}); err != nil {
				t.Errorf("the pool's snapshot counts against the tenant's one: %v", err)
			}
			if mine := m.ListSnapshots(t.Context(), "t"); len(mine) != 1 {
				t.Errorf("the tenant sees %v", mine)
			} else if err := m.DeleteSnapshot(t.Context(), "t", mine[0].ID); err != nil {
				t.Error(err)
			}
			dirs, _ := filepath.Glob(filepath.Join(w.dir, "sandboxes", "snapshots", "snp_*"))
			if len(dirs) != 1 {
				t.Fatalf("snapshots of the pool: %q", dirs)
			}
			name := sandbox.SnapshotID(filepath.Base(dirs[0]))
			if _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: name}); !errs.Is(err, errs.NotFound) {
				t.Errorf("a tenant goes on from the pool's snapshot: %v", err)
			}
			wantClass(t, "a delete of the pool's snapshot", m.DeleteSnapshot(t.Context(), "t", name), errs.NotFound)
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			m = w.open(t, w.config(nil))
			for n, id := range ids {
				if _, err := os.Stat(dirs[0]); err != nil {
					t.Errorf("%d of its machines run, and it is gone", len(ids)-n)
				}
				var err error
				if how == "stop" {
					_, err = m.Stop(t.Context(), "t", id)
				} else {
					err = m.Destroy(t.Context(), "t", id)
				}
				if err != nil {
					t.Error(err)
				}
			}
			w.noSnapshots(t)
			_ = m.Close()
		})
	}
}

// The pool gives its snapshot up while a sandbox runs on a machine from it.
func TestWarm_theSnapshotStaysWhenThePoolHasGivenItUp(t *testing.T) {
	w := newWorld(t)
	c := w.warmed(nil, 1)
	c.Warm.Refill = pool.RefillSnapshot
	m := w.open(t, c)
	create := func() sandbox.ID {
		waitWarm(t, m, 1)
		info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return info.ID
	}
	create() // that was saved
	waitWarm(t, m, 1)
	dirs, _ := filepath.Glob(filepath.Join(w.dir, "sandboxes", "snapshots", "snp_*"))
	if len(dirs) != 1 {
		t.Fatalf("snapshots of the pool: %q", dirs)
	}
	if err := os.Truncate(filepath.Join(dirs[0], memoryFile), 0); err != nil {
		t.Fatal(err)
	}
	from := create() // the next one does not load
	machine := w.called(from).id
	waitWarm(t, m, 1)
	poll(t, "the pool has forgotten the machine", func() bool {
		_, _, err := w.registry.Get(t.Context(), pool.Prefix+string(machine))
		return errs.Is(err, errs.NotFound)
	})
	create()
	if k := m.Pool().Kinds[0]; k.Snapshot || !strings.Contains(k.Note, "did not load") {
		t.Errorf("the pool says %+v", k)
	}
	if _, err := os.Stat(dirs[0]); err != nil {
		t.Errorf("a machine runs that needs it: %v", err)
	}
	if err := m.Destroy(t.Context(), "t", from); err != nil {
		t.Fatal(err)
	}
	w.noSnapshots(t)
	_ = m.Close()
}
