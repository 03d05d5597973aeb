package template

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

// # Manifest
//
// The manifest is the list of all that a root file system holds: names,
// kinds, modes, owners, times, extended attributes, links and the hash of each
// content. It stands beside an unpacked tree as the truth about it, since an
// ordinary user cannot give files away or set every attribute on disk.
//
//	w, err := newManifestWriter(file)
//	err = w.Add(entry{Path: "etc", Kind: entryDir, Mode: 0o755})
//	hash, err := w.Close()
//	err = readManifest(file, limit, func(e entry) error { … })
//
// Entries come in the order of a walk: a directory, then what is in it, names
// in byte order. The same tree gives the same bytes and the same hash. Read
// takes nothing else: what it passes on is well-formed, whatever the file holds.

// entryKind is what an entry is.
type entryKind byte

// The kinds. Devices, fifos and sockets do not appear.
const (
	entryDir     entryKind = 'd'
	entryFile    entryKind = 'f'
	entrySymlink entryKind = 'l'
	entryLink    entryKind = 'h' // another name of a file or symbolic link that came before
)

// Bounds of what is read.
const (
	pathBytesMax       = 4095
	nameBytesMax       = 255
	targetBytesMax     = 4095
	entryXattrsMax     = 12 // of one entry; what is beyond is sorted wrongly by the writer of images
	entryXattrBytesMax = 3800
	windowBytesMax     = 64 << 20
	manifestForm       = "skete-tree-1\n"
	permissionsMask    = 0o7777
)

// contentSum is the BLAKE3 hash of a file's content.
type contentSum [32]byte

// entry is one name.
type entry struct {
	Path   string // relative, clean; "" is the root, always first
	Kind   entryKind
	Mode   uint32 // permissions with set-id and sticky bits; 0o777 for a symbolic link
	UID    uint32
	GID    uint32
	MTime  time.Time  // to the nanosecond, UTC
	Size   int64      // of a file
	Sum    contentSum // of a file
	Target string     // of a symbolic link; of a Link: the path of its first name
	Xattrs map[string]string
}

// manifestWriter writes a manifest. Not safe for concurrent use.
type manifestWriter struct {
	z    *zstd.Encoder
	h    *blake3.Hasher
	out  io.Writer // both
	buf  []byte
	rule orderRule
}

// newManifestWriter begins a manifest, packed, at w.
func newManifestWriter(w io.Writer) (*manifestWriter, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	m := &manifestWriter{z: z, h: blake3.New()}
	m.out = io.MultiWriter(z, m.h)
	_, err = io.WriteString(m.out, manifestForm)
	return m, err
}

// Add writes the next entry. Invalid: it is not well-formed, or not in order.
func (w *manifestWriter) Add(e entry) error {
	if err := w.rule.check(e); err != nil {
		return err
	}
	w.buf = e.append(w.buf[:0])
	_, err := w.out.Write(w.buf)
	return err
}

// Close ends the manifest and returns the hash of the tree, in hex.
func (w *manifestWriter) Close() (string, error) {
	return hex.EncodeToString(w.h.Sum(nil)), w.z.Close()
}

func (e entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind))
	b = appendText(b, e.Path)
	if e.Kind == entryLink {
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
	case entryFile:
		b = binary.AppendUvarint(b, uint64(e.Size))
		b = append(b, e.Sum[:]...)
	case entrySymlink:
		b = appendText(b, e.Target)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// readManifest visits every entry. Corrupt: the file is damaged, or holds more than
// entriesMax. An error from visit ends it and is returned.
func readManifest(r io.Reader, entriesMax int64, visit func(entry) error) error {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(windowBytesMax))
	if err != nil {
		return err
	}
	defer z.Close()
	p := manifestParser{r: bufio.NewReaderSize(z, 64<<10)}
	head := make([]byte, len(manifestForm))
	if _, err := io.ReadFull(p.r, head); err != nil || string(head) != manifestForm {
		return errDamaged(err)
	}
	var rule orderRule
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
			return errDamaged(err)
		}
		if err := visit(e); err != nil {
			return err
		}
	}
}

func errDamaged(err error) error {
	return errs.Wrap(errs.Corrupt, err, "the list of a template's files is damaged").WithHint("import the template again")
}

// manifestParser reads the binary form; its first error stays.
type manifestParser struct {
	r   *bufio.Reader
	err error
}

// entry returns io.EOF only between entries.
func (p *manifestParser) entry() (entry, error) {
	kind, err := p.r.ReadByte()
	if err != nil {
		return entry{}, err
	}
	e := entry{Kind: entryKind(kind), Path: p.text(pathBytesMax)}
	if e.Kind == entryLink {
		e.Target = p.text(pathBytesMax)
		return e, p.failed()
	}
	e.Mode, e.UID, e.GID = uint32(p.number(permissionsMask)), uint32(p.number(1<<32-1)), uint32(p.number(1<<32-1))
	sec := p.signed()
	e.MTime = time.Unix(sec, int64(p.number(1e9-1))).UTC()
	for n := p.number(entryXattrsMax); n > 0 && p.err == nil; n-- {
		if e.Xattrs == nil {
			e.Xattrs = map[string]string{}
		}
		k := p.text(nameBytesMax)
		e.Xattrs[k] = p.text(entryXattrBytesMax)
	}
	switch e.Kind {
	case entryFile:
		e.Size = int64(p.number(1<<62 - 1))
		if _, err := io.ReadFull(p.r, e.Sum[:]); err != nil && p.err == nil {
			p.err = err
		}
	case entrySymlink:
		e.Target = p.text(targetBytesMax)
	}
	return e, p.failed()
}

func (p *manifestParser) failed() error {
	if errors.Is(p.err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return p.err
}

func (p *manifestParser) number(limit uint64) uint64 {
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

func (p *manifestParser) signed() int64 {
	if p.err != nil {
		return 0
	}
	n, err := binary.ReadVarint(p.r)
	p.err = err
	return n
}

func (p *manifestParser) text(bytesMax uint64) string {
	n := p.number(bytesMax)
	if p.err != nil {
		return ""
	}
	b := make([]byte, n)
	_, p.err = io.ReadFull(p.r, b)
	return string(b)
}

// orderRule checks that entries are well-formed and in order, with memory for the
// directories above the current entry only.
type orderRule struct {
	begun bool
	open  []orderLevel
}

type orderLevel struct {
	path string // with a slash at its end; "" for the root
	last string // the last name in it
}

func (r *orderRule) check(e entry) error {
	if err := e.check(); err != nil {
		return err
	}
	if !r.begun {
		if e.Path != "" || e.Kind != entryDir {
			return badEntry(e, "stands where the root should be")
		}
		r.begun, r.open = true, []orderLevel{{}}
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
	if name == "" || name == "." || name == ".." || len(name) > nameBytesMax || strings.ContainsAny(name, "/\x00") {
		return badEntry(e, "has no directory or a bad name")
	}
	if name <= in.last {
		return badEntry(e, "is not in order")
	}
	in.last = name
	if e.Kind == entryDir {
		r.open = append(r.open, orderLevel{path: e.Path + "/"})
	}
	return nil
}

func (e entry) check() error {
	switch {
	case len(e.Path) > pathBytesMax:
		return badEntry(e, "has a name that is too long")
	case e.Mode&^permissionsMask != 0:
		return badEntry(e, "has a mode that is none")
	case e.Kind == entryFile && e.Size < 0:
		return badEntry(e, "has no size")
	case e.Kind == entrySymlink && (e.Target == "" || len(e.Target) > targetBytesMax || strings.IndexByte(e.Target, 0) >= 0):
		return badEntry(e, "has a bad target")
	case e.Kind == entryLink && (e.Target == "" || len(e.Target) > pathBytesMax):
		return badEntry(e, "has a bad target")
	case e.Kind != entryFile && e.Kind != entryDir && e.Kind != entrySymlink && e.Kind != entryLink:
		return badEntry(e, "is of no kind")
	}
	total := 0
	for k, v := range e.Xattrs {
		total += len(k) + len(v)
		if k == "" || len(k) > nameBytesMax || strings.IndexByte(k, 0) >= 0 {
			return badEntry(e, "has an attribute with a bad name")
		}
	}
	if len(e.Xattrs) > entryXattrsMax || total > entryXattrBytesMax {
		return badEntry(e, "has too many extended attributes")
	}
	return nil
}

func badEntry(e entry, why string) error {
	return errs.New(errs.Invalid, "the entry %.80q %s", e.Path, why)
}
