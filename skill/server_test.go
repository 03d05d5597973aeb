package skill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
)

func writeSkill(t *testing.T, dir string, tree Tree) {
	t.Helper()
	for _, f := range tree.Files {
		at := filepath.Join(dir, tree.Folder, f.Path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		if err := os.WriteFile(at, f.Content, mode); err != nil {
			t.Fatal(err)
		}
	}
}

func namesOf(list []Installed) (names string) {
	for _, i := range list {
		names += i.Name + " "
	}
	return strings.TrimSpace(names)
}

// What the operator's folders hold is every tenant's, until a tenant puts its own in its
// place; a run that began with the one goes on with it.
func TestServe(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := Open(ctx, kvtest.NewMemory(), kvtest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	forms, charts := treeOf("forms", "one"), treeOf("charts", "one")
	writeSkill(t, dir, forms)
	writeSkill(t, dir, charts)
	writeSkill(t, dir, Tree{Folder: "bad", Files: []Entry{{Path: File, Content: []byte("nothing")}}})
	writeSkill(t, dir, Tree{Folder: "notes", Files: []Entry{{Path: "a.txt"}}})
	left, err := s.Serve(ctx, []string{dir})
	if err != nil || len(left) != 1 || !strings.Contains(left[0].Error(), "bad: ") {
		t.Fatalf("left out: %v, %v", left, err)
	}
	if list, err := s.List(ctx, "a"); err != nil || namesOf(list) != "charts forms" {
		t.Errorf("a tenant has %s, %v", namesOf(list), err)
	}
	if own, err := s.Own(ctx, "a"); err != nil || len(own) > 0 {
		t.Errorf("of its own: %s, %v", namesOf(own), err)
	}
	if i, err := s.Get(ctx, "a", "forms"); err != nil || i.Versions[0].From != serverFrom {
		t.Errorf("%+v, %v", i, err)
	}
	if err := s.Remove(ctx, "a", "forms"); !errs.Is(err, errs.Denied) {
		t.Errorf("a tenant removes the server's: %v", err)
	}
	if _, err := s.Change(ctx, "a", "forms", Change{Agents: []string{"x"}}); !errs.Is(err, errs.Denied) {
		t.Errorf("a tenant changes the server's: %v", err)
	}

	own := treeOf("forms", "of its own")
	if _, err := s.Install(ctx, "a", Install{Tree: own, New: true}); err != nil {
		t.Fatal(err)
	}
	if i, err := s.Get(ctx, "a", "forms"); err != nil || i.Current != own.Version() {
		t.Errorf("its own does not go before: %+v, %v", i, err)
	}
	if i, err := s.Get(ctx, "b", "forms"); err != nil || i.Current != forms.Version() {
		t.Errorf("another tenant has %+v, %v", i, err)
	}
	if _, err := s.Tree(ctx, "a", "forms", forms.Version()); err != nil {
		t.Errorf("what a run began with: %v", err)
	}
	if err := s.Erase(ctx, "a"); err != nil {
		t.Fatal(err)
	}

	newer := treeOf("forms", "two")
	writeSkill(t, dir, newer)
	if err := os.RemoveAll(filepath.Join(dir, "charts")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Serve(ctx, []string{dir}); err != nil {
		t.Fatal(err)
	}
	list, err := s.List(ctx, "a")
	if err != nil || namesOf(list) != "forms" || list[0].Current != newer.Version() || !list[0].Has(forms.Version()) {
		t.Errorf("after a change: %+v, %v", list, err)
	}
	was := list[0].UpdatedAt
	if _, err := s.Serve(ctx, []string{dir}); err != nil {
		t.Fatal(err)
	}
	if i, err := s.Get(ctx, "a", "forms"); err != nil || !i.UpdatedAt.Equal(was) {
		t.Errorf("what is as it was is written again: %+v, %v", i, err)
	}
	if _, err := s.Serve(ctx, []string{filepath.Join(dir, "none")}); !errs.Is(err, errs.NotFound) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := s.Serve(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(ctx, "a"); err != nil || len(list) > 0 {
		t.Errorf("without folders there are %s, %v", namesOf(list), err)
	}
}

// A skill in two folders is the first one's.
func TestServe_twice(t *testing.T) {
	ctx, a, b := t.Context(), t.TempDir(), t.TempDir()
	s, err := Open(ctx, kvtest.NewMemory(), kvtest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	first := treeOf("forms", "one")
	writeSkill(t, a, first)
	writeSkill(t, b, treeOf("forms", "two"))
	left, err := s.Serve(ctx, []string{a, b})
	if err != nil || len(left) != 1 || !errs.Is(left[0], errs.Exists) {
		t.Errorf("%v, %v", left, err)
	}
	if i, err := s.Get(ctx, "a", "forms"); err != nil || i.Current != first.Version() {
		t.Errorf("%+v, %v", i, err)
	}
}
