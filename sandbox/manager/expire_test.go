package manager_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// timeless opens a manager in a bubble where time is the test's own.
func timeless(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		test(t, w)
	})
}

func wantState(t *testing.T, m *manager.Manager, id sandbox.ID, state sandbox.State, reason string) {
	t.Helper()
	synctest.Wait()
	i, err := m.Get(t.Context(), "t", id)
	if err != nil || i.State != state || i.Reason != reason {
		t.Errorf("%s (%s), %v; want %s (%s)", i.State, i.Reason, err, state, reason)
	}
}

// pass lets time go by. In a bubble that costs nothing.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// What is made of a sandbox that persists does too, unless it is to be ephemeral.
func TestExpiry_ofWhatIsMadeOfPersistent(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		id := create(t, m, "t", sandbox.Spec{TTL: time.Hour, Persist: true}).ID
		snap, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for ephemeral, want := range map[bool]sandbox.State{false: sandbox.Stopped, true: sandbox.Destroyed} {
			made, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: snap.ID, Spec: sandbox.Spec{TTL: time.Minute, Ephemeral: ephemeral}})
			if err != nil {
				t.Fatal(err)
			}
			forks, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Changes: sandbox.Changes{TTL: time.Minute, Ephemeral: ephemeral}})
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Minute + 5*time.Second)
			wantState(t, m, made.ID, want, sandbox.ReasonExpired)
			wantState(t, m, forks[0].ID, want, sandbox.ReasonExpired)
		}
		_, err = m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Changes: sandbox.Changes{Persist: true, Ephemeral: true}})
		if !errs.Is(err, errs.Invalid) {
			t.Errorf("a fork that persists and does not: %v", err)
		}
	})
}

func TestExpiry_ttl(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		plain := create(t, m, "t", sandbox.Spec{TTL: 10 * time.Minute})
		persist := create(t, m, "t", sandbox.Spec{TTL: 10 * time.Minute, Persist: true})
		stopped := create(t, m, "t", sandbox.Spec{TTL: 10 * time.Minute})
		if _, err := m.Stop(t.Context(), "t", stopped.ID); err != nil {
			t.Fatal(err)
		}
		pass(10*time.Minute - time.Second)
		wantState(t, m, plain.ID, sandbox.Running, "")
		pass(5 * time.Second)
		wantState(t, m, plain.ID, sandbox.Destroyed, sandbox.ReasonExpired)
		wantState(t, m, persist.ID, sandbox.Stopped, sandbox.ReasonExpired)
		wantState(t, m, stopped.ID, sandbox.Destroyed, sandbox.ReasonExpired)
		// A start counts anew.
		if _, err := m.Start(t.Context(), "t", persist.ID); err != nil {
			t.Fatal(err)
		}
		pass(9 * time.Minute)
		wantState(t, m, persist.ID, sandbox.Running, "")
		w.check(t, m, "t")
	})
}

func TestExpiry_ttlIsExtended(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		id := create(t, m, "t", sandbox.Spec{TTL: time.Minute}).ID
		pass(50 * time.Second)
		more := time.Hour
		if _, err := m.Update(t.Context(), "t", id, sandbox.UpdateRequest{TTL: &more}); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Minute)
		wantState(t, m, id, sandbox.Running, "")
		less := 2 * time.Second
		if _, err := m.Update(t.Context(), "t", id, sandbox.UpdateRequest{TTL: &less}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		wantState(t, m, id, sandbox.Destroyed, sandbox.ReasonExpired)
	})
}

func TestExpiry_idle(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		idle := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute})
		used := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute})
		frozen := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute})
		if _, err := m.Pause(t.Context(), "t", frozen.ID); err != nil {
			t.Fatal(err)
		}
		_, release, err := m.Guest(t.Context(), "t", used.ID)
		if err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		wantState(t, m, idle.ID, sandbox.Paused, sandbox.ReasonIdle)
		wantState(t, m, used.ID, sandbox.Running, "") // a call holds it
		wantState(t, m, frozen.ID, sandbox.Paused, "")
		release()
		pass(50 * time.Second)
		wantState(t, m, used.ID, sandbox.Running, "")
		if _, release, err = m.Guest(t.Context(), "t", used.ID); err != nil {
			t.Fatal(err)
		}
		release() // a call in between counts
		pass(50 * time.Second)
		wantState(t, m, used.ID, sandbox.Running, "")
		pass(20 * time.Second)
		wantState(t, m, used.ID, sandbox.Paused, sandbox.ReasonIdle)
		if _, err := m.Resume(t.Context(), "t", frozen.ID); err != nil {
			t.Fatal(err)
		}
		pass(50 * time.Second)
		wantState(t, m, frozen.ID, sandbox.Running, "")
		w.check(t, m, "t")
	})
}

// What is paused for idleness wakes for a call, and without a call gives its
// memory back in the end; what a caller has paused stays as it is.
func TestExpiry_idlePausesThenStops(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		c := w.config(nil)
		c.Defaults.PausedTimeout = time.Hour
		m := w.open(t, c)
		called := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute}).ID
		left := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute}).ID
		frozen := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute}).ID
		if _, err := m.Pause(t.Context(), "t", frozen); err != nil {
			t.Fatal(err)
		}
		pass(50 * time.Minute)
		wantState(t, m, called, sandbox.Paused, sandbox.ReasonIdle)
		_, release, err := m.Guest(t.Context(), "t", called)
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, m, called, sandbox.Running, "")
		release()
		pass(30 * time.Minute)
		wantState(t, m, called, sandbox.Paused, sandbox.ReasonIdle)
		wantState(t, m, left, sandbox.Stopped, sandbox.ReasonIdle)
		wantState(t, m, frozen, sandbox.Paused, "")
		c.Defaults.PausedTimeout = -1
		_ = m.Close()
		m = w.open(t, c)
		soon := create(t, m, "t", sandbox.Spec{IdleTimeout: time.Minute}).ID
		pass(2 * time.Minute)
		wantState(t, m, soon, sandbox.Stopped, sandbox.ReasonIdle)
		w.check(t, m, "t")
	})
}

func TestExpiry_acrossRestarts(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		c := w.config(nil)
		m := w.open(t, c)
		short := create(t, m, "t", sandbox.Spec{TTL: time.Minute}).ID
		long := create(t, m, "t", sandbox.Spec{TTL: 10 * time.Minute}).ID
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute) // the server is down
		m = w.open(t, c)
		pass(5 * time.Second)
		wantState(t, m, short, sandbox.Destroyed, sandbox.ReasonExpired)
		pass(7 * time.Minute)
		wantState(t, m, long, sandbox.Running, "")
		pass(time.Minute)
		wantState(t, m, long, sandbox.Destroyed, sandbox.ReasonExpired)
	})
}

// clock is a wall clock that the test sets.
type clock struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

func TestExpiry_clockJumps(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		var wall clock
		c := w.config(nil)
		c.Now = wall.now
		m := w.open(t, c)
		id := create(t, m, "t", sandbox.Spec{TTL: 10 * time.Minute}).ID
		wall.jump(24 * time.Hour) // while the server runs: no matter
		pass(9 * time.Minute)
		wantState(t, m, id, sandbox.Running, "")
		wall.jump(-48 * time.Hour)
		pass(2 * time.Minute)
		wantState(t, m, id, sandbox.Destroyed, sandbox.ReasonExpired)

		id = create(t, m, "t", sandbox.Spec{TTL: 10 * time.Minute}).ID
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		wall.jump(-365 * 24 * time.Hour) // while it is down: at most one more TTL
		m = w.open(t, c)
		pass(9 * time.Minute)
		wantState(t, m, id, sandbox.Running, "")
		pass(2 * time.Minute)
		wantState(t, m, id, sandbox.Destroyed, sandbox.ReasonExpired)
	})
}

func TestExpiry_tombstones(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		c := w.config(nil)
		m := w.open(t, c)
		id := create(t, m, "t", sandbox.Spec{Env: map[string]string{"TOKEN": "hunter2"}}).ID
		if err := m.Destroy(t.Context(), "t", id); err != nil {
			t.Fatal(err)
		}
		if i, _ := m.Get(t.Context(), "t", id); i.Spec.Env != nil {
			t.Errorf("the tombstone keeps the environment %v", i.Spec.Env)
		}
		pass(23 * time.Hour)
		m = reopen(t, w, m, c)
		wantState(t, m, id, sandbox.Destroyed, sandbox.ReasonDestroyed)
		pass(2 * time.Hour)
		_, err := m.Get(t.Context(), "t", id)
		wantClass(t, "a day later", err, errs.NotFound)
		if _, _, err := w.registry.Get(t.Context(), "sandbox/"+string(id)); !errs.Is(err, errs.NotFound) {
			t.Errorf("the record is still there: %v", err)
		}
	})
}

func TestExpiry_isTriedAgain(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		id := create(t, m, "t", sandbox.Spec{TTL: time.Minute}).ID
		var tries atomic.Int32
		w.setDestroy(func(sandbox.ID) error {
			if tries.Add(1) < 5 {
				return errs.New(errs.Unavailable, "not now")
			}
			return nil
		})
		pass(2 * time.Minute)
		wantState(t, m, id, sandbox.Destroyed, sandbox.ReasonExpired)
		if n := tries.Load(); n != 5 {
			t.Errorf("%d tries", n)
		}
		w.check(t, m, "t")
	})
}

func TestDisk_whoExceedsItIsStopped(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		w.enforced = false
		m := w.open(t, w.config(nil))
		info := create(t, m, "t", sandbox.Spec{DiskMB: 10})
		if len(info.Notes) != 1 {
			t.Errorf("notes %q, want one on the disk that is only watched", info.Notes)
		}
		use := func(n int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.usage[string(info.ID)] = n
		}
		use(10 << 20)
		pass(10 * time.Second)
		wantState(t, m, info.ID, sandbox.Running, "")
		use(10<<20 + 1)
		pass(10 * time.Second)
		wantState(t, m, info.ID, sandbox.Stopped, sandbox.ReasonDiskQuota)
		w.check(t, m, "t")
	})
}
