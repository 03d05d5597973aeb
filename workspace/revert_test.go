package workspace_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

func numbered(changes map[int]string) string {
	lines := make([]string, 20)
	for i := range lines {
		lines[i] = "line"
		if c, ok := changes[i]; ok {
			lines[i] = c
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// Step 3 of 6 is taken back; what later steps did to other lines and files
// stays.
func TestRevert_keepsLaterSteps(t *testing.T) {
	p := newPlace(t)
	p.write("f", numbered(nil))
	p.write("dir/same", "1")
	p.snapshot()
	p.write("other", "2")
	p.snapshot()
	p.write("f", numbered(map[int]string{3: "step 3"}))
	p.write("made", "by step 3")
	p.write("sub/made", "by step 3")
	step := p.snapshot()
	p.write("f", numbered(map[int]string{3: "step 3", 15: "step 4"}))
	p.snapshot()
	p.write("sub/later", "step 5")
	p.snapshot()
	p.write("last", "step 6")
	p.snapshot()
	plan, err := p.w.PlanRevert(t.Context(), step.N, nil)
	must(t, err)
	if plan.Conflicts != nil {
		t.Fatalf("%+v", plan.Conflicts)
	}
	_, _, err = p.w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	want := []string{"dir/same=1", "f=" + numbered(map[int]string{15: "step 4"}), "last=step 6", "other=2", "sub/later=step 5"}
	if got := texts(t, p.dir); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// A real conflict is reported, and leaves everything as it is until the caller
// chooses.
func TestRevert_conflicts(t *testing.T) {
	p := newPlace(t)
	p.write("text", numbered(nil))
	p.write("binary", "a\x00b")
	p.write("removed", "1")
	p.write("clean", "before")
	p.snapshot()
	p.write("text", numbered(map[int]string{3: "step"}))
	p.write("binary", "a\x00c")
	p.write("removed", "2")
	p.write("clean", "step")
	p.write("made", "step")
	step := p.snapshot()
	p.write("text", numbered(map[int]string{3: "later"}))
	p.write("binary", "a\x00d")
	p.write("made", "later")
	must(t, os.Remove(filepath.Join(p.dir, "removed")))
	before := texts(t, p.dir)
	plan, err := p.w.PlanRevert(t.Context(), step.N, nil)
	must(t, err)
	var paths []string
	for _, c := range plan.Conflicts {
		paths = append(paths, c.Path)
	}
	if want := []string{"binary", "made", "removed", "text"}; !slices.Equal(paths, want) {
		t.Fatalf("conflicts in %q, want %q", paths, want)
	}
	if _, _, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("%v, want Conflict", err)
	}
	if got := texts(t, p.dir); !slices.Equal(got, before) {
		t.Errorf("it touched: %q", got)
	}
	plan, err = p.w.PlanRevert(t.Context(), step.N, map[string]workspace.Choice{
		"binary": workspace.KeepNow, "made": workspace.TakeBefore, "removed": workspace.TakeBefore, "text": workspace.Markers,
	})
	must(t, err)
	_, _, err = p.w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	want := []string{"binary=a\x00d", "clean=before", "removed=1", "text=" + numbered(map[int]string{3: "<<<<<<< now\nlater\n=======\nline\n>>>>>>> before"})}
	if got := texts(t, p.dir); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
