package capture_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/object"
)

// Fault 6: a file that changes all the time is read three times and then said
// to be torn; once it holds still the tree has what is in it.
func TestScan_torn(t *testing.T) {
	p := newDisk(t, 256<<20, capture.Config{Watch: true})
	p.write("still", "1")
	p.write("log", strings.Repeat("x", 6<<20)) // long enough to be caught at it
	settle()
	p.scan()
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		f, err := os.OpenFile(p.path("log"), os.O_WRONLY, 0)
		for n := int64(0); err == nil; n++ {
			select {
			case <-stop:
				done <- f.Close()
				return
			default:
				_, err = f.WriteAt([]byte{byte(n)}, n%(6<<20))
			}
		}
		done <- err
	}()
	torn := 0
	for range 5 {
		if r := p.scan(); slices.Equal(r.Torn, []string{"log"}) {
			torn++
		} else if r.Torn != nil {
			t.Errorf("torn: %q", r.Torn)
		}
	}
	close(stop)
	must(t, <-done)
	if torn == 0 {
		t.Error("never said to be torn")
	}
	if r := p.scan(); r.Torn != nil || r.Root != p.whole() {
		t.Errorf("it holds still: %+v", r)
	}
}

// Fault 8: names, modes, depths and kinds that a program can make.
func TestScan_oddities(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: files that their owner may not read")
	}
	p := newDisk(t, 256<<20, capture.Config{Watch: true})
	long := strings.Repeat("n", 255)
	names := []string{"new\nline", "in\xffvalid", long, " ", "-rf", "*", "Case", "case", "..."}
	for _, name := range names {
		p.write(name, name)
	}
	p.write("locked/f", "0000")
	must(t, errors.Join(os.Chmod(p.path("locked/f"), 0), os.Chmod(p.path("locked"), 0)))
	must(t, unix.Mkfifo(p.path("fifo"), 0o644))
	must(t, os.Symlink("/etc/passwd", p.path("out")))
	must(t, os.Symlink("loop", p.path("loop")))
	deep(t, p.dir, long, 20)
	ctx, cancel := patience.Context(t.Context(), 20*time.Second)
	defer cancel()
	r, err := p.x.Scan(ctx) // no reader of the fifo is waited for
	must(t, err)
	// The names, the locked one, and the one at the bottom.
	if r.Files != len(names)+2 || r.Skipped != nil || r.Root != p.whole() {
		t.Errorf("%+v", r)
	}
	for _, name := range names {
		if got := p.text(name); got != name {
			t.Errorf("%q holds %q", name, got)
		}
	}
	must(t, os.Chmod(p.path("locked/f"), 0o644))
	if again := p.scan(); again.Root == r.Root || again.Root != p.whole() {
		t.Error("a mode in a locked directory was missed")
	}
}

// deep makes directories beyond PATH_MAX, with a file at the bottom.
func deep(t *testing.T, dir, name string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, "deep"+name[4:], 0o755))
		next, err := unix.Openat(fd, "deep"+name[4:], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, errors.Join(err, unix.Close(fd)))
		fd = next
	}
	f, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	must(t, errors.Join(err, unix.Close(f), unix.Close(fd)))
}

// What is too deep is left out, and said.
func TestScan_tooDeep(t *testing.T) {
	p := newDisk(t, 64<<20, capture.Config{})
	deep(t, p.dir, "1234x", 600)
	r := p.scan()
	if r.Files != 0 || len(r.Skipped) != 1 || r.Skipped[0].Why != "deeper than can be kept" {
		t.Errorf("%d files, skipped %d", r.Files, len(r.Skipped))
	}
}

// Fault 8: 2 GiB of which nearly all is a hole are not read through, and the
// parts are where they were.
func TestScan_sparse(t *testing.T) {
	p := newDisk(t, 256<<20, capture.Config{})
	f, err := os.Create(p.path("sparse"))
	must(t, err)
	for _, at := range []int64{0, 1 << 30, 2<<30 - 5} {
		_, err = f.WriteAt([]byte("hello"), at)
		must(t, err)
	}
	must(t, f.Close())
	before := bytesRead(t)
	r := p.scan()
	read := bytesRead(t) - before
	if r.Files != 1 || r.Bytes != 2<<30 || r.Skipped != nil {
		t.Errorf("%+v", r)
	}
	if p.store.Bytes() > 1<<20 {
		t.Errorf("%d bytes are kept", p.store.Bytes())
	}
	if read > 64<<20 {
		t.Errorf("%d bytes were read", read)
	}
}

// bytesRead is what this process has read since it began.
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	must(t, err)
	_, err = fmt.Sscanf(string(data), "rchar: %d", &n)
	must(t, err)
	return n
}

// Fault 8: 100,000 entries in one directory.
func TestScan_manyEntries(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	p := newDisk(t, 2<<30, capture.Config{Watch: true})
	p.write("d/x", "1")
	for i := range n {
		fd, err := unix.Open(p.path(fmt.Sprintf("d/%d", i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		must(t, errors.Join(err, unix.Close(fd)))
	}
	if r := p.scan(); r.Files != n+1 {
		t.Fatalf("%d files", r.Files)
	}
	settle()
	p.scan()
	must(t, os.Remove(p.path("d/77")))
	r := p.scan()
	if r.Files != n || r.Read != 0 {
		t.Errorf("%d files, %d read", r.Files, r.Read)
	}
	if p.x.Watching() == nil && r.Whole {
		t.Error("it was not captured")
	}
}

// A store that is full ends the scan, and the next one finds all.
func TestScan_full(t *testing.T) {
	p := newPlace(t, capture.Config{})
	small, err := object.Open(t.TempDir(), object.Config{BytesMax: 1000})
	must(t, err)
	defer small.Close()
	big := p.store
	p.close()
	p.store = small
	p.open()
	for i := range 100 {
		p.write(fmt.Sprint(i), fmt.Sprint(i))
	}
	if _, err := p.x.Scan(t.Context()); !errs.Is(err, errs.Limit) {
		t.Errorf("%v, want Limit", err)
	}
	p.close()
	p.store = big
	p.open()
	if r := p.scan(); r.Root != p.whole() {
		t.Error("not all")
	}
}
