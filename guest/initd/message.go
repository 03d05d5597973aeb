package initd

import (
	"encoding/binary"
	"errors"
)

// A message is one datagram of a SOCK_SEQPACKET pair: kind (1 byte), request
// id (4 bytes), then fields. Integers are fixed-width little endian, strings
// have a 4-byte length. Descriptors ride along as SCM_RIGHTS in the order of
// the mask's bits.
const (
	messageBytesMax = 192 << 10
	headerBytes     = 5
	listMax         = 1 << 16 // elements of one list in a message
	fdsMax          = 8
)

type kind uint8

// From supervise to init.
const (
	kindAdopt kind = iota + 1
	kindSpawn
	kindSignal
	kindFeed     // replaces the file that feeds stdin
	kindFeedEnd  // nothing more will be fed
	kindCloseIn  // stdin is closed
	kindRelease  // output is complete: close the rest
	kindEvict    // forget all but key, status and output sizes
	kindForget   // forget all
	kindLookup   // by key
	kindShutdown // end everything
)

// From init to supervise.
const (
	kindReply kind = iota + 64
	kindEntry      // one of the answers to kindAdopt
	kindExited
)

var errMessage = errors.New("malformed message")

// encoder appends fields to a message.
type encoder struct{ b []byte }

func newEncoder(k kind, request uint32) *encoder {
	e := &encoder{b: make([]byte, 0, 512)}
	e.u8(uint8(k))
	e.u32(request)
	return e
}

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) i64(v int64)  { e.u64(uint64(v)) }
func (e *encoder) flag(v bool) {
	if v {
		e.u8(1)
		return
	}
	e.u8(0)
}

func (e *encoder) str(s string) {
	e.u32(uint32(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) strs(list []string) {
	e.u32(uint32(len(list)))
	for _, s := range list {
		e.str(s)
	}
}

// decoder reads fields; after the first bad one all reads give zero values
// and done reports the error.
type decoder struct {
	b   []byte
	bad bool
}

func decodeHeader(b []byte) (kind, uint32, *decoder, error) {
	if len(b) < headerBytes || len(b) > messageBytesMax {
		return 0, 0, nil, errMessage
	}
	return kind(b[0]), binary.LittleEndian.Uint32(b[1:]), &decoder{b: b[headerBytes:]}, nil
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) i64() int64 { return int64(d.u64()) }

func (d *decoder) flag() bool {
	v := d.u8()
	if v > 1 {
		d.bad = true
	}
	return v == 1
}

func (d *decoder) str() string { return string(d.take(int(d.u32()))) }

func (d *decoder) strs() []string {
	n := int(d.u32())
	if n > listMax || n*4 > len(d.b) { // each element has a length: no huge allocation for a small message
		d.bad = true
		return nil
	}
	var list []string
	for range n {
		list = append(list, d.str())
	}
	return list
}

// done reports whether the message was whole: no field short, nothing behind.
func (d *decoder) done() error {
	if d.bad || len(d.b) != 0 {
		return errMessage
	}
	return nil
}
