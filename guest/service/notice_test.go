package service

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heard are the names and masks that an inotify instance has been told of.
func heard(t *testing.T, fd int) (list []string) {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
		if mask&unix.IN_MODIFY != 0 && !slices.Contains(list, name) {
			list = append(list, name)
		}
		b = b[unix.SizeofInotifyEvent+size:]
	}
	slices.Sort(list)
	return list
}

func TestGive_tellsWatchersAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	outside := filepath.Join(t.TempDir(), "outside")
	for _, f := range []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), outside} {
		if err := os.WriteFile(f, []byte("x"), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil { // opening it would wait
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	other, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	for fd, path := range map[int]string{fd: dir, other: outside} {
		if _, err := unix.InotifyAddWatch(fd, path, unix.IN_ALL_EVENTS); err != nil {
			t.Fatal(err)
		}
	}
	give := func(names ...string) (paths [][]byte) {
		for _, n := range names {
			paths = append(paths, []byte(filepath.Join(dir, n)))
		}
		return paths
	}
	giveNotice(give("a"))
	if got := heard(t, fd); !slices.Equal(got, []string{"a"}) {
		t.Errorf("of a file: %q", got)
	}
	giveNotice(give("sub/gone/deep", "sub/gone/too"))
	if got := heard(t, fd); !slices.Equal(got, []string{"sub"}) {
		t.Errorf("of what is gone: %q", got)
	}
	giveNotice(give("link", "pipe", "gone"))
	if got := heard(t, fd); !slices.Equal(got, []string{""}) { // the directory itself
		t.Errorf("of a link, a pipe and what is gone: %q", got)
	}
	if got := heard(t, other); got != nil {
		t.Errorf("a link was followed: %q", got)
	}
	giveNotice([][]byte{[]byte("relative"), nil, []byte("/")})
	for _, f := range []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), outside} {
		info, err := os.Stat(f)
		if err != nil || !info.ModTime().Equal(old) {
			t.Errorf("%s was changed: %v, %v", f, info.ModTime(), err)
		}
	}
}
