package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// tunnelWriteMax is the largest message that a tunnel sends.
const tunnelWriteMax = 256 << 10

// tunnel is a TCP stream inside the messages of a WebSocket. An empty message
// ends its direction. A deadline that passes ends the whole connection.
type tunnel struct {
	ws      *websocket.Conn
	readMu  sync.Mutex
	msg     io.Reader // the message being read
	some    bool      // it had bytes
	ended   bool      // the other side said its last
	writeMu sync.Mutex
	closed  bool // we said ours
	rd, wr  deadline
}

// Tunnel makes a connection of a WebSocket that carries a TCP stream. ctx bounds
// its life. It has a CloseWrite method.
func Tunnel(ctx context.Context, ws *websocket.Conn) net.Conn {
	ws.SetReadLimit(-1) // messages are read as they come, whatever their size
	t := &tunnel{ws: ws}
	t.rd.init(ctx)
	t.wr.init(ctx)
	return t
}

func (t *tunnel) Read(p []byte) (int, error) {
	t.readMu.Lock()
	defer t.readMu.Unlock()
	for len(p) > 0 {
		if t.ended {
			return 0, io.EOF
		}
		if t.msg == nil {
			_, r, err := t.ws.Reader(t.rd.ctx)
			if err != nil {
				return 0, t.rd.err(err)
			}
			t.msg, t.some = r, false
		}
		n, err := t.msg.Read(p)
		t.some = t.some || n > 0
		if errors.Is(err, io.EOF) {
			t.msg, t.ended = nil, !t.some
			err = nil
		}
		if n > 0 || err != nil {
			return n, t.rd.err(err)
		}
	}
	return 0, nil
}

func (t *tunnel) Write(p []byte) (int, error) {
	t.writeMu.Lock()
	defer t.writeMu.Unlock()
	n := 0
	for n < len(p) {
		if t.closed {
			return n, net.ErrClosed
		}
		part := p[n:min(len(p), n+tunnelWriteMax)]
		if err := t.ws.Write(t.wr.ctx, websocket.MessageBinary, part); err != nil {
			return n, t.wr.err(err)
		}
		n += len(part)
	}
	return n, nil
}

// CloseWrite tells the other side that nothing more comes.
func (t *tunnel) CloseWrite() error {
	t.writeMu.Lock()
	defer t.writeMu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	return t.wr.err(t.ws.Write(t.wr.ctx, websocket.MessageBinary, nil))
}

func (t *tunnel) Close() error {
	t.rd.stop()
	t.wr.stop()
	_ = t.ws.CloseNow() // an error says only that it is closed already
	return nil
}

func (t *tunnel) LocalAddr() net.Addr  { return tunnelAddr{} }
func (t *tunnel) RemoteAddr() net.Addr { return tunnelAddr{} }

func (t *tunnel) SetDeadline(at time.Time) error {
	return errors.Join(t.SetReadDeadline(at), t.SetWriteDeadline(at))
}
func (t *tunnel) SetReadDeadline(at time.Time) error  { return t.rd.set(at) }
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.wr.set(at) }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "skete" }
func (tunnelAddr) String() string  { return "sandbox" }

// deadline ends a context at a time that can be moved.
type deadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	passed atomic.Bool
	mu     sync.Mutex
	timer  *time.Timer
}

func (d *deadline) init(ctx context.Context) { d.ctx, d.cancel = context.WithCancel(ctx) }

func (d *deadline) set(at time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			d.passed.Store(true)
			d.cancel()
		})
	}
	return nil
}

func (d *deadline) stop() {
	_ = d.set(time.Time{})
	d.cancel()
}

// err translates an error of the WebSocket into one of a net.Conn.
func (d *deadline) err(err error) error {
	switch {
	case err == nil:
		return nil
	case d.passed.Load():
		return os.ErrDeadlineExceeded
	case d.ctx.Err() != nil:
		return net.ErrClosed
	case websocket.CloseStatus(err) == websocket.StatusNormalClosure:
		return io.EOF
	}
	return err
}
