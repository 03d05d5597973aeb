package binary

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/packed"
)

// script stands for the program: the host starts it like any other.
const script = "#!/bin/sh\nexit 0\n"

func packedScript(t testing.TB, text string) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := packed.Pack(&b, strings.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

func TestInstall(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "program"), packedScript(t, script)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := install(t.Context(), dir, packedScript(t, script)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	path, err := install(t.Context(), dir, data)
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(path)
	if err != nil || was.Mode() != 0o755 {
		t.Fatalf("%v, %v", was, err)
	}
	if _, err := install(t.Context(), dir, data); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(path); err != nil || !os.SameFile(was, is) {
		t.Errorf("a whole one was replaced: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	other, err := install(t.Context(), dir, packedScript(t, script+"#\n"))
	if err != nil || other == path {
		t.Errorf("another program has the same name: %s, %v", other, err)
	}
}

// A file that was damaged, cut off or made unstartable is made anew.
func TestInstallMends(t *testing.T) {
	data := packedScript(t, script)
	for name, hurt := range map[string]func(path string) error{
		"longer":  func(path string) error { return os.WriteFile(path, []byte(script+"x"), 0o755) },
		"cut off": func(path string) error { return os.Truncate(path, 5) },
		"changed": func(path string) error { return os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0o755) },
		"mode":    func(path string) error { return os.Chmod(path, 0o644) },
		"a link": func(path string) error {
			target := path + ".real"
			if err := os.Rename(path, target); err != nil {
				return err
			}
			return os.Symlink(target, path)
		},
	} {
		dir := t.TempDir()
		path, err := install(t.Context(), dir, data)
		if err == nil {
			err = hurt(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := install(t.Context(), dir, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := os.ReadFile(path)
		info, lerr := os.Lstat(path)
		if err != nil || lerr != nil || string(got) != script || info.Mode() != 0o755 {
			t.Errorf("%s: %q, %v, %v, %v", name, got, info, err, lerr)
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	if _, err := install(t.Context(), t.TempDir(), strings.NewReader("no zstd")); !errs.Is(err, errs.Corrupt) {
		t.Errorf("damaged: %v", err)
	}
	whole := packedScript(t, script)
	dir := t.TempDir()
	if _, err := install(t.Context(), dir, io.NewSectionReader(whole, 0, whole.Size()-3)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("cut off: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left of a damaged one: %v", left)
	}
	if _, err := install(t.Context(), t.TempDir(), packedScript(t, "#!/bin/sh\necho no >&2; exit 3\n")); !errs.Is(err, errs.Unsupported) {
		t.Errorf("it does not start: %v", err)
	}
	if _, err := fs.Stat(dist, file); err != nil {
		if _, err := Install(t.Context(), t.TempDir()); !errs.Is(err, errs.Unsupported) {
			t.Errorf("built without it: %v", err)
		}
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"skete-runsc-old", "skete-runsc-used", "skete-runsc-new", ".runsc-123", "somebody's"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(path string) bool {
		return path == filepath.Join(dir, "skete-runsc-used") || path == filepath.Join(dir, "skete-runsc-new")
	}
	if err := Prune(dir, keep); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if len(left) != 3 || len(hidden) != 0 {
		t.Errorf("left: %v %v", left, hidden)
	}
	if err := Prune(filepath.Join(dir, "none"), keep); err != nil {
		t.Error(err)
	}
}
