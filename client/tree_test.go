package client

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

type entry struct {
	typ        byte
	name, link string
	mode       int64
}

func tarOf(t testing.TB, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.typ, Name: e.name, Linkname: e.link, Mode: e.mode}
		if e.typ == tar.TypeReg {
			h.Size = 3
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.typ == tar.TypeReg {
			_, _ = w.Write([]byte("abc"))
		}
	}
	_ = w.Close()
	return b.Bytes()
}

func TestUnpack_hostile(t *testing.T) {
	tests := []struct {
		name    string
		entries []entry
		fails   bool
		skipped int
	}{
		{"dot dot", []entry{{tar.TypeReg, "../evil", "", 0o644}}, true, 0},
		{"absolute", []entry{{tar.TypeReg, "/evil", "", 0o644}}, true, 0},
		{"dot dot inside", []entry{{tar.TypeReg, "a/../../evil", "", 0o644}}, true, 0},
		{"absolute link is left out", []entry{{tar.TypeSymlink, "l", "/etc/passwd", 0}}, false, 1},
		{"climbing link is left out", []entry{{tar.TypeSymlink, "a/l", "../../x", 0}}, false, 1},
		{"write through a link that leads out", []entry{{tar.TypeSymlink, "l", "..", 0}, {tar.TypeReg, "l/evil", "", 0o644}}, false, 1},
		{"hard link, device, fifo", []entry{{tar.TypeLink, "h", "/etc/passwd", 0}, {tar.TypeChar, "c", "", 0}, {tar.TypeFifo, "f", "", 0}}, false, 3},
		{"file in place of a link", []entry{{tar.TypeSymlink, "l", "x", 0}, {tar.TypeReg, "l", "", 0o644}}, false, 0},
		{"set-id bits", []entry{{tar.TypeReg, "s", "", 0o6755}}, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			stat, err := unpackTree(bytes.NewReader(tarOf(t, tt.entries...)), dir)
			if (err != nil) != tt.fails || len(stat.Skipped) != tt.skipped {
				t.Errorf("err %v, skipped %q", err, stat.Skipped)
			}
			left, _ := os.ReadDir(outer)
			if len(left) != 1 {
				t.Errorf("something outside: %v", left)
			}
			_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				info, ierr := d.Info()
				if err != nil || ierr != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
					t.Errorf("%s: %v %v", p, info, errors.Join(err, ierr))
				}
				return nil
			})
		})
	}
}

// A sparse entry of 1.5 KB that says it holds a terabyte.
func TestUnpack_refusesWhatExplodes(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	body := make([]byte, 512)
	copy(body, "1\n1099511627776\n0\n")
	must(t, w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "f", Size: int64(len(body)), Format: tar.FormatPAX,
		PAXRecords: map[string]string{
			"XXX.sparse.major": "1", "XXX.sparse.minor": "0", "XXX.sparse.name": "f", "XXX.sparse.realsize": "1099511627776",
		},
	}))
	_, err := w.Write(body)
	must(t, errors.Join(err, w.Close()))
	hostile := bytes.ReplaceAll(b.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse")) // our writer refuses to make one
	dir := t.TempDir()
	if _, err := unpackTree(bytes.NewReader(hostile), dir); !errs.Is(err, errs.Invalid) {
		t.Fatalf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, entry{tar.TypeDir, "d/", "", 0o555}, entry{tar.TypeReg, "d/f", "", 0o600}, entry{tar.TypeSymlink, "l", "d", 0}))
	f.Fuzz(func(t *testing.T, in []byte) {
		outer := t.TempDir()
		_, _ = unpackTree(bytes.NewReader(in), filepath.Join(outer, "in"))
		if left, _ := os.ReadDir(outer); len(left) != 1 {
			t.Fatalf("something outside: %v", left)
		}
	})
}

func TestRoundTrip(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "new")
	old := time.Unix(1_600_000_000, 0)
	must(t, os.MkdirAll(filepath.Join(src, "ro", "deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "ro", "deep", "run.sh"), []byte("#!/bin/sh\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "bad\xffname"), []byte("x"), 0o600))
	must(t, os.Symlink("ro/deep", filepath.Join(src, "link")))
	must(t, os.Chtimes(filepath.Join(src, "bad\xffname"), old, old))
	var b bytes.Buffer
	must(t, packTree(&b, src))
	stat, err := unpackTree(&b, dst)
	must(t, err)
	if diff := cmp.Diff(TreeStat{Entries: 5, Bytes: 11}, stat); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(listing(t, src), listing(t, dst)); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(filepath.Join(dst, "bad\xffname"))
	if err != nil || !info.ModTime().Equal(old) {
		t.Errorf("%v %v", info, err)
	}
}

func listing(t *testing.T, dir string) map[string]string {
	m := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(dir, p)
		if rel == "." {
			return err
		}
		m[rel] = info.Mode().String()
		if target, lerr := os.Readlink(p); lerr == nil {
			m[rel] += " -> " + target
		}
		return err
	}))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
