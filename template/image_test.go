package template_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
)

// listing describes all below a directory: kind, mode, owner, size, links,
// time, attributes, content.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	first := map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		must(t, err)
		name, _ := filepath.Rel(dir, full)
		if name == "lost+found" && d.IsDir() {
			return fs.SkipDir
		}
		var st unix.Stat_t
		must(t, unix.Lstat(full, &st))
		text := fmt.Sprintf("%o %d:%d links %d time %d.%09d", st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(full)
			must(t, err)
			text += fmt.Sprintf(" %d bytes %x", st.Size, blake3.Sum256(data))
		case unix.S_IFLNK:
			target, err := os.Readlink(full)
			must(t, err)
			text += " -> " + target
		case unix.S_IFDIR:
			text = strings.Replace(text, fmt.Sprintf("links %d", st.Nlink), "", 1) // file systems count otherwise
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if _, ok := first[st.Ino]; !ok {
				first[st.Ino] = name
			}
			text += " is " + first[st.Ino]
		}
		got[name] = text + xattrs(t, full)
		return nil
	}))
	return got
}

func xattrs(t testing.TB, full string) string {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(full, buf)
	must(t, err)
	text := ""
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names) // file systems list them in orders of their own
	for _, name := range names {
		if !strings.HasPrefix(name, "user.") && name != "security.capability" {
			continue
		}
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(full, name, value)
		if err != nil {
			t.Errorf("%s: %s is listed and cannot be read: %v", full, name, err)
			continue
		}
		text += fmt.Sprintf(" %s=%q", name, value[:n])
	}
	return text
}

// mounted shows an image in a directory.
func mounted(t testing.TB, image string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount an image")
	}
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "ext4", "-o", "ro,loop,noload", image, dir).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices here: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	})
	return dir
}

// rich is the tar of a root file system with all that one can have.
func rich() []byte {
	long := strings.Repeat("a-long-name-", 20)
	users := map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}
	for _, name := range []string{"b", "aa", "ccc", "dddd", "a", "bb", "zz", "mmm"} { // beyond what fits an inode
		users["SCHILY.xattr.user."+name] = strings.Repeat(name, 20)
	}
	headers := []tar.Header{
		{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/bin/sudo", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 4, Linkname: "sudo"},
		{Name: "usr/bin/wall", Typeflag: tar.TypeReg, Mode: 0o2755, Gid: 5, Size: 4, Linkname: "wall"},
		{Name: "usr/bin/ping", Typeflag: tar.TypeReg, Mode: 0o755, Size: 4, Linkname: "ping", PAXRecords: users},
		{Name: "usr/bin/other", Typeflag: tar.TypeLink, Linkname: "usr/bin/ping"},
		{Name: "srv/secret", Typeflag: tar.TypeReg, Mode: 0, Uid: 4242, Gid: 1 << 30, Size: 1, Linkname: "x"},
		{Name: "srv/closed/", Typeflag: tar.TypeDir, Mode: 0, Uid: 7, Gid: 8},
		{Name: "srv/closed/in", Typeflag: tar.TypeReg, Mode: 0o600, Size: 2, Linkname: "in"},
		{Name: "srv/" + long, Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "srv/link", Typeflag: tar.TypeSymlink, Linkname: "../" + strings.Repeat("x/", 80)},
		{Name: "srv/again", Typeflag: tar.TypeLink, Linkname: "srv/link"},
		{Name: "srv/large", Typeflag: tar.TypeReg, Mode: 0o640, Size: 3 << 20, Linkname: strings.Repeat("0123456789abcdef", 3<<16)},
		{Name: "srv/zeros", Typeflag: tar.TypeReg, Mode: 0o640, Size: 1 << 20, Linkname: strings.Repeat("\x00", 1<<20)},
		{Name: "lost+found", Typeflag: tar.TypeReg, Size: 1, Linkname: "x"},
		link("bin", "usr/bin"),
	}
	for i := range headers {
		headers[i].Format = tar.FormatPAX
		headers[i].ModTime = time.Unix(1_700_000_000, 123456789)
	}
	return tarWith(headers...)
}

func TestImage_showsWhatTheTreeShows(t *testing.T) {
	s, _ := open(t)
	ctx := context.Background()
	_, err := s.Import(ctx, "rich", bytes.NewReader(rich()))
	must(t, err)
	root, err := s.Rootfs(ctx, "rich")
	must(t, err)
	image, err := s.Image(ctx, root)
	must(t, err)
	if out, err := exec.Command("e2fsck", "-fn", image).CombinedOutput(); err != nil && !strings.Contains(string(out), "Padding at end of inode bitmap") {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
	tree, disk := listing(t, root.Dir), listing(t, mounted(t, image))
	if diff := cmp.Diff(tree, disk); diff != "" {
		t.Errorf("(-tree +image)\n%s", diff)
	}
	for _, name := range []string{".skete", "workspace", "proc", "sys", "dev", "tmp", "run", "home/user", "usr/bin/sudo"} {
		if disk[name] == "" {
			t.Errorf("the image has no %s", name)
		}
	}
	if !strings.HasPrefix(disk["usr/bin/sudo"], "104755 0:0") || !strings.Contains(disk["usr/bin/other"], "links 2") {
		t.Errorf("%q %q", disk["usr/bin/sudo"], disk["usr/bin/other"])
	}
}

func TestImage_ofAnOrdinaryUsersTreeIsTheSame(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	s, _ := open(t)
	ctx := context.Background()
	info, err := s.Import(ctx, "rich", bytes.NewReader(rich()))
	must(t, err)
	dir, err := os.MkdirTemp("", "skete-rootless-") //nolint:usetesting // another user has to reach it
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, 65534, 65534))
	self := filepath.Join(dir, "test")
	data, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(self, data, 0o755))
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), importEnv+"="+filepath.Join(dir, "store"), "TMPDIR="+dir)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(rich())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	root, err := s.Rootfs(ctx, "rich")
	must(t, err)
	image, err := s.Image(ctx, root)
	must(t, err)
	want, err := os.ReadFile(image)
	must(t, err)
	have, err := os.ReadFile(filepath.Join(dir, "store", "images", info.Hash+".ext4"))
	must(t, err)
	if !bytes.Equal(want, have) {
		t.Error("the image of an ordinary user's tree is another than root's")
	}
}

func TestImage_isMadeOnce(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	_, err := s.Import(ctx, "rich", bytes.NewReader(rich()))
	must(t, err)
	root, err := s.Rootfs(ctx, "rich")
	must(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	inodes := map[uint64]bool{}
	for range 8 {
		wg.Go(func() {
			other, err := template.Open(dir)
			if err != nil {
				t.Error(err)
				return
			}
			for _, st := range []*template.Store{s, other} {
				path, err := st.Image(ctx, root)
				var info unix.Stat_t
				if err == nil {
					err = unix.Stat(path, &info)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				inodes[info.Ino] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(inodes) != 1 {
		t.Errorf("%d images", len(inodes))
	}
	left(t, dir, 1)
}

func TestImage_hostHasNone(t *testing.T) {
	s, _ := open(t)
	root, err := s.Rootfs(context.Background(), template.HostName)
	must(t, err)
	_, err = s.Image(context.Background(), root)
	if !errs.Is(err, errs.Unsupported) || errs.Hint(err) == "" {
		t.Errorf("%v, hint %q", err, errs.Hint(err))
	}
}

func TestImage_aChangedTreeIsNoticed(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	_, err := s.Import(ctx, "rich", bytes.NewReader(rich()))
	must(t, err)
	root, err := s.Rootfs(ctx, "rich")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root.Dir, "usr/bin/sudo"), []byte("evil"), 0o755))
	if _, err := s.Image(ctx, root); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a changed file: %v", err)
	}
	must(t, os.Remove(filepath.Join(root.Dir, "usr/bin/sudo")))
	if _, err := s.Image(ctx, root); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a missing file: %v", err)
	}
	left(t, dir, 1)
}
