package pair

import (
	"encoding/binary"
	"errors"
)

// A message is one datagram of a SOCK_SEQPACKET pair: kind (1 byte), request
// id (4 bytes), then fields. Integers are fixed-width little endian, strings
// have a 4-byte length. Descriptors ride along as SCM_RIGHTS in the order of
// the mask's bits.
const (
	// MessageBytesMax bounds a message; a larger one ends the connection.
	MessageBytesMax = 192 << 10
	headerBytes     = 5
	listMax         = 1 << 16 // elements of one list in a message
	// FDsMax bounds the descriptors of one message.
	FDsMax = 8
)

// Kind of a message.
type Kind uint8

// From supervise to init.
const (
	KindAdopt Kind = iota + 1
	KindSpawn
	KindSignal
	KindFeed     // replaces the file that feeds stdin
	KindFeedEnd  // nothing more will be fed
	KindCloseIn  // stdin is closed
	KindRelease  // output is complete: close the rest
	KindEvict    // forget all but key, status and output sizes
	KindForget   // forget all
	KindLookup   // by key
	KindShutdown // end everything
	KindRemember // keys that were used before this boot
)

// From init to supervise.
const (
	KindReply Kind = iota + 64
	KindEntry      // one of the answers to KindAdopt
	KindExited
)

// ErrMessage: the peer does not speak our language.
var ErrMessage = errors.New("malformed message")

// Encoder appends fields to a message.
type Encoder struct{ b []byte }

// Bytes is the message so far.
func (e *Encoder) Bytes() []byte { return e.b }

// NewEncoder begins a message.
func NewEncoder(k Kind, request uint32) *Encoder {
	e := &Encoder{b: make([]byte, 0, 512)}
	e.U8(uint8(k))
	e.U32(request)
	return e
}

func (e *Encoder) U8(v uint8)   { e.b = append(e.b, v) }
func (e *Encoder) U16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *Encoder) U32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *Encoder) U64(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *Encoder) I64(v int64)  { e.U64(uint64(v)) }
func (e *Encoder) Flag(v bool) {
	if v {
		e.U8(1)
		return
	}
	e.U8(0)
}

func (e *Encoder) Str(s string) {
	e.U32(uint32(len(s)))
	e.b = append(e.b, s...)
}

func (e *Encoder) Strs(list []string) {
	e.U32(uint32(len(list)))
	for _, s := range list {
		e.Str(s)
	}
}

// Decoder reads fields; after the first bad one all reads give zero values
// and Done reports the error.
type Decoder struct {
	b   []byte
	bad bool
}

// DecodeHeader returns a message's kind, its request id and the rest.
func DecodeHeader(b []byte) (Kind, uint32, *Decoder, error) {
	if len(b) < headerBytes || len(b) > MessageBytesMax {
		return 0, 0, nil, ErrMessage
	}
	return Kind(b[0]), binary.LittleEndian.Uint32(b[1:]), &Decoder{b: b[headerBytes:]}, nil
}

func (d *Decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *Decoder) U8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *Decoder) U16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *Decoder) U32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *Decoder) U64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *Decoder) I64() int64 { return int64(d.U64()) }

func (d *Decoder) Flag() bool {
	v := d.U8()
	if v > 1 {
		d.bad = true
	}
	return v == 1
}

func (d *Decoder) Str() string { return string(d.take(int(d.U32()))) }

func (d *Decoder) Strs() []string {
	n := int(d.U32())
	if n > listMax || n*4 > len(d.b) { // each element has a length: no huge allocation for a small message
		d.bad = true
		return nil
	}
	var list []string
	for range n {
		list = append(list, d.Str())
	}
	return list
}

// Done reports whether the message was whole: no field short, nothing behind.
func (d *Decoder) Done() error {
	if d.bad || len(d.b) != 0 {
		return ErrMessage
	}
	return nil
}

// Outcome of a request, the first byte of a reply.
type Outcome uint8

const (
	OutcomeOK Outcome = iota
	OutcomeExisted
	OutcomeErrno    // an errno follows
	OutcomeKeysFull // KeysMax keys are remembered
	OutcomeUnknown  // no such entry
	OutcomeStopping // the machine is shutting down
	OutcomeNoExec   // the fork or exec failed, an errno follows
)

// KeysMax bounds what init remembers: some 30 MB at most.
const KeysMax = 100_000
