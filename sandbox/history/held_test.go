package history

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// noise is what no packing makes smaller.
func noise(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return string(b)
}

// wantHeld compares what is counted with what is there.
func wantHeld(t *testing.T, s *Service, want int64) {
	t.Helper()
	if got := s.Held(tenant); got != want {
		t.Errorf("%d bytes are held, want %d", got, want)
	}
	if got := s.Held("eve"); got != 0 {
		t.Errorf("another tenant holds %d bytes", got)
	}
}

// What histories take is known after each change without a look at all of them,
// outlives the sandbox and the server, and ends with the history.
func TestHeld(t *testing.T) {
	h, s := newHouse(t)
	wantHeld(t, s, 0)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	save := func(label string) {
		t.Helper()
		_, _, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user", Text: label})
		must(t, err)
		wantHeld(t, s, bytesBelow(s.store(id)))
	}
	h.write(t, "a", "old")
	save("first")
	h.write(t, "b", noise(1<<20))
	save("second")
	if n := s.Held(tenant); n < 1<<20 {
		t.Errorf("%d bytes are held of more than a megabyte", n)
	}
	plan, err := his.PlanRestore(t.Context(), 2, "")
	must(t, err)
	_, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(t, err)
	wantHeld(t, s, bytesBelow(s.store(id)))

	h.write(t, "c", noise(2 << 20)[1<<20:])
	s.Detaching(h.host())
	h.gone = true
	kept := bytesBelow(s.store(id))
	if kept < 2<<20 {
		t.Errorf("with the last look the history takes %d bytes", kept)
	}
	wantHeld(t, s, kept)
	next := New(s.c)
	t.Cleanup(func() { must(t, next.Close()) })
	wantHeld(t, next, kept)

	h.later = 2 * keepFor
	if n, err := next.Sweep(t.Context()); err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	wantHeld(t, next, 0)
}

// What a moved history takes counts twice, since it is there twice.
func TestHeld_moved(t *testing.T) {
	h, s := newHouse(t)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	h.write(t, "a", noise(1<<20))
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
	h.moved = &house{disk: t.TempDir(), tenant: tenant}
	must(t, os.Mkdir(filepath.Join(h.moved.disk, "files"), 0o755))
	_, err = s.Move(t.Context(), tenant, id, "sbx_b", 0, workspace.Label{Actor: "user"})
	must(t, err)
	wantHeld(t, s, bytesBelow(s.store(id))+bytesBelow(s.store("sbx_b")))
}

// A tenant that has used up its quota gets no more revisions: not when it asks for
// one, not when its sandbox stops, not by moving a history. An undo is possible all
// the same, and what others have is kept.
func TestQuota_noRevisions(t *testing.T) {
	h, s := newHouse(t)
	over := errs.New(errs.Limit, "quota of 1 MB of disk is used up")
	var used atomic.Bool
	s.c.Quota = func(who string) error {
		if who == tenant && used.Load() {
			return over
		}
		return nil
	}
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	save := func(ctx context.Context) error {
		_, _, err := his.Snapshot(ctx, workspace.Label{Actor: "user"})
		return err
	}
	h.write(t, "a", "1")
	must(t, save(t.Context()))
	used.Store(true)
	h.write(t, "a", "2")
	if err := save(t.Context()); !errors.Is(err, over) {
		t.Errorf("a revision: %v", err)
	}
	revs, err := his.Revisions(t.Context())
	must(t, err)
	n := len(revs)
	h.moved = &house{disk: t.TempDir(), tenant: tenant}
	must(t, os.Mkdir(filepath.Join(h.moved.disk, "files"), 0o755))
	if _, err := s.Move(t.Context(), tenant, id, "sbx_b", 0, workspace.Label{Actor: "user"}); !errors.Is(err, over) {
		t.Errorf("a move: %v", err)
	}
	s.Detaching(h.host())
	if revs, err = his.Revisions(t.Context()); err != nil || len(revs) != n {
		t.Errorf("after a stop there are %d revisions, were %d: %v", len(revs), n, err)
	}
	plan, err := his.PlanRestore(t.Context(), revs[n-1].N, "")
	must(t, err)
	_, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(t, err)
	if got := h.read(t, "a"); got != "1" {
		t.Errorf("after an undo it holds %q", got)
	}
	used.Store(false)
	h.write(t, "a", "3")
	must(t, save(t.Context()))
}

// What is kept of a sandbox that is gone is listed with what it takes, and goes when
// its tenant says so, with what it counted for. That of one that is there does not.
func TestDelete(t *testing.T) {
	h, s := newHouse(t)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	h.write(t, "a", noise(1<<20))
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
	wantKept := func(want ...sandbox.ID) {
		t.Helper()
		got, err := s.Kept(t.Context(), tenant)
		var ids []sandbox.ID
		for _, k := range got {
			ids = append(ids, k.ID)
			if k.Bytes != bytesBelow(s.store(k.ID)) || time.Since(k.Written) > time.Hour {
				t.Errorf("%+v", k)
			}
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("kept: %v, %v, want %v", ids, err, want)
		}
	}
	wantKept()
	if err := s.Delete(t.Context(), tenant, id); !errs.Is(err, errs.Conflict) {
		t.Errorf("of a sandbox that is there: %v", err)
	}
	s.Detaching(h.host())
	h.state = sandbox.Destroyed // its record is there for a while
	wantKept(id)
	h.gone = true
	wantKept(id)
	if got, err := s.Kept(t.Context(), "eve"); err != nil || len(got) > 0 {
		t.Errorf("another tenant sees %v, %v", got, err)
	}
	if err := s.Delete(t.Context(), "eve", id); !errs.Is(err, errs.NotFound) {
		t.Errorf("by another tenant: %v", err)
	}
	wantKept(id)
	must(t, s.Delete(t.Context(), tenant, id))
	wantKept()
	wantHeld(t, s, 0)
	if _, err := os.Stat(s.dir(id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if err := s.Delete(t.Context(), tenant, id); !errs.Is(err, errs.NotFound) {
		t.Errorf("a second time: %v", err)
	}
}
