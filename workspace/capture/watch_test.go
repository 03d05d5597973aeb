package capture_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// watched is a directory of which the kernel tells what changes.
func watched(t testing.TB, bytes int64) *place {
	t.Helper()
	p := newDisk(t, bytes, capture.Config{Watch: true, State: filepath.Join(t.TempDir(), "state")})
	if err := p.x.Watching(); err != nil {
		t.Skip(err)
	}
	return p
}

// meddler changes a directory at random.
type meddler struct {
	*rand.Rand
	t    testing.TB
	dir  string
	maps [][]byte // of files, that are written to later
}

func (m *meddler) name() string {
	parts := make([]string, 1+m.IntN(4))
	for i := range parts {
		parts[i] = []string{"a", "b", "c\n", "d\xff", "node_modules", ".cache"}[m.IntN(6)]
	}
	return filepath.Join(append([]string{m.dir}, parts...)...)
}

func (m *meddler) put(path string, text string) {
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o644); err == nil {
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

// text is of one length mostly, so that sizes tell nothing.
func (m *meddler) text() string { return fmt.Sprintf("%04d", m.IntN(10_000)) }

func (m *meddler) mapFile(path string) {
	m.put(path, m.text()+string(make([]byte, 4096)))
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		m.maps = append(m.maps, b)
	}
}

// store writes to a mapped page. The file may have been cut: that is a fault of
// the processor, which Go makes a panic if it is asked to.
func (m *meddler) store(b []byte) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _ = recover() }()
	b[m.IntN(4096)] = byte(m.IntN(256))
}

func (m *meddler) unmap(i int) {
	must(m.t, unix.Munmap(m.maps[i]))
	m.maps = slices.Delete(m.maps, i, i+1)
}

func (m *meddler) edit() {
	path := m.name()
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return // a named pipe is in the way, and os.RemoveAll would wait for its writer
	}
	switch m.IntN(17) {
	case 0, 1, 2:
		m.put(path, m.text())
	case 3:
		_ = os.RemoveAll(path)
	case 4:
		_ = os.Rename(path, m.name())
	case 5:
		_ = os.Symlink(m.text(), path)
	case 6:
		_ = os.Chmod(path, os.FileMode(0o400|m.IntN(0o400)))
	case 7:
		_ = unix.Mkfifo(path, 0o600)
	case 8:
		_ = os.MkdirAll(path, 0o700)
	case 9: // in place, of the same length
		if f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			_, _ = f.WriteString(m.text())
			_ = f.Close()
		}
	case 10:
		_ = unix.Setxattr(path, "user.note", []byte(m.text()), 0)
	case 11: // a tree replaced under the same name, likely with the same inodes
		_ = os.RemoveAll(path)
		if m.IntN(2) == 0 {
			m.put(filepath.Join(path, "a"), m.text())
			m.put(filepath.Join(path, "b", "a"), m.text())
		} else {
			_ = os.MkdirAll(filepath.Join(path, "b"), 0o755)
		}
	case 12: // two trees change places
		other, aside := m.name(), filepath.Join(m.dir, "aside")
		if os.Rename(path, aside) == nil {
			_ = os.Rename(other, path)
			_ = os.Rename(aside, other)
		}
	case 13:
		m.mapFile(path)
	case 14:
		if len(m.maps) > 0 {
			m.store(m.maps[m.IntN(len(m.maps))])
		}
	case 15:
		if len(m.maps) > 0 {
			m.unmap(m.IntN(len(m.maps)))
		}
	case 16: // a second name, and a write through it
		other := m.name()
		if strings.Contains(other, ".cache") {
			break // scans skip it: only the next whole one finds a write through it
		}
		if os.Link(path, other) == nil && m.IntN(2) == 0 {
			if f, err := os.OpenFile(other, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_, _ = f.WriteString(m.text())
				_ = f.Close()
			}
		}
	}
}

// Fault 4: whatever happens, a scan of what the kernel reports finds what a
// scan of everything finds.
func TestWatch_differential(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("CAPTURE_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("again: CAPTURE_SEED=%d", seed)
	p := watched(t, 128<<20)
	m := &meddler{Rand: rand.New(rand.NewPCG(seed, 0)), t: t, dir: p.dir}
	defer func() {
		for len(m.maps) > 0 {
			m.unmap(0)
		}
	}()
	rounds, captured := 400, 0
	if testing.Short() {
		rounds = 100
	}
	for round := range rounds {
		for range m.IntN(8) {
			m.edit()
		}
		switch m.IntN(20) {
		case 0:
			p.x.Lose()
		case 1:
			p.close()
			m.edit() // while it is closed
			p.open()
		}
		r := p.scan()
		if !r.Whole {
			captured++
		}
		if whole := p.whole(); r.Root != whole {
			t.Fatalf("round %d: found %s, want %s (whole: %v)", round, r.Root, whole, r.Whole)
		}
	}
	if captured < rounds/2 {
		t.Errorf("only %d of %d scans were captured", captured, rounds)
	}
}

// A captured scan looks at few directories, and says what it did not look at.
func TestWatch_looksOnlyAtWhatChanged(t *testing.T) {
	p := watched(t, 128<<20)
	for i := range 400 {
		p.write(fmt.Sprintf("d%d/e%d/f%d", i%10, i%40, i), fmt.Sprint(i))
	}
	p.write("d3/.cache/x", "")
	settle()
	if r := p.scan(); !r.Whole || r.Listed != 51 || r.Files != 400 {
		t.Fatalf("%+v", r)
	}
	if r := p.scan(); r.Whole || r.Listed != 0 || r.Files != 400 || len(r.Skipped) != 1 {
		t.Errorf("nothing changed: %+v", r)
	}
	p.write("d1/e1/f1", "x")
	must(t, os.Rename(p.path("d2/e2"), p.path("d4/moved")))
	settle()
	r := p.scan()
	// d1/e1, d2, d4 and what was moved, of which nothing is read again.
	if r.Whole || r.Listed != 4 || r.Read != 1 || r.Files != 400 || r.Root != p.whole() {
		t.Errorf("one file written, a directory moved: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "../staging-of-somebody"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := p.scan(); r.Whole || r.Listed != 0 {
		t.Errorf("something beside it changed: %+v", r)
	}
	p.x.Whole()
	if r := p.scan(); !r.Whole || r.Listed != 51 || r.Read != 0 {
		t.Errorf("asked to look at all: %+v", r)
	}
}

// What is changed through a second name changes under the first one too, of
// which the kernel says nothing: whatever it is that has two names.
func TestWatch_secondName(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(path string) error
		change func(path string) error
	}{
		"a file is written": {
			func(path string) error { return os.WriteFile(path, []byte("1"), 0o644) },
			func(path string) error { return os.WriteFile(path, []byte("2"), 0o644) },
		},
		"a named pipe has other rights": {
			func(path string) error { return unix.Mkfifo(path, 0o600) },
			func(path string) error { return os.Chmod(path, 0o640) },
		},
		"a symbolic link has another owner": {
			func(path string) error { return os.Symlink("target", path) },
			func(path string) error { return os.Lchown(path, 1, 1) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := watched(t, 64<<20)
			must(t, errors.Join(os.Mkdir(p.path("one"), 0o755), os.Mkdir(p.path("other"), 0o755)))
			must(t, errors.Join(c.make(p.path("one/x")), os.Link(p.path("one/x"), p.path("other/x"))))
			settle()
			p.scan()
			p.scan()
			must(t, c.change(p.path("other/x")))
			if r := p.scan(); r.Whole || r.Root != p.whole() {
				t.Errorf("the change was missed, or all was looked at: %+v", r)
			}
		})
	}
}

// Where the kernel reports nothing, all is looked at, and the reason is given.
func TestWatch_unsupported(t *testing.T) {
	p := newPlace(t, capture.Config{Watch: true})
	if err := p.x.Watching(); !errs.Is(err, errs.Unsupported) {
		t.Errorf("the host's own file system: %v", err)
	}
	p.write("a", "1")
	for range 3 {
		if r := p.scan(); !r.Whole || r.Files != 1 {
			t.Errorf("%+v", r)
		}
	}
}

// Fault 5: one who has mapped a file writes to it between two snapshots, and
// while they are made; no store is missed, though it changes no time and makes
// no event.
func TestScan_mappedWriter(t *testing.T) {
	for name, c := range map[string]capture.Config{"captured": {Watch: true}, "whole": {}} {
		t.Run(name, func(t *testing.T) {
			p := newDisk(t, 64<<20, c)
			if err := p.x.Watching(); c.Watch && err != nil {
				t.Skip(err)
			}
			p.write("d/f", string(make([]byte, 8192)))
			p.write("other", "1")
			f, err := os.OpenFile(p.path("d/f"), os.O_RDWR, 0)
			must(t, err)
			b := mapped(t, f)
			settle()
			p.scan()
			captured := 0
			for i := range 60 {
				b[i*100]++ // the first store into a page may change times, the second does not
				b[i*100]++
				r := p.scan()
				if !r.Whole {
					captured++
				}
				if whole := p.whole(); r.Root != whole {
					t.Fatalf("round %d: a store was missed", i)
				}
			}
			if c.Watch && captured != 60 {
				t.Errorf("only %d were captured", captured)
			}
			// One who stores all the time, also while syncfs runs and files are read.
			f, err = os.OpenFile(p.path("d/f"), os.O_RDWR, 0)
			must(t, err)
			must(t, err)
			b = mapped(t, f)
			for range 10 {
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for n := byte(0); ; n++ {
						select {
						case <-stop:
							return
						default:
							b[100], b[5000] = n, n
						}
					}
				}()
				for range 5 {
					p.scan()
				}
				close(stop)
				<-done
				if r, whole := p.scan(), p.whole(); r.Root != whole {
					t.Fatal("a store while the scan ran was missed")
				}
			}
		})
	}
}

// mapped maps the first pages of a file, which it closes. The mapping ends with
// the test, however it ends: until then the disk stays mounted, and its loop
// device stays.
func mapped(t *testing.T, f *os.File) []byte {
	t.Helper()
	b, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, errors.Join(err, f.Close()))
	t.Cleanup(func() { must(t, unix.Munmap(b)) })
	return b
}

// Fault 5: writes of the same length within one tick of the clock, each with a
// scan behind it.
func TestScan_sameTick(t *testing.T) {
	for name, c := range map[string]capture.Config{"captured": {Watch: true}, "whole": {}} {
		t.Run(name, func(t *testing.T) {
			p := newDisk(t, 64<<20, c)
			if err := p.x.Watching(); c.Watch && err != nil {
				t.Skip(err)
			}
			for i := range 200 {
				text := fmt.Sprintf("%04d", i)
				p.write("f", text)
				if i%3 == 0 {
					p.scan()
					text = fmt.Sprintf("%04d", 9999-i)
					f, err := os.OpenFile(p.path("f"), os.O_WRONLY, 0)
					must(t, err)
					_, err = f.WriteString(text)
					must(t, errors.Join(err, f.Close()))
				}
				p.scan()
				if got := p.text("f"); got != text {
					t.Fatalf("round %d: %q, want %q", i, got, text)
				}
			}
		})
	}
}

// text is what the last scan found in a file of the top directory.
func (p *place) text(name string) string {
	p.t.Helper()
	r := p.scan()
	data, err := p.store.Get(object.Tree, r.Root)
	must(p.t, err)
	entries, err := tree.Decode(data)
	must(p.t, err)
	for _, e := range entries {
		if e.Name == name {
			content, err := p.store.Get(object.Blob, e.Hash)
			must(p.t, err)
			return string(content)
		}
	}
	p.t.Fatalf("%q is not in the tree", name)
	return ""
}
