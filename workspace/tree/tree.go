// Package tree writes and reads what a workspace's history says of directories
// and large files.
//
//	data, err := tree.Encode(entries)   // entries sorted by name
//	entries, err := tree.Decode(data)
//	data, err := tree.EncodeList(chunks)
//
// # Format
//
// Integers are unsigned LEB128 ("varint"); text is its length and its bytes. A
// name is any bytes but NUL and "/", 1 to 255 of them, and neither "." nor "..".
//
//	tree  = "t1" entry*            by name, ascending, each name once
//	entry = name:text type(1) mode:varint uid:varint gid:varint
//	        xattrs:varint (name:text value:text)*   by name, ascending
//	        what the type says:
//	          'f' size:varint flags(1) hash(32)     a file
//	          'd' hash(32)                          a directory
//	          'l' target:text                       a symbolic link
//	          'p'                                   a fifo
//	list  = "l1" (offset:varint length:varint hash(32))*   ascending, no overlap
//
// mode has the twelve low bits of st_mode. Bit 0 of a file's flags: hash names
// a List, whose chunks are the parts that are no holes; else it names a Blob.
// Times are not part of a tree: what is restored is new to a build tool.
//
// Decode takes only what Encode would write, so that a tree has one encoding
// and one hash. All functions are pure.
package tree

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
)

// Type of an entry.
type Type byte

// Types of entries. Sockets and devices are never kept.
const (
	File Type = 'f'
	Dir  Type = 'd'
	Link Type = 'l'
	Fifo Type = 'p'
)

// Bounds of a tree.
const (
	nameBytesMax   = 255
	TargetBytesMax = 4096
	XattrsMax      = 64
	XattrBytesMax  = 64 << 10
	EntriesMax     = 1 << 20
	fileBytesMax   = 1 << 50
)

// Entry is one name in a directory.
type Entry struct {
	Name   string // any bytes
	Type   Type
	Mode   uint32 // twelve bits
	UID    uint32
	GID    uint32
	Xattrs []Xattr // by name
	// Size, Listed and Hash are a File's; Hash a Dir's too.
	Size   int64
	Listed bool
	Hash   object.Hash
	Target string // of a Link
}

// Xattr is an extended attribute.
type Xattr struct{ Name, Value string }

// Same reports whether two entries say the same of what has one name.
func (e Entry) Same(o Entry) bool {
	if e.Type != o.Type || e.Mode != o.Mode || e.UID != o.UID || e.GID != o.GID || e.Size != o.Size ||
		e.Listed != o.Listed || e.Hash != o.Hash || e.Target != o.Target || len(e.Xattrs) != len(o.Xattrs) {
		return false
	}
	for i, x := range e.Xattrs {
		if x != o.Xattrs[i] {
			return false
		}
	}
	return true
}

// SameContent is Same but for owner, mode and attributes.
func (e Entry) SameContent(o Entry) bool {
	return e.Type == o.Type && e.Size == o.Size && e.Listed == o.Listed && e.Hash == o.Hash && e.Target == o.Target
}

// Chunk is a part of a large file.
type Chunk struct {
	Offset, Length int64
	Hash           object.Hash
}

const (
	treeMagic  = "t1"
	listMagic  = "l1"
	flagListed = 1
)

// CheckName refuses what can be no entry of a directory.
func CheckName(name string) error {
	if name == "" || len(name) > nameBytesMax || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return errs.New(errs.Invalid, "%.80q is no name of a file", name)
	}
	return nil
}

// Encode writes a directory. Invalid: entries that Decode would refuse.
func Encode(entries []Entry) ([]byte, error) {
	b := append(make([]byte, 0, 2+len(entries)*64), treeMagic...)
	for i := range entries {
		b = entries[i].append(b)
	}
	if _, err := Decode(b); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "a directory cannot be written")
	}
	return b, nil
}

func (e *Entry) append(b []byte) []byte {
	b = appendText(b, e.Name)
	b = append(b, byte(e.Type))
	b = binary.AppendUvarint(b, uint64(e.Mode))
	b = binary.AppendUvarint(b, uint64(e.UID))
	b = binary.AppendUvarint(b, uint64(e.GID))
	b = binary.AppendUvarint(b, uint64(len(e.Xattrs)))
	for _, x := range e.Xattrs {
		b = appendText(appendText(b, x.Name), x.Value)
	}
	switch e.Type {
	case File:
		b = binary.AppendUvarint(b, uint64(e.Size))
		flags := byte(0)
		if e.Listed {
			flags = flagListed
		}
		b = append(append(b, flags), e.Hash[:]...)
	case Dir:
		b = append(b, e.Hash[:]...)
	case Link:
		b = appendText(b, e.Target)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode reads a directory. Corrupt: data that Encode does not write.
func Decode(data []byte) ([]Entry, error) {
	r := reader{data: data}
	r.magic(treeMagic)
	var entries []Entry
	for r.err == nil && len(r.data) > 0 {
		if len(entries) >= EntriesMax {
			return nil, errs.New(errs.Corrupt, "a directory with more than %d entries", EntriesMax)
		}
		e := r.entry()
		if n := len(entries); r.err == nil && n > 0 && entries[n-1].Name >= e.Name {
			r.fail("names out of order")
		}
		entries = append(entries, e)
	}
	if r.err != nil {
		return nil, r.err
	}
	return entries, nil
}

// EncodeList writes the chunks of a file.
func EncodeList(chunks []Chunk) ([]byte, error) {
	b := append(make([]byte, 0, 2+len(chunks)*44), listMagic...)
	for _, c := range chunks {
		b = binary.AppendUvarint(b, uint64(c.Offset))
		b = binary.AppendUvarint(b, uint64(c.Length))
		b = append(b, c.Hash[:]...)
	}
	if _, err := DecodeList(b); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "a file's parts cannot be written")
	}
	return b, nil
}

// DecodeList reads the chunks of a file. Corrupt: as Decode.
func DecodeList(data []byte) ([]Chunk, error) {
	r := reader{data: data}
	r.magic(listMagic)
	var chunks []Chunk
	end := int64(0)
	for r.err == nil && len(r.data) > 0 {
		c := Chunk{Offset: r.number(fileBytesMax), Length: r.number(object.ContentBytesMax), Hash: r.hash()}
		if r.err == nil && (c.Length == 0 || c.Offset < end) {
			r.fail("parts out of order")
		}
		end = c.Offset + c.Length
		chunks = append(chunks, c)
	}
	if r.err != nil {
		return nil, r.err
	}
	return chunks, nil
}

// reader takes data apart; after the first error it only returns zeros.
type reader struct {
	data []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = errs.New(errs.Corrupt, "the history holds a directory that cannot be read: %s", what)
	}
	r.data = nil
}

func (r *reader) magic(want string) {
	rest, ok := bytes.CutPrefix(r.data, []byte(want))
	if !ok {
		r.fail("its kind")
		return
	}
	r.data = rest
}

func (r *reader) number(maximum uint64) int64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 || v > maximum || n > 1 && r.data[n-1] == 0 { // one encoding only
		r.fail("a number")
		return 0
	}
	r.data = r.data[n:]
	return int64(v)
}

func (r *reader) text(maximum int) string {
	n := int(r.number(uint64(maximum)))
	if n > len(r.data) {
		r.fail("a text")
		return ""
	}
	s := string(r.data[:n])
	r.data = r.data[n:]
	return s
}

func (r *reader) octet() byte {
	if len(r.data) == 0 {
		r.fail("its end")
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

func (r *reader) hash() (h object.Hash) {
	if len(r.data) < len(h) {
		r.fail("a hash")
		return h
	}
	r.data = r.data[copy(h[:], r.data):]
	return h
}

func (r *reader) entry() (e Entry) {
	e.Name = r.text(nameBytesMax)
	if r.err == nil && CheckName(e.Name) != nil {
		r.fail("a name")
	}
	e.Type = Type(r.octet())
	e.Mode = uint32(r.number(0o7777))
	e.UID = uint32(r.number(1<<32 - 1))
	e.GID = uint32(r.number(1<<32 - 1))
	e.Xattrs = r.xattrs()
	switch e.Type {
	case File:
		e.Size = r.number(fileBytesMax)
		flags := r.octet()
		if flags > flagListed {
			r.fail("flags")
		}
		e.Listed = flags == flagListed
		e.Hash = r.hash()
	case Dir:
		e.Hash = r.hash()
	case Link:
		if e.Target = r.text(TargetBytesMax); r.err == nil && (e.Target == "" || strings.Contains(e.Target, "\x00")) {
			r.fail("a link's target")
		}
	case Fifo:
	default:
		r.fail("a type")
	}
	return e
}

func (r *reader) xattrs() (xs []Xattr) {
	for n := r.number(XattrsMax); n > 0 && r.err == nil; n-- {
		x := Xattr{Name: r.text(nameBytesMax), Value: r.text(XattrBytesMax)}
		if r.err == nil && (x.Name == "" || len(xs) > 0 && xs[len(xs)-1].Name >= x.Name) {
			r.fail("attributes out of order")
		}
		xs = append(xs, x)
	}
	return xs
}
