package tree_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

var sample = []tree.Entry{
	{Name: "a\nb\xff", Type: tree.File, Mode: 0o4755, UID: 1000, GID: 1<<32 - 1, Size: 1 << 40, Listed: true, Hash: object.Hash{1}},
	{Name: "d", Type: tree.Dir, Mode: 0o1777, Hash: object.Hash{2}, Xattrs: []tree.Xattr{{"user.a", "\x00"}, {"user.b", ""}}},
	{Name: "l", Type: tree.Link, Mode: 0o777, Target: "../.."},
	{Name: "p", Type: tree.Fifo, Mode: 0o600},
}

func TestEncode_canBeReadAgain(t *testing.T) {
	data, err := tree.Encode(sample)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample, got); d != "" {
		t.Error(d)
	}
	chunks := []tree.Chunk{{0, 10, object.Hash{1}}, {1 << 30, 5, object.Hash{2}}}
	data, err = tree.EncodeList(chunks)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tree.DecodeList(data); err != nil || !cmp.Equal(got, chunks) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestEncode_refuses(t *testing.T) {
	file := func(name string) tree.Entry { return tree.Entry{Name: name, Type: tree.File} }
	for name, entries := range map[string][]tree.Entry{
		"no name":      {file("")},
		"dot":          {file(".")},
		"dots":         {file("..")},
		"a path":       {file("a/b")},
		"NUL":          {file("a\x00")},
		"a long name":  {file(string(make([]byte, 256)))},
		"twice":        {file("a"), file("a")},
		"out of order": {file("b"), file("a")},
		"mode":         {{Name: "a", Type: tree.File, Mode: 0o10000}},
		"type":         {{Name: "a", Type: 's'}},
		"no target":    {{Name: "a", Type: tree.Link}},
		"attributes":   {{Name: "a", Type: tree.Fifo, Xattrs: []tree.Xattr{{"b", ""}, {"a", ""}}}},
	} {
		if _, err := tree.Encode(entries); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	if _, err := tree.EncodeList([]tree.Chunk{{5, 5, object.Hash{}}, {9, 1, object.Hash{}}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("overlapping parts: %v", err)
	}
}

// What can be read has one encoding.
func FuzzDecode(f *testing.F) {
	data, _ := tree.Encode(sample)
	f.Add(data)
	f.Add([]byte("t1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := tree.Decode(data)
		if err != nil {
			return
		}
		again, err := tree.Encode(entries)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q is read, and written as %q, %v", data, again, err)
		}
	})
}
