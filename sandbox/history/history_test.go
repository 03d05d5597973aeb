package history

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
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
	gone   bool
	busy   sync.RWMutex // held for reading over each use of the files
	frozen atomic.Int32
	thawed atomic.Int32
}

func (h *house) Get(context.Context, string, sandbox.ID) (sandbox.Info, error) {
	if h.gone {
		return sandbox.Info{}, errs.New(errs.NotFound, "no such sandbox")
	}
	return sandbox.Info{ID: id}, nil
}

func (h *house) Files(ctx context.Context, _ string, _ sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	h.busy.RLock()
	defer h.busy.RUnlock()
	return f(ctx, sandbox.Files{
		Host: "host_a", Volume: sandbox.Volume{Path: filepath.Join(h.disk, "files"), Disk: h.disk},
		Freeze: func(context.Context) (func(), error) {
			h.frozen.Add(1)
			return func() { h.thawed.Add(1) }, nil
		},
	})
}

func newHouse(t *testing.T) (*house, *Service) {
	t.Helper()
	h := &house{disk: t.TempDir()}
	must(t, os.Mkdir(filepath.Join(h.disk, "files"), 0o755))
	s := New(Config{Dir: filepath.Join(t.TempDir(), "history"), Sandboxes: h})
	t.Cleanup(func() { must(t, s.Close()) })
	return h, s
}

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

func TestService(t *testing.T) {
	h, s := newHouse(t)
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	h.write(t, "a", "old")
	first, fresh, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	if err != nil || !fresh {
		t.Fatal(first, fresh, err)
	}
	h.write(t, "a", "new")
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: "agent", Run: "run_1", Call: "c"})
	must(t, err)

	s.Detaching("host_a") // the sandbox stops, and starts again
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
	if _, _, err := his.Apply(t.Context(), plan.ID, workspace.Label{}); !errs.Is(err, errs.Conflict) || h.thawed.Load() != 2 {
		t.Errorf("an old plan: %v, thawed %d times", err, h.thawed.Load())
	}
	var text strings.Builder
	if err := his.Content(t.Context(), 2, "a", &text); err != nil || text.String() != "new" {
		t.Errorf("%q, %v", text.String(), err)
	}
	h.gone = true
	if _, _, err := s.Open(t.Context(), tenant, id); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
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
	for end := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
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
		s.Detaching("host_a")
		h.busy.Unlock()
	}
	wg.Wait()
}
