// Package channel carries streams between host and guest where the guest can
// only dial out (gVisor, processes): the guest parks a few idle connections
// with the host, the host takes one for each stream and opens it with
// Firecracker's preamble (guest/wire).
//
//	host:   h, err := channel.Listen(path); conn, err := h.Dial(ctx, wire.ControlPort)
//	guest:  channel.Park(ctx, dial, serve)
//
// Streams that the guest opens go over a second socket (Accept, Open).
//
// Why dial-out: a listener of the guest in a host directory blocks gVisor's
// checkpoints and lets a guest plant symlinks there; a read-only directory
// with only our socket in it does neither. See ADR 0003.
//
// A Host is safe for concurrent use. It survives any death of the guest's
// supervisor (new connections are parked) and may be re-created at the same
// path after a server restart: the guest dials again.
package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Limits of the parking place.
const (
	parkedMax = 64 // a guest that parks more loses the newest
	parkCount = 8  // that a guest keeps parked
)

// Backoff of a guest that cannot reach its host.
const (
	redialMin = 5 * time.Millisecond
	redialMax = 500 * time.Millisecond
)

// Host is the host's end.
type Host struct {
	ln     net.Listener
	guests *Acceptor // nil: the guest opens no streams
	parked chan net.Conn
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

// Listen makes the socket at path, replacing a stale one, and collects parked
// connections until Close. The path may be longer than the 108 bytes that a
// socket address holds. Mode of the socket: 0600. serve, if not nil, serves the
// streams that the guest opens, as Accept has it, at AcceptPath(path).
func Listen(path string, serve func(conn net.Conn, port uint32)) (*Host, error) {
	var guests *Acceptor
	if serve != nil {
		var err error
		if guests, err = Accept(AcceptPath(path), serve); err != nil {
			return nil, err
		}
	}
	ln, err := listenLong(path)
	if err != nil {
		if guests != nil {
			_ = guests.Close()
		}
		return nil, fmt.Errorf("listen for the guest: %w", err)
	}
	h := &Host{ln: ln, guests: guests, parked: make(chan net.Conn, parkedMax), done: make(chan struct{})}
	h.wg.Add(1)
	go h.collect()
	return h, nil
}

// listenLong binds through the directory's descriptor, so that the address is
// short whatever the path.
func listenLong(path string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // the descriptor is gone by then
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

func (h *Host) collect() {
	defer h.wg.Done()
	for {
		conn, err := h.ln.Accept()
		if err != nil {
			select {
			case <-h.done:
				return
			case <-time.After(redialMin): // out of descriptors: try again
				continue
			}
		}
		select {
		case h.parked <- conn:
		default:
			conn.Close()
		}
	}
}

// Dial takes a parked connection and opens port on it. Stale connections (of
// a supervisor that died) are skipped. It blocks until a guest parks one, ctx
// ends (its error) or the host is closed (Unavailable). A refusal by the guest
// comes back with its class.
func (h *Host) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	for {
		conn, err := h.take(ctx)
		if err != nil {
			return nil, err
		}
		if stale(conn) {
			conn.Close()
			continue
		}
		switch err := connect(ctx, conn, port); {
		case err == nil:
			return conn, nil
		case errs.Is(err, errs.Unavailable) && broken(err):
			continue // it died between our look and our write
		default:
			return nil, err
		}
	}
}

// connect asks the far end of conn for port. An error closes conn; the end of
// ctx comes back as the error of ctx, whichever clock was first.
func connect(ctx context.Context, conn net.Conn, port uint32) error {
	deadline, _ := ctx.Deadline()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := wire.Connect(conn, port, deadline)
	if !stop() && err == nil { // cancelled in the last moment: the deadline is set
		conn.Close()
		err = ctx.Err()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return context.DeadlineExceeded // the connection's clock was first
	}
	return err
}

// take prefers the end to what was parked before it.
func (h *Host) take(ctx context.Context) (net.Conn, error) {
	select {
	case <-h.done:
		return nil, errs.New(errs.Unavailable, "the machine is gone")
	default:
	}
	select {
	case conn := <-h.parked:
		return conn, nil
	case <-h.done:
		return nil, errs.New(errs.Unavailable, "the machine is gone")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stale looks whether the peer has hung up or, against the protocol, spoken first.
func stale(conn net.Conn) bool {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return true
	}
	var dead bool
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, rerr := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		dead = n > 0 || (rerr == nil && n == 0) || (rerr != nil && !errors.Is(rerr, unix.EAGAIN))
	})
	return dead || err != nil
}

// broken tells a hung-up connection from a guest that is there: silent, or
// refusing. A refusal is an answer, even one of class Unavailable (the
// port has no listener), and has no cause behind it.
func broken(err error) bool {
	var ne net.Error
	return errors.Unwrap(err) != nil && !(errors.As(err, &ne) && ne.Timeout())
}

// Close ends the listener, all parked connections and the streams that the guest
// opened; those that were dialled go on.
// Safe to repeat. The socket file stays.
func (h *Host) Close() error {
	h.once.Do(func() {
		close(h.done)
		h.ln.Close()
		h.wg.Wait()
		if h.guests != nil {
			_ = h.guests.Close()
		}
		for {
			select {
			case c := <-h.parked:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Park keeps parkCount connections to the host parked until ctx ends, and
// calls serve in a goroutine of its own for each that the host opens; serve
// owns the connection and must Grant or Refuse it. Park returns when ctx has
// ended and every parker is gone; it does not wait for serve.
func Park(ctx context.Context, dial func(context.Context) (net.Conn, error), serve func(conn net.Conn, port uint32)) {
	var wg sync.WaitGroup
	for range parkCount {
		wg.Go(func() {
			parkLoop(ctx, dial, serve)
		})
	}
	wg.Wait()
}

func parkLoop(ctx context.Context, dial func(context.Context) (net.Conn, error), serve func(net.Conn, uint32)) {
	wait := redialMin
	for ctx.Err() == nil {
		conn, port, err := parkOnce(ctx, dial)
		if err == nil {
			wait = redialMin
			go serve(conn, port)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(wait*2, redialMax)
	}
}

func parkOnce(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, uint32, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, 0, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	port, err := wire.Accept(conn)
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, port, nil
}
