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
	"github.com/skete-dev/skete/internal/sleep"
)

// A server that is there takes a connection at once: the kernel does it for it.
// So a dial that waits has found one that is stuck, or a machine that is. A
// machine on a busy host, above all one that has just come out of a snapshot,
// may do nothing for seconds, and then finds the time over and the connection
// made. Therefore the wait is counted in steps: a step in which the machine
// stood still is one step.
const (
	portDialStep     = 100 * time.Millisecond
	portDialSteps    = 50
	forwardCopyBytes = 128 << 10
)

var errPortSilent = errors.New("no answer")

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
	dialled, end := inSteps(ctx, portDialSteps, portDialStep)
	defer end()
	d := net.Dialer{KeepAlive: -1}
	var all []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := d.DialContext(dialled, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		all = append(all, err)
		if dialled.Err() != nil {
			break
		}
	}
	return nil, portError(port, context.Cause(dialled), all)
}

// portError says why no connection to a port came about. over is why the dial
// ended before it was answered, nil if it was.
func portError(port uint32, over error, all []error) error {
	err := errors.Join(all...)
	switch {
	case errors.Is(over, errPortSilent):
		return errs.Wrap(errs.Unavailable, err, "port %d does not answer: what listens there takes no connections, it may be stuck", port)
	case over != nil:
		return errs.Wrap(errs.Unavailable, err, "the machine's guest ends")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errs.Wrap(errs.Unavailable, err, "nothing listens on port %d", port)
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok { // of 127.0.0.1, which comes first
		return errs.Wrap(errs.Unavailable, err, "port %d cannot be reached: %v", port, number)
	}
	return errs.Wrap(errs.Unavailable, err, "port %d cannot be reached: %v", port, err)
}

// inSteps returns a context that ends with errPortSilent when this process has
// slept for a step, and gone on, so many times. end waits until nothing of it is
// left.
func inSteps(ctx context.Context, steps int, step time.Duration) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		for range steps {
			if sleep.For(ctx, step) != nil {
				return
			}
		}
		cancel(errPortSilent)
	})
	return ctx, func() {
		cancel(nil)
		counting.Wait()
	}
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
