package template

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// sealed is a tree on disk with its manifest.
type sealed struct {
	dir  string
	list []byte
	hash string
	treeStats
}

// sealTree makes a tree of a tar, sharing files with over if there is one.
func sealTree(t *testing.T, over *sealed, tar []byte) *sealed {
	t.Helper()
	s := &sealed{dir: t.TempDir()}
	root, err := os.OpenRoot(s.dir)
	must(t, err)
	defer root.Close()
	tree := newLayerTree(root, layerLimits{Bytes: 1 << 30, Entries: 100_000})
	if over != nil {
		parent, err := os.OpenRoot(over.dir)
		must(t, err)
		defer parent.Close()
		must(t, tree.Share(parent, bytes.NewReader(over.list)))
	}
	must(t, tree.Apply(t.Context(), bytes.NewReader(tar), plainLayer))
	var list bytes.Buffer
	s.hash, err = tree.Seal(t.Context(), &list)
	must(t, err)
	s.list, s.treeStats = list.Bytes(), tree.Stats()
	return s
}

func (s *sealed) stat(t *testing.T, name string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(filepath.Join(s.dir, name))
	must(t, err)
	return info.Sys().(*syscall.Stat_t)
}

// content is what the disk holds of the files that the manifest lists, checked
// against it.
func (s *sealed) content(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, readManifest(bytes.NewReader(s.list), 1<<20, func(e entry) error {
		if e.Kind != entryFile {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(s.dir, e.Path))
		if err != nil {
			return err
		}
		st := s.stat(t, e.Path)
		if os.Geteuid() == 0 && (st.Uid != e.UID || st.Gid != e.GID || st.Mode&0o7777 != e.Mode || st.Mtim.Nano() != e.MTime.UnixNano()) {
			return fmt.Errorf("%s on the disk is not as in the manifest", e.Path)
		}
		all[e.Path] = string(data)
		return nil
	}))
	return all
}

var then = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

func at(h tar.Header, change func(*tar.Header)) tar.Header {
	h.ModTime = then
	if change != nil {
		change(&h)
	}
	return h
}

// clones reports whether files here share blocks without sharing an inode: then
// nothing is linked.
func clones(t *testing.T) bool {
	t.Helper()
	from, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer from.Close()
	to, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer to.Close()
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
}

func TestShare_onlyWhatIsTheSame(t *testing.T) {
	same := strings.Repeat("same ", 100_000) // more than is read at once
	two, split, joined := strings.Repeat("2", 16<<10), strings.Repeat("s", 16<<10), strings.Repeat("j", 16<<10)
	small := strings.Repeat("-", 16<<10-1)
	before := sealTree(t, nil, archive(
		dir("d"), at(file("d/same", same), nil), at(file("d/edited", same+"a"), nil), at(file("d/longer", same), nil), at(file("d/shorter", same), nil),
		at(file("d/mode", "m"), nil), at(file("d/owner", "o"), nil), at(file("d/time", "t"), nil), at(file("d/xattr", "x"), nil), at(file("d/moved", "mv"), nil),
		at(file("d/small", small), nil), at(file("d/gone", "g"), nil), at(file("d/kind", "k"), nil),
		at(file("d/two", two), nil), hard("d/two-too", "d/two"), at(file("d/split", split), nil), hard("d/split-too", "d/split"),
		at(file("d/joined", joined), nil), at(file("d/joined-too", joined), nil),
	))
	kept := before.content(t)
	child := archive(
		dir("d"), at(file("d/same", same), nil), at(file("d/edited", same+"b"), nil), at(file("d/longer", same+"more"), nil), at(file("d/shorter", same[:len(same)-1]), nil),
		at(file("d/mode", "m"), func(h *tar.Header) { h.Mode = 0o4755 }), at(file("d/owner", "o"), func(h *tar.Header) { h.Uid = 7 }),
		at(file("d/time", "t"), func(h *tar.Header) { h.ModTime = then.Add(time.Second) }),
		at(file("d/xattr", "x"), func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr.user.a": "1"} }),
		at(file("d/elsewhere", "mv"), nil), at(file("d/small", small), nil), dir("d/kind"), at(file("d/new", "n"), nil),
		at(file("d/two", two), nil), hard("d/two-too", "d/two"), at(file("d/split", split), nil), at(file("d/split-too", split), nil),
		at(file("d/joined", joined), nil), hard("d/joined-too", "d/joined"),
	)
	alone, after := sealTree(t, nil, child), sealTree(t, before, child)
	if d := cmp.Diff(alone.content(t), after.content(t)); d != "" || alone.hash != after.hash {
		t.Errorf("a tree that shares differs from one that does not: %s", d)
	}
	if d := cmp.Diff(kept, before.content(t)); d != "" {
		t.Errorf("the tree before was changed: %s", d)
	}
	if clones(t) {
		t.Skip("this file system has clones, which look like files of their own")
	}
	var shared []string
	for _, name := range slices.Sorted(maps.Keys(after.content(t))) {
		if _, ok := kept[name]; ok && before.stat(t, name).Ino == after.stat(t, name).Ino {
			shared = append(shared, name)
		}
	}
	want := []string{"d/joined", "d/same", "d/split", "d/two"}
	if d := cmp.Diff(want, shared); d != "" {
		t.Errorf("shared: %s", d)
	}
	if n := int64(len(same) + 3*16<<10); after.Shared != n {
		t.Errorf("it says that %d bytes are shared, not %d", after.Shared, n)
	}
	for _, pair := range [][3]any{{"d/two", "d/two-too", true}, {"d/split", "d/split-too", false}, {"d/joined", "d/joined-too", true}} {
		a, b := pair[0].(string), pair[1].(string)
		if one := after.stat(t, a).Ino == after.stat(t, b).Ino; one != pair[2] {
			t.Errorf("%s and %s are one file: %v", a, b, one)
		}
	}
}

// TestShare_trustsNoManifest: a tree that is not what its manifest says costs
// space, and nothing else.
func TestShare_trustsNoManifest(t *testing.T) {
	pad := strings.Repeat(".", 20<<10)
	text := archive(at(file("content", "what it was"+pad), nil), at(file("mode", pad), nil), at(file("link", pad), nil), at(file("missing", pad), nil))
	before := sealTree(t, nil, text)
	in := func(name string) string { return filepath.Join(before.dir, name) }
	must(t, os.WriteFile(in("content"), []byte("what it is!"+pad), 0o644))
	must(t, os.Chtimes(in("content"), then, then))
	must(t, os.Chmod(in("mode"), 0o600))
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte(pad), 0o644))
	must(t, os.Chtimes(outside, then, then))
	must(t, os.Remove(in("link")))
	must(t, os.Symlink(outside, in("link")))
	must(t, os.Remove(in("missing")))
	after := sealTree(t, before, text)
	if d := cmp.Diff(map[string]string{"content": "what it was" + pad, "mode": pad, "link": pad, "missing": pad}, after.content(t)); d != "" || after.Shared != 0 {
		t.Errorf("%s; %d bytes shared", d, after.Shared)
	}
}

func TestShare_damagedManifest(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer root.Close()
	for name, list := range map[string]string{"empty": "", "no manifest": "x"} {
		if err := newLayerTree(root, layerBounds).Share(root, strings.NewReader(list)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
