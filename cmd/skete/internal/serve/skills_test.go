package serve

import (
	"bytes"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
)

// What one server of a store installs, any other reads, changes and removes, up to the
// largest skill that there may be.
func TestSkills_severalServers(t *testing.T) {
	url, _ := storetest.External(t)
	ctx := t.Context()
	open := func() (*skill.Store, *store.KV) {
		s := storetest.Open(t, store.Config{URL: url})
		records, err := s.KV(ctx, "skills")
		must(t, err)
		files, err := s.KV(ctx, "skill-files")
		must(t, err)
		known, err := skill.Open(ctx, records, files)
		must(t, err)
		return known, files
	}
	one, _ := open()
	other, files := open()
	md := skill.Entry{Path: skill.File, Content: []byte("---\nname: forms\ndescription: Fills forms.\n---\nDo it.\n")}
	small := skill.Tree{Folder: "forms", Files: []skill.Entry{md}}
	large := skill.Tree{Folder: "forms", Files: []skill.Entry{
		md, {Path: "a.bin", Content: bytes.Repeat([]byte("\x00\xff"), skill.FileBytesMax/2)}, {Path: "b.bin", Content: bytes.Repeat([]byte("b"), skill.TreeBytesMax-skill.FileBytesMax-len(md.Content))},
	}}
	for i, tree := range []skill.Tree{small, large} {
		s, reader := one, other
		if i == 1 {
			s, reader = other, one
		}
		_, err := s.Install(ctx, "a", skill.Install{Tree: tree})
		must(t, err)
		list, err := reader.List(ctx, "a")
		must(t, err)
		if len(list) != 1 || list[0].Current != tree.Version() {
			t.Fatalf("the other server lists %+v", list)
		}
		got, err := reader.Tree(ctx, "a", "forms", tree.Version())
		if err != nil || got.Version() != tree.Version() {
			t.Fatalf("the other server reads %v, %v", got.Paths(), err)
		}
	}
	if got, err := one.Tree(ctx, "a", "forms", small.Version()); err != nil || got.Version() != small.Version() {
		t.Errorf("the version before: %v", err)
	}
	must(t, one.Remove(ctx, "a", "forms"))
	if _, err := other.Tree(ctx, "a", "forms", small.Version()); !errs.Is(err, errs.NotFound) {
		t.Errorf("what another removed: %v", err)
	}
	if left := keysOf(t, ctx, files); len(left) > 0 {
		t.Errorf("%d values are left", len(left))
	}
}
