package manifest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/manifest"
)

var at = time.Unix(1_700_000_000, 123_456_789).UTC()

func sample() []manifest.Entry {
	return []manifest.Entry{
		{Kind: manifest.Dir, Mode: 0o755, MTime: at},
		{Path: "a", Kind: manifest.Dir, Mode: 0o1777, UID: 1<<32 - 2, GID: 7, MTime: time.Unix(-5, 1).UTC()},
		{Path: "a/f", Kind: manifest.File, Mode: 0o4755, MTime: at, Size: 5, Sum: manifest.Sum{1, 2}, Xattrs: map[string]string{"user.x": "\x00y", "security.capability": "z"}},
		{Path: "a/l", Kind: manifest.Symlink, Mode: 0o777, MTime: at, Target: "../f"},
		{Path: "a-b", Kind: manifest.Link, Target: "a/f"},
		{Path: "b", Kind: manifest.Dir, Mode: 0o700, MTime: at},
	}
}

func write(t testing.TB, list []manifest.Entry) ([]byte, string, error) {
	t.Helper()
	var b bytes.Buffer
	w, err := manifest.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if err := w.Add(e); err != nil {
			return nil, "", err
		}
	}
	hash, err := w.Close()
	return b.Bytes(), hash, err
}

func read(data []byte, limit int64) (list []manifest.Entry, err error) {
	err = manifest.Read(bytes.NewReader(data), limit, func(e manifest.Entry) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

func TestRead_givesWhatWasWritten(t *testing.T) {
	data, hash, err := write(t, sample())
	if err != nil {
		t.Fatal(err)
	}
	list, err := read(data, 6)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), list); diff != "" {
		t.Error(diff)
	}
	if _, again, _ := write(t, list); again != hash {
		t.Error("the same entries have another hash")
	}
	if _, err := read(data, 5); !errs.Is(err, errs.Corrupt) {
		t.Errorf("more entries than allowed: %v", err)
	}
}

func TestAdd_refusesWhatIsNoTree(t *testing.T) {
	root := manifest.Entry{Kind: manifest.Dir}
	dir := func(path string) manifest.Entry { return manifest.Entry{Path: path, Kind: manifest.Dir} }
	file := func(path string) manifest.Entry { return manifest.Entry{Path: path, Kind: manifest.File} }
	many := map[string]string{}
	for i := range 13 {
		many[strings.Repeat("x", i+1)] = ""
	}
	for name, list := range map[string][]manifest.Entry{
		"no root":          {dir("a")},
		"two roots":        {root, root},
		"a file as root":   {{Kind: manifest.File}},
		"no parent":        {root, file("a/b")},
		"parent is a file": {root, file("a"), file("a/b")},
		"out of order":     {root, file("b"), file("a")},
		"twice":            {root, file("a"), file("a")},
		"dot dot":          {root, file("..")},
		"dot":              {root, file(".")},
		"absolute":         {root, file("/a")},
		"trailing slash":   {root, dir("a/")},
		"NUL":              {root, file("a\x00")},
		"back to a closed": {root, dir("a"), file("b"), file("a/c")},
		"long name":        {root, file(strings.Repeat("n", 256))},
		"no target":        {root, {Path: "l", Kind: manifest.Symlink}},
		"no kind":          {root, {Path: "l", Kind: 'x'}},
		"mode":             {root, {Path: "l", Kind: manifest.File, Mode: 0o10000}},
		"attributes":       {root, {Path: "l", Kind: manifest.File, Xattrs: many}},
		"attribute bytes":  {root, {Path: "l", Kind: manifest.File, Xattrs: map[string]string{"user.a": strings.Repeat("v", 4000)}}},
	} {
		if _, _, err := write(t, list); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	data, _, err := write(f, sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("skete-tree-1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := read(data, 1000)
		if err != nil {
			return
		}
		// What is taken can be written again and means the same.
		again, _, err := write(t, list)
		if err != nil {
			t.Fatal(err)
		}
		second, err := read(again, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(list, second); diff != "" {
			t.Fatal(diff)
		}
	})
}
