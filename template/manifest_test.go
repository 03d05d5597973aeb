package template

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

var manifestAt = time.Unix(1_700_000_000, 123_456_789).UTC()

func sample() []entry {
	return []entry{
		{Kind: entryDir, Mode: 0o755, MTime: manifestAt},
		{Path: "a", Kind: entryDir, Mode: 0o1777, UID: 1<<32 - 2, GID: 7, MTime: time.Unix(-5, 1).UTC()},
		{Path: "a/f", Kind: entryFile, Mode: 0o4755, MTime: manifestAt, Size: 5, Sum: contentSum{1, 2}, Xattrs: map[string]string{"user.x": "\x00y", "security.capability": "z"}},
		{Path: "a/l", Kind: entrySymlink, Mode: 0o777, MTime: manifestAt, Target: "../f"},
		{Path: "a-b", Kind: entryLink, Target: "a/f"},
		{Path: "b", Kind: entryDir, Mode: 0o700, MTime: manifestAt},
	}
}

func write(t testing.TB, list []entry) ([]byte, string, error) {
	t.Helper()
	var b bytes.Buffer
	w, err := newManifestWriter(&b)
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

func read(data []byte, limit int64) (list []entry, err error) {
	err = readManifest(bytes.NewReader(data), limit, func(e entry) error {
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
	root := entry{Kind: entryDir}
	dir := func(path string) entry { return entry{Path: path, Kind: entryDir} }
	file := func(path string) entry { return entry{Path: path, Kind: entryFile} }
	many := map[string]string{}
	for i := range 13 {
		many[strings.Repeat("x", i+1)] = ""
	}
	for name, list := range map[string][]entry{
		"no root":          {dir("a")},
		"two roots":        {root, root},
		"a file as root":   {{Kind: entryFile}},
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
		"no target":        {root, {Path: "l", Kind: entrySymlink}},
		"no kind":          {root, {Path: "l", Kind: 'x'}},
		"mode":             {root, {Path: "l", Kind: entryFile, Mode: 0o10000}},
		"attributes":       {root, {Path: "l", Kind: entryFile, Xattrs: many}},
		"attribute bytes":  {root, {Path: "l", Kind: entryFile, Xattrs: map[string]string{"user.a": strings.Repeat("v", 4000)}}},
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
