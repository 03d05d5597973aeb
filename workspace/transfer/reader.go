package transfer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
)

// reader takes a stream apart. It holds one item at a time, and no more memory
// than of it has come.
type reader struct {
	in  *bufio.Reader
	buf bytes.Buffer
}

// readerKeeps is how much memory a reader holds on to between items.
const readerKeeps = 1 << 20

func newReader(in io.Reader) (*reader, error) {
	r := &reader{in: bufio.NewReaderSize(in, 64<<10)}
	var head [len(magic)]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, cut(err)
	}
	if string(head[:]) != magic {
		return nil, errs.New(errs.Invalid, "not a stream of revisions")
	}
	return r, nil
}

// next returns an item; its payload is the caller's until the next call.
func (r *reader) next() (tag byte, payload []byte, err error) {
	var head [itemHeader]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, nil, cut(err)
	}
	most, ok := map[byte]int64{tagRevision: revisionBytesMax, tagObject: object.SealedBytesMax, tagEnd: 0}[head[0]]
	if !ok {
		return 0, nil, errs.New(errs.Invalid, "an item of an unknown kind")
	}
	length := int64(binary.LittleEndian.Uint32(head[1:]))
	if length > most {
		return 0, nil, errs.New(errs.Invalid, "an item of %d bytes, where at most %d can be", length, most)
	}
	if r.buf.Cap() > readerKeeps {
		r.buf = bytes.Buffer{}
	}
	r.buf.Reset()
	if _, err := io.CopyN(&r.buf, r.in, length); err != nil {
		return 0, nil, cut(err)
	}
	return head[0], r.buf.Bytes(), nil
}

// cut names a stream that ends too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.New(errs.Unavailable, "the stream of revisions ended too early")
	}
	return err
}
