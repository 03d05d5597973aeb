package template_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
)

// onDisk is what a directory really takes of the disk.
func onDisk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	seen := map[uint64]bool{}
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); !seen[st.Ino] {
			seen[st.Ino] = true
			bytes += st.Blocks * 512
		}
		return nil
	}))
	return bytes
}

// steps makes n templates, each of the one before with one more small file and
// the log rewritten. The first has big files of together size bytes.
func steps(t *testing.T, s *template.Store, n int, size int64) {
	t.Helper()
	var headers []tar.Header
	const files = 32
	for i := range files {
		headers = append(headers, file(fmt.Sprintf("usr/lib/big%d", i), strings.Repeat(fmt.Sprintf("%08d", i), int(size/files/8)), 0o644))
	}
	for i := range n {
		headers = append(headers, file(fmt.Sprintf("opt/step%d", i), "made", 0o644), file("var/log/log", fmt.Sprint("step ", i), 0o600))
		for h := range headers {
			headers[h].ModTime = time.Unix(1e9, 0)
		}
		name, text := fmt.Sprint("step.", i), bytes.NewReader(tarWith(headers...))
		if i == 0 {
			_, err := s.Import(t.Context(), name, text)
			must(t, err)
		} else {
			_, err := s.ImportOver(t.Context(), name, fmt.Sprint("step.", i-1), text)
			must(t, err)
		}
		headers = headers[:len(headers)-1]
	}
}

func TestImportOver_stepsCostWhatTheyChange(t *testing.T) {
	s, dir := open(t)
	size, n := int64(64<<20), 10
	if testing.Short() {
		size, n = int64(8<<20), 4
	}
	steps(t, s, 1, size)
	one := onDisk(t, dir)
	if one < size {
		t.Fatalf("the first takes %d bytes only", one)
	}
	steps(t, s, n, size) // the first again, and what is made of it
	all := onDisk(t, dir)
	t.Logf("one tree: %d KiB; %d trees: %d KiB", one>>10, n, all>>10)
	if more := all - one; more > int64(n)<<20 {
		t.Errorf("%d steps that change a few bytes take %d bytes more", n-1, more)
	}

	// Trees go in any order, and those that are left are whole.
	s.Guard(func(string) bool { return false })
	last := fmt.Sprint("step.", n-1)
	for i := range n - 1 {
		must(t, s.Remove(t.Context(), fmt.Sprint("step.", i)))
	}
	left(t, dir, 1)
	root, err := s.Rootfs(t.Context(), last)
	must(t, err)
	for i := range 32 {
		data, err := os.ReadFile(filepath.Join(root.Dir, fmt.Sprintf("usr/lib/big%d", i)))
		if err != nil || string(data) != strings.Repeat(fmt.Sprintf("%08d", i), int(size/32/8)) {
			t.Fatalf("big%d: %d bytes, %v", i, len(data), err)
		}
	}
	_, err = s.Image(t.Context(), root) // compares all with the manifest
	must(t, err)
	must(t, s.Remove(t.Context(), last))
	if rest := onDisk(t, dir); rest > 1<<20 {
		t.Errorf("%d bytes are left of nothing", rest)
	}
}

func TestImportOver_refuses(t *testing.T) {
	s, _ := open(t)
	some := func() *bytes.Reader { return bytes.NewReader(tarWith(file("a", "b", 0o644))) }
	if _, err := s.ImportOver(t.Context(), "x", "missing", some()); !errs.Is(err, errs.NotFound) {
		t.Errorf("over nothing: %v", err)
	}
	_, err := s.Import(t.Context(), "base", some())
	must(t, err)
	for _, name := range []string{"", "host", "A", "a/b"} {
		if _, err := s.ImportOver(t.Context(), name, "base", some()); !errs.Is(err, errs.Invalid) {
			t.Errorf("as %q: %v", name, err)
		}
	}
	for what, text := range map[string]string{"nothing": "", "no tar": strings.Repeat("x", 2000)} {
		if _, err := s.ImportOver(t.Context(), "x", "base", strings.NewReader(text)); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.SetLimits(template.Limits{Bytes: 3})
	big := bytes.NewReader(tarWith(file("a", "bcde", 0o644)))
	if _, err := s.ImportOver(t.Context(), "x", "base", big); !errs.Is(err, errs.Limit) {
		t.Errorf("too much: %v", err)
	}
}
