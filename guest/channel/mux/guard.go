package mux

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"

	"github.com/skete-dev/skete/errs"
)

// What yamux puts on the line.
const (
	yamuxHeader = 12
	typeData    = 0
	typePing    = 2
	typeMax     = 3
)

// pingsMax in a second: yamux starts a goroutine for each that it gets, so that
// a peer that never reads could make any number of them.
const pingsMax = 50

var errFrame = errs.New(errs.Unavailable, "the channel's other end speaks nonsense")

// guard is the session's line. It reads behind the handshake's buffer and lets
// no frame through that our peer would never send: what fails here is another
// session's rest, or a guest that means no good.
type guard struct {
	Port
	r *bufio.Reader

	header [yamuxHeader]byte
	have   int // of header
	body   int // bytes of the frame still to come
	pings  int
	second time.Time
}

func (g *guard) Read(p []byte) (int, error) {
	if g.body > 0 {
		n, err := g.r.Read(p[:min(len(p), g.body)])
		g.body -= n
		return n, err
	}
	n, err := g.r.Read(p[:min(len(p), yamuxHeader-g.have)])
	copy(g.header[g.have:], p[:n])
	g.have += n
	if g.have < yamuxHeader {
		return n, err
	}
	g.have = 0
	if !g.accept() {
		return 0, errFrame
	}
	return n, err
}

// accept judges a whole header.
func (g *guard) accept() bool {
	size := binary.BigEndian.Uint32(g.header[8:])
	switch kind := g.header[1]; {
	case g.header[0] != 0 || kind > typeMax || kind == typeData && size > frameBytesMax:
		return false
	case kind == typeData:
		g.body = int(size)
	case kind == typePing:
		return g.ping()
	}
	return true
}

func (g *guard) ping() bool {
	if now := time.Now(); now.Sub(g.second) > time.Second {
		g.second, g.pings = now, 0
	}
	g.pings++
	return g.pings <= pingsMax
}

var _ io.ReadWriteCloser = (*guard)(nil)
