package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/workspace"
)

// undo goes where Position says, or reports that there is nowhere to go.
func (p *place) undo(redo bool) bool {
	p.t.Helper()
	revs, err := p.w.Revisions(p.t.Context())
	must(p.t, err)
	_, back, forward := workspace.Position(revs)
	if redo {
		back = forward
	}
	if back == 0 {
		return false
	}
	p.restore(back, "")
	return true
}

// poem is a text of 20 lines, no two alike, some of them changed.
func poem(changed ...int) string {
	var b strings.Builder
	for i := range 20 {
		if slices.Contains(changed, i) {
			b.WriteString("another ")
		}
		fmt.Fprintln(&b, "line", i)
	}
	return b.String()
}

// Three deep and back again, with the disk compared at each turn; then a step
// in the middle is reverted, and that too can be undone.
func TestUndo_threeDeep(t *testing.T) {
	p := newPlace(t)
	var pictures []map[string]string
	for n := range 4 {
		p.write("f", poem(n*4))
		p.write("dir"+string(rune('0'+n))+"/g", "x")
		if n == 2 {
			must(t, os.RemoveAll(filepath.Join(p.dir, "dir0")))
		}
		p.snapshot()
		pictures = append(pictures, look(t, p.dir))
	}
	same := func(n int, what string) {
		t.Helper()
		if d := cmp.Diff(pictures[n], look(t, p.dir)); d != "" {
			t.Fatalf("%s: %s", what, d)
		}
	}
	for range 3 { // undo all, redo all, and again
		for n := 2; n >= 0; n-- {
			if !p.undo(false) {
				t.Fatal("nothing to undo")
			}
			same(n, "undo")
		}
		if p.undo(false) {
			t.Fatal("it undid the first revision")
		}
		for n := 1; n <= 3; n++ {
			if !p.undo(true) {
				t.Fatal("nothing to redo")
			}
			same(n, "redo")
		}
		if p.undo(true) {
			t.Fatal("it redid what is not there")
		}
	}
	plan, err := p.w.PlanRevert(t.Context(), 3, nil)
	must(t, err)
	_, _, err = p.w.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(t, err)
	want := []string{"dir0/g=x", "dir1/g=x", "dir3/g=x", "f=" + poem(4, 12)}
	if got := texts(t, p.dir); !slices.Equal(got, want) {
		t.Fatalf("%q\nwant %q", got, want)
	}
	p.undo(false)
	same(3, "undo of the revert")
}

// With First, opening a history for the first time is what can be gone back to.
func TestOpen_first(t *testing.T) {
	p := newPlace(t)
	must(t, p.w.Close())
	p.write("a", "was there")
	p.c.First = &workspace.Label{Actor: workspace.Outside, Text: "as it was found"}
	p.open()
	p.write("a", "changed")
	if r := p.snapshot(); r.N != 2 {
		t.Fatalf("the first change is revision %d", r.N)
	}
	p.undo(false)
	if got := texts(t, p.dir); !slices.Equal(got, []string{"a=was there"}) {
		t.Errorf("%q", got)
	}
	must(t, p.w.Close())
	p.open()
	if revs, _ := p.w.Revisions(t.Context()); len(revs) != 3 {
		t.Errorf("opening again made a revision: %d", len(revs))
	}
}

// A workspace that was made empty is undone to that, however late its history
// was opened.
func TestOpen_wasEmpty(t *testing.T) {
	base := t.TempDir()
	c := configIn(base)
	must(t, os.Mkdir(c.Dir, 0o755))
	must(t, os.WriteFile(filepath.Join(c.Dir, "a"), []byte("first"), 0o644))
	c.First, c.Empty = &workspace.Label{Actor: workspace.Outside}, true
	w, err := workspace.Open(c)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	_, _, err = w.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
	revs, err := w.Revisions(t.Context())
	must(t, err)
	_, undo, _ := workspace.Position(revs)
	plan, err := w.PlanRestore(t.Context(), undo, "")
	must(t, err)
	_, _, err = w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	if left, _ := os.ReadDir(c.Dir); len(left) != 0 || len(revs) != 2 {
		t.Errorf("%v is left; %d revisions", left, len(revs))
	}
	report, err := workspace.Check(t.Context(), c.Store)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
