package untar_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/untar"
)

func archive(headers ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode |= 0o644
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		_, _ = w.Write(make([]byte, h.Size))
	}
	_ = w.Close()
	return b.Bytes()
}

func unpack(t testing.TB, dir string, data []byte, o untar.Options) (untar.Result, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if o.BytesMax == 0 {
		o.BytesMax, o.EntriesMax = 1<<20, 100
	}
	return untar.Unpack(context.Background(), root, bytes.NewReader(data), o)
}

// As a root file system is unpacked: absolute names and links mean what they
// mean in a chroot.
func TestUnpack_followsLinksAsAChroot(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := unpack(t, dir, archive(
		tar.Header{Name: "usr/lib/", Typeflag: tar.TypeDir},
		tar.Header{Name: "/lib", Typeflag: tar.TypeSymlink, Linkname: "/usr/lib"},
		tar.Header{Name: "lib/", Typeflag: tar.TypeDir},
		tar.Header{Name: "lib/a", Typeflag: tar.TypeReg},
		tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../../../usr"},
		tar.Header{Name: "up/b", Typeflag: tar.TypeReg},
		tar.Header{Name: "dev/null", Typeflag: tar.TypeChar},
		tar.Header{Name: "lib/c", Typeflag: tar.TypeLink, Linkname: "/lib/a"},
	), untar.Options{Absolute: true, FollowLinks: true, SkipSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/lib/a", "usr/lib/c", "usr/b"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if target, _ := os.Readlink(filepath.Join(dir, "lib")); target != "/usr/lib" {
		t.Errorf("lib -> %q", target)
	}
	if _, err := os.Lstat(filepath.Join(dir, "dev/null")); err == nil {
		t.Error("a device was made")
	}
	names, _ := os.ReadDir(top)
	if len(names) != 1 {
		t.Errorf("made something outside: %v", names)
	}
}

func TestUnpack_endlessLinksEnd(t *testing.T) {
	_, err := unpack(t, t.TempDir(), archive(
		tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b/x"},
		tar.Header{Name: "b", Typeflag: tar.TypeSymlink, Linkname: "a/x"},
		tar.Header{Name: "a/c", Typeflag: tar.TypeReg},
	), untar.Options{FollowLinks: true})
	if !errs.Is(err, errs.Invalid) {
		t.Fatal(err)
	}
}

// Whatever the bytes are: nothing appears outside, no set-id bit, no device,
// no more than the bounds.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(tar.Header{Name: "a/b", Typeflag: tar.TypeReg, Size: 10}), true)
	f.Add(archive(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, tar.Header{Name: "l/x", Typeflag: tar.TypeReg}), true)
	f.Add(archive(tar.Header{Name: "/abs", Typeflag: tar.TypeReg, Mode: 0o6755}, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "abs"}), false)
	f.Fuzz(func(t *testing.T, data []byte, follow bool) {
		top := t.TempDir()
		dir := filepath.Join(top, "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		res, _ := unpack(t, dir, data, untar.Options{
			BytesMax: 4096, EntriesMax: 20, Absolute: follow, FollowLinks: follow, SkipSpecial: follow,
		})
		if res.Bytes > 4096 || res.Entries > 20 {
			t.Fatalf("beyond the bounds: %+v", res)
		}
		if names, _ := os.ReadDir(top); len(names) != 1 {
			t.Fatalf("made something outside: %v", names)
		}
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&(fs.ModeDevice|fs.ModeSetuid|fs.ModeSetgid|fs.ModeNamedPipe) != 0 {
				t.Fatalf("%s is %v", p, d.Type())
			}
			_ = os.Chmod(p, 0o700) // so that the directory can be removed
			return nil
		})
	})
}
