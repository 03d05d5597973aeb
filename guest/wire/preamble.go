package wire

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Ports of a machine's channel. A port up to 65535 is a TCP port inside the
// guest (loopback included). Ports above are the guest's own and have no TCP
// listener at all: nothing inside the sandbox can reach them.
const (
	TCPPortMax  uint32 = 1<<16 - 1
	ControlPort uint32 = 1 << 16 // guest.v1
)

// NetworkPort is the port of the host at which the connections of a machine arrive.
const NetworkPort uint32 = 1<<16 + 1

// VsockHostPort is the port of the host's vsock where streams of the guest
// arrive: with it Firecracker names the socket (PATH_65536).
const VsockHostPort uint32 = 1 << 16

// Bounds of what is read from the other side.
const (
	preambleBytesMax = 256
	MessageBytesMax  = 4 << 20
	ChunkBytes       = 256 << 10 // of file and output data in one message
)

// PreambleTimeout bounds how long a peer may take to answer.
const PreambleTimeout = 10 * time.Second

// The preamble is Firecracker's hybrid vsock shape: who opens a stream, mostly the
// host, writes "CONNECT <port>\n", the other end answers "OK <n>\n" and the rest
// of the connection is the stream. We add "NO <class> <message>\n" for a refusal.
// A guest that opens one asks for a port of the host, which are not TCP ports.

// Connect opens port on a fresh channel connection, within PreambleTimeout. On
// error conn is closed. The guest's refusal comes back as an *errs.Error of its
// class.
func Connect(conn net.Conn, port uint32, deadline time.Time) error {
	if limit := time.Now().Add(PreambleTimeout); deadline.IsZero() || deadline.After(limit) {
		deadline = limit
	}
	return ConnectUntil(conn, port, deadline)
}

// ConnectUntil is Connect for a channel that notices by itself when there is no peer at
// its other end any more: there a peer that has not answered is slow, and may
// take until the deadline.
func ConnectUntil(conn net.Conn, port uint32, deadline time.Time) error {
	if err := open(conn, port, deadline); err != nil {
		_ = conn.Close()
		return err
	}
	return nil
}

func open(conn net.Conn, port uint32, deadline time.Time) error {
	_ = conn.SetDeadline(deadline)
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the guest does not answer")
	}
	line, err := readLine(conn)
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the guest does not answer")
	}
	_ = conn.SetDeadline(time.Time{})
	if strings.HasPrefix(line, "OK ") {
		return nil
	}
	if rest, ok := strings.CutPrefix(line, "NO "); ok {
		class, msg, _ := strings.Cut(rest, " ")
		return errs.New(parseClass(class), "%s", msg)
	}
	return errs.New(errs.Unavailable, "the guest answered %q", line)
}

// Accept reads the host's preamble and returns the port asked for. The caller
// answers with Grant or Refuse.
func Accept(conn net.Conn) (uint32, error) {
	line, err := readLine(conn)
	if err != nil {
		return 0, err
	}
	rest, ok := strings.CutPrefix(line, "CONNECT ")
	if !ok {
		return 0, errs.New(errs.Invalid, "bad preamble %q", line)
	}
	port, err := strconv.ParseUint(rest, 10, 32)
	if err != nil {
		return 0, errs.New(errs.Invalid, "bad port %q", rest)
	}
	return uint32(port), nil
}

// Grant answers a preamble: the stream begins.
func Grant(conn net.Conn, port uint32) error {
	_, err := fmt.Fprintf(conn, "OK %d\n", port)
	return err
}

// Refuse answers a preamble with the error's class and public text.
func Refuse(conn net.Conn, cause error) error {
	msg := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, errs.Public(cause))
	line := fmt.Sprintf("NO %s %s", errs.Of(cause), msg)
	_, err := fmt.Fprintf(conn, "%.*s\n", preambleBytesMax-1, line)
	return err
}

// readLine reads up to '\n' one byte at a time, so that not a byte of the
// stream behind it is taken. The line is short; this happens once a stream.
func readLine(r io.Reader) (string, error) {
	var b [1]byte
	line := make([]byte, 0, 32)
	for len(line) < preambleBytesMax {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", errs.New(errs.Invalid, "preamble longer than %d bytes", preambleBytesMax)
}

func parseClass(s string) errs.Class {
	for _, c := range errs.Classes {
		if string(c) == s {
			return c
		}
	}
	return errs.Unavailable
}
