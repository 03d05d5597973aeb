package packed

import (
	"encoding/binary"
	"io"
)

// callCode is the first byte of a call on amd64; behind it stand four bytes, the
// distance to what is called.
const (
	callCode  = 0xe8
	callBytes = 5
)

// calls is the reader of a program whose calls name what they call by its place in
// the file, not by its distance: calls of one function are the same bytes then,
// and pack to less (3 to 7 percent of a Go program). back undoes it.
//
// It is the translation of CAB's LZX for a file of bytesMax bytes, which maps
// distances one to one, so what is no call comes back as it was.
type calls struct {
	r    io.Reader
	back bool

	space []byte
	buf   []byte // of space: read and not given away
	ready int    // bytes of buf that are translated
	at    int64  // of buf in the file
	err   error  // of r, once buf is empty
}

func newCalls(r io.Reader, back bool) *calls {
	return &calls{r: r, back: back, space: make([]byte, chunkBytes)}
}

// Read implements io.Reader.
func (c *calls) Read(p []byte) (int, error) {
	for c.ready == 0 {
		if c.err != nil && len(c.buf) == 0 {
			return 0, c.err
		}
		c.fill()
	}
	n := copy(p, c.buf[:c.ready])
	c.buf, c.ready, c.at = c.buf[n:], c.ready-n, c.at+int64(n)
	return n, nil
}

// fill reads more and translates what is whole.
func (c *calls) fill() {
	if c.err == nil {
		n := copy(c.space, c.buf)              // less than a call
		for n < len(c.space) && c.err == nil { // io.ReadFull would hide how the source ended
			var m int
			m, c.err = c.r.Read(c.space[n:])
			n += m
		}
		c.buf = c.space[:n]
	}
	i := 0
	for i < len(c.buf) {
		if c.buf[i] != callCode {
			i++
			continue
		}
		if i+callBytes > len(c.buf) {
			break
		}
		c.translate(c.buf[i+1:i+callBytes], c.at+int64(i))
		i += callBytes
	}
	if c.ready = i; c.err != nil {
		c.ready = len(c.buf)
	}
}

// translate changes the operand of a call at a place of the file.
func (c *calls) translate(operand []byte, at int64) {
	v := int64(int32(binary.LittleEndian.Uint32(operand)))
	if v < -at || v >= bytesMax {
		return
	}
	switch {
	case !c.back && v < bytesMax-at:
		v += at
	case !c.back:
		v -= bytesMax
	case v >= 0:
		v -= at
	default:
		v += bytesMax
	}
	binary.LittleEndian.PutUint32(operand, uint32(v))
}
