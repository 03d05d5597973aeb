package oci

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// This file opens what people call "the tar of an image": packed or not,
// a root file system, `docker save`, an OCI layout or one of our bundles.
//
// Nothing that is read is trusted: bytes and the ratio of packing are bounded.

const (
	zstdMemoryMax = 256 << 20
	ratioFrom     = 64 << 20 // bytes unpacked before the ratio counts
	headersMax    = 1 << 20  // bytes read to see what it is
)

// ArchiveLimits bound an archive.
type ArchiveLimits struct {
	Bytes int64 // of the stream, unpacked
	Ratio int64 // unpacked to packed, looked at beyond 64 MiB
}

// ArchiveKind says what is in an archive.
type ArchiveKind string

// The kinds.
const (
	ArchiveRootfs ArchiveKind = "rootfs"
	ArchiveImage  ArchiveKind = "image"  // `docker save`, or an OCI layout
	ArchiveBundle ArchiveKind = "bundle" // begins with BundleFile
)

// bundleFile is the first entry of a bundle.
const bundleFile = "skete-bundle.json"

// Archive is an open archive: a plain tar stream, whatever it was packed by.
type Archive struct {
	Kind  ArchiveKind
	r     io.Reader
	close func()
}

// Read reads the tar from its begin.
func (a *Archive) Read(b []byte) (int, error) { return a.r.Read(b) }

// Close lets go of what unpacking needs, not of the reader.
func (a *Archive) Close() { a.close() }

// OpenArchive recognises an archive. Invalid: it is none.
func OpenArchive(r io.Reader, l ArchiveLimits) (*Archive, error) {
	plain, closePlain, err := UnpackArchive(r, l)
	if err != nil {
		return nil, ArchiveFault(err)
	}
	kind, whole, err := recognise(plain)
	if err != nil {
		closePlain()
		return nil, ArchiveFault(err)
	}
	return &Archive{kind, whole, closePlain}, nil
}

// UnpackArchive returns the stream unpacked, by whatever its first bytes say, bounded.
func UnpackArchive(r io.Reader, l ArchiveLimits) (io.Reader, func(), error) {
	packed := &counter{r: r}
	plain, closePlain, err := unpacked(packed)
	if err != nil {
		return nil, nil, packed.blame(err)
	}
	return &ratioReader{r: plain, packed: packed, max: l.Ratio, bytesMax: l.Bytes}, closePlain, nil
}

// unpacked recognises how a stream is packed.
func unpacked(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, err := b.Peek(6)
	if len(magic) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = errs.New(errs.Invalid, "the archive is empty")
		}
		return nil, nil, err
	}
	nothing := func() {}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, nothing, err
	case bytes.HasPrefix(magic, []byte("BZh")):
		return bzip2.NewReader(b), nothing, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxMemory(zstdMemoryMax), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, nil, errs.New(errs.Invalid, "xz archives cannot be read").WithHint("unxz it first, or pack it with gzip or zstd")
	}
	return b, nothing, nil
}

// counter counts what was read and remembers why it ended.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// blame tells a damaged archive from a reader that failed.
func (c *counter) blame(err error) error {
	var own *errs.Error
	if c.err != nil || errors.As(err, &own) {
		return err
	}
	return errs.Wrap(errs.Invalid, err, "the archive is damaged or cut off")
}

// ratioReader ends an archive that explodes.
type ratioReader struct {
	r        io.Reader
	packed   *counter
	n        int64
	max      int64
	bytesMax int64
}

func (x *ratioReader) Read(b []byte) (int, error) {
	n, err := x.r.Read(b)
	x.n += int64(n)
	if x.n > ratioFrom && x.n/x.max > x.packed.n {
		return n, errs.New(errs.Limit, "the archive unpacks to more than %d times its size", x.max)
	}
	if x.n > x.bytesMax {
		return n, errs.New(errs.Limit, "the archive is too large")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = x.packed.blame(err)
	}
	return n, err
}

// ArchiveFault gives an error of a tar's reader its class.
func ArchiveFault(err error) error {
	var own *errs.Error
	switch {
	case err == nil, errors.As(err, &own), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Wrap(errs.Invalid, err, "the archive is damaged or cut off")
	case errors.Is(err, tar.ErrHeader):
		return errs.Wrap(errs.Invalid, err, "this is not a tar archive, or a damaged one").
			WithHint("a root file system as tar, `docker save`, or an OCI layout can be imported")
	}
	return err
}

// imageName are the entries that images begin with, and no root file system.
var imageName = pattern.Lazy(`^(oci-layout|index\.json|manifest\.json|repositories|blobs|blobs/sha(256|512)(/[0-9a-f]*)?|(sha256:)?[0-9a-f]{64}(\.json|\.tar(\.gz)?|/.*)?)$`)

// recognise looks at the first entries and returns a reader that begins at
// the begin.
func recognise(r io.Reader) (ArchiveKind, io.Reader, error) {
	var seen bytes.Buffer
	tr := tar.NewReader(io.TeeReader(io.LimitReader(r, headersMax), &seen))
	kind := ArchiveRootfs
	for range 2 { // the first may be "./"
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return "", nil, errs.New(errs.Invalid, "the archive is empty")
		}
		if err != nil {
			return "", nil, err
		}
		name := strings.TrimPrefix(path.Clean("/"+hdr.Name), "/")
		if name == bundleFile {
			kind = ArchiveBundle
		} else if imageName().MatchString(name) {
			kind = ArchiveImage
		}
		if name != "" {
			break
		}
	}
	return kind, io.MultiReader(&seen, r), nil
}

// ReadAhead reads in a goroutine of its own, so that unpacking and writing go on
// at the same time. Close ends it and waits for it; what reads r must end by itself.
func ReadAhead(r io.Reader) io.ReadCloser {
	a := &ahead{full: make(chan piece, piecesMax), empty: make(chan []byte, piecesMax), stop: make(chan struct{})}
	for range piecesMax {
		a.empty <- make([]byte, pieceBytes)
	}
	a.wait.Go(func() { a.run(r) })
	return a
}

const (
	piecesMax  = 4
	pieceBytes = 512 << 10
)

type piece struct {
	data []byte
	err  error
}

type ahead struct {
	full  chan piece
	empty chan []byte
	stop  chan struct{}
	wait  sync.WaitGroup
	once  sync.Once
	now   piece // being read
	whole []byte
}

func (a *ahead) run(r io.Reader) {
	for {
		select {
		case <-a.stop:
			return
		case b := <-a.empty:
			n, err := fill(r, b)
			a.full <- piece{b[:n], err} // never blocks: there are as many places as pieces
			if err != nil {
				return
			}
		}
	}
}

// fill is io.ReadFull that keeps the reader's own error.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// Read gives what was read ahead. Not safe for concurrent use.
func (a *ahead) Read(b []byte) (int, error) {
	for len(a.now.data) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.whole != nil {
			a.empty <- a.whole
			a.whole = nil
		}
		a.now = <-a.full
		a.whole = a.now.data[:cap(a.now.data)]
	}
	n := copy(b, a.now.data)
	a.now.data = a.now.data[n:]
	return n, nil
}

func (a *ahead) Close() error {
	a.once.Do(func() { close(a.stop) })
	a.wait.Wait()
	return nil
}
