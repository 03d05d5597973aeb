package guest

import (
	"context"
	"net"
	"sync"
)

// listener feeds an http.Server with the streams that the host opened.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener(ctx context.Context) *listener {
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	context.AfterFunc(ctx, func() { l.Close() })
	return l
}

// offer hands conn over; false: the listener is closed.
func (l *listener) offer(conn net.Conn) bool {
	select {
	case l.conns <- conn:
		return true
	case <-l.done:
		return false
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "guest", Net: "unix"} }
