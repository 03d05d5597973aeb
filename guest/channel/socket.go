package channel

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6455 asks for it; nothing is kept secret by it
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// This file carries streams to a machine of which we reach nothing but a port, by
// HTTP, through a proxy of others: each stream is a WebSocket (RFC 6455), since that is
// what such proxies let through. Behind the handshake comes the preamble, as everywhere.
// A stream's bytes are binary messages, and an empty text message is its end in one
// direction: the other one may go on.

// Of sockets.
const (
	// SocketPath is where a guest answers.
	SocketPath = "/skete/stream"
	// TokenHeader has the token without which a guest answers nothing.
	TokenHeader = "Skete-Machine-Token"

	socketHeaderTimeout = 10 * time.Second
	socketHeaderBytes   = 32 << 10
	socketFrameBytes    = 64 << 10 // that we send in one frame
	socketBufferBytes   = 32 << 10
	refusalBytesMax     = 1 << 10 // that are read of an answer that is no socket
	magic               = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// NoSocketError is the answer of a server that opened no socket.
type NoSocketError struct {
	Status int
	Body   string // the beginning
}

// Error implements error.
func (e *NoSocketError) Error() string {
	return fmt.Sprintf("the answer is %d, not a WebSocket: %.200q", e.Status, e.Body)
}

// DialSocket opens a stream to a port of the guest that answers at an address (http or
// https), by a request with these headers. A refusal of the guest comes back with its
// class; *NoSocketError: what answered is not the guest, or the token is wrong.
func DialSocket(ctx context.Context, at *url.URL, header http.Header, token string, port uint32) (net.Conn, error) {
	conn, err := dialHTTP(ctx, at)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if limit := time.Now().Add(socketHeaderTimeout); deadline.IsZero() || deadline.After(limit) {
		deadline = limit
	}
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	s, err := handshake(conn, at, header, token)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	if err := connect(ctx, s, port); err != nil { // it closes s
		return nil, err
	}
	return s, nil
}

func dialHTTP(ctx context.Context, at *url.URL) (net.Conn, error) {
	host, port := at.Hostname(), at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || at.Scheme != "https" {
		return conn, err
	}
	secured := tls.Client(conn, &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

func handshake(conn net.Conn, at *url.URL, header http.Header, token string) (*socket, error) {
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	asked := base64.StdEncoding.EncodeToString(key)
	to := *at
	to.RawPath = ""
	if to.Path = strings.Trim(at.Path, "/"); to.Path != "" {
		to.Path = "/" + to.Path
	}
	to.Path += SocketPath
	req := &http.Request{Method: http.MethodGet, URL: &to, Host: at.Host, Header: header.Clone(), ProtoMajor: 1, ProtoMinor: 1}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": asked, TokenHeader: token,
	} {
		req.Header.Set(name, value)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, socketBufferBytes)
	res, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(res.Body, refusalBytesMax))
		_ = res.Body.Close()
		return nil, &NoSocketError{Status: res.StatusCode, Body: string(body)}
	}
	if !strings.EqualFold(res.Header.Get("Upgrade"), "websocket") || res.Header.Get("Sec-Websocket-Accept") != acceptOf(asked) {
		return nil, &NoSocketError{Status: res.StatusCode}
	}
	return &socket{Conn: conn, in: in, client: true}, nil
}

// acceptOf answers the key of a handshake.
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + magic)) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}

// ServeSockets answers at a listener until ctx ends, and calls serve in a goroutine of
// its own for each stream that a client with the token opens; serve owns the stream and
// must Grant or Refuse it.
func ServeSockets(ctx context.Context, ln net.Listener, token string, serve func(conn net.Conn, port uint32)) {
	srv := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serveSocket(w, r, token, serve) }),
		ReadHeaderTimeout: socketHeaderTimeout, IdleTimeout: socketHeaderTimeout, MaxHeaderBytes: socketHeaderBytes,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	_ = srv.Serve(ln)
}

func serveSocket(w http.ResponseWriter, r *http.Request, token string, serve func(conn net.Conn, port uint32)) {
	key := r.Header.Get("Sec-Websocket-Key")
	switch {
	case token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get(TokenHeader)), []byte(token)) != 1:
		http.Error(w, "this port is for the machine's host", http.StatusForbidden)
		return
	case r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, SocketPath) || key == "" || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		http.Error(w, "this port takes WebSockets", http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(wire.PreambleTimeout))
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", acceptOf(key))
	s := &socket{Conn: conn, in: bufio.NewReaderSize(buffered.Reader, socketBufferBytes)}
	if err != nil {
		conn.Close()
		return
	}
	port, err := wire.Accept(s)
	if err != nil {
		conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	go serve(s, port)
}

// socket is a stream as a net.Conn.
type socket struct {
	net.Conn
	client bool // its frames are masked

	// Of the reader.
	in    *bufio.Reader
	frame frame
	ended bool // in this direction

	writing sync.Mutex // guards all below
	out     []byte
	broken  error
}

// frame is what is left of the one that is being read.
type frame struct {
	left   uint64
	masked bool
	mask   [4]byte
	at     int // in mask
}

// Kinds of frames.
const (
	frameMore   = 0
	frameText   = 1
	frameBinary = 2
	frameClose  = 8
	framePing   = 9
	framePong   = 10

	frameFinal      = 0x80
	frameMasked     = 0x80
	controlBytesMax = 125
)

var errFrame = errs.New(errs.Unavailable, "the other end of a stream sends what is no WebSocket")

// Read implements net.Conn. A time that is up loses nothing: what was read of a frame's
// head stays in the buffer.
func (s *socket) Read(p []byte) (int, error) {
	for s.frame.left == 0 {
		if s.ended {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if uint64(len(p)) > s.frame.left {
		p = p[:s.frame.left]
	}
	n, err := s.in.Read(p)
	s.frame.left -= uint64(n)
	if s.frame.masked {
		for i := range p[:n] {
			p[i] ^= s.frame.mask[s.frame.at&3]
			s.frame.at++
		}
	}
	return n, unexpected(err)
}

// unexpected makes the end of a connection, which says nothing, another end than that of
// the stream.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // as a reader returns it
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads up to the bytes of the next frame that has any, or the end.
func (s *socket) next() error {
	head, err := s.in.Peek(2)
	if err != nil {
		return unexpected(err)
	}
	kind, size := head[0]&0x0f, 2
	f := frame{masked: head[1]&frameMasked != 0, left: uint64(head[1] &^ frameMasked)}
	switch f.left {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	long := size - 2
	if f.masked {
		size += 4
	}
	control := kind >= frameClose
	if head[0]&0x70 != 0 || f.masked == s.client || control && (f.left > controlBytesMax || head[0]&frameFinal == 0) {
		return errFrame
	}
	whole := size
	if control {
		whole += int(f.left)
	}
	if head, err = s.in.Peek(whole); err != nil {
		return unexpected(err)
	}
	switch long {
	case 2:
		f.left = uint64(binary.BigEndian.Uint16(head[2:]))
	case 8:
		f.left = binary.BigEndian.Uint64(head[2:])
	}
	if f.masked {
		copy(f.mask[:], head[size-4:])
	}
	switch kind {
	case frameMore, frameBinary:
		s.frame = f
	case frameText:
		if f.left != 0 {
			return errFrame
		}
		s.ended = true
	case framePing:
		answer := append([]byte(nil), head[size:whole]...)
		for i := range answer {
			answer[i] ^= f.mask[i&3]
		}
		if err := s.send(framePong, answer); err != nil {
			return err
		}
	case framePong:
	case frameClose:
		return io.ErrUnexpectedEOF
	default:
		return errFrame
	}
	_, err = s.in.Discard(whole)
	return err
}

// Write implements net.Conn.
func (s *socket) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		k := min(len(p), socketFrameBytes)
		if err = s.send(frameBinary, p[:k]); err == nil {
			n += k
		}
		p = p[k:]
	}
	return n, err
}

// CloseWrite ends one direction.
func (s *socket) CloseWrite() error { return s.send(frameText, nil) }

// send writes a frame. What was written in part cannot be gone on with.
func (s *socket) send(kind byte, p []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.broken != nil {
		return s.broken
	}
	b := append(s.out[:0], frameFinal|kind)
	switch n := len(p); {
	case n <= controlBytesMax:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	if s.client {
		b[1] |= frameMasked
		var mask [4]byte
		_, _ = rand.Read(mask[:])
		b = append(b, mask[:]...)
		start := len(b)
		b = append(b, p...)
		for i := range p {
			b[start+i] ^= mask[i&3]
		}
	} else {
		b = append(b, p...)
	}
	s.out = b
	_, s.broken = s.Conn.Write(b)
	return s.broken
}
