package manager_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

func save(t *testing.T, m *manager.Manager, id sandbox.ID, r sandbox.SnapshotRequest) sandbox.Snapshot {
	t.Helper()
	s, err := m.Snapshot(t.Context(), "t", id, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isState(t *testing.T, m *manager.Manager, id sandbox.ID, state sandbox.State, reason string) {
	t.Helper()
	if i, err := m.Get(t.Context(), "t", id); err != nil || i.State != state || i.Reason != reason {
		t.Errorf("%s (%s), %v; want %s (%s)", i.State, i.Reason, err, state, reason)
	}
}

// remembers returns what the commands of a machine remember.
func (w *world) remembers(t *testing.T, id sandbox.ID) string {
	t.Helper()
	f := w.machine(id)
	if f == nil {
		t.Fatalf("no machine %s", id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory
}

func (w *world) write(t *testing.T, id sandbox.ID, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "volumes", string(id), "file"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w *world) read(id sandbox.ID) string {
	data, _ := os.ReadFile(filepath.Join(w.dir, "volumes", string(id), "file"))
	return string(data)
}

func TestSnapshot_goesOnWithMemoryAndFiles(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	orig := create(t, m, "t", sandbox.Spec{Name: "first", Env: map[string]string{"SECRET": "s"}, MemoryMB: 128})
	w.write(t, orig.ID, "then")
	s := save(t, m, orig.ID, sandbox.SnapshotRequest{Name: "golden"})
	w.write(t, orig.ID, "later")
	isState(t, m, orig.ID, sandbox.Running, "")
	if got := m.ListSnapshots(t.Context(), "t"); len(got) != 1 || cmp.Diff(s, got[0]) != "" || s.Name != "golden" || s.Bytes == 0 || s.Spec.Env != nil {
		t.Errorf("listed: %+v; taken: %+v", got, s)
	}
	_ = m.Close()
	m = w.open(t, w.config(nil)) // it outlives the server
	copied, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID, Spec: sandbox.Spec{Name: "second", Env: map[string]string{"A": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := w.remembers(t, copied.ID), "of "+string(orig.ID); got != want {
		t.Errorf("its memory is %q, want %q", got, want)
	}
	if got := w.read(copied.ID); got != "then" {
		t.Errorf("its file says %q", got)
	}
	f := w.machine(copied.ID)
	if d := cmp.Diff(map[string]string{"A": "b"}, f.env); d != "" {
		t.Error(d)
	}
	if copied.From != s.ID || copied.Spec.MemoryMB != 128 || copied.Spec.Name != "second" || copied.ID == orig.ID {
		t.Errorf("%+v", copied)
	}
	w.check(t, m, "t")

	// Deleted, it stays for the machine that needs it, and no longer.
	if err := m.DeleteSnapshot(t.Context(), "t", s.ID); err != nil {
		t.Fatal(err)
	}
	_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
	wantClass(t, "create from a deleted one", err, errs.NotFound)
	memory := filepath.Join(w.dir, "sandboxes", "snapshots", string(s.ID))
	if _, err := os.Stat(memory); err != nil {
		t.Errorf("the files of a machine that runs are gone: %v", err)
	}
	_ = m.Close()
	m = w.open(t, w.config(nil))
	if _, err := os.Stat(memory); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := m.Stop(t.Context(), "t", copied.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(memory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody needs it any more: %v", err)
	}
	if i, err := m.Start(t.Context(), "t", copied.ID); err != nil || w.remembers(t, i.ID) != "of "+string(i.ID) {
		t.Errorf("a start after a stop is of the disk alone: %v", err)
	}
	w.check(t, m, "t")
}

// A machine that stood still to be saved has the right time when it goes on.
func TestSnapshot_setsTheClock(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{Persist: true}).ID
	f := w.machine(id)
	f.mu.Lock()
	f.clock, f.setAt = time.Now().Add(-time.Hour), time.Now()
	f.mu.Unlock()
	save(t, m, id, sandbox.SnapshotRequest{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if late := time.Since(f.time()); f.steps != 1 || late.Abs() > patience.Of(time.Second) {
		t.Errorf("the clock was set %d times, and is %v late", f.steps, late)
	}
}

func TestSnapshot_ofEveryState(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{Persist: true}).ID
	if _, err := m.Pause(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	s := save(t, m, id, sandbox.SnapshotRequest{})
	isState(t, m, id, sandbox.Paused, "")
	if f := w.machine(id); !f.isPaused() {
		t.Error("the machine runs, of a sandbox that is paused")
	}
	copied, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
	if err != nil || copied.State != sandbox.Running {
		t.Errorf("from a paused one: %s, %v", copied.State, err)
	}
	if _, err := m.Stop(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	_, err = m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{})
	wantClass(t, "memory of a stopped one", err, errs.Conflict)
	if !strings.Contains(errs.Hint(err), "--disk-only") {
		t.Errorf("hint: %s", errs.Hint(err))
	}
	w.write(t, id, "kept")
	disk := save(t, m, id, sandbox.SnapshotRequest{DiskOnly: true})
	isState(t, m, id, sandbox.Stopped, sandbox.ReasonStopped)
	if copied, err = m.Create(t.Context(), "t", sandbox.CreateRequest{From: disk.ID}); err != nil || w.read(copied.ID) != "kept" || copied.Notes != nil {
		t.Errorf("from its files: %v; %q; %v", err, w.read(copied.ID), copied.Notes)
	}
	if got, want := w.remembers(t, copied.ID), "of "+string(copied.ID); got != want {
		t.Errorf("its memory is %q, want %q", got, want)
	}
	w.check(t, m, "t")
	_, err = m.Snapshot(t.Context(), "eve", id, sandbox.SnapshotRequest{})
	wantClass(t, "of another tenant's", err, errs.NotFound)
	wantClass(t, "another tenant's", m.DeleteSnapshot(t.Context(), "eve", disk.ID), errs.NotFound)
	_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{From: disk.ID, Spec: sandbox.Spec{MemoryMB: 64}})
	wantClass(t, "another shape", err, errs.Invalid)
}

// A provider that cannot save memory says so, and copies files.
func TestSnapshot_whereMemoryCannotBeSaved(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil, sandbox.None))
	id := create(t, m, "t", sandbox.Spec{}).ID
	for what, f := range map[string]func() error{
		"snapshot": func() error { _, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{}); return err },
		"fork":     func() error { _, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{}); return err },
	} {
		err := f()
		wantClass(t, what, err, errs.Unsupported)
		if !strings.Contains(errs.Hint(err), "--disk-only") {
			t.Errorf("%s: hint %q", what, errs.Hint(err))
		}
	}
	w.write(t, id, "here")
	forks, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{DiskOnly: true, Count: 2})
	if err != nil || len(forks) != 2 || w.read(forks[1].ID) != "here" {
		t.Fatalf("%d forks, %v", len(forks), err)
	}
	w.check(t, m, "t")
}

func TestFork_manyAtOnceFromOneSnapshot(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{Env: map[string]string{"SECRET": "s"}}).ID
	w.write(t, id, "here")
	forks, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: sandbox.ForkMax, Changes: sandbox.Changes{Name: "copy"}})
	if err != nil || len(forks) != sandbox.ForkMax {
		t.Fatalf("%d forks, %v", len(forks), err)
	}
	boots := map[string]bool{}
	for _, f := range forks {
		machine := w.machine(f.ID)
		boots[machine.bootID] = true
		if machine.memory != "of "+string(id) || w.read(f.ID) != "here" || len(machine.env) != 0 || !strings.HasPrefix(f.Spec.Name, "copy-") || f.State != sandbox.Running {
			t.Fatalf("%+v; memory %q, file %q, env %v", f, machine.memory, w.read(f.ID), machine.env)
		}
	}
	if len(boots) != sandbox.ForkMax {
		t.Errorf("%d boot ids", len(boots))
	}
	if got := m.ListSnapshots(t.Context(), "t"); len(got) != 0 {
		t.Errorf("the fork's own snapshot is shown: %v", got)
	}
	w.check(t, m, "t")
	for _, f := range forks {
		if err := m.Destroy(t.Context(), "t", f.ID); err != nil {
			t.Error(err)
		}
	}
	w.check(t, m, "t") // its files went with the last
	if entries, _ := os.ReadDir(filepath.Join(w.dir, "sandboxes", "snapshots")); len(entries) != 0 {
		t.Errorf("left of the fork: %v", entries)
	}
}

func TestFork_allOrNone(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	c.Limits.Sandboxes = 3
	m := w.open(t, c)
	id := create(t, m, "t", sandbox.Spec{}).ID
	_, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: 3})
	wantClass(t, "one too many", err, errs.Limit)
	w.check(t, m, "t")
	if ids := w.ids(); len(ids) != 1 {
		t.Errorf("machines: %v", ids)
	}
	_, err = m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: sandbox.ForkMax + 1})
	wantClass(t, "far too many", err, errs.Invalid)
	if _, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: 2}); err != nil {
		t.Error(err)
	}
}

// A snapshot is a cache: without its memory the copied workspace boots cold,
// and says so.
func TestSnapshot_thatDoesNotLoadBootsItsFiles(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	w.write(t, id, "here")
	s := save(t, m, id, sandbox.SnapshotRequest{})
	if err := os.Remove(filepath.Join(w.dir, "sandboxes", "snapshots", string(s.ID), memoryFile)); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, m, 0)
	i, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
	if err != nil || w.remembers(t, i.ID) != "of "+string(i.ID) || w.read(i.ID) != "here" {
		t.Fatalf("%v; %q", err, w.read(i.ID))
	}
	if len(i.Notes) != 1 || !strings.Contains(i.Notes[0], string(s.ID)) {
		t.Errorf("notes: %q", i.Notes)
	}
	for {
		ev, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Info.State == sandbox.Running {
			if d := cmp.Diff(i.Notes, ev.Info.Notes); d != "" {
				t.Error(d)
			}
			break
		}
	}
	w.check(t, m, "t")
}

func TestSnapshot_thatFailsLeavesNothingAndTheSandboxRunsOn(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	full := errs.New(errs.Unavailable, "the disk is full")
	w.mu.Lock()
	w.saves = func() error { return full }
	w.mu.Unlock()
	_, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{})
	wantClass(t, "snapshot", err, errs.Unavailable)
	isState(t, m, id, sandbox.Running, "")
	w.check(t, m, "t")
}

func TestSnapshot_limits(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	c.Limits.Snapshots = 2
	m := w.open(t, c)
	id := create(t, m, "t", sandbox.Spec{}).ID
	first := save(t, m, id, sandbox.SnapshotRequest{})
	save(t, m, id, sandbox.SnapshotRequest{})
	_, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{})
	wantClass(t, "a third", err, errs.Limit)
	if _, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{}); err != nil {
		t.Errorf("a fork's own does not count: %v", err)
	}
	if err := m.DeleteSnapshot(t.Context(), "t", first.ID); err != nil {
		t.Fatal(err)
	}
	save(t, m, id, sandbox.SnapshotRequest{})
	_, err = m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{Name: "a/b"})
	wantClass(t, "a bad name", err, errs.Invalid)
	w.mu.Lock()
	w.usage[string(id)] = 1 << 60
	w.mu.Unlock()
	if err := m.DeleteSnapshot(t.Context(), "t", m.ListSnapshots(t.Context(), "t")[0].ID); err != nil {
		t.Fatal(err)
	}
	_, err = m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{})
	wantClass(t, "no room on the disk", err, errs.Unavailable)
	isState(t, m, id, sandbox.Running, "")
	w.check(t, m, "t")
}

// Calls to a paused sandbox, many at once: one wake, and the clock is set
// before any of them.
func TestWake_isOneForAll(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	now := time.Now()
	var mu sync.Mutex
	c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	m := w.open(t, c)
	id := create(t, m, "t", sandbox.Spec{}).ID
	before := bootID(t, m, id)
	if _, err := m.Pause(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	now = now.Add(time.Hour)
	mu.Unlock()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			conn, err := m.Dial(t.Context(), "t", id, 80)
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})
	}
	wg.Wait()
	f := w.machine(id)
	f.mu.Lock()
	steps, clock := f.steps, f.clock
	f.mu.Unlock()
	if steps != 1 || !clock.Equal(now.Round(0)) {
		t.Errorf("the clock was set %d times, to %s, want %s", steps, clock, now)
	}
	if got := bootID(t, m, id); got != before {
		t.Error("a machine that woke is another one")
	}
	isState(t, m, id, sandbox.Running, "")
}

func bootID(t *testing.T, m *manager.Manager, id sandbox.ID) string {
	t.Helper()
	c, release, err := m.Guest(t.Context(), "t", id)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	h, err := c.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h.BootId
}

// A server that dies at any step of a snapshot, or of a create from one, or of
// a fork leaves a whole snapshot or none, and sandboxes that go on in their own
// names or are not there.
func TestCrash_everyStepOfSnapshotAndFork(t *testing.T) {
	type request func(m *manager.Manager, id sandbox.ID, s sandbox.SnapshotID) error
	for name, do := range map[string]request{
		"snapshot": func(m *manager.Manager, id sandbox.ID, _ sandbox.SnapshotID) error {
			_, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{Name: "new"})
			return err
		},
		"disk": func(m *manager.Manager, id sandbox.ID, _ sandbox.SnapshotID) error {
			_, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{Name: "new", DiskOnly: true})
			return err
		},
		"restore": func(m *manager.Manager, _ sandbox.ID, s sandbox.SnapshotID) error {
			_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: s})
			return err
		},
		"fork": func(m *manager.Manager, id sandbox.ID, _ sandbox.SnapshotID) error {
			_, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: 2})
			return err
		},
		"delete": func(m *manager.Manager, _ sandbox.ID, s sandbox.SnapshotID) error {
			return m.DeleteSnapshot(t.Context(), "t", s)
		},
	} {
		for _, paused := range []bool{false, true} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/paused=%t/after=%t", name, paused, after), func(t *testing.T) {
					for step := 1; ; step++ {
						if step > 100 {
							t.Fatal("the change never ends")
						}
						if !dieSaving(t, step, name, paused, after, do) {
							t.Logf("%d steps", step-1)
							return
						}
					}
				})
			}
		}
	}
}

func dieSaving(t *testing.T, step int, name string, paused, after bool, do func(*manager.Manager, sandbox.ID, sandbox.SnapshotID) error) (died bool) {
	t.Helper()
	w := newWorld(t)
	g := &gate{}
	m, err := openSettled(t.Context(), w.config(g))
	if err != nil {
		t.Fatal(err)
	}
	id := create(t, m, "t", sandbox.Spec{Name: "original"}).ID
	old := save(t, m, id, sandbox.SnapshotRequest{Name: "old"})
	want := sandbox.Running
	if paused {
		want = sandbox.Paused
		if _, err := m.Pause(t.Context(), "t", id); err != nil {
			t.Fatal(err)
		}
	}
	g.mu.Lock()
	g.dieAt, g.after = g.steps+step, after
	g.mu.Unlock()
	err = do(m, id, old.ID)
	died = g.died()
	g.mu.Lock()
	g.dead = true
	g.mu.Unlock()
	_ = m.Close()
	if !died && err != nil {
		t.Fatalf("without a death: %v", err)
	}
	m = w.open(t, w.config(nil))
	defer func() { _ = m.Close() }()
	page, lerr := m.List(t.Context(), "t", sandbox.Filter{})
	if lerr != nil {
		t.Fatal(lerr)
	}
	for _, i := range page.Items {
		switch {
		case i.ID == id && i.State != want:
			t.Errorf("dead at step %d: the original is %s (%s), want %s", step, i.State, i.Reason, want)
		case i.ID != id && i.State != sandbox.Running:
			t.Errorf("dead at step %d: a copy is %s (%s)", step, i.State, i.Reason)
		}
	}
	if extra := map[string]int{"restore": 1, "fork": 2}[name]; err == nil && len(page.Items) != 1+extra {
		t.Errorf("acknowledged at step %d: %d sandboxes", step, len(page.Items))
	}
	if paused { // its machine stands still, as it should; the rest of check needs it awake
		if _, err := m.Resume(t.Context(), "t", id); err != nil {
			t.Errorf("dead at step %d: resume: %v", step, err)
		}
	}
	w.check(t, m, "t")
	for _, s := range m.ListSnapshots(t.Context(), "t") {
		i, err := m.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
		if err != nil || len(i.Notes) != 0 {
			t.Errorf("dead at step %d: from snapshot %s: %v, %v", step, s.Name, i.Notes, err)
		}
	}
	if n := len(m.ListSnapshots(t.Context(), "t")); err == nil && n != map[string]int{"snapshot": 2, "disk": 2, "restore": 1, "fork": 1}[name] {
		t.Errorf("acknowledged at step %d: %d snapshots", step, n)
	}
	return died
}

// What keeps more on the host is refused while a disk has no room for anything new,
// or the tenant holds as much as it may, and leaves nothing.
func TestKeepsMore_whereThereIsNoRoom(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.watched(w.config(nil)))
	id := create(t, m, "t", sandbox.Spec{}).ID
	keepMore := map[string]func() error{
		"create": func() error {
			_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
			return err
		},
		"snapshot": func() error {
			_, err := m.Snapshot(t.Context(), "t", id, sandbox.SnapshotRequest{})
			return err
		},
		"fork": func() error {
			_, err := m.Fork(t.Context(), "t", id, sandbox.ForkRequest{Count: 1})
			return err
		},
	}
	refused := func(class errs.Class, text string) {
		t.Helper()
		for what, f := range keepMore {
			eventually(t, what+" is refused", func() bool { // the last look holds for a moment
				err := f()
				return errs.Is(err, class) && strings.Contains(errs.Public(err), text)
			})
		}
	}
	w.setFree(2*reserve - 1)
	refused(errs.Unavailable, "the server's disk is full: its data directory has")
	w.setFree(plenty)
	w.use(id, 1<<40)
	refused(errs.Limit, "quota of 1048576 MB of disk is used up")
}

// Machines that no caller waits for are not made on a disk that has no room for
// anything new.
func TestWarm_notOnAFullDisk(t *testing.T) {
	w := newWorld(t)
	c := w.watched(w.warmed(nil, 2))
	w.setFree(2*reserve - 1)
	m := w.open(t, c)
	if patience.Holds(time.Second, func() bool { return isWarm(m) > 0 }) {
		t.Errorf("%d are warm", isWarm(m))
	}
	w.setFree(plenty)
	waitWarm(t, m, 2)
}
