package history

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/replica"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const tenant, id = "acme", sandbox.ID("sbx_a")

// house is one sandbox whose workspace lies on the host.
type house struct {
	disk   string
	tenant string // whose it is
	gone   bool
	state  sandbox.State      // "" = running
	from   sandbox.SnapshotID // that it goes on from
	empty  bool               // it was, at first
	moved  *house             // another one, by the ID sbx_b
	busy   sync.RWMutex       // held for reading over each use of the files
	later  time.Duration
	guest  *wire.Client // of its machine; never called
	asked  atomic.Int32 // how often it was looked up
	frozen atomic.Int32
	thawed atomic.Int32
}

func (h *house) Get(_ context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	if tenant != h.tenant || h.gone && id == "sbx_a" || id == "sbx_b" && h.moved == nil {
		return sandbox.Info{}, errs.New(errs.NotFound, "no such sandbox")
	}
	h.asked.Add(1)
	return sandbox.Info{ID: id, State: cmp.Or(h.state, sandbox.Running), From: h.from}, nil
}

func (h *house) Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	if id == "sbx_b" && h.moved != nil {
		return h.moved.Files(ctx, tenant, "sbx_a", f)
	}
	if h.gone || tenant != h.tenant {
		return errs.New(errs.NotFound, "no such sandbox")
	}
	h.busy.RLock()
	defer h.busy.RUnlock()
	return f(ctx, sandbox.Files{
		Host: h.host(), Guest: h.guest, Empty: h.empty, Volume: sandbox.Volume{Path: filepath.Join(h.disk, "files"), Disk: h.disk},
		Freeze: func(context.Context) (func(), error) {
			h.frozen.Add(1)
			return func() { h.thawed.Add(1) }, nil
		},
	})
}

func newHouse(t *testing.T) (*house, *Service) {
	t.Helper()
	h := &house{disk: t.TempDir(), tenant: tenant}
	must(t, os.Mkdir(filepath.Join(h.disk, "files"), 0o755))
	s := New(Config{
		Dir: filepath.Join(t.TempDir(), "history"), Sandboxes: h, Copy: replica.Copy, Now: func() time.Time { return time.Now().Add(h.later) },
		Remote: replica.OpenHistory,
	})
	t.Cleanup(func() { must(t, s.Close()) })
	return h, s
}

func (h *house) host() sandbox.ID { return sandbox.ID("host_" + filepath.Base(h.disk)) }

func (h *house) write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(h.disk, "files", name), []byte(text), 0o644))
}

func (h *house) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.disk, "files", name))
	must(t, err)
	return string(data)
}

// Histories take nothing of what the server keeps back of its disks; an undo is
// possible all the same.
func TestRoom_noRevisionsOnAFullDisk(t *testing.T) {
	h, s := newHouse(t)
	full := errs.New(errs.Unavailable, "the server's disk is full")
	var room atomic.Bool
	s.c.Room = func() error {
		if room.Load() {
			return nil
		}
		return full
	}
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	save := func() error {
		_, _, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
		return err
	}
	if h.write(t, "a", "1"); !errors.Is(save(), full) {
		t.Error("a revision is made")
	}
	room.Store(true)
	must(t, save())
	room.Store(false)
	h.write(t, "a", "2")
	if err := save(); !errors.Is(err, full) {
		t.Errorf("another revision: %v", err)
	}
	revs, err := his.Revisions(t.Context())
	must(t, err)
	plan, err := his.PlanRestore(t.Context(), revs[len(revs)-1].N, "")
	must(t, err)
	_, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(t, err)
	if got := h.read(t, "a"); got != "1" {
		t.Errorf("it holds %q", got)
	}
	if err := save(); err != nil {
		t.Logf("nothing has changed, and %v", err) // where the kernel does not say so
	}
}

func TestService(t *testing.T) {
	h, s := newHouse(t)
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	if revs, err := his.Revisions(t.Context()); err != nil || len(revs) != 1 || revs[0].Files != 0 {
		t.Fatalf("what was there at first: %+v, %v", revs, err)
	}
	h.write(t, "a", "old")
	first, fresh, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	if err != nil || !fresh {
		t.Fatal(first, fresh, err)
	}
	h.write(t, "a", "new")
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: "agent", Run: "run_1", Call: "c"})
	must(t, err)

	s.Detaching(h.host()) // the sandbox stops, and starts again
	s.Detaching("host_unknown")
	plan, err := his.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	rev, _, err := his.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	if err != nil || rev.Root != first.Root || h.read(t, "a") != "old" {
		t.Fatal(rev, err, h.read(t, "a"))
	}
	if h.frozen.Load() != 1 || h.thawed.Load() != 1 {
		t.Errorf("frozen %d times, thawed %d times", h.frozen.Load(), h.thawed.Load())
	}
	h.write(t, "a", "newer")
	again, _, err := his.Apply(t.Context(), plan.ID, workspace.Label{})
	if err != nil || again.N != rev.N || h.read(t, "a") != "newer" || h.thawed.Load() != 2 {
		t.Errorf("the same plan again: %+v, %v, thawed %d times", again, err, h.thawed.Load())
	}
	if _, _, err := his.Apply(t.Context(), "5"+plan.ID[1:]+"5", workspace.Label{}); !errs.Is(err, errs.Conflict) || h.thawed.Load() != 3 {
		t.Errorf("an unknown plan: %v, thawed %d times", err, h.thawed.Load())
	}
	var text strings.Builder
	if err := his.Content(t.Context(), 3, "a", &text); err != nil || text.String() != "new" {
		t.Errorf("%q, %v", text.String(), err)
	}
	h.gone = true
	if _, _, err := s.Open(t.Context(), tenant, "sbx_b"); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
}

// What is kept of a sandbox outlives it, can be read, and given to another.
func TestService_gone(t *testing.T) {
	h, s := newHouse(t)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	h.write(t, "a", "1")
	first, _, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
	h.write(t, "a", "2")
	h.write(t, "b", "not looked at before the end")
	s.Detaching(h.host())
	must(t, os.RemoveAll(h.disk))
	h.gone = true

	if _, _, err := s.Open(t.Context(), "other", id); !errs.Is(err, errs.NotFound) {
		t.Errorf("another tenant: %v", err)
	}
	his, _, err = s.Open(t.Context(), tenant, id)
	must(t, err)
	revs, err := his.Revisions(t.Context())
	must(t, err)
	last := revs[len(revs)-1]
	var text strings.Builder
	if err := his.Content(t.Context(), last.N, "b", &text); err != nil || text.String() != "not looked at before the end" {
		t.Fatalf("%q, %v", text.String(), err)
	}
	if _, err := his.PlanRestore(t.Context(), first.N, ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("a plan for a sandbox that is gone: %v", err)
	}

	h.moved = &house{disk: t.TempDir(), tenant: tenant}
	must(t, os.Mkdir(filepath.Join(h.moved.disk, "files"), 0o755))
	h.moved.write(t, "own", "of the new one")
	rev, err := s.Move(t.Context(), tenant, id, "sbx_b", 0, workspace.Label{Actor: "user"})
	if err != nil || rev.Root != last.Root || h.moved.read(t, "a") != "2" {
		t.Fatal(rev, err)
	}
	if _, err := os.Stat(filepath.Join(h.moved.disk, "files", "own")); err == nil {
		t.Error("what the new one had stays")
	}
	if _, err := s.Move(t.Context(), tenant, id, "sbx_b", 0, workspace.Label{}); !errs.Is(err, errs.Exists) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := s.Move(t.Context(), "other", id, "sbx_b", 0, workspace.Label{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("of another tenant: %v", err)
	}

	n, err := s.Sweep(t.Context())
	if n != 0 || err != nil {
		t.Fatalf("swept %d too early, %v", n, err)
	}
	h.later = keepFor + time.Hour
	if n, err = s.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	if _, _, err := s.Open(t.Context(), tenant, id); !errs.Is(err, errs.NotFound) {
		t.Errorf("after the sweep: %v", err)
	}
}

// What changes without a run becomes a revision when it is quiet again, one
// for many touches.
func TestTouched(t *testing.T) {
	h, s := newHouse(t)
	h.write(t, "a", "1")
	for range 5 {
		s.Touched(tenant, id)
	}
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	for end := time.Now().Add(patience.Of(20 * time.Second)); ; <-time.After(50 * time.Millisecond) {
		revs, err := his.Revisions(t.Context())
		must(t, err)
		if n := len(revs); n > 0 && revs[n-1].Files > 0 {
			if revs[n-1].Actor != "outside" {
				t.Errorf("%+v", revs[n-1])
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("no revision came")
		}
	}
}

// Calls at once, while the workspace comes and goes, all work.
func TestService_concurrent(t *testing.T) {
	h, s := newHouse(t)
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, _, err := his.Snapshot(t.Context(), workspace.Label{}); err != nil {
					t.Error(err)
				}
				if _, err := his.Revisions(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		h.busy.Lock()
		s.Detaching(h.host())
		h.busy.Unlock()
	}
	wg.Wait()
}

// An undo that a server died in is finished by the next one, before anybody
// asks, and what was stopped for it goes on.
func TestRecover(t *testing.T) {
	h, s := newHouse(t)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	h.write(t, "a", "old")
	first, _, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
	h.write(t, "a", "new")
	s.Detaching(h.host())

	ended := make(chan struct{})
	w, err := workspace.Open(workspace.Config{
		Dir: filepath.Join(h.disk, "files"), Staging: filepath.Join(h.disk, "staging"), Store: s.store(id),
		Stage: func(name string) {
			if name == "staged" {
				runtime.Goexit() // the server dies
			}
		},
	})
	must(t, err)
	plan, err := w.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	go func() {
		defer close(ended)
		_, _, _ = w.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	}()
	<-ended
	must(t, w.Close())
	if h.read(t, "a") != "new" {
		t.Fatal("it was done already")
	}
	var told []string
	h.guest, s.c.Applied = &wire.Client{}, func(_ context.Context, _ sandbox.ID, _ *wire.Client, paths [][]byte) {
		for _, p := range paths {
			told = append(told, string(p))
		}
	}
	s.Recover()()
	if !slices.Equal(told, []string{"a"}) {
		t.Errorf("told of the paths %q", told)
	}
	h.guest = nil
	if h.read(t, "a") != "old" || h.frozen.Load() != 1 || h.thawed.Load() != 1 {
		t.Errorf("%q, frozen %d times, thawed %d times", h.read(t, "a"), h.frozen.Load(), h.thawed.Load())
	}
	s.Recover()()
	if h.frozen.Load() != 1 {
		t.Error("there was nothing to do")
	}
}

// A history that does not open is asked again, and says why again.
func TestService_damaged(t *testing.T) {
	h, s := newHouse(t)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	h.write(t, "a", "1")
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
	s.Detaching(h.host())
	list := filepath.Join(s.store(id), "revisions")
	data, err := os.ReadFile(list)
	must(t, err)
	must(t, os.WriteFile(list, []byte("something else"), 0o600))
	for range 2 {
		if _, err := his.Revisions(t.Context()); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%v", err)
		}
	}
	must(t, os.WriteFile(list, data, 0o600))
	if revs, err := his.Revisions(t.Context()); err != nil || len(revs) == 0 {
		t.Errorf("%v, %v", revs, err)
	}
}
