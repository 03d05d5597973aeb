package transfer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/transfer"
	"github.com/skete-dev/skete/workspace/tree"
)

// forge makes streams of anything.
type forge struct {
	t     testing.TB
	store *object.Store
}

func newForge(t testing.TB) forge { return forge{t, newStore(t, object.Config{})} }

func item(tag byte, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{tag}, uint32(len(payload)))
	return append(b, payload...)
}

var end = item('e', nil)

func stream(items ...[]byte) []byte {
	return append([]byte("skmove1\n"), bytes.Join(items, nil)...)
}

func revision(n uint64, root object.Hash) []byte {
	text, err := json.Marshal(revlog.Revision{N: n, Root: root, Time: time.Unix(int64(n), 0).UTC()})
	if err != nil {
		panic(err)
	}
	return item('r', text)
}

// object makes an object and returns its item and its name.
func (f forge) object(kind object.Kind, content []byte) ([]byte, object.Hash) {
	f.t.Helper()
	h, err := f.store.Put(kind, content)
	must(f.t, err)
	x, err := f.store.Sealed(h)
	must(f.t, err)
	return item('o', x.Record()), h
}

func (f forge) dir(entries ...tree.Entry) ([]byte, object.Hash) {
	f.t.Helper()
	data, err := tree.Encode(entries)
	must(f.t, err)
	return f.object(object.Tree, data)
}

func file(name string, h object.Hash, size int) tree.Entry {
	return tree.Entry{Name: name, Type: tree.File, Mode: 0o644, Size: int64(size), Hash: h}
}

func sub(name string, h object.Hash) tree.Entry {
	return tree.Entry{Name: name, Type: tree.Dir, Mode: 0o755, Hash: h}
}

// resealed is an object's item with another header, its CRC right.
func resealed(it []byte, change func(head []byte)) []byte {
	it = bytes.Clone(it)
	head := it[5 : 5+52]
	change(head)
	binary.LittleEndian.PutUint32(head[48:], crc32.Checksum(head[:48], crc32.MakeTable(crc32.Castagnoli)))
	return it
}

// Fault 15: what a machine may send that is not so.
func TestReceiver_refuses(t *testing.T) {
	f := newForge(t)
	blob, blobHash := f.object(object.Blob, []byte("a file, long enough to be worth its own object"))
	blob2, _ := f.object(object.Blob, []byte("nobody asked for this"))
	dir, root := f.dir(file("a", blobHash, 46))
	text := bytes.Repeat([]byte("compressible "), 100)
	packed, packedHash := f.object(object.Blob, text)
	packedDir, packedRoot := f.dir(file("p", packedHash, len(text)))
	broken, brokenRoot := f.object(object.Tree, []byte("no directory"))
	list, listHash := f.object(object.List, []byte("no list"))
	listDir, listRoot := f.dir(tree.Entry{Name: "l", Type: tree.File, Size: 1, Listed: true, Hash: listHash})
	var deep [][]byte
	h := root
	for range 40 {
		it, up := f.dir(sub("d", h))
		deep, h = append([][]byte{it}, deep...), up
	}
	deep = append([][]byte{revision(1, h)}, append(deep, dir, blob, end)...)
	var wide [][]byte // each directory names the one beneath it a hundred times
	w := root
	for range 6 {
		var names []tree.Entry
		for i := range 100 {
			names = append(names, sub(fmt.Sprintf("%03d", i), w))
		}
		it, up := f.dir(names...)
		wide, w = append([][]byte{it}, wide...), up
	}
	wide = append([][]byte{revision(1, w)}, append(wide, dir, blob, end)...)
	many := [][]byte{revision(1, root), dir, blob}
	for range 30 {
		many = append(many, blob)
	}
	flipped := bytes.Clone(blob)
	flipped[len(flipped)-3] ^= 1

	for _, c := range []struct {
		name   string
		stream []byte
		class  errs.Class
	}{
		{"nothing", nil, errs.Unavailable},
		{"another format", []byte("PK\x03\x04 what is this"), errs.Invalid},
		{"no end", stream(revision(1, root), dir, blob), errs.Unavailable},
		{"an unknown item", stream(revision(1, root), item('x', nil)), errs.Invalid},
		{"an end with a payload", stream(item('e', []byte("x"))), errs.Invalid},
		{"an item of 4 GiB", stream(revision(1, root), []byte{'o', 255, 255, 255, 255}), errs.Invalid},
		{"a revision of 65 KiB", stream(item('r', bytes.Repeat([]byte(" "), 65<<10))), errs.Invalid},
		{"a revision that is no JSON", stream(item('r', []byte("{")), end), errs.Invalid},
		{"revision 0", stream(revision(0, root), dir, blob, end), errs.Invalid},
		{"a revision of nothing", stream(revision(1, object.Hash{}), end), errs.Invalid},
		{"a revision with a hash of two digits", stream(item('r', []byte(`{"n":1,"root":"ab"}`)), end), errs.Invalid},
		{"a revision that takes back a later one", stream(item('r', fmt.Appendf(nil, `{"n":1,"root":%q,"undoes":2}`, root)), dir, blob, end), errs.Invalid},
		{"a negative size", stream(item('r', fmt.Appendf(nil, `{"n":1,"root":%q,"bytes":-1}`, root)), dir, blob, end), errs.Invalid},
		{"an object before any revision", stream(blob, end), errs.Invalid},
		{"an object that belongs to nothing", stream(revision(1, root), dir, blob2, end), errs.Corrupt},
		{"a file before its directory", stream(revision(1, root), blob, dir, end), errs.Corrupt},
		{"a revision without its file", stream(revision(1, root), dir, end), errs.NotFound},
		{"the next revision before this one's file", stream(revision(1, root), dir, revision(2, root), blob, end), errs.NotFound},
		{"content that was changed", stream(revision(1, root), dir, flipped, end), errs.Corrupt},
		{"content under another's name", stream(revision(1, root), dir, resealed(blob2, func(b []byte) { copy(b[12:], blobHash[:]) }), end), errs.Corrupt},
		{"a file in place of a directory", stream(revision(1, root), resealed(blob, func(b []byte) { copy(b[12:], root[:]) }), end), errs.Corrupt},
		{"a header that does not fit", stream(revision(1, root), dir, item('o', blob[5:len(blob)-1]), end), errs.Corrupt},
		{"content larger than it says", stream(revision(1, packedRoot), packedDir, resealed(packed, func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 64) }), end), errs.Corrupt},
		{"content smaller than it says", stream(revision(1, packedRoot), packedDir, resealed(packed, func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 64<<20) }), end), errs.Corrupt},
		{"a directory that is none", stream(revision(1, brokenRoot), broken, end), errs.Corrupt},
		{"a list that is none", stream(revision(1, listRoot), listDir, list, end), errs.Corrupt},
		{"directories that are too deep", stream(deep...), errs.Limit},
		{"10^12 files in seven objects", stream(wide...), errs.Limit},
		{"the same object again and again", stream(append(many, end)...), errs.Limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := transfer.NewReceiver(newStore(t, object.Config{}), transfer.Limits{DepthMax: 30, FilesMax: 1 << 20, AgainMax: 2048})
			revs, err := taken(r, object.Hash{}, c.stream)
			if !errs.Is(err, c.class) || len(revs) > 0 {
				t.Errorf("%v, %v; want %s", revs, err, c.class)
			}
			if revs, err := taken(r, object.Hash{}, stream(revision(1, root), dir, blob, end)); err != nil || len(revs) != 1 {
				t.Errorf("and then the honest one: %v, %v", revs, err)
			}
		})
	}
}

// Fault 15: files without end. The revision is as it should be, and too large.
func TestReceiver_keepsItsQuota(t *testing.T) {
	const quota = 16 << 20
	dir := t.TempDir()
	store, err := object.Open(dir, object.Config{BytesMax: quota, SegmentBytes: 4 << 20})
	must(t, err)
	defer store.Close()
	r := transfer.NewReceiver(store, transfer.Limits{AgainMax: quota})
	var sent int64
	for n := uint64(1); n <= 3; n++ {
		in, out := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			sent += garbage(out, n)
		}()
		err := r.Receive(context.Background(), in, object.Hash{}, nothing, nothing)
		_ = in.CloseWithError(io.ErrClosedPipe)
		<-done
		if !errs.Is(err, errs.Limit) {
			t.Fatalf("stream %d: %v", n, err)
		}
	}
	if sent > 4*quota {
		t.Errorf("%d bytes were read before the refusal", sent)
	}
	if taken := size(t, dir); taken > quota {
		t.Errorf("%d bytes on disk, of at most %d", taken, quota)
	}
}

// garbage writes ten gigabytes, as long as the other end reads, and returns how
// much that was.
func garbage(out *io.PipeWriter, seed uint64) (n int64) {
	defer out.Close()
	rng := rand.New(rand.NewPCG(seed, 2))
	contents := func() []byte {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
		}
		return b
	}
	var entries []tree.Entry
	for i := range 64 {
		b := contents()
		entries = append(entries, file(fmt.Sprintf("%03d", i), object.HashOf(object.Blob, b), len(b)))
	}
	data, _ := tree.Encode(entries)
	rng = rand.New(rand.NewPCG(seed, 2))
	put := func(b []byte) bool {
		k, err := out.Write(b)
		n += int64(k)
		return err == nil
	}
	ok := put(stream(revision(1, object.HashOf(object.Tree, data)), raw(object.Tree, data)))
	for ok && n < 10<<30 {
		ok = put(raw(object.Blob, contents()))
	}
	return n
}

// raw is the item of an object that is not compressed.
func raw(kind object.Kind, content []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	h := object.HashOf(kind, content)
	b := []byte{'r', 'c', byte(kind), 0}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
	b = append(b, h[:]...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(content, table))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, table))
	return item('o', append(b, content...))
}

func size(t testing.TB, dir string) (n int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, name := range names {
		info, err := os.Stat(name)
		must(t, err)
		n += info.Size()
	}
	return n
}

// FuzzReceive: whatever comes, nothing panics, and each revision that is taken
// is whole.
func FuzzReceive(f *testing.F) {
	g := newForge(f)
	blob, blobHash := g.object(object.Blob, []byte("a file"))
	inner, innerHash := g.dir(file("a", blobHash, 6))
	data, err := tree.EncodeList([]tree.Chunk{{Offset: 0, Length: 6, Hash: blobHash}, {Offset: 10, Length: 6, Hash: blobHash}})
	must(f, err)
	list, listHash := g.object(object.List, data)
	dir, root := g.dir(sub("d", innerHash), tree.Entry{Name: "l", Type: tree.File, Size: 16, Listed: true, Hash: listHash})
	f.Add(stream(revision(1, root), dir, inner, blob, list, end))
	f.Add(stream(revision(1, innerHash), inner, blob, revision(2, root), dir, list, end))
	f.Add(stream(revision(1, innerHash), inner, end))
	f.Add(stream(end))
	store := newStore(f, object.Config{BytesMax: 64 << 20})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := transfer.NewReceiver(store, transfer.Limits{DepthMax: 8, FilesMax: 1000, WantedMax: 1000, AgainMax: 1 << 20})
		revs, _ := taken(r, object.Hash{}, in)
		for _, rev := range revs {
			whole(t, store, rev.Root)
		}
	})
}
