// Package manifest is the list of all that a root file system holds: names,
// kinds, modes, owners, times, extended attributes, links and the hash of each
// content. It stands beside an unpacked tree as the truth about it, since an
// ordinary user cannot give files away or set every attribute on disk.
//
//	w := manifest.NewWriter(file)
//	err := w.Add(manifest.Entry{Path: "etc", Kind: manifest.Dir, Mode: 0o755})
//	hash, err := w.Close()
//	err = manifest.Read(file, limit, func(e manifest.Entry) error { … })
//
// Entries come in the order of a walk: a directory, then what is in it, names
// in byte order. The same tree gives the same bytes and the same hash. Read
// takes nothing else: what it passes on is well-formed, whatever the file holds.
package manifest

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/skete-dev/skete/errs"
)

// Kind is what an entry is.
type Kind byte

// The kinds. Devices, fifos and sockets do not appear.
const (
	Dir     Kind = 'd'
	File    Kind = 'f'
	Symlink Kind = 'l'
	Link    Kind = 'h' // another name of a file or symbolic link that came before
)

// Bounds of what is read.
const (
	PathBytesMax    = 4095
	NameBytesMax    = 255
	TargetBytesMax  = 4095
	XattrsMax       = 12 // of one entry; what is beyond is sorted wrongly by the writer of images
	XattrBytesMax   = 3800
	windowBytesMax  = 64 << 20
	form            = "skete-tree-1\n"
	permissionsMask = 0o7777
)

// Sum is the BLAKE3 hash of a file's content.
type Sum [32]byte

// Entry is one name.
type Entry struct {
	Path   string // relative, clean; "" is the root, always first
	Kind   Kind
	Mode   uint32 // permissions with set-id and sticky bits; 0o777 for a symbolic link
	UID    uint32
	GID    uint32
	MTime  time.Time // to the nanosecond, UTC
	Size   int64     // of a file
	Sum    Sum       // of a file
	Target string    // of a symbolic link; of a Link: the path of its first name
	Xattrs map[string]string
}

// Writer writes a manifest. Not safe for concurrent use.
type Writer struct {
	z    *zstd.Encoder
	h    *blake3.Hasher
	out  io.Writer // both
	buf  []byte
	rule rule
}

// NewWriter begins a manifest, packed, at w.
func NewWriter(w io.Writer) (*Writer, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	m := &Writer{z: z, h: blake3.New()}
	m.out = io.MultiWriter(z, m.h)
	_, err = io.WriteString(m.out, form)
	return m, err
}

// Add writes the next entry. Invalid: it is not well-formed, or not in order.
func (w *Writer) Add(e Entry) error {
	if err := w.rule.check(e); err != nil {
		return err
	}
	w.buf = e.append(w.buf[:0])
	_, err := w.out.Write(w.buf)
	return err
}

// Close ends the manifest and returns the hash of the tree, in hex.
func (w *Writer) Close() (string, error) {
	return hex.EncodeToString(w.h.Sum(nil)), w.z.Close()
}

func (e Entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind))
	b = appendText(b, e.Path)
	if e.Kind == Link {
		return appendText(b, e.Target)
	}
	for _, n := range []uint32{e.Mode, e.UID, e.GID} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.AppendVarint(b, e.MTime.Unix())
	b = binary.AppendUvarint(b, uint64(e.MTime.Nanosecond()))
	b = binary.AppendUvarint(b, uint64(len(e.Xattrs)))
	for _, k := range slices.Sorted(maps.Keys(e.Xattrs)) {
		b = appendText(appendText(b, k), e.Xattrs[k])
	}
	switch e.Kind {
	case File:
		b = binary.AppendUvarint(b, uint64(e.Size))
		b = append(b, e.Sum[:]...)
	case Symlink:
		b = appendText(b, e.Target)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Read visits every entry. Corrupt: the file is damaged, or holds more than
// entriesMax. An error from visit ends it and is returned.
func Read(r io.Reader, entriesMax int64, visit func(Entry) error) error {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(windowBytesMax))
	if err != nil {
		return err
	}
	defer z.Close()
	p := parser{r: bufio.NewReaderSize(z, 64<<10)}
	head := make([]byte, len(form))
	if _, err := io.ReadFull(p.r, head); err != nil || string(head) != form {
		return damaged(err)
	}
	var rule rule
	for n := int64(0); ; n++ {
		e, err := p.entry()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err == nil && n >= entriesMax {
			err = fmt.Errorf("more than %d entries", entriesMax)
		}
		if err == nil {
			err = rule.check(e)
		}
		if err != nil {
			return damaged(err)
		}
		if err := visit(e); err != nil {
			return err
		}
	}
}

func damaged(err error) error {
	return errs.Wrap(errs.Corrupt, err, "the list of a template's files is damaged").WithHint("import the template again")
}

// parser reads the binary form; its first error stays.
type parser struct {
	r   *bufio.Reader
	err error
}

// entry returns io.EOF only between entries.
func (p *parser) entry() (Entry, error) {
	kind, err := p.r.ReadByte()
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Kind: Kind(kind), Path: p.text(PathBytesMax)}
	if e.Kind == Link {
		e.Target = p.text(PathBytesMax)
		return e, p.failed()
	}
	e.Mode, e.UID, e.GID = uint32(p.number(permissionsMask)), uint32(p.number(1<<32-1)), uint32(p.number(1<<32-1))
	sec := p.signed()
	e.MTime = time.Unix(sec, int64(p.number(1e9-1))).UTC()
	for n := p.number(XattrsMax); n > 0 && p.err == nil; n-- {
		if e.Xattrs == nil {
			e.Xattrs = map[string]string{}
		}
		k := p.text(NameBytesMax)
		e.Xattrs[k] = p.text(XattrBytesMax)
	}
	switch e.Kind {
	case File:
		e.Size = int64(p.number(1<<62 - 1))
		if _, err := io.ReadFull(p.r, e.Sum[:]); err != nil && p.err == nil {
			p.err = err
		}
	case Symlink:
		e.Target = p.text(TargetBytesMax)
	}
	return e, p.failed()
}

func (p *parser) failed() error {
	if errors.Is(p.err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return p.err
}

func (p *parser) number(limit uint64) uint64 {
	if p.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(p.r)
	if err == nil && n > limit {
		err = fmt.Errorf("%d is more than %d", n, limit)
	}
	if p.err = err; err != nil {
		return 0
	}
	return n
}

func (p *parser) signed() int64 {
	if p.err != nil {
		return 0
	}
	n, err := binary.ReadVarint(p.r)
	p.err = err
	return n
}

func (p *parser) text(bytesMax uint64) string {
	n := p.number(bytesMax)
	if p.err != nil {
		return ""
	}
	b := make([]byte, n)
	_, p.err = io.ReadFull(p.r, b)
	return string(b)
}

// rule checks that entries are well-formed and in order, with memory for the
// directories above the current entry only.
type rule struct {
	begun bool
	open  []level
}

type level struct {
	path string // with a slash at its end; "" for the root
	last string // the last name in it
}

func (r *rule) check(e Entry) error {
	if err := e.check(); err != nil {
		return err
	}
	if !r.begun {
		if e.Path != "" || e.Kind != Dir {
			return badEntry(e, "stands where the root should be")
		}
		r.begun, r.open = true, []level{{}}
		return nil
	}
	if e.Path == "" {
		return badEntry(e, "is there twice")
	}
	for len(r.open) > 1 && !strings.HasPrefix(e.Path, r.open[len(r.open)-1].path) {
		r.open = r.open[:len(r.open)-1]
	}
	in := &r.open[len(r.open)-1]
	name := strings.TrimPrefix(e.Path, in.path)
	if name == "" || name == "." || name == ".." || len(name) > NameBytesMax || strings.ContainsAny(name, "/\x00") {
		return badEntry(e, "has no directory or a bad name")
	}
	if name <= in.last {
		return badEntry(e, "is not in order")
	}
	in.last = name
	if e.Kind == Dir {
		r.open = append(r.open, level{path: e.Path + "/"})
	}
	return nil
}

func (e Entry) check() error {
	switch {
	case len(e.Path) > PathBytesMax:
		return badEntry(e, "has a name that is too long")
	case e.Mode&^permissionsMask != 0:
		return badEntry(e, "has a mode that is none")
	case e.Kind == File && e.Size < 0:
		return badEntry(e, "has no size")
	case e.Kind == Symlink && (e.Target == "" || len(e.Target) > TargetBytesMax || strings.IndexByte(e.Target, 0) >= 0):
		return badEntry(e, "has a bad target")
	case e.Kind == Link && (e.Target == "" || len(e.Target) > PathBytesMax):
		return badEntry(e, "has a bad target")
	case e.Kind != File && e.Kind != Dir && e.Kind != Symlink && e.Kind != Link:
		return badEntry(e, "is of no kind")
	}
	total := 0
	for k, v := range e.Xattrs {
		total += len(k) + len(v)
		if k == "" || len(k) > NameBytesMax || strings.IndexByte(k, 0) >= 0 {
			return badEntry(e, "has an attribute with a bad name")
		}
	}
	if len(e.Xattrs) > XattrsMax || total > XattrBytesMax {
		return badEntry(e, "has too many extended attributes")
	}
	return nil
}

func badEntry(e Entry, why string) error {
	return errs.New(errs.Invalid, "the entry %.80q %s", e.Path, why)
}
