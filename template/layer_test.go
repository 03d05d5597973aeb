package template

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

var layerBounds = layerLimits{Bytes: 1 << 20, Entries: 1000}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dir(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), Linkname: content}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

func hard(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}
}

func archive(headers ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		_, _ = io.WriteString(w, content)
	}
	_ = w.Close()
	return b.Bytes()
}

// build applies layers and checks that the disk and the manifest agree.
func build(t testing.TB, kind layerKind, l layerLimits, layers ...[]byte) (map[string]entry, treeStats, error) {
	t.Helper()
	where := t.TempDir()
	in := filepath.Join(where, "tree")
	must(t, os.Mkdir(in, 0o755))
	must(t, os.WriteFile(filepath.Join(where, "outside"), []byte("untouched"), 0o644))
	root, err := os.OpenRoot(in)
	must(t, err)
	defer root.Close()
	tree := newLayerTree(root, l)
	defer func() {
		entries, err := os.ReadDir(where)
		must(t, err)
		data, err := os.ReadFile(filepath.Join(where, "outside"))
		if err != nil || string(data) != "untouched" || len(entries) != 2 {
			t.Errorf("outside of the tree: %v %q %v", entries, data, err)
		}
	}()
	for _, data := range layers {
		if err := tree.Apply(context.Background(), bytes.NewReader(data), kind); err != nil {
			return nil, tree.Stats(), err
		}
	}
	var list bytes.Buffer
	_, err = tree.Seal(context.Background(), &list)
	must(t, err)
	got := map[string]entry{}
	must(t, readManifest(&list, 10000, func(e entry) error {
		got[e.Path] = e
		return nil
	}))
	compare(t, in, got)
	return got, tree.Stats(), nil
}

// compare walks the disk: every name, kind, mode, owner, size and link.
func compare(t testing.TB, in string, got map[string]entry) {
	t.Helper()
	inodes, n := map[uint64]string{}, 0
	must(t, filepath.WalkDir(in, func(full string, _ fs.DirEntry, err error) error {
		must(t, err)
		n++
		name, _ := filepath.Rel(in, full)
		if name == "." {
			name = ""
		}
		e, ok := got[name]
		if !ok {
			t.Errorf("%q is on disk and not in the manifest", name)
			return nil
		}
		info, err := os.Lstat(full)
		must(t, err)
		st := info.Sys().(*syscall.Stat_t)
		if e.Kind == entryLink {
			if inodes[st.Ino] != e.Target {
				t.Errorf("%q is another name of %q, want %q", name, inodes[st.Ino], e.Target)
			}
			return nil
		}
		if first, again := inodes[st.Ino]; again {
			t.Errorf("%q is another name of %q; the manifest knows nothing of it", name, first)
		}
		inodes[st.Ino] = name
		if st.Mode&0o7777 != e.Mode && os.Geteuid() == 0 || os.Geteuid() == 0 && (st.Uid != e.UID || st.Gid != e.GID) {
			t.Errorf("%q: mode %o, owner %d:%d; manifest %+v", name, st.Mode, st.Uid, st.Gid, e)
		}
		if !info.ModTime().Equal(e.MTime) {
			t.Errorf("%q: time %v, manifest %v", name, info.ModTime(), e.MTime)
		}
		kind := map[fs.FileMode]entryKind{0: entryFile, fs.ModeDir: entryDir, fs.ModeSymlink: entrySymlink}[info.Mode().Type()]
		if kind != e.Kind || kind == entryFile && info.Size() != e.Size {
			t.Errorf("%q: %v, %d bytes; manifest %+v", name, info.Mode(), info.Size(), e)
		}
		return nil
	}))
	if n != len(got) {
		t.Errorf("%d names on disk, %d in the manifest", n, len(got))
	}
}

func names(got map[string]entry) string {
	var list []string
	for name, e := range got {
		s := name
		switch e.Kind {
		case entryDir:
			s += "/"
		case entrySymlink, entryLink:
			s += ">" + e.Target
		case entryFile:
			s += fmt.Sprint(e.Size)
		}
		if name != "" {
			list = append(list, s)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestApply_layersMeanWhatTheSpecificationSays(t *testing.T) {
	type layers = [][]byte
	base := archive(dir("d"), file("d/a", "1"), file("d/b", "22"), dir("d/sub"), file("d/sub/c", "333"), file("f", "4444"))
	for _, c := range []struct {
		name   string
		layers layers
		want   string
	}{
		{"one", layers{base}, "d/ d/a1 d/b2 d/sub/ d/sub/c3 f4"},
		{"a file is replaced", layers{base, archive(file("d/a", "xxxxx"))}, "d/ d/a5 d/b2 d/sub/ d/sub/c3 f4"},
		{"whiteout of a file", layers{base, archive(file("d/.wh.a", ""))}, "d/ d/b2 d/sub/ d/sub/c3 f4"},
		{"whiteout of a directory", layers{base, archive(file(".wh.d", ""))}, "f4"},
		{"whiteout of nothing", layers{base, archive(file(".wh.zzz", ""), file("no/.wh.x", ""))}, "d/ d/a1 d/b2 d/sub/ d/sub/c3 f4"},
		{"whiteout, then anew", layers{base, archive(file("d/.wh.sub", ""), dir("d/sub"), file("d/sub/new", "n"))}, "d/ d/a1 d/b2 d/sub/ d/sub/new1 f4"},
		{"anew, then whiteout", layers{base, archive(dir("d/sub"), file("d/sub/new", "n"), file("d/.wh.sub", ""))}, "d/ d/a1 d/b2 d/sub/ d/sub/new1 f4"},
		{"anew without its directory, then whiteout", layers{base, archive(file("d/sub/new", "n"), file("d/.wh.sub", ""))}, "d/ d/a1 d/b2 d/sub/ d/sub/new1 f4"},
		{"a whiteout hides nothing of its own layer", layers{base, archive(file("d/a", "own"), file("d/.wh.a", ""))}, "d/ d/a3 d/b2 d/sub/ d/sub/c3 f4"},
		{"opaque first", layers{base, archive(file("d/.wh..wh..opq", ""), file("d/n", "n"))}, "d/ d/n1 f4"},
		{"opaque last", layers{base, archive(dir("d"), file("d/n", "n"), file("d/.wh..wh..opq", ""))}, "d/ d/n1 f4"},
		{"opaque at the root", layers{base, archive(file(".wh..wh..opq", ""), file("n", "n"))}, "n1"},
		{"opaque and a whiteout", layers{base, archive(file("d/.wh..wh..opq", ""), file("d/sub/n", "n"), file("d/.wh.sub", ""))}, "d/ d/sub/ d/sub/n1 f4"},
		{"a file replaces a directory", layers{base, archive(file("d", "x"))}, "d1 f4"},
		{"a link replaces a directory", layers{base, archive(symlink("d", "f"))}, "d>f f4"},
		{"a directory replaces a file", layers{base, archive(dir("f"), file("f/x", ""))}, "d/ d/a1 d/b2 d/sub/ d/sub/c3 f/ f/x0"},
		{"a directory replaces a link", layers{archive(dir("usr"), symlink("lib", "usr")), archive(dir("lib"), file("lib/x", ""))}, "lib/ lib/x0 usr/"},
		{"a name through a link of below", layers{archive(dir("usr/lib"), symlink("lib", "usr/lib")), archive(file("lib/x", ""))}, "lib>usr/lib usr/ usr/lib/ usr/lib/x0"},
		{"a whiteout through a link", layers{archive(file("usr/lib/x", ""), symlink("lib", "/usr/lib")), archive(file("lib/.wh.x", ""))}, "lib>/usr/lib usr/ usr/lib/"},
		{"a hard link across layers", layers{base, archive(hard("z", "f"))}, "d/ d/a1 d/b2 d/sub/ d/sub/c3 f4 z>f"},
		{"a hard link to a link", layers{archive(symlink("a", "nowhere")), archive(hard("b", "a"))}, "a>nowhere b>a"},
		{"the first name goes, the second stays", layers{archive(file("a", "x"), hard("b", "a")), archive(file(".wh.a", ""))}, "b1"},
		{"one of two names is written anew", layers{archive(file("a", "x"), hard("b", "a")), archive(file("a", "yy"))}, "a2 b1"},
		{"a directory with hard links goes", layers{archive(file("d/a", "x"), hard("b", "d/a"), hard("c", "b")), archive(file(".wh.d", ""))}, "b1 c>b"},
		{"devices are left out", layers{archive(tar.Header{Name: "dev/null", Typeflag: tar.TypeChar}, tar.Header{Name: "p", Typeflag: tar.TypeFifo}, file("x", ""))}, "x0"},
		{"a device hides what was there", layers{base, archive(tar.Header{Name: "f", Typeflag: tar.TypeChar})}, "d/ d/a1 d/b2 d/sub/ d/sub/c3"},
		{"names of AUFS's own", layers{base, archive(file(".wh..wh.plnk", ""), file(".wh..wh.aufs", ""))}, "d/ d/a1 d/b2 d/sub/ d/sub/c3 f4"},
		{"a long name", layers{archive(file(strings.Repeat("long/", 40)+strings.Repeat("n", 255), ""))}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := build(t, ociLayer, layerBounds, c.layers...)
			must(t, err)
			if c.want != "" && names(got) != c.want {
				t.Errorf("have %s\nwant %s", names(got), c.want)
			}
		})
	}
}

func TestApply_keepsAttributes(t *testing.T) {
	got, stats, err := build(t, ociLayer, layerBounds, archive(
		tar.Header{Name: "bin/sudo", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 0, Gid: 27},
		tar.Header{Name: "tmp", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 3, Gid: 1 << 20},
		tar.Header{Name: "bin/ping", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{
			"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			"SCHILY.xattr.user.note":           "hello", "SCHILY.xattr.security.selinux": "label",
		}},
		tar.Header{Name: "mail", Typeflag: tar.TypeDir, Mode: 0o2775, Gid: 8}))
	must(t, err)
	if stats.Skipped != 1 {
		t.Errorf("%d skipped", stats.Skipped)
	}
	have := map[string]string{}
	for _, name := range []string{"bin/sudo", "tmp", "mail", "bin/ping"} {
		e := got[name]
		have[name] = fmt.Sprintf("%o %d:%d %d", e.Mode, e.UID, e.GID, len(e.Xattrs))
	}
	want := map[string]string{"bin/sudo": "4755 0:27 0", "tmp": "1777 3:1048576 0", "mail": "2775 0:8 0", "bin/ping": "755 0:0 2"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestApply_hostileLayersStayInside(t *testing.T) {
	deep := strings.Repeat("d/", 200)
	many := make([]tar.Header, 1001)
	for i := range many {
		many[i] = file(fmt.Sprint(i), "")
	}
	var circle []tar.Header
	for i := range 50 {
		circle = append(circle, symlink(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d/x", (i+1)%50)))
	}
	attrs := map[string]string{}
	for i := range 13 {
		attrs[fmt.Sprintf("SCHILY.xattr.user.%d", i)] = "x"
	}
	for _, c := range []struct {
		name string
		data []byte
		want errs.Class // "" = taken, and inside
	}{
		{"dot dot", archive(file("../outside", "x")), errs.Invalid},
		{"dot dot inside", archive(file("a/../../outside", "x")), errs.Invalid},
		{"absolute", archive(file("/outside", "x")), ""},
		{"through a link that leads up", archive(symlink("l", ".."), file("l/outside", "x")), ""},
		{"through an absolute link", archive(symlink("l", "/"), file("l/outside", "x")), ""},
		{"through two links", archive(symlink("a", "b/../.."), symlink("b", "../../.."), file("a/outside", "x")), ""},
		{"onto a link that leads out", archive(symlink("l", "../outside"), file("l", "x")), ""},
		{"a directory onto a link that leads out", archive(symlink("l", ".."), dir("l"), file("l/outside", "x")), ""},
		{"hard link outside", archive(hard("h", "../outside")), errs.Invalid},
		{"hard link through a link outside", archive(symlink("l", ".."), hard("h", "l/outside"), file("h", "x")), errs.Invalid},
		{"hard link to an absolute name outside", archive(hard("h", "/etc/passwd")), errs.Invalid},
		{"hard link to a link that leads out, then written", archive(symlink("l", "../outside"), hard("h", "l"), file("h", "x")), ""},
		{"hard link to a directory", archive(dir("d"), hard("h", "d")), errs.Invalid},
		{"hard link to itself", archive(hard("h", "h")), errs.Invalid},
		{"hard link to itself that is there", archive(file("h", "x"), hard("h", "h")), ""},
		{"links in a circle", archive(append(circle, file("l0/x", ""))...), errs.Invalid},
		{"a link to itself", archive(symlink("l", "l"), file("l/x", "")), errs.Invalid},
		{"beneath a file", archive(file("f", ""), file("f/x", "")), errs.Invalid},
		{"whiteout of dot dot", archive(file(".wh...", "")), errs.Invalid},
		{"whiteout of nothing", archive(file("d/x", ""), file("d/.wh.", "")), errs.Invalid},
		{"whiteout through a link that leads up", archive(symlink("l", ".."), file("l/.wh.outside", "")), ""},
		{"opaque through a link that leads up", archive(symlink("l", "../.."), file("l/.wh..wh..opq", "")), ""},
		{"the root as a file", archive(file("x", ""), tar.Header{Name: ".", Typeflag: tar.TypeReg}), ""},
		{"deep", archive(file(deep+"f", "")), errs.Limit},
		{"deep through links", archive(symlink("a", strings.Repeat("d/", 100)), symlink(strings.Repeat("d/", 100)+"b", strings.Repeat("d/", 100)), file("a/b/f", "")), errs.Limit},
		{"a long part", archive(file(strings.Repeat("n", 256), "")), errs.Invalid},
		{"a long part in a link", archive(symlink("l", strings.Repeat("n", 300)), file("l/x", "")), errs.Limit},
		{"too many entries", archive(many...), errs.Limit},
		{"too large", archive(file("a", strings.Repeat("x", 1<<20+1))), errs.Limit},
		{"too large together, each replaced", archive(file("a", strings.Repeat("x", 700<<10)), file("a", strings.Repeat("x", 700<<10))), errs.Limit},
		{"too many attributes", archive(tar.Header{Name: "f", Typeflag: tar.TypeReg, PAXRecords: attrs}), errs.Limit},
		{"large attributes", archive(tar.Header{Name: "f", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.x": strings.Repeat("x", 4000)}}), errs.Limit},
		{"negative owner", archive(tar.Header{Name: "f", Typeflag: tar.TypeReg, Uid: -1}), errs.Invalid},
		{"owner that is none", archive(tar.Header{Name: "f", Typeflag: tar.TypeReg, Gid: 1<<32 - 1}), errs.Invalid},
		{"unknown type", archive(tar.Header{Name: "f", Typeflag: 'Z'}), errs.Invalid},
		{"a link without target", archive(tar.Header{Name: "l", Typeflag: tar.TypeSymlink}), errs.Invalid},
		{"cut off", archive(file("a", "content"))[:516], errs.Invalid},
		{"garbage", bytes.Repeat([]byte("garbage "), 1000), errs.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range []layerKind{ociLayer, plainLayer} {
				if strings.Contains(c.name, "whiteout") && kind == plainLayer {
					continue
				}
				_, _, err := build(t, kind, layerBounds, c.data)
				if got := errs.Of(err); got != c.want {
					t.Errorf("%d: %q, want %q (%v)", kind, got, c.want, err)
				}
			}
		})
	}
}

func FuzzApply(f *testing.F) {
	base := archive(dir("d"), file("d/a", "1"), symlink("l", "../.."), hard("h", "d/a"))
	f.Add(base, archive(file("l/.wh.d", ""), file("d/.wh..wh..opq", "")))
	f.Add(archive(symlink("x", "/")), archive(file("x/y", ""), dir("x")))
	f.Add(archive(file("a", "x"), hard("b", "a")), archive(dir("a"), hard("a/c", "b"), file(".wh.a", "")))
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		for _, kind := range []layerKind{ociLayer, plainLayer} {
			_, _, err := build(t, kind, layerBounds, lower, upper)
			if err != nil && errs.Of(err) != errs.Invalid && errs.Of(err) != errs.Limit {
				t.Errorf("not the archive's fault? %v", err)
			}
		}
	})
}
