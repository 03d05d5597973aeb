// Package disk makes disks for machines that have a kernel of their own:
//
//	root := disk.Root(t)           // a template's image, small
//	work := disk.Work(t, 64<<20)   // a workspace
package disk

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/Microsoft/hcsshim/ext4/tar2ext4"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

// Root makes a small root file system in a read-only ext4 image: a static
// busybox under all its names. It is made once a process.
func Root(t testing.TB) template.Rootfs {
	t.Helper()
	path, err := rootImage()
	if err != nil {
		t.Skipf("no root image: %v", err)
	}
	return template.Rootfs{
		Name: "test", Hash: "busybox", Image: path,
		Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
	}
}

var rootImage = sync.OnceValues(func() (string, error) {
	busybox, err := staticBusybox()
	if err != nil {
		return "", err
	}
	names, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return "", err
	}
	var archive bytes.Buffer
	if err := writeRoot(tar.NewWriter(&archive), program, strings.Fields(string(names))); err != nil {
		return "", err
	}
	dir, err := guesttest.Shared()
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "root-*.img")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	defer f.Close()
	if err := tar2ext4.Convert(&archive, f); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("root-%x.img", sha256.Sum256(program)))
	return path, os.Rename(f.Name(), path)
})

// staticBusybox finds one that needs no libraries.
func staticBusybox() (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", fmt.Errorf("busybox-static is not installed: %w", err)
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is not static: install busybox-static", path)
		}
	}
	return path, nil
}

func writeRoot(w *tar.Writer, busybox []byte, names []string) error {
	var err error
	add := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write([]byte(data))
		}
	}
	for _, d := range []struct {
		name  string
		mode  int64
		owner int
	}{
		{"bin", 0o755, 0},
		{"dev", 0o755, 0},
		{"etc", 0o755, 0},
		{"proc", 0o755, 0},
		{"sys", 0o755, 0},
		{"run", 0o755, 0},
		{"tmp", 0o1777, 0},
		{"root", 0o700, 0},
		{"var", 0o755, 0},
		{"var/tmp", 0o1777, 0},
		{"var/lib", 0o755, 0},
		{"usr", 0o755, 0},
		{"usr/bin", 0o755, 0},
		{"home", 0o755, 0},
		{"home/user", 0o755, sandbox.UserID},
		{"workspace", 0o755, sandbox.UserID},
		{".skete", 0o700, 0},
	} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: d.name + "/", Mode: d.mode, Uid: d.owner, Gid: d.owner}, "")
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\n",
		"etc/hosts":  "127.0.0.1 localhost\n",
	} {
		add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, text)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, string(busybox))
	for _, name := range names {
		if name != "busybox" {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, "")
		}
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// Work makes an empty ext4 image, as a workspace is one.
func Work(t testing.TB, bytes int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-E", fmt.Sprintf("lazy_itable_init=1,nodiscard,root_owner=%d:%d", sandbox.UserID, sandbox.UserID), path).CombinedOutput()
	if err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return path
}
