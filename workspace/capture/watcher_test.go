package capture

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/volume"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ownDisk is a directory on a file system of its own.
func ownDisk(t testing.TB) (dir, beside string) {
	t.Helper()
	s, err := volume.Open(t.TempDir())
	must(t, err)
	if err := s.Weakness(); err != nil {
		t.Skip("no file systems of our own here: ", err)
	}
	v, err := s.Create(t.Context(), "v", 256<<20)
	must(t, err)
	t.Cleanup(func() { must(t, s.Remove(context.Background(), "v")) })
	return v.Path, v.Disk
}

func startWatcher(t testing.TB, dir string, flags uint, every time.Duration, most int) *watcher {
	t.Helper()
	w, err := openWatch(dir, flags, every, most)
	if errs.Is(err, errs.Unsupported) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ino
}

// Whatever changes a name, a content or an attribute names the directory.
func TestTake(t *testing.T) {
	dir, beside := ownDisk(t)
	w := startWatcher(t, dir, unix.FAN_UNLIMITED_QUEUE, time.Hour, watchDirsMax)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.Mkdir(a, 0o755))
	must(t, os.Mkdir(b, 0o755))
	file := filepath.Join(a, "f\n\xff")
	must(t, os.WriteFile(file, []byte("1"), 0o644))
	if c := w.Take(); !c.Whole {
		t.Fatal("the first is not whole")
	}
	for _, x := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"nothing", func() error { return nil }, nil},
		{"read", func() error { _, err := os.ReadFile(file); return err }, nil},
		{"write", func() error { return os.WriteFile(file, []byte("2"), 0o644) }, []string{a}},
		{"cut", func() error { return os.Truncate(file, 0) }, []string{a}},
		{"mode", func() error { return os.Chmod(file, 0o600) }, []string{a}},
		{"attribute", func() error { return unix.Setxattr(file, "user.x", []byte("1"), 0) }, []string{a}},
		{"owner", func() error { return os.Chown(file, 5, 5) }, []string{a}},
		{"move", func() error { return os.Rename(file, filepath.Join(b, "f")) }, []string{a, b}},
		{"link", func() error { return os.Symlink("x", filepath.Join(b, "l")) }, []string{b}},
		{"remove", func() error { return os.Remove(filepath.Join(b, "l")) }, []string{b}},
		{"directory", func() error { return os.Mkdir(filepath.Join(a, "d"), 0o755) }, []string{a}},
		{"mode of a directory", func() error { return os.Chmod(b, 0o700) }, []string{b}},
		{"directory gone", func() error { return os.Remove(filepath.Join(a, "d")) }, []string{a}},
		{"made, written and gone", func() error {
			d := filepath.Join(b, "d")
			_ = os.Mkdir(d, 0o755)
			_ = os.WriteFile(filepath.Join(d, "f"), nil, 0o644)
			return os.RemoveAll(d)
		}, []string{b}},
	} {
		must(t, x.do())
		c := w.Take()
		want := map[uint64]struct{}{}
		for _, p := range x.want {
			want[inodeOf(t, p)] = struct{}{}
		}
		if c.Whole || !maps.Equal(c.Dirs, want) {
			t.Errorf("%s: %v, want %v", x.name, c, slices.Collect(maps.Keys(want)))
		}
	}
	must(t, os.WriteFile(filepath.Join(beside, "ours"), nil, 0o600))
	if c := w.Take(); len(c.Dirs) != 1 {
		t.Errorf("beside the directory: %v", c) // named; the caller does not know it
	}
}

// What the kernel or we could not hold is everything, once.
func TestTake_tooMuch(t *testing.T) {
	dir, _ := ownDisk(t)
	many := func(n int) {
		for i := range n {
			d := filepath.Join(dir, fmt.Sprint(i%20))
			_ = os.Mkdir(d, 0o755)
			f, err := os.Create(filepath.Join(d, fmt.Sprint(i)))
			must(t, err)
			must(t, f.Close())
		}
	}
	for name, w := range map[string]*watcher{
		"directories":        startWatcher(t, dir, unix.FAN_UNLIMITED_QUEUE, time.Hour, 10),
		"the kernel's queue": startWatcher(t, dir, 0, time.Hour, watchDirsMax),
	} {
		w.Take()
		n := 100
		if w.max == watchDirsMax {
			n = 17_000 // fs.fanotify.max_queued_events is 16,384
		}
		many(n)
		if c := w.Take(); !c.Whole {
			t.Errorf("too much for %s: not whole", name)
		}
		if c := w.Take(); c.Whole || len(c.Dirs) != 0 {
			t.Errorf("after too much for %s: %v", name, c)
		}
		w.Lose()
		if c := w.Take(); !c.Whole {
			t.Errorf("%s: lost, but not whole", name)
		}
	}
}

func TestOpen_refuses(t *testing.T) {
	if _, err := openWatcher(t.TempDir()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("the host's own file system: %v", err)
	}
	if _, err := openWatcher(filepath.Join(t.TempDir(), "none")); !errs.Is(err, errs.NotFound) {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := openWatcher("/proc/self"); !errs.Is(err, errs.Unsupported) {
		t.Errorf("/proc: %v", err)
	}
}

// A mapping is found as long as it lasts, the file's descriptor closed or not,
// and its end is a change.
func TestMapped(t *testing.T) {
	dir, _ := ownDisk(t)
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, make([]byte, 4096), 0o644))
	w := startWatcher(t, dir, unix.FAN_UNLIMITED_QUEUE, time.Hour, watchDirsMax)
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	ino := inodeOf(t, path)
	is := func() bool {
		found := map[uint64]struct{}{}
		if !mappedFiles(st.Dev, found) {
			t.Fatal("not all processes could be looked at")
		}
		_, ok := found[ino]
		self, err := os.Open("/proc/self/maps")
		must(t, err)
		defer self.Close()
		read := map[uint64]struct{}{}
		must(t, readMaps(int(self.Fd()), st.Dev, nil, read))
		if _, also := read[ino]; ok != also {
			t.Errorf("asked: %v, read: %v", ok, also)
		}
		return ok
	}
	if is() {
		t.Error("found before it was mapped")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	must(t, f.Close())
	w.Take()
	m[0] = 1
	if !is() {
		t.Error("not found while it is mapped")
	}
	if c := w.Take(); c.Whole || len(c.Dirs) != 0 {
		t.Errorf("a store made an event: %v", c) // then Mapped could go
	}
	must(t, unix.Munmap(m))
	if is() {
		t.Error("found when it is not mapped any more")
	}
	if c := w.Take(); len(c.Dirs) != 1 {
		t.Errorf("its end made no event: %v", c)
	}
}
