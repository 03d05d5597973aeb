package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSet_hasWhatIsBeneath(t *testing.T) {
	s := pathsOf([][]byte{[]byte("/w/src"), []byte("/w/a.db/")})
	for path, want := range map[string]bool{
		"/w/src": true, "/w/src/a/b": true, "/w/srcx": false, "/w": false, "/w/a.db": true, "/w/a.db-wal": false, "pipe:[1]": false, "": false,
	} {
		if s.Has(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
	if (pathSet{}).Has("/") {
		t.Error("the empty set has something")
	}
}

func TestMapped_namesCannotLie(t *testing.T) {
	for line, want := range map[string]string{
		"7f0-7f1 r--p 00000000 fe:01 42                         /w/a b":     "/w/a b",
		"7f0-7f1 r--p 00000000 fe:01 42 /w/a (deleted)":                     "/w/a (deleted)",
		"7f0-7f1 r--p 00000000 00:00 0":                                     "",
		"7f0-7f1 rw-p 00000000 00:00 0                          [heap]":     "",
		"7f0-7f1 r--p 00000000 fe:01 x /w/a":                                "",
		"7f0-7f1 r--p 00000000 fe:01 42    /w/x\\0127f0-7f1 r--p 0 0:0 1 /": "/w/x\n7f0-7f1 r--p 0 0:0 1 /",
		"": "",
	} {
		name, _, ok := mappedFile(line)
		if !ok {
			name = ""
		}
		if name != want {
			t.Errorf("%q: %q", line, name)
		}
	}
}

func FuzzMapped(f *testing.F) {
	f.Add("7f0-7f1 r--p 00000000 fe:01 42                         /w/a b")
	f.Fuzz(func(t *testing.T, line string) {
		if name, _, ok := mappedFile(line); ok && !strings.HasPrefix(name, "/") {
			t.Fatalf("%q", name)
		}
	})
}

// This process holds files itself: an open one, a mapped one.
func TestFind_tellsReplacedFromUntouched(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte("one page or less"), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	look := func(paths ...string) (holder, bool) {
		t.Helper()
		var list [][]byte
		for _, p := range paths {
			list = append(list, []byte(p))
		}
		found, _ := findHolders(pathsOf(list), func(pid int) bool { return pid != os.Getpid() })
		if len(found) == 0 {
			return holder{}, false
		}
		return found[0], true
	}
	open := file("open")
	f, err := os.Open(open)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	odd := file("odd (deleted)") // a file may be called so
	o, err := os.Open(odd)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	mapping := file("mapped")
	m, err := os.Open(mapping)
	if err != nil {
		t.Fatal(err)
	}
	data, err := syscall.Mmap(int(m.Fd()), 0, 10, syscall.PROT_READ, syscall.MAP_SHARED)
	m.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(data) }()

	h, ok := look(dir)
	slices.Sort(h.Paths)
	if want := []string{mapping, odd, open}; !ok || h.Replaced || !slices.Equal(h.Paths, want) || h.Command == "" {
		t.Fatalf("%+v", h)
	}
	if h, ok := look(filepath.Join(dir, "other")); ok {
		t.Errorf("holds what it does not: %+v", h)
	}
	for _, p := range []string{open, mapping, odd} {
		if h, ok := look(p); !ok || h.Replaced {
			t.Errorf("before: %+v, %v", h, ok)
		}
		fresh := file("fresh")
		if err := os.Rename(fresh, p); err != nil {
			t.Fatal(err)
		}
		if h, ok := look(p); !ok || !h.Replaced || !slices.Equal(h.Paths, []string{p}) {
			t.Errorf("after: %+v, %v", h, ok)
		}
	}
	if err := os.Remove(open); err != nil {
		t.Fatal(err)
	}
	if h, ok := look(open); !ok || !h.Replaced {
		t.Errorf("removed: %+v, %v", h, ok)
	}
}
