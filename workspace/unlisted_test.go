package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/workspace/revlog"
)

// An Apply that has done its work, but could not write its revision, says so:
// who is told that it failed would do it again, or believe in the old files.
func TestApply_doneButNotListed(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Dir: t.TempDir(), Staging: filepath.Join(t.TempDir(), "staging"), Store: t.TempDir()}
	var w *Workspace
	break1 := false
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Stage = func(name string) {
		if name == "applied" {
			cancel() // who asked has gone: no reason to stop now
		}
		if name == "applied" && break1 {
			must(w.log.Close())
		}
	}
	w, err := Open(c)
	must(err)
	file := filepath.Join(c.Dir, "f")
	for _, text := range []string{"old", "new"} {
		must(os.WriteFile(file, []byte(text), 0o600))
		_, _, err = w.Snapshot(ctx, Label{})
		must(err)
	}
	plan, err := w.PlanRestore(ctx, 1, "")
	must(err)
	rev, _, err := w.Apply(ctx, plan.ID, Label{})
	if err != nil || rev.N != 3 || rev.Undoes != 1 {
		t.Fatalf("of one who has gone: %+v, %v", rev, err)
	}
	break1 = true
	plan, err = w.PlanRestore(t.Context(), 2, "")
	must(err)
	_, _, err = w.Apply(t.Context(), plan.ID, Label{})
	if !errors.Is(err, ErrUnlisted) || errs.Hint(err) == "" {
		t.Errorf("%v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "new" {
		t.Errorf("it holds %q, %v", data, err)
	}
	again := plan.ID
	for range 2 { // the process after, and the one after that
		must(os.WriteFile(file, []byte("newer"), 0o600)) // which was not taken back
		_ = w.Close()
		c.Stage = nil
		w, err = Open(c)
		must(err)
		defer w.Close()
		rev, _, err := w.Apply(t.Context(), again, Label{})
		if err != nil || rev.N != 4 || rev.Undoes != 2 || rev.Plan != again {
			t.Errorf("the same plan again: %+v, %v", rev, err)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != "newer" {
			t.Errorf("it holds %q, %v", data, err)
		}
	}
}

// Without room for the revision, the next one to ask for one makes it.
func TestApply_listedLater(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Dir: t.TempDir(), Staging: filepath.Join(t.TempDir(), "staging"), Store: t.TempDir()}
	var w *Workspace
	broken := true
	c.Stage = func(name string) {
		if name == "marked" && broken {
			must(w.log.Close())
		}
	}
	w, err := Open(c)
	must(err)
	defer func() { _ = w.Close() }()
	for _, text := range []string{"old", "new"} {
		must(os.WriteFile(filepath.Join(c.Dir, "f"), []byte(text), 0o600))
		_, _, err = w.Snapshot(t.Context(), Label{})
		must(err)
	}
	plan, err := w.PlanRestore(t.Context(), 1, "")
	must(err)
	if _, _, err := w.Apply(t.Context(), plan.ID, Label{Actor: "user"}); !errors.Is(err, ErrUnlisted) {
		t.Errorf("%v", err)
	}
	if !Unfinished(c.Store) {
		t.Error("the journal is gone, and no revision says what was done")
	}
	broken = false
	w.log, w.revs, err = revlog.Open(filepath.Join(c.Store, "revisions"))
	must(err)
	rev, fresh, err := w.Snapshot(t.Context(), Label{Actor: "agent"})
	if err != nil || fresh || rev.N != 3 || rev.Undoes != 1 || rev.Actor != "user" {
		t.Errorf("the next revision: %+v, %v, %v", rev, fresh, err)
	}
	if again, _, err := w.Apply(t.Context(), plan.ID, Label{Actor: "user"}); err != nil || again.N != 3 {
		t.Errorf("the same plan again: %+v, %v", again, err)
	}
	if Unfinished(c.Store) {
		t.Error("the journal is still there")
	}
}

// What the kernel has reported is told while a look is under way, which may take
// long: a call that asks must not wait for it.
func TestHeard_whileALookIsUnderWay(t *testing.T) {
	c := Config{Dir: t.TempDir(), Staging: filepath.Join(t.TempDir(), "staging"), Store: t.TempDir()}
	var w *Workspace
	asked := false
	c.Stage = func(name string) {
		if name != "scanned" || w == nil {
			return
		}
		asked = true
		patience.Within(t, time.Minute, "the answer", func() {
			if n, known := w.Heard(); known && n == 0 {
				t.Error("nothing is under way")
			}
		})
	}
	w, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 2 {
		if _, _, err := w.Snapshot(t.Context(), Label{}); err != nil {
			t.Fatal(err)
		}
		if n, known := w.Heard(); known && n != 0 {
			t.Errorf("after a look: %d", n)
		}
	}
	if !asked {
		t.Error("there was no look")
	}
}
