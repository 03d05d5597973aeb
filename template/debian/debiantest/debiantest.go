// Package debiantest gives tests a real, small Debian, made by mmdebstrap from
// the mirror once a day.
//
//	store.Import(ctx, "small", debiantest.Open(t))
//
// The test is skipped where mmdebstrap is missing or the mirror does not answer.
package debiantest

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/debian"
)

// makeTimeout is generous: a busy machine takes two minutes.
const makeTimeout = 8 * time.Minute

// Open returns the tar of a Debian that has apt and what it needs, no more. It
// is shared by all tests of a user for a day.
func Open(t testing.TB) io.Reader {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("no directory for caches: %v", err)
	}
	dir := filepath.Join(home, "skete-test")
	must(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "debian-"+time.Now().UTC().Format("2006-01-02")+".tar")
	if _, err := os.Stat(path); err != nil {
		old, _ := filepath.Glob(filepath.Join(dir, "debian-*.tar"))
		for _, o := range old {
			must(t, os.Remove(o))
		}
		Make(t, &saver{path: path})
	}
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Make makes the template "small" in a store, or skips the test.
func Make(t testing.TB, s debian.Store) {
	t.Helper()
	if testing.Short() {
		t.Skip("a Debian is not made in short tests: it takes a minute and the network")
	}
	// As the server does: mmdebstrap's shell knows descriptors up to 9 only, and
	// those that make or a shell left open for us take their places.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	m, err := debian.New(debian.Config{
		Store: s, Dir: filepath.Join(t.TempDir(), "make"), Ready: []debian.Ready{{Name: "small", Variant: "apt"}},
	})
	must(t, err)
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), makeTimeout)
	defer cancel()
	_, err = m.Prepare(ctx, "small", func(line string) { t.Log(line) })
	if errs.Is(err, errs.Unavailable) || errs.Is(err, errs.Unsupported) {
		t.Skipf("a Debian cannot be made here: %v (%s)", err, errs.Hint(err))
	}
	must(t, err)
}

// saver is a store that keeps the tar as it comes.
type saver struct{ path string }

func (s *saver) Import(_ context.Context, name string, tar io.Reader) (template.Info, error) {
	f, err := os.CreateTemp(filepath.Dir(s.path), ".new-*")
	if err != nil {
		return template.Info{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	n, err := io.Copy(f, tar)
	if err != nil {
		return template.Info{}, err
	}
	return template.Info{Name: name, Bytes: n}, os.Rename(f.Name(), s.path)
}

func (s *saver) Get(context.Context, string) (template.Info, error) {
	return template.Info{}, errs.New(errs.NotFound, "not made yet")
}

func (s *saver) Rootfs(context.Context, string) (template.Rootfs, error) {
	return template.Rootfs{}, errs.New(errs.NotFound, "a tar has no tree")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
