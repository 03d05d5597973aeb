package skill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
)

func treeOf(name, more string) Tree {
	return Tree{Folder: name, Files: []Entry{
		{Path: File, Content: []byte("---\nname: " + name + "\ndescription: Does " + more + ".\n---\nDo it.\n")}, {Path: "scripts/a.sh", Content: []byte("#!/bin/sh\necho " + more + "\n"), Executable: true},
	}}
}

func TestStore(t *testing.T) {
	records, files, ctx := kvtest.NewMemory(), kvtest.NewMemory(), t.Context()
	open := func() *Store {
		s, err := Open(ctx, records, files)
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
	s = open() // another server on the same store
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
	if left := keys(t, files); len(left) > 0 {
		t.Errorf("what was removed lies there: %v", left)
	}
	if err := s.Remove(ctx, "a", "forms"); !errs.Is(err, errs.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
}

// A version that two tenants have goes with the last of them.
func TestStore_shared(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, kvtest.NewMemory(), kvtest.NewMemory())
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

// keys lists those of a store.
func keys(t *testing.T, s kv.Store) (list []string) {
	t.Helper()
	if err := s.List(t.Context(), "", func(key string, _ []byte, _ uint64) error {
		list = append(list, key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// The oldest versions go; what was begun long ago and is of no record goes; damage is told,
// and ends when the skill is installed again.
func TestStore_upkeep(t *testing.T) {
	files, ctx := kvtest.NewMemory(), t.Context()
	s, err := Open(ctx, kvtest.NewMemory(), files)
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
	if left := keys(t, files); len(left) != 2*VersionsMax {
		t.Errorf("%d values are left", len(left))
	}
	if _, err := s.files.put(ctx, []byte("of no record")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{putTime / 2, 2*VersionsMax + 2}, {2 * putTime, 2 * VersionsMax}} {
		s.files.now = func() time.Time { return time.Now().Add(c.after) }
		if err := s.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		if left := keys(t, files); len(left) != c.left {
			t.Errorf("after %v: %d values are left", c.after, len(left))
		}
	}
	for what, damage := range map[string]func(key string, revision uint64) error{
		"damaged": func(key string, revision uint64) error {
			_, err := files.Update(ctx, key, []byte("damage"), revision)
			return err
		},
		"lost": func(key string, revision uint64) error { return files.Delete(ctx, key, revision) },
	} {
		key := pieceKey(last.Versions[VersionsMax-1].Content, 0)
		_, revision, err := files.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(key, revision); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Tree(ctx, "a", "forms", last.Current); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if last, err = s.Install(ctx, "a", Install{Tree: treeOf("forms", fmt.Sprint(VersionsMax+1))}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Tree(ctx, "a", "forms", last.Current); err != nil {
			t.Errorf("%s, installed again: %v", what, err)
		}
		if left := keys(t, files); len(left) != 2*VersionsMax {
			t.Errorf("%s, installed again: %d values are left", what, len(left))
		}
	}
}

// A tenant has at most so many skills; new versions of those are still taken, and another
// tenant has room. What is refused leaves no files.
func TestStore_quota(t *testing.T) {
	records, files, ctx := kvtest.NewMemory(), kvtest.NewMemory(), t.Context()
	s, err := Open(ctx, records, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(ctx, "a", Install{Tree: treeOf("forms", "one")}); err != nil {
		t.Fatal(err)
	}
	value, _, err := records.Get(ctx, keyOf("a", "forms"))
	for i := 1; i < InstalledMax && err == nil; i++ {
		_, err = records.Create(ctx, keyOf("a", fmt.Sprint("skill-", i)), value)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(ctx, "a", Install{Tree: treeOf("more", "one")}); !errs.Is(err, errs.Limit) {
		t.Errorf("one too many: %v", err)
	}
	if left := keys(t, files); len(left) != 2 {
		t.Errorf("%d values are left", len(left))
	}
	for tenant, tree := range map[string]Tree{"a": treeOf("forms", "two"), "b": treeOf("more", "one")} {
		if _, err := s.Install(ctx, tenant, Install{Tree: tree}); err != nil {
			t.Errorf("%s: %v", tenant, err)
		}
	}
}

// dying is a store of a process that dies at a write: that one and all later ones fail.
type dying struct {
	kv.Store
	left *int
}

func (d dying) write() error {
	if *d.left--; *d.left < 0 {
		return errs.New(errs.Unavailable, "the process is dead")
	}
	return nil
}

func (d dying) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := d.write(); err != nil {
		return 0, err
	}
	return d.Store.Create(ctx, key, value)
}

func (d dying) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := d.write(); err != nil {
		return 0, err
	}
	return d.Store.Update(ctx, key, value, revision)
}

func (d dying) Delete(ctx context.Context, key string, revision uint64) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.Store.Delete(ctx, key, revision)
}

// large has files of several pieces.
func large(name, more string) Tree {
	t := treeOf(name, more)
	data := make([]byte, 3*pieceBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	t.Files = slices.Insert(t.Files, 1, Entry{Path: "data.bin", Content: data})
	return t
}

// A server that dies at any write of an install, an upgrade and a removal leaves
// each skill whole or not there, and nothing that a later sweep does not find.
func TestStore_diesAtEachWrite(t *testing.T) {
	ctx := t.Context()
	for n, done := 0, false; !done; n++ {
		if n > 100 {
			t.Fatal("it never comes to its end")
		}
		records, files, left := kvtest.NewMemory(), kvtest.NewMemory(), n
		s, err := Open(ctx, dying{records, &left}, dying{files, &left})
		if err != nil {
			t.Fatal(err)
		}
		one, two := large("forms", "one"), large("forms", "two")
		_, err = s.Install(ctx, "a", Install{Tree: one})
		installed := err == nil && left == 0 // and nothing else
		_, err = s.Install(ctx, "a", Install{Tree: two})
		done = err == nil && s.Remove(ctx, "a", "forms") == nil && left >= 0
		s, err = Open(ctx, records, files) // the next process
		if err != nil {
			t.Fatal(err)
		}
		s.files.now = func() time.Time { return time.Now().Add(2 * putTime) }
		if err := s.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		i, err := s.Get(ctx, "a", "forms")
		if err != nil && (installed || !errs.Is(err, errs.NotFound)) {
			t.Fatalf("dead after %d writes: %v", n, err)
		}
		wanted := map[string]bool{}
		for _, v := range i.Versions {
			wanted[v.Content] = true
			if _, err := s.Tree(ctx, "a", "forms", v.ID); err != nil {
				t.Fatalf("dead after %d writes: %v", n, err)
			}
		}
		for _, key := range keys(t, files) {
			if !wanted[strings.Split(key, "/")[1]] {
				t.Fatalf("dead after %d writes: %s is left", n, key)
			}
		}
	}
}

// Trust is said of one content: an upgrade is not trusted, a rollback is as it was, and the
// beginning of a hash trusts nothing.
func TestStore_trust(t *testing.T) {
	records, files, ctx := kvtest.NewMemory(), kvtest.NewMemory(), t.Context()
	s, err := Open(ctx, records, files)
	if err != nil {
		t.Fatal(err)
	}
	one, two := treeOf("forms", "one"), treeOf("forms", "two")
	is := func(what string, tree Tree, want bool) {
		t.Helper()
		if s, err = Open(ctx, records, files); err != nil { // another server
			t.Fatal(err)
		}
		if got, err := s.Trusted(ctx, "a", "forms", tree.Version()); got != want || err != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	do := func(_ Installed, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is("before there is one", one, false)
	do(s.Install(ctx, "a", Install{Tree: one}))
	is("installed", one, false)
	do(s.Install(ctx, "a", Install{Tree: one, TrustedBy: "ann"}))
	is("installed with trust", one, true)
	do(s.Install(ctx, "a", Install{Tree: one}))
	is("installed again", one, true)
	do(s.Install(ctx, "a", Install{Tree: two}))
	is("an upgrade", two, false)
	is("the one before", one, true)
	if got, err := s.Get(ctx, "a", "forms"); err != nil || got.Trusted() {
		t.Errorf("what new runs get: %+v, %v", got, err)
	}
	for _, bad := range []Change{{Trust: two.Version()[:12], By: "ann"}, {Trust: strings.Repeat("0", 64), By: "ann"}, {Distrust: one.Version()[:12]}} {
		if _, err := s.Change(ctx, "a", "forms", bad); !errs.Is(err, errs.NotFound) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	do(s.Change(ctx, "a", "forms", Change{Trust: two.Version(), By: "bob"}))
	is("said later", two, true)
	if got, err := s.Get(ctx, "a", "forms"); err != nil || !got.Trusted() || got.Versions[1].TrustedBy != "bob" || got.Versions[1].TrustedAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	do(s.Change(ctx, "a", "forms", Change{Distrust: one.Version()}))
	is("trusted no longer", one, false)
	is("the other", two, true)
	if got, err := s.Trusted(ctx, "b", "forms", two.Version()); got || err != nil {
		t.Errorf("another tenant's: %v, %v", got, err)
	}
	if err := s.Remove(ctx, "a", "forms"); err != nil {
		t.Fatal(err)
	}
	do(s.Install(ctx, "a", Install{Tree: two}))
	is("removed and installed again", two, false)
}
