package api

import (
	"encoding/binary"
	"errors"
)

// FrameKind is the first byte of every binary WebSocket message of exec and attach.
type FrameKind byte

// Server to client.
const (
	FrameStarted FrameKind = 0x01 // JSON Process; always first
	FrameStdout  FrameKind = 0x02 // offset, data
	FrameStderr  FrameKind = 0x03 // offset, data
	FrameGap     FrameKind = 0x04 // JSON OutputEvent: bytes that the spool dropped
	FrameExited  FrameKind = 0x05 // JSON Process; then the server closes
	FrameAck     FrameKind = 0x06 // JSON StdinAck
	FrameProblem FrameKind = 0x07 // JSON Problem; then the server closes
)

// Client to server.
const (
	FrameStart    FrameKind = 0x11 // JSON StartProcess; first frame of exec
	FrameStdin    FrameKind = 0x12 // offset, data: at most StdinBytesMax
	FrameStdinEOF FrameKind = 0x13 // offset of the end
	FrameSignal   FrameKind = 0x14 // JSON SignalProcess
	FrameResize   FrameKind = 0x15 // JSON TerminalSize
	// FrameCredit has an offset alone: how many bytes of output, both streams together,
	// this connection may bring in all. The first one sets the limit, later ones raise it;
	// at most one frame's data goes beyond it. A browser cannot stop reading a WebSocket.
	FrameCredit FrameKind = 0x16
)

// Bounds of frames.
const (
	StdinBytesMax = 256 << 10
	FrameBytesMax = 1 << 20
)

// ErrFrame is a frame that cannot be parsed.
var ErrFrame = errors.New("bad frame")

// AppendOffsetFrame appends a frame that carries bytes of a stream:
// kind, offset (8 bytes, big endian), data.
func AppendOffsetFrame(b []byte, k FrameKind, offset int64, data []byte) []byte {
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	return append(b, data...)
}

// ParseFrame splits a message into kind and body. The body aliases b.
func ParseFrame(b []byte) (FrameKind, []byte, error) {
	if len(b) == 0 || len(b) > FrameBytesMax {
		return 0, nil, ErrFrame
	}
	return FrameKind(b[0]), b[1:], nil
}

// ParseOffset splits the body of an offset frame. The data aliases body.
func ParseOffset(body []byte) (int64, []byte, error) {
	if len(body) < 8 {
		return 0, nil, ErrFrame
	}
	offset := int64(binary.BigEndian.Uint64(body))
	if offset < 0 {
		return 0, nil, ErrFrame
	}
	return offset, body[8:], nil
}
