package workspace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
)

// Names and kinds that break tools come back as they were, whatever stands in
// their place.
func TestRestore_hostileNamesAndKinds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: files that their owner may not read")
	}
	p := newPlace(t)
	long := strings.Repeat("x", 255)
	p.write("line\nend", "1")
	p.write("bad\xff\xfe", "2")
	p.write(long+"/"+long, "3")
	p.write("swap/file", "a directory")
	p.write("other", "a file")
	p.write("none", "0000")
	must(t, os.Chmod(filepath.Join(p.dir, "none"), 0))
	must(t, unix.Mkfifo(filepath.Join(p.dir, "fifo"), 0o640))
	p.write("link1", "two names")
	must(t, os.Link(filepath.Join(p.dir, "link1"), filepath.Join(p.dir, "link2")))
	must(t, os.Symlink("\xff\n/no/where", filepath.Join(p.dir, "dangling")))
	must(t, os.Mkdir(filepath.Join(p.dir, "locked"), 0))
	first := p.snapshot()
	old := look(t, p.dir)

	entries, err := os.ReadDir(p.dir)
	must(t, err)
	for _, e := range entries { // each becomes something else
		path := filepath.Join(p.dir, e.Name())
		must(t, os.RemoveAll(path))
		if e.IsDir() {
			must(t, os.WriteFile(path, []byte("now a file"), 0o600))
		} else {
			must(t, os.MkdirAll(filepath.Join(path, "now", "a directory"), 0o700))
		}
	}
	second := p.snapshot()
	recent := look(t, p.dir)
	for range 2 {
		p.restore(first.N, "")
		if d := cmp.Diff(old, look(t, p.dir)); d != "" {
			t.Fatal(d)
		}
		p.restore(second.N, "")
		if d := cmp.Diff(recent, look(t, p.dir)); d != "" {
			t.Fatal(d)
		}
	}
}

// A path longer than the kernel takes in one call comes back.
func TestRestore_deeperThanPathMax(t *testing.T) {
	p := newPlace(t)
	name := strings.Repeat("d", 100)
	dir, err := unix.Open(p.dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 60 {
		must(t, unix.Mkdirat(dir, name, 0o755))
		next, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(dir))
		dir = next
	}
	f, err := unix.Openat(dir, "bottom", unix.O_CREAT|unix.O_WRONLY, 0o644)
	must(t, err)
	_, err = unix.Write(f, []byte("deep"))
	must(t, err)
	must(t, unix.Close(f))
	must(t, unix.Close(dir))
	first := p.snapshot()
	if first.Files != 1 {
		t.Fatalf("%+v", first)
	}
	must(t, os.RemoveAll(filepath.Join(p.dir, name)))
	p.snapshot()
	if r := p.restore(first.N, ""); r.Root != first.Root {
		t.Errorf("restored to %s, want %s", r.Root, first.Root)
	}
	e, err := p.w.Entry(t.Context(), first.N, strings.Repeat(name+"/", 60)+"bottom")
	if err != nil || e.Size != 4 {
		t.Errorf("%+v, %v", e, err)
	}
}

func chattr(t *testing.T, path string, flags int) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Skipf("this file system, or this user, cannot make files immutable: %v", err)
	}
}

// Files that not even root may change are changed by an undo.
func TestRestore_immutable(t *testing.T) {
	p := newPlace(t)
	p.write("changed", "1")
	p.write("removed/f", "1")
	first := p.snapshot()
	old := look(t, p.dir)
	p.write("changed", "2")
	p.write("made/f", "2")
	p.write("removed/new", "2")
	p.snapshot()
	t.Cleanup(func() { // else the directory cannot be removed if this fails
		for _, name := range []string{"changed", "made/f", "made", "removed"} {
			if f, err := os.Open(filepath.Join(p.dir, name)); err == nil {
				_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)
				_ = f.Close()
			}
		}
	})
	const immutable, appendOnly = 0x10, 0x20
	chattr(t, filepath.Join(p.dir, "changed"), immutable)
	chattr(t, filepath.Join(p.dir, "made/f"), appendOnly)
	chattr(t, filepath.Join(p.dir, "made"), immutable)
	chattr(t, filepath.Join(p.dir, "removed"), immutable)
	p.restore(first.N, "")
	if d := cmp.Diff(old, look(t, p.dir)); d != "" {
		t.Error(d)
	}
}

// A file that is mostly holes comes back with its holes, and a disk that has
// room for its data is room enough.
func TestRestore_sparse(t *testing.T) {
	p := newPlace(t)
	path := filepath.Join(p.dir, "sparse")
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Truncate(2<<30-1))
	_, err = f.WriteAt([]byte("middle"), 1<<30)
	must(t, err)
	must(t, f.Close())
	must(t, os.Rename(path, path+".img"))
	rules := capture.DefaultRules()
	rules.HugeBytes = 4 << 30
	must(t, p.w.Close())
	p.c.Capture.Rules = &rules
	p.open()
	first := p.snapshot()
	if first.Bytes != 2<<30-1 {
		t.Fatalf("%+v", first)
	}
	must(t, os.Remove(path+".img"))
	p.snapshot()
	if r := p.restore(first.N, ""); r.Root != first.Root {
		t.Errorf("restored to %s, want %s", r.Root, first.Root)
	}
	var st unix.Stat_t
	must(t, unix.Stat(path+".img", &st))
	if st.Size != 2<<30-1 || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes in %d blocks", st.Size, st.Blocks)
	}
}

func TestRestore_100000Files(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 200,000 files")
	}
	p := newPlace(t)
	many := filepath.Join(p.dir, "many")
	must(t, os.Mkdir(many, 0o755))
	for n := range 100_000 {
		fd, err := unix.Open(filepath.Join(many, fmt.Sprint(n)), unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(t, err)
		must(t, unix.Close(fd))
	}
	first := p.snapshot()
	if first.Files != 100_000 {
		t.Fatalf("%d files", first.Files)
	}
	must(t, os.RemoveAll(many))
	p.snapshot()
	if r := p.restore(first.N, ""); r.Root != first.Root {
		t.Errorf("restored to %s, want %s", r.Root, first.Root)
	}
}

// What the history does not hold is there, and is what it was, after every
// undo: nothing takes its place either.
func TestUndo_neverTouchesWhatIsNotKept(t *testing.T) {
	p := newPlace(t)
	must(t, p.w.Close())
	rules := capture.DefaultRules()
	rules.HugeBytes = 1 << 20
	p.c.Capture.Rules = &rules
	p.open()
	p.write("grows", "small")
	p.write("becomes/a/directory", "x")
	p.write("fifo", "was a file")
	p.write("app/main", "1")
	must(t, os.Symlink("x", filepath.Join(p.dir, "points")))
	first := p.snapshot()
	for _, name := range []string{"grows", "becomes", "points"} {
		must(t, os.RemoveAll(filepath.Join(p.dir, name)))
	}
	huge := strings.Repeat("precious", 200_000)
	p.write("grows", huge)
	p.write("becomes", huge)
	p.write("points", huge)
	p.write("new/huge", huge)
	p.write("app/node_modules/.vite/deps", "cache")
	p.write("app/__pycache__/m.pyc", "cache")
	must(t, os.Remove(filepath.Join(p.dir, "app/main")))
	must(t, os.Remove(filepath.Join(p.dir, "fifo")))
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(s)
	t.Chdir(p.dir) // a socket's path is short
	must(t, unix.Bind(s, &unix.SockaddrUnix{Name: "fifo"}))
	second := p.snapshot()
	precious := []string{"grows", "becomes", "points", "new/huge", "app/node_modules/.vite/deps", "app/__pycache__/m.pyc", "fifo"}
	before := look(t, p.dir)
	for range 3 {
		for _, n := range []uint64{first.N, second.N} {
			plan, err := p.w.PlanRestore(t.Context(), n, "")
			must(t, err)
			_, result, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{})
			must(t, err)
			after := look(t, p.dir)
			for _, name := range precious {
				if before[name] != after[name] {
					t.Fatalf("%q was %.60q, is %.60q", name, before[name], after[name])
				}
			}
			for _, name := range []string{"grows", "becomes", "points", "fifo"} {
				if n == first.N && !slices.Contains(result.Kept, name) {
					t.Errorf("%q is not said to be kept: %q", name, result.Kept)
				}
			}
		}
	}
	if got, _ := os.ReadFile(filepath.Join(p.dir, "grows")); string(got) != huge {
		t.Error("a huge file is not what it was")
	}
}

// A directory is swapped for a link that leads out, all the time, while it is
// captured and restored: nothing outside is read into the history, written, or
// removed.
func TestRestore_symlinkRace(t *testing.T) {
	p := newPlace(t)
	outside := filepath.Join(t.TempDir(), "outside")
	for name, text := range map[string]string{"f": "canary", "sub/g": "canary", "h": "canary"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(outside, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(outside, name), []byte(text), 0o600))
	}
	canary := look(t, outside)
	p.write("d/f", "1")
	p.write("d/sub/g", "1")
	first := p.snapshot()
	p.write("d/f", "2")
	p.write("d/h", "2")
	must(t, os.RemoveAll(filepath.Join(p.dir, "d/sub")))
	second := p.snapshot()

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	swaps := 0
	wg.Go(func() {
		d, aside, link := filepath.Join(p.dir, "d"), filepath.Join(filepath.Dir(p.dir), "aside"), filepath.Join(filepath.Dir(p.dir), "link")
		for ; ctx.Err() == nil; swaps++ {
			_ = os.Symlink(outside, link)
			if os.Rename(d, aside) == nil {
				_ = os.Rename(link, d)
				_ = os.Remove(d)
				_ = os.Rename(aside, d)
			}
		}
	})
	rounds, applied := 300, 0
	if testing.Short() {
		rounds = 60
	}
	for i := range rounds {
		target := []uint64{first.N, second.N}[i%2]
		plan, err := p.w.PlanRestore(t.Context(), target, "")
		must(t, err)
		if _, _, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{}); err == nil {
			applied++
		}
		if d := cmp.Diff(canary, look(t, outside)); d != "" {
			t.Fatalf("round %d: outside: %s", i, d)
		}
	}
	stop()
	wg.Wait()
	t.Logf("%d swaps, %d of %d applied", swaps, applied, rounds)
	revs, err := p.w.Revisions(t.Context())
	must(t, err)
	for _, r := range revs {
		if e, err := p.w.Entry(t.Context(), r.N, "d/f"); err == nil && e.Size != 1 {
			t.Errorf("revision %d has read the canary: %+v", r.N, e)
		}
	}
	if applied == 0 || swaps < 100 {
		t.Error("there was no race")
	}
}
