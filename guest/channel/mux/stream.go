package mux

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/skete-dev/skete/errs"
)

// A stream is a sequence of pieces in a yamux stream: length, checksum, bytes.
// A piece of length 0 is the end of writing (half a close), which yamux has
// not: its close says that neither direction goes on. It also tells a stream
// that ended from one whose session died.
//
// The checksum is there because the line can lose the middle of a frame (a
// host that died) and fill it with the next host's hello: without it those
// bytes would be a command's input.
const (
	pieceHeader   = 8
	pieceBytesMax = 32 << 10
	frameBytesMax = pieceBytesMax + pieceHeader
)

const (
	// closeTimeout is how long a peer may go on writing to a stream that was
	// closed before it is told that the stream has no reader.
	closeTimeout = 2 * time.Second
	// endTimeout bounds what Close waits to say that the stream ended.
	endTimeout = 100 * time.Millisecond
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errPiece   = errs.New(errs.Unavailable, "the channel lost bytes")
)

// stream is a net.Conn over a yamux stream.
type stream struct {
	*yamux.Stream

	readMu sync.Mutex
	piece  []byte // of the piece in buf, what was not read yet
	buf    []byte
	ended  bool // the peer has ended its writing

	writeMu sync.Mutex
	out     []byte
	closed  bool // for writing
}

var _ net.Conn = (*stream)(nil)

func newStream(s *yamux.Stream) *stream { return &stream{Stream: s} }

// Read returns io.EOF after the peer's CloseWrite or Close, io.ErrUnexpectedEOF
// when the session died.
func (s *stream) Read(p []byte) (int, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	for len(s.piece) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		if err := s.nextPiece(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.piece)
	s.piece = s.piece[n:]
	return n, nil
}

// nextPiece reads a piece. A deadline in its middle keeps what has come.
func (s *stream) nextPiece() error {
	if err := s.fill(pieceHeader); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(s.buf)
	if size > pieceBytesMax {
		return s.broken()
	}
	if err := s.fill(pieceHeader + int(size)); err != nil {
		return err
	}
	body := s.buf[pieceHeader:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(s.buf[4:]) {
		return s.broken()
	}
	s.buf = s.buf[:0]
	s.piece, s.ended = body, size == 0
	return nil
}

// fill reads until buf holds n bytes.
func (s *stream) fill(n int) error {
	if cap(s.buf) < n {
		s.buf = append(make([]byte, 0, max(n, 4<<10)), s.buf...)
	}
	for len(s.buf) < n {
		m, err := s.Stream.Read(s.buf[len(s.buf):n])
		s.buf = s.buf[:len(s.buf)+m]
		if err == io.EOF { //nolint:errorlint // yamux returns it bare
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// broken ends the session: what comes on this line is not what was sent.
func (s *stream) broken() error {
	go s.Session().Close() // it waits for the goroutine that reads the line; the caller does not
	return errPiece
}

// Write writes p in pieces.
func (s *stream) Write(p []byte) (int, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	written := 0
	for len(p) > 0 {
		n := min(len(p), pieceBytesMax)
		if err := s.writePiece(p[:n]); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// writePiece writes one piece. After an error in its middle nothing more can
// be written. Preconditions: writeMu is held.
func (s *stream) writePiece(p []byte) error {
	s.out = binary.BigEndian.AppendUint32(s.out[:0], uint32(len(p)))
	s.out = binary.BigEndian.AppendUint32(s.out, crc32.Checksum(p, castagnoli))
	s.out = append(s.out, p...)
	n, err := s.Stream.Write(s.out)
	if err != nil && n > 0 {
		s.closed = true
	}
	return err
}

// CloseWrite tells the peer that nothing more will be written; it may go on.
func (s *stream) CloseWrite() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.closed {
		return nil
	}
	err := s.writePiece(nil)
	s.closed = true
	return err
}

// Close ends both directions. What was written before still arrives. A peer
// that goes on writing gets an error, at the latest after closeTimeout.
func (s *stream) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0))
	_ = s.SetWriteDeadline(time.Unix(1, 0)) // ends a Write that waits, and with it its lock
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if !s.closed {
		_ = s.SetWriteDeadline(time.Now().Add(endTimeout))
		_ = s.writePiece(nil)
		s.closed = true
	}
	if err := s.Stream.Close(); !errors.Is(err, yamux.ErrSessionShutdown) {
		return err
	}
	return nil
}
