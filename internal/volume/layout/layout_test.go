package layout

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestArrange(t *testing.T) {
	empty := t.TempDir()
	must(t, Arrange(empty))
	must(t, Arrange(empty))
	if got := names(t, empty); !slices.Equal(got, []string{marker, Files}) {
		t.Errorf("%q", got)
	}

	old := t.TempDir() // with the workspace at its top, and a directory named as ours
	must(t, os.Chmod(old, 0o751))
	must(t, os.Mkdir(filepath.Join(old, lostFound), 0o700))
	must(t, os.MkdirAll(filepath.Join(old, Files, "a"), 0o755))
	must(t, os.WriteFile(filepath.Join(old, "b"), nil, 0o644))
	must(t, Arrange(old))
	must(t, Arrange(old))
	if got := names(t, filepath.Join(old, Files)); !slices.Equal(got, []string{"b", Files}) {
		t.Errorf("%q", got)
	}
	if got := names(t, filepath.Join(old, Files, Files)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
	for dir, want := range map[string]os.FileMode{old: 0o700, filepath.Join(old, Files): 0o751} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", filepath.Base(dir), info.Mode(), err)
		}
	}
}

// Killed between any two of its steps it ends the same.
func TestArrange_again(t *testing.T) {
	build := func() string {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, Files), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o644))
		return dir
	}
	steps := []func(dir string) error{
		func(dir string) error { return os.Mkdir(filepath.Join(dir, moving), 0o755) },
		func(dir string) error { return write(filepath.Join(dir, marker), begun) },
		func(dir string) error { return os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, moving, "b")) },
		func(dir string) error { return moveAll(dir, filepath.Join(dir, moving)) },
		func(dir string) error { return os.Rename(filepath.Join(dir, moving), filepath.Join(dir, Files)) },
	}
	for n := range len(steps) + 1 {
		dir := build()
		for _, step := range steps[:n] {
			must(t, step(dir))
		}
		must(t, Arrange(dir))
		if got := names(t, filepath.Join(dir, Files)); !slices.Equal(got, []string{"b", Files}) {
			t.Errorf("after %d steps: %q", n, got)
		}
		if got := names(t, dir); !slices.Equal(got, []string{marker, Files}) {
			t.Errorf("after %d steps: %q", n, got)
		}
	}
}
