package channel

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// This file carries the streams that the guest opens: a second socket beside
// the one where it parks connections, with the same preamble the other way.

// guestStreamsMax bounds the streams of a guest that are not over.
const guestStreamsMax = 64

// hostSocket is the socket's name, beside that of the parked connections.
const hostSocket = "host-serves.sock"

// AcceptPath is where a host serves the guest that parks its connections at path.
func AcceptPath(path string) string { return filepath.Join(filepath.Dir(path), hostSocket) }

var errStreams = errs.New(errs.Limit, "this machine has %d streams to its host under way", guestStreamsMax)

// Acceptor is the host's end of the streams that a guest opens.
type Acceptor struct {
	ln    net.Listener
	serve func(conn net.Conn, port uint32)
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // true: counted
	open  int               // that count
}

// Accept makes the socket at path, replacing a stale one, and calls serve in a
// goroutine of its own for each stream that the guest opens, until Close. serve
// returns when the stream is over; it owns the stream and must Grant or Refuse
// it. Mode of the socket: 0600.
func Accept(path string, serve func(conn net.Conn, port uint32)) (*Acceptor, error) {
	ln, err := listenLong(path)
	if err != nil {
		return nil, fmt.Errorf("listen for streams of the guest: %w", err)
	}
	a := &Acceptor{ln: ln, serve: serve, done: make(chan struct{}), conns: map[net.Conn]bool{}}
	a.wg.Go(a.accept)
	return a, nil
}

func (a *Acceptor) accept() {
	for {
		conn, err := a.ln.Accept()
		if err != nil {
			select {
			case <-a.done:
				return
			case <-time.After(redialMin): // out of descriptors: try again
				continue
			}
		}
		counts, ok := a.take(conn)
		if !ok {
			conn.Close()
			continue
		}
		a.wg.Go(func() {
			defer a.drop(conn)
			a.one(conn, counts)
		})
	}
}

// take notes a connection. Twice as many as may be served are looked at: those
// beyond are told why not.
func (a *Acceptor) take(conn net.Conn) (counts, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
		return false, false
	default:
	}
	if len(a.conns) >= 2*guestStreamsMax {
		return false, false
	}
	if counts = a.open < guestStreamsMax; counts {
		a.open++
	}
	a.conns[conn] = counts
	return counts, true
}

func (a *Acceptor) drop(conn net.Conn) {
	conn.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conns[conn] {
		a.open--
	}
	delete(a.conns, conn)
}

func (a *Acceptor) one(conn net.Conn, counts bool) {
	_ = conn.SetDeadline(time.Now().Add(wire.PreambleTimeout))
	port, err := wire.Accept(conn)
	switch {
	case err != nil:
		return
	case !counts:
		_ = wire.Refuse(conn, errStreams)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	a.serve(conn, port)
}

// Break ends the streams that there are now.
func (a *Acceptor) Break() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for conn := range a.conns {
		conn.Close()
	}
}

// Close ends the listener and all streams, and waits for what serves them. Safe
// to repeat. The socket file stays.
func (a *Acceptor) Close() error {
	a.once.Do(func() {
		a.mu.Lock()
		close(a.done)
		a.ln.Close()
		for conn := range a.conns {
			conn.Close()
		}
		a.mu.Unlock()
	})
	a.wg.Wait()
	return nil
}

// Open opens a stream to a port of the host, over a connection that dial makes
// to its Acceptor. Unavailable: the host does not serve. A refusal comes back
// with its class.
func Open(ctx context.Context, dial func(context.Context) (net.Conn, error), port uint32) (net.Conn, error) {
	conn, err := dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errs.Wrap(errs.Unavailable, err, "the host does not serve this machine")
	}
	if err := connect(ctx, conn, port); err != nil {
		return nil, err
	}
	return conn, nil
}
