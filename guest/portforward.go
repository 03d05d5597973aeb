package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	portDialWait     = 5 * time.Second
	forwardCopyBytes = 128 << 10
)

// forwardPort connects conn, whose preamble asked for port, with the server on
// that TCP port of the loopback. It owns conn and returns when both directions
// have ended or ctx has.
func forwardPort(ctx context.Context, conn net.Conn, port uint32) {
	defer conn.Close()
	server, err := dialPort(ctx, port)
	if err != nil {
		_ = wire.Refuse(conn, err)
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		server.Close()
	})
	defer stop()
	if wire.Grant(conn, port) != nil {
		return
	}
	relay(conn, server)
}

// relay copies both ways until both have ended.
func relay(a, b net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { copyOneWay(a, b) })
	wg.Go(func() { copyOneWay(b, a) })
	wg.Wait()
}

func dialPort(ctx context.Context, port uint32) (net.Conn, error) {
	if port == 0 || port > wire.TCPPortMax {
		return nil, errs.New(errs.Invalid, "port %d is not in 1..%d", port, wire.TCPPortMax)
	}
	ctx, cancel := context.WithTimeout(ctx, portDialWait)
	defer cancel()
	d := net.Dialer{KeepAlive: -1}
	var all []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		all = append(all, err)
	}
	err := errors.Join(all...)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, errs.Wrap(errs.Unavailable, err, "nothing listens on port %d", port)
	}
	return nil, errs.Wrap(errs.Unavailable, err, "port %d cannot be reached", port)
}

// copyOneWay copies until the source ends, then passes the end on: the other
// direction may go on (a half-closed connection).
func copyOneWay(dst, src net.Conn) {
	_, err := io.CopyBuffer(dst, src, make([]byte, forwardCopyBytes))
	if err != nil { // a broken peer: nothing more can be said in either direction
		dst.Close()
		src.Close()
		return
	}
	if w, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	dst.Close()
}
