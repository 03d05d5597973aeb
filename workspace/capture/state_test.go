package capture

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

func someDirectory() *directory {
	sub := &directory{
		stamp: stamp{ino: 7, ctime: -5}, class: Derived, unquiet: true, hash: object.Hash{9},
		names: []known{{
			stamp: stamp{ino: 8, size: 1 << 40, mtime: 1, ctime: 2, mode: 0o100644, uid: 1, gid: 2, nlink: 2}, racy: true,
			entry: tree.Entry{Name: "f\xff", Type: tree.File, Mode: 0o644, UID: 1, GID: 2, Size: 1 << 40, Listed: true, Hash: object.Hash{1}, Xattrs: []tree.Xattr{{Name: "user.a", Value: "b"}}},
		}},
		notes: []note{{name: "f\xff", linked: true}, {name: "x", why: "cache", class: Cache}},
		more:  sums{skipped: 3, linked: 1},
	}
	sub.total()
	d := &directory{stamp: stamp{ino: 2}, class: Source, hash: object.Hash{3}, subs: []int{0}, names: []known{
		{stamp: stamp{ino: 7}, entry: tree.Entry{Name: "a", Type: tree.Dir, Hash: sub.hash}, dir: sub},
		{stamp: stamp{ino: 9}, entry: tree.Entry{Name: "l", Type: tree.Link, Target: "x"}},
		{stamp: stamp{ino: 10}, entry: tree.Entry{Name: "p", Type: tree.Fifo}},
	}}
	d.total()
	return d
}

var exported = cmp.AllowUnexported(directory{}, known{}, stamp{}, note{}, sums{})

func TestState_roundTrip(t *testing.T) {
	d := someDirectory()
	data := encodeState("mine", d)
	whose, got, err := decodeState(data)
	if err != nil || whose != "mine" {
		t.Fatal(whose, err)
	}
	if diff := cmp.Diff(d, got, exported); diff != "" {
		t.Error(diff)
	}
	for i := range data { // every damaged byte is found
		bad := bytes.Clone(data)
		bad[i] ^= 0x41
		if _, _, err := decodeState(bad); !errs.Is(err, errs.Corrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for i := range data {
		if _, _, err := decodeState(data[:i]); !errs.Is(err, errs.Corrupt) {
			t.Fatalf("cut off at %d: %v", i, err)
		}
	}
}

// Behind the checksum anything may stand: it is refused or read, and what is
// read is written again as it was.
func FuzzState(f *testing.F) {
	body := func(d *directory) []byte { return encodeState("mine", d)[len(stateMagic)+4:] }
	f.Add(body(someDirectory()))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		data := append([]byte(stateMagic+"crc."), b...)
		sealState(data)
		whose, d, err := decodeState(data)
		if err != nil {
			return
		}
		whose2, again, err := decodeState(encodeState(whose, d))
		if err != nil || whose2 != whose || !cmp.Equal(d, again, exported) {
			t.Fatalf("%v\n%s", err, cmp.Diff(d, again, exported))
		}
	})
}
