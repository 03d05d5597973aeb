package file_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

func (g *guest) downloadImage(name string, exclude ...string) ([]byte, error) {
	m := &wire.DownloadRequest{Path: []byte(name), Image: true}
	for _, e := range exclude {
		m.Exclude = append(m.Exclude, []byte(e))
	}
	in, err := g.c.Download(context.Background(), connect.NewRequest(m))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var data []byte
	for in.Receive() {
		data = append(data, in.Msg().Data...)
	}
	return data, in.Err()
}

// lines describes an archive, one line an entry.
func lines(t *testing.T, archive []byte) []string {
	t.Helper()
	var all []string
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		line := fmt.Sprintf("%c %04o %s", h.Typeflag, h.Mode, h.Name)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		for name, value := range h.PAXRecords {
			line += fmt.Sprintf(" %s=%q", name, value)
		}
		all = append(all, line)
	}
}

func TestDownload_imageKeepsWhatATarOfATreeLoses(t *testing.T) {
	g := newGuest(t)
	g.mkdir("r/out/side")
	g.mkdir("r/mounted")
	first := g.put("r/a", "hard")
	must(t, os.Link(first, filepath.Join(g.work, "r/z")))
	must(t, os.Chmod(first, 0o755|os.ModeSetuid))
	must(t, os.Symlink("a", filepath.Join(g.work, "r/link")))
	g.put("r/keep/out/x", "")
	g.put("r/out/side/y", "")
	tagged := g.put("r/tagged", "")
	want := "0 0644 tagged SCHILY.xattr.user.test=\"v\\x00\\n\""
	if err := unix.Setxattr(tagged, "user.test", []byte("v\x00\n"), 0); errors.Is(err, unix.ENOTSUP) {
		want = "0 0644 tagged" // the file system keeps none
	} else {
		must(t, err)
	}
	if isRoot() {
		mounted := filepath.Join(g.work, "r/mounted")
		if err := unix.Mount("x", mounted, "tmpfs", 0, "size=64k,mode=755"); err == nil {
			t.Cleanup(func() { must(t, unix.Unmount(mounted, 0)) })
			must(t, os.WriteFile(filepath.Join(mounted, "inside"), nil, 0o644))
		}
	}
	archive, err := g.downloadImage("r", "out")
	must(t, err)
	if d := cmp.Diff([]string{
		"0 4755 a", "5 0755 keep/", "5 0755 keep/out/", "0 0644 keep/out/x", "2 0777 link -> a", "5 0755 mounted/", want, "1 4755 z -> a",
	}, lines(t, archive)); d != "" {
		t.Error(d)
	}
	if _, err := g.downloadImage("r/a"); !errs.Is(wire.Err(err), errs.Invalid) {
		t.Errorf("an image of a file: %v", err)
	}
	if _, err := g.downloadImage("r", make([]string, 65)...); !errs.Is(wire.Err(err), errs.Invalid) {
		t.Errorf("65 paths: %v", err)
	}
}
