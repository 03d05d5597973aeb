package capture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a directory, a store, and a Capture of it.
type place struct {
	t     testing.TB
	dir   string
	store *object.Store
	c     capture.Config
	x     *capture.Capture
}

// newPlace is on the file system of the tests.
func newPlace(t testing.TB, c capture.Config) *place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	must(t, os.Mkdir(dir, 0o755))
	return placeAt(t, dir, c)
}

// newDisk is on a file system of its own.
func newDisk(t testing.TB, bytes int64, c capture.Config) *place {
	t.Helper()
	s, err := volume.Open(t.TempDir())
	must(t, err)
	if err := s.Weakness(); err != nil {
		t.Skip("no file systems of our own here: ", err)
	}
	t.Cleanup(func() { must(t, s.Remove(context.Background(), "v")) }) // of what is half made too
	v, err := s.Create(t.Context(), "v", bytes)
	must(t, err)
	return placeAt(t, v.Path, c)
}

func placeAt(t testing.TB, dir string, c capture.Config) *place {
	t.Helper()
	store, err := object.Open(t.TempDir(), object.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	p := &place{t: t, dir: dir, store: store, c: c}
	t.Cleanup(p.close)
	p.open()
	return p
}

func (p *place) open() {
	p.t.Helper()
	x, err := capture.Open(p.dir, p.store, p.c)
	must(p.t, err)
	p.x = x
}

func (p *place) close() {
	if p.x != nil {
		must(p.t, p.x.Close())
		p.x = nil
	}
}

func (p *place) scan() capture.Result {
	p.t.Helper()
	r, err := p.x.Scan(p.t.Context())
	must(p.t, err)
	return r
}

// whole is the root that a Capture finds that knows nothing.
func (p *place) whole() object.Hash {
	p.t.Helper()
	x, err := capture.Open(p.dir, p.store, capture.Config{Rules: p.c.Rules, Full: true})
	must(p.t, err)
	r, err := x.Scan(p.t.Context())
	must(p.t, errors.Join(err, x.Close()))
	return r.Root
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) write(name, text string) {
	p.t.Helper()
	must(p.t, os.MkdirAll(filepath.Dir(p.path(name)), 0o755))
	must(p.t, os.WriteFile(p.path(name), []byte(text), 0o644))
}

// settle waits until the change times of all that was written tell it from
// what is written later: 20 ms, and change times cannot be set.
func settle() { <-time.After(25 * time.Millisecond) }

// The next Capture of a directory reads only what changed since the last one.
func TestState(t *testing.T) {
	p := newPlace(t, capture.Config{State: filepath.Join(t.TempDir(), "state")})
	for i := range 50 {
		p.write(fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprint(i))
	}
	p.write("large", strings.Repeat("x", 9<<20))
	settle()
	if r := p.scan(); r.Read != 51 || r.Files != 51 {
		t.Fatalf("read %d of %d files", r.Read, r.Files)
	}
	again := func(name string, want int) {
		t.Helper()
		p.close()
		p.open()
		r := p.scan()
		if r.Read != want {
			t.Errorf("%s: read %d, want %d", name, r.Read, want)
		}
		if whole := p.whole(); r.Root != whole {
			t.Errorf("%s: %s, want %s", name, r.Root, whole)
		}
	}
	again("nothing changed", 0)
	p.write("d0/f0", "x")
	must(t, os.Remove(p.path("d1/f1")))
	settle()
	again("one changed, one gone", 1)
	again("and again", 0)

	damage := func(do func(data []byte) []byte) func() {
		return func() {
			p.close()
			data, err := os.ReadFile(p.c.State)
			must(t, err)
			must(t, os.WriteFile(p.c.State, do(data), 0o600))
			p.open()
		}
	}
	for name, do := range map[string]func(){
		"a damaged state": damage(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		"half a state":    damage(func(b []byte) []byte { return b[:len(b)/2] }),
		"no state":        damage(func([]byte) []byte { return nil }),
		"another directory's": func() {
			p.close()
			other := newPlace(t, p.c)
			other.write("f", "1")
			other.scan()
			other.close()
			p.open()
		},
		"other rules": func() {
			p.close()
			c := p.c
			p.c.Rules = &capture.Rules{Cache: []string{"none"}}
			p.open()
			p.scan()
			p.close()
			p.c = c
			p.open()
		},
		"a store without the objects": func() {
			p.close()
			store, err := object.Open(t.TempDir(), object.Config{})
			must(t, err)
			t.Cleanup(func() { must(t, store.Close()) })
			p.store = store
			p.open()
		},
	} {
		do()
		r := p.scan()
		if r.Read != 50 {
			t.Errorf("%s: read %d, want all 50", name, r.Read)
		}
		if whole := p.whole(); r.Root != whole {
			t.Errorf("%s: %s, want %s", name, r.Root, whole)
		}
		again("after "+name, 0)
	}
}

// What the store has lost is put again, though nothing changed.
func TestRecheck(t *testing.T) {
	p := newPlace(t, capture.Config{})
	store, err := object.Open(t.TempDir(), object.Config{SegmentBytes: 1 << 20})
	must(t, err)
	defer store.Close()
	p.close()
	p.store = store
	p.open()
	noise := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	p.write("a/b", "lost")
	p.write("large", string(noise[:9<<20]))
	p.write("z/file", string(noise[9<<20:]))
	settle()
	first := p.scan()
	_, err = store.Compact(func(object.Hash) bool { return false })
	must(t, err)
	p.x.Recheck()
	if r := p.scan(); r.Root != first.Root || r.Read < 2 {
		t.Errorf("read %d, root %s, want %s", r.Read, r.Root, first.Root)
	}
	p.x.Recheck()
	if r := p.scan(); r.Root != first.Root || r.Read != 0 {
		t.Errorf("all is there again, but it read %d", r.Read)
	}
}

// Every name is in the tree or in the report.
func TestScan_report(t *testing.T) {
	p := newPlace(t, capture.Config{Rules: &capture.Rules{Derived: []string{"node_modules", "build"}, Cache: []string{".cache", "*.tsbuildinfo", "node_modules/.vite"}, HugeBytes: 1 << 20}})
	p.write("src/a", "12")
	p.write("src/build", "a file is no directory")
	p.write("src/.vite/x", "kept")
	p.write("node_modules/m/b", "345")
	p.write("node_modules/.vite/x", "")
	p.write("app/build/c", "6")
	p.write(".cache/x", "")
	p.write("tsconfig.tsbuildinfo", "")
	p.write("huge", strings.Repeat("x", 2<<20))
	must(t, os.Link(p.path("src/a"), p.path("src/also")))
	must(t, unix.Mkfifo(p.path("fifo"), 0o600))
	l, err := net.Listen("unix", p.path("socket"))
	must(t, err)
	defer l.Close()
	sparse, err := os.Create(p.path("sparse"))
	must(t, err)
	must(t, errors.Join(sparse.Truncate(2<<20), sparse.Close()))
	if os.Getuid() == 0 {
		must(t, unix.Mknod(p.path("null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	} else {
		p.write("null", "")
	}
	for range 2 { // the second one reads nothing, and says the same
		r := p.scan()
		slices.SortFunc(r.Skipped, func(a, b capture.Skip) int { return strings.Compare(a.Path, b.Path) })
		want := capture.Result{
			Root: r.Root, Files: 7, Bytes: 2 + 2 + 22 + 4 + 3 + 1 + 2<<20, DerivedFiles: 2, DerivedBytes: 4, Whole: true, Listed: 7, Read: r.Read,
			Linked: []string{"src/a", "src/also"},
			Skipped: []capture.Skip{
				{Path: ".cache", Why: "cache", Class: capture.Cache},
				{Path: "huge", Why: "larger than can be kept", Class: capture.Huge},
				{Path: "node_modules/.vite", Why: "cache", Class: capture.Cache},
				{Path: "null", Why: "a device"},
				{Path: "socket", Why: "a socket"},
				{Path: "tsconfig.tsbuildinfo", Why: "cache", Class: capture.Cache},
			},
		}
		if os.Getuid() != 0 {
			t.Skip("only root makes devices")
		}
		if d := cmp.Diff(want, r); d != "" {
			t.Error(d)
		}
	}
}

func TestScan_reportIsBounded(t *testing.T) {
	p := newPlace(t, capture.Config{})
	for i := range 30 {
		for j := range 50 {
			p.write(fmt.Sprintf("d%d/%d.tsbuildinfo", i, j), "")
		}
	}
	for range 3 {
		if r := p.scan(); len(r.Skipped) != 1000 || r.SkippedMore != 500 {
			t.Fatalf("%d and %d more", len(r.Skipped), r.SkippedMore)
		}
	}
	must(t, os.RemoveAll(p.path("d3")))
	if r := p.scan(); r.SkippedMore != 450 {
		t.Errorf("%d more", r.SkippedMore)
	}
}

func TestRules_Of(t *testing.T) {
	for _, x := range []struct {
		path string
		dir  bool
		want capture.Class
	}{
		{"a", false, capture.Source},
		{"build", false, capture.Source},
		{"build", true, capture.Derived},
		{"build/x", false, capture.Derived},
		{"a/node_modules/b/c", false, capture.Derived},
		{"a/node_modules/.vite/deps", true, capture.Cache},
		{".vite/deps", true, capture.Source},
		{"a/__pycache__/b.pyc", false, capture.Cache},
		{"x.tsbuildinfo", false, capture.Cache},
		{"x.tsbuildinfo.d", false, capture.Source},
	} {
		if got := capture.DefaultRules().Of(x.path, x.dir); got != x.want {
			t.Errorf("%s: %s, want %s", x.path, got, x.want)
		}
	}
}
