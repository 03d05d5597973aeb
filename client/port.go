package client

import (
	"context"
	"io"
	"iter"
	"net"
	"strconv"
	"sync"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// Ports lists the open TCP ports inside.
func (s *Sandbox) Ports(ctx context.Context) ([]api.Port, error) {
	l, err := transport.Fetch[api.PortList](ctx, s.c.t, transport.Get(s.path("/ports"), nil))
	return l.Items, err
}

// WatchPorts reports the open ports and then each that opens or closes. After
// a disconnect the open ports are reported again.
func (s *Sandbox) WatchPorts(ctx context.Context) iter.Seq2[api.PortEvent, error] {
	return transport.Events[api.PortEvent](ctx, s.c.t, s.path("/ports/watch"), nil, "")
}

// DialPort connects to a TCP port inside the sandbox, loopback included. The
// connection lives until it is closed; ctx is for its beginning only. It has
// a CloseWrite method, as a *net.TCPConn has.
func (s *Sandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	ws, err := s.c.t.DialWS(ctx, transport.Get(s.path("/ports/"+strconv.Itoa(port)+"/connect"), nil))
	if err != nil {
		return nil, err
	}
	return transport.Tunnel(context.WithoutCancel(ctx), ws), nil
}

// Forward connects everyone who connects to l with a port inside the sandbox.
// It returns when ctx ends or l fails, after all connections have ended; it
// closes l. failed is told of connections that could not be made; it may be nil.
func (s *Sandbox) Forward(ctx context.Context, l net.Listener, port int, failed func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		outer, err := l.Accept()
		if err != nil {
			_ = l.Close()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		wg.Go(func() {
			if err := s.forwardOne(ctx, outer, port); err != nil && failed != nil && ctx.Err() == nil {
				failed(err)
			}
		})
	}
}

func (s *Sandbox) forwardOne(ctx context.Context, outer net.Conn, port int) error {
	defer outer.Close()
	inner, err := s.DialPort(ctx, port)
	if err != nil {
		return err
	}
	defer inner.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = outer.Close()
		_ = inner.Close()
	})
	defer stop()
	join(outer, inner)
	return nil
}

// join copies both ways until both sides have said all, or one broke.
func join(a, b net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { pass(a, b) })
	wg.Go(func() { pass(b, a) })
	wg.Wait()
}

// pass copies src to dst; the end of src is the end of dst's input, and an
// error the end of both.
func pass(dst, src net.Conn) {
	if _, err := io.Copy(dst, src); err != nil {
		_ = src.Close()
		_ = dst.Close()
		return
	}
	half, ok := dst.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		_ = dst.Close()
	}
}
