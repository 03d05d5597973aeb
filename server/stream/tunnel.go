package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Bounds of one message of a tunnel.
const (
	tunnelOutMax = 128 << 10 // that we send
	tunnelInMax  = 1 << 20   // that we take
)

// Tunnel moves bytes between a WebSocket and a connection into a sandbox until
// both directions have ended, one side breaks or ctx ends. An empty message is
// the end of a direction: TCP's half-close, which WebSocket lacks. Both are
// closed at the end. A client that just goes is no error.
func Tunnel(ctx context.Context, ws *websocket.Conn, conn net.Conn) error {
	ws.SetReadLimit(tunnelInMax)
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(ctx, func() {
		conn.Close() // wakes both directions
		time.AfterFunc(farewellTimeout, func() { _ = ws.CloseNow() })
	})
	// The WebSocket's own context: its end breaks the WebSocket at once.
	wsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &tunnel{ws: ws, conn: conn, inEnded: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { cancel(t.inward(wsCtx)) })
	wg.Go(func() { ping(ctx, ws, &t.stalled, func() { cancel(errVanished) }) })
	if err := t.outward(wsCtx); err != nil {
		cancel(err)
	}
	select {
	case <-t.inEnded:
	case <-ctx.Done():
	}
	err := why(ctx, nil)
	cancel(nil)
	if err == nil {
		_ = ws.Close(websocket.StatusNormalClosure, "")
	} else {
		_ = ws.Close(websocket.StatusGoingAway, "the tunnel broke")
	}
	stop()
	_ = ws.CloseNow()
	wg.Wait()
	if errors.Is(err, errVanished) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type tunnel struct {
	ws      *websocket.Conn
	conn    net.Conn
	stalled atomic.Bool   // the sandbox takes nothing: a missing pong says nothing
	inEnded chan struct{} // closed at the client's end of its direction
}

// inward moves messages to the connection until the client is gone, which is
// errVanished. Behind the client's end of its direction it goes on reading,
// for pongs and the close.
func (t *tunnel) inward(ctx context.Context) error {
	buf := make([]byte, tunnelOutMax)
	for ended := false; ; {
		typ, r, err := t.ws.Reader(ctx)
		if err != nil {
			return errVanished
		}
		if typ != websocket.MessageBinary || ended {
			return errors.New("a message in a tunnel that should not be there")
		}
		t.stalled.Store(true)
		n, err := io.CopyBuffer(onlyWriter{t.conn}, r, buf)
		t.stalled.Store(false)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if err := closeWrite(t.conn); err != nil {
			return err
		}
		ended = true
		close(t.inEnded)
	}
}

// onlyWriter hides ReadFrom, so that the buffer is used.
type onlyWriter struct{ io.Writer }

func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return conn.Close()
}

// outward moves bytes of the connection to messages, and its end.
func (t *tunnel) outward(ctx context.Context) error {
	buf := make([]byte, tunnelOutMax)
	for {
		n, rerr := t.conn.Read(buf)
		if n > 0 {
			if err := t.write(ctx, buf[:n]); err != nil {
				return errVanished
			}
		}
		if errors.Is(rerr, io.EOF) {
			if err := t.write(ctx, nil); err != nil {
				return errVanished
			}
			return nil
		}
		if rerr != nil {
			return rerr
		}
	}
}

func (t *tunnel) write(ctx context.Context, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	return t.ws.Write(ctx, websocket.MessageBinary, b)
}
