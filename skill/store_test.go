package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
)

func treeOf(name, more string) Tree {
	return Tree{Folder: name, Files: []Entry{
		{Path: File, Content: []byte("---\nname: " + name + "\ndescription: Does " + more + ".\n---\nDo it.\n")}, {Path: "scripts/a.sh", Content: []byte("#!/bin/sh\necho " + more + "\n"), Executable: true},
	}}
}

func TestStore(t *testing.T) {
	records, dir, ctx := kvtest.NewMemory(), t.TempDir(), t.Context()
	open := func() *Store {
		s, err := Open(ctx, records, dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	one, two := treeOf("forms", "one"), treeOf("forms", "two")
	if _, err := s.Install(ctx, "a", Install{Tree: one, From: "forms.zip", New: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(ctx, "a", Install{Tree: two, New: true}); !errs.Is(err, errs.Exists) {
		t.Errorf("installed twice: %v", err)
	}
	got, err := s.Install(ctx, "a", Install{Tree: two, Agents: []string{"reviewer"}})
	if err != nil || got.Current != two.Version() || len(got.Versions) != 2 || got.Description != "Does two." || got.For("coder") || !got.For("reviewer") {
		t.Fatalf("upgraded: %+v, %v", got, err)
	}
	s = open() // another server on the same files
	if got, err = s.Change(ctx, "a", "forms", Change{Version: one.Version()[:8]}); err != nil || got.Current != one.Version() || got.For("coder") {
		t.Fatalf("rolled back: %+v, %v", got, err)
	}
	if got, err = s.Change(ctx, "a", "forms", Change{Agents: []string{}}); err != nil || !got.For("coder") {
		t.Fatalf("for all: %+v, %v", got, err)
	}
	for _, v := range []Tree{one, two} {
		tree, err := s.Tree(ctx, "a", "forms", v.Version())
		if d := cmp.Diff(v, tree); d != "" || err != nil {
			t.Error(d, err)
		}
	}
	if _, err := s.Tree(ctx, "b", "forms", one.Version()); !errs.Is(err, errs.NotFound) {
		t.Errorf("another tenant's: %v", err)
	}
	for _, bad := range []Change{{Version: "0123456789"}, {Version: one.Version()[:7]}} {
		if _, err := s.Change(ctx, "a", "forms", bad); !errs.Is(err, errs.NotFound) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := s.Install(ctx, "a", Install{Tree: Tree{Folder: "x", Files: one.Files}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("another folder's name: %v", err)
	}
	if _, err := s.Change(ctx, "a", "forms", Change{Agents: []string{"A b"}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("an agent of no name: %v", err)
	}
	if err := s.Remove(ctx, "a", "forms"); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("what was removed lies there: %v", left)
	}
	if err := s.Remove(ctx, "a", "forms"); !errs.Is(err, errs.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
}

// A version that two tenants have goes with the last of them.
func TestStore_shared(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, kvtest.NewMemory(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree := treeOf("forms", "one")
	for _, tenant := range []string{"a", "b"} {
		if _, err := s.Install(ctx, tenant, Install{Tree: tree}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Erase(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tree(ctx, "b", "forms", tree.Version()); err != nil {
		t.Error(err)
	}
	if list, err := s.List(ctx, "a"); err != nil || len(list) > 0 {
		t.Errorf("erased: %v, %v", list, err)
	}
}

// The oldest versions go; what a crash left is removed at the next start; damage is told.
func TestStore_upkeep(t *testing.T) {
	records, dir, ctx := kvtest.NewMemory(), t.TempDir(), t.Context()
	s, err := Open(ctx, records, dir)
	if err != nil {
		t.Fatal(err)
	}
	var last Installed
	for i := range VersionsMax + 2 {
		if last, err = s.Install(ctx, "a", Install{Tree: treeOf("forms", fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if len(last.Versions) != VersionsMax || last.Has(treeOf("forms", "1").Version()) {
		t.Errorf("%d versions", len(last.Versions))
	}
	if err := os.WriteFile(filepath.Join(dir, "new-123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, records, dir); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != VersionsMax {
		t.Errorf("%d files are left", len(left))
	}
	if err := os.WriteFile(s.file(last.Current), []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tree(ctx, "a", "forms", last.Current); !errs.Is(err, errs.Corrupt) {
		t.Errorf("damaged: %v", err)
	}
	if _, err := s.Install(ctx, "a", Install{Tree: treeOf("forms", fmt.Sprint(VersionsMax+1))}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tree(ctx, "a", "forms", last.Current); err != nil {
		t.Errorf("installed again: %v", err)
	}
}
