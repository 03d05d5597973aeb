package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	kindBytesMax = 64 // the first line of a stream
	queryWait    = time.Minute
)

// Stream serves a stream that a guest opened (package guest/capture), until it is over,
// ctx ends or the proxy is closed. It closes the stream. What the guest says wrongly
// ends it.
func (p *Proxy) Stream(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(headerWait))
	kind, err := readLine(conn)
	if err != nil {
		conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if kind == "dns" {
		p.serveNames(ctx, conn)
		return
	}
	to, err := netip.ParseAddrPort(strings.TrimPrefix(kind, "tcp "))
	if err != nil || !strings.HasPrefix(kind, "tcp ") {
		conn.Close()
		return
	}
	p.Serve(ctx, conn, to)
}

// readLine reads a line byte by byte: what is behind it is not ours.
func readLine(r io.Reader) (string, error) {
	var line []byte
	b := make([]byte, 1)
	for len(line) < kindBytesMax {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", errors.New("the line is too long")
}

// serveNames answers queries with their lengths in front, as in RFC 7766.
func (p *Proxy) serveNames(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer p.watch(ctx, conn)()
	var size [2]byte
	query := make([]byte, queryBytes)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(queryWait))
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > queryBytes {
			return
		}
		if _, err := io.ReadFull(conn, query[:n]); err != nil {
			return
		}
		answer := p.Answer(query[:n])
		if answer == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// watch closes a connection when ctx ends or the proxy is closed, until it is stopped.
func (p *Proxy) watch(ctx context.Context, conn net.Conn) (stop func()) {
	p.joining.Lock()
	defer p.joining.Unlock()
	if p.isClosed() {
		conn.Close()
		return func() {}
	}
	over := make(chan struct{})
	p.done.Go(func() {
		select {
		case <-p.closed:
			conn.Close()
		case <-ctx.Done():
			conn.Close()
		case <-over:
		}
	})
	return func() { close(over) }
}

func (p *Proxy) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}
