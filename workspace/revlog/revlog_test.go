package revlog_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func written(t testing.TB, path string, n int) (revs []revlog.Revision) {
	t.Helper()
	l, _, err := revlog.Open(path)
	must(t, err)
	defer l.Close()
	for i := range n {
		r := revlog.Revision{N: uint64(i + 1), Root: object.Hash{byte(i)}, Label: "a\nb", Actor: "agent"}
		must(t, l.Append(r))
		revs = append(revs, r)
	}
	return revs
}

func read(t testing.TB, path string) []revlog.Revision {
	t.Helper()
	l, revs, err := revlog.Open(path)
	must(t, err)
	must(t, l.Close())
	return revs
}

// Cut off anywhere, a log has the revisions that are whole, and takes more.
func TestLog_cutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	revs := written(t, path, 4)
	whole, err := os.ReadFile(path)
	must(t, err)
	was := 0
	for cut := range len(whole) + 1 {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		l, got, err := revlog.Open(path)
		must(t, err)
		if len(got) < was || !slices.EqualFunc(got, revs[:len(got)], func(a, b revlog.Revision) bool { return a.N == b.N && a.Root == b.Root }) {
			t.Fatalf("cut at %d: %v", cut, got)
		}
		was = len(got)
		must(t, l.Append(revlog.Revision{N: 9}))
		must(t, l.Close())
		if again := read(t, path); len(again) != len(got)+1 {
			t.Fatalf("cut at %d: then %v", cut, again)
		}
	}
	if was != 4 {
		t.Errorf("whole: %d revisions", was)
	}
}

func TestLog_replace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	revs := written(t, path, 4)
	l, _, err := revlog.Open(path)
	must(t, err)
	must(t, l.Replace(revs[2:]))
	must(t, l.Append(revlog.Revision{N: 5}))
	if err := l.Append(revlog.Revision{N: 5}); !errs.Is(err, errs.Internal) {
		t.Errorf("the same number again: %v", err)
	}
	must(t, l.Close())
	if got := read(t, path); len(got) != 3 || got[0].N != 3 || got[2].N != 5 {
		t.Errorf("%v", got)
	}
}

func TestOpen_refuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(path, []byte("something else"), 0o600))
	if _, _, err := revlog.Open(path); !errs.Is(err, errs.Corrupt) {
		t.Errorf("%v, want Corrupt", err)
	}
}

func FuzzParse(f *testing.F) {
	path := filepath.Join(f.TempDir(), "log")
	written(f, path, 3)
	data, err := os.ReadFile(path)
	must(f, err)
	f.Add(data[8:])
	f.Fuzz(func(t *testing.T, data []byte) {
		data = append([]byte("skhlog1\n"), data...)
		revs, end, err := revlog.Parse(data)
		if err == nil {
			again, _, err := revlog.Parse(bytes.Clone(data[:end]))
			if err != nil || len(again) != len(revs) {
				t.Errorf("what was read cannot be read again: %v", err)
			}
		}
	})
}
