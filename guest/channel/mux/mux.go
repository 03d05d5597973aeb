// Package mux carries streams between host and guest over one serial line: a
// virtio-serial port inside, a socket of the machine's monitor outside.
//
//	host:   line := mux.Open(dial, serveGuest); conn, err := line.Dial(ctx, wire.ControlPort); line.Close()
//	guest:  g := mux.NewGuest(open, serveHost); go g.Serve(ctx); conn, err := g.Dial(ctx, port)
//
// # The line
//
// It has no beginning and no end. Bytes that the host writes before the guest
// has opened its port may come late, twice or not at all; a host that hangs up
// and comes back quickly is the same host to the guest. So each session begins
// with a handshake around a random number (handshake.go), and each end takes
// whatever it does not expect for the end of the session: the host starts
// another one then. A checksum on each piece of a stream keeps bytes of one
// session out of the next.
//
// A stream is a net.Conn with CloseWrite, opened by Firecracker's preamble
// (guest/wire), as on the other channels.
//
// # Promises
//
// A Line is safe for concurrent use. It survives any death of the guest's
// supervisor, any pause, restore or restart of the machine, and a monitor that
// swallows what the guest says: the streams break, the next Dial opens a new
// session; a host that serves the guest's streams does so by itself. The first
// session, and the one after a Hangup, begins with a Dial: until then a guest
// that dials waits. A guest has guestStreamsMax streams of its own at a time;
// where the host serves none, one that opens a stream loses its session.
package mux

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
)

// Limits of a session.
const (
	windowBytes    = 1 << 20 // of a stream: less is slower
	keepAliveEvery = 10 * time.Second
	writeTimeout   = 10 * time.Second // of the line, and of an answer to a keep-alive
	backlogMax     = 256              // streams that were not answered yet
	// guestStreamsMax bounds the streams that a guest has opened and that are
	// not over: each may hold a window of the host's memory.
	guestStreamsMax = 64
	refusalsMax     = 16
	dialMax         = time.Minute // without a deadline of the caller's
	againAfter      = 10 * time.Millisecond
)

// How long the host greets on one connection before it hangs up and comes
// back. A guest that boots, or is paused, is as silent as one whose words are
// stuck in the monitor: when a guest wrote just as the host hung up, QEMU (seen
// with 7.2) sometimes keeps its port throttled with nothing that would release
// it (virtio-console.c: flush_buf throttles after the close has released) but
// the end of the next connection.
const (
	patienceMin = time.Second
	patienceMax = 8 * time.Second
)

func yamuxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog: backlogMax, EnableKeepAlive: true, KeepAliveInterval: keepAliveEvery,
		ConnectionWriteTimeout: writeTimeout, MaxStreamWindowSize: windowBytes,
		StreamCloseTimeout: closeTimeout, StreamOpenTimeout: 0, LogOutput: io.Discard,
	}
}

// Port is one end of the line. *os.File and net.Conn are ports.
type Port interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// Handler serves a stream that the other end has opened to a port, and returns
// when it is over. It owns the stream and must Grant or Refuse it (guest/wire).
type Handler = func(conn net.Conn, port uint32)

// Line is the host's end.
type Line struct {
	dial     func(context.Context) (net.Conn, error)
	serve    Handler       // nil: the guest opens no streams
	slots    chan struct{} // of streams that the guest opened
	refusals chan struct{} // of those beyond that are being refused

	ctx    context.Context // ends when the line is closed
	cancel context.CancelFunc

	turn chan struct{} // held by who opens a session

	mu      sync.Mutex
	session *yamux.Session // the present one, nil = none
	closed  bool
}

// Open returns a line whose connections come from dial. It does not dial yet.
// The monitor at the other end serves one connection: no two lines may share it.
// serve is called in a goroutine of its own for each stream that the guest
// opens; nil refuses them.
func Open(dial func(context.Context) (net.Conn, error), serve Handler) *Line {
	l := &Line{dial: dial, serve: serve, slots: make(chan struct{}, guestStreamsMax), refusals: make(chan struct{}, refusalsMax), turn: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Dial opens a stream to a port of the guest. It waits for a guest that is not
// there yet, or has no time to answer, until ctx ends (its error) or, without a
// deadline, for a minute (Unavailable). A refusal comes back with its class. Unavailable: the monitor
// is gone, or the line was closed.
func (l *Line) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	inner := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, dialMax)
		defer cancel()
	}
	for {
		s, err := l.present(inner)
		if err == nil {
			var conn net.Conn
			if conn, err = open(inner, s, port); err == nil {
				return conn, nil
			}
			if (s.IsClosed() || broken(err)) && sleep.For(inner, againAfter) == nil {
				continue // the session is dying, or dead
			}
		}
		deadline, ok := ctx.Deadline()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case ok && !time.Now().Before(deadline):
			return nil, context.DeadlineExceeded // the connection's clock was first
		case inner.Err() != nil:
			return nil, errs.New(errs.Unavailable, "the guest does not answer")
		}
		return nil, err
	}
}

// broken tells a stream that broke from a guest that is there: silent, or
// refusing. A refusal is an answer and has no cause behind it.
func broken(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Unwrap(err) != nil && !(ok && ne.Timeout())
}

// Hangup ends the present session and all its streams. The next Dial opens
// another. A machine that is about to be frozen should not be in the middle of
// a conversation.
func (l *Line) Hangup() {
	l.mu.Lock()
	s := l.session
	l.session = nil
	l.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}

// Close ends the line for good. Safe to repeat.
func (l *Line) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.Hangup()
	return nil
}

// alive returns the present session if it is of use.
func (l *Line) alive() (*yamux.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errs.New(errs.Unavailable, "the machine is gone")
	}
	if l.session != nil && !l.session.IsClosed() {
		return l.session, nil
	}
	return nil, nil
}

// present returns the session, a new one if need be.
func (l *Line) present(ctx context.Context) (*yamux.Session, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for patience := patienceMin; ; patience = min(2*patience, patienceMax) {
		if s, err := l.alive(); s != nil || err != nil {
			return s, err
		}
		conn, err := l.dial(ctx)
		if err != nil {
			return nil, errs.Wrap(errs.Unavailable, err, "the machine cannot be reached")
		}
		s, err := connect(ctx, conn, patience)
		if err == nil {
			return l.keep(s)
		}
		conn.Close()
		if err := sleep.For(ctx, againAfter); err != nil {
			return nil, err
		}
	}
}

func connect(ctx context.Context, conn net.Conn, patience time.Duration) (*yamux.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := bufio.NewReaderSize(conn, readBytes)
	if err := greet(ctx, conn, r); err != nil {
		return nil, err
	}
	return yamux.Client(&guard{Port: conn, r: r}, yamuxConfig())
}

// keep makes s the present session.
func (l *Line) keep(s *yamux.Session) (*yamux.Session, error) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.session = s
	}
	l.mu.Unlock()
	if closed {
		s.Close()
		return nil, errs.New(errs.Unavailable, "the machine is gone")
	}
	go l.accept(s)
	return s, nil
}

// accept serves the streams that the guest opens in a session, and begins
// another session when this one broke: the guest may have something to say.
func (l *Line) accept(s *yamux.Session) {
	l.acceptAll(s)
	s.Close()
	l.mu.Lock()
	broke := l.serve != nil && l.session == s // and was not hung up
	l.mu.Unlock()
	if !broke {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, dialMax)
	defer cancel()
	_, _ = l.present(ctx) // without one the next Dial says why
}

func (l *Line) acceptAll(s *yamux.Session) {
	for {
		y, err := s.AcceptStream()
		if err != nil || l.serve == nil {
			return
		}
		select {
		case l.slots <- struct{}{}:
			go func() {
				defer func() { <-l.slots }()
				accept(newStream(y), l.serve)
			}()
		default:
			l.refuse(y)
		}
	}
}

var errStreams = errs.New(errs.Limit, "this machine has %d streams to its host under way", guestStreamsMax)

// refuse says that there are too many streams, or, where even that is too much,
// hangs up.
func (l *Line) refuse(y *yamux.Stream) {
	select {
	case l.refusals <- struct{}{}:
		go func() {
			defer func() { <-l.refusals }()
			accept(newStream(y), func(conn net.Conn, _ uint32) {
				_ = wire.Refuse(conn, errStreams)
				conn.Close()
			})
		}()
	default:
		_ = y.Close()
	}
}

// open opens a stream in s. yamux's own call does not know contexts.
func open(ctx context.Context, s *yamux.Session, port uint32) (net.Conn, error) {
	type result struct {
		s   *yamux.Stream
		err error
	}
	opened := make(chan result, 1)
	go func() {
		y, err := s.OpenStream()
		opened <- result{y, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			s.Close() // it opens no more, whatever the reason
			return nil, errs.Wrap(errs.Unavailable, r.err, "open a stream")
		}
		return preamble(ctx, newStream(r.s), port)
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				r.s.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func preamble(ctx context.Context, conn *stream, port uint32) (net.Conn, error) {
	connect := wire.ConnectUntil // keep-alives end the session of a peer that is gone
	deadline, ok := ctx.Deadline()
	if !ok {
		connect = wire.Connect
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := connect(conn, port, deadline)
	if !stop() && err == nil { // cancelled in the last moment: the deadline is set
		conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Guest is the guest's end. It is safe for concurrent use.
type Guest struct {
	port  func(context.Context) (Port, error)
	serve Handler

	mu      sync.Mutex
	session *yamux.Session // the present one, nil = none
	changed chan struct{}  // closed when there is another session
}

// NewGuest returns the guest's end of a line. port opens the line and waits
// until there is a host; it is called for each session. serve is called in a
// goroutine of its own for each stream that the host opens.
func NewGuest(port func(context.Context) (Port, error), serve Handler) *Guest {
	return &Guest{port: port, serve: serve, changed: make(chan struct{})}
}

// Serve serves one session after the other until ctx ends. It does not wait for
// the handler.
func (g *Guest) Serve(ctx context.Context) {
	for ctx.Err() == nil {
		p, err := g.port(ctx)
		if err == nil {
			g.serveSession(ctx, p)
		}
		_ = sleep.For(ctx, againAfter)
	}
}

// Dial opens a stream to a port of the host. It waits for a host that is not
// there, or no longer, until ctx ends (its error). A refusal comes back with its
// class.
func (g *Guest) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	for {
		s, changed := g.present()
		if s == nil || s.IsClosed() {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		conn, err := open(ctx, s, port)
		switch deadline, ok := ctx.Deadline(); {
		case err == nil || ctx.Err() != nil:
			return conn, err
		case ok && !time.Now().Before(deadline):
			return nil, context.DeadlineExceeded // the connection's clock was first
		case !s.IsClosed() && !broken(err):
			return nil, err
		}
		if err := sleep.For(ctx, againAfter); err != nil { // the session is dying, or dead
			return nil, err
		}
	}
}

func (g *Guest) present() (s *yamux.Session, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.session, g.changed
}

// keep makes s the present session, nil none.
func (g *Guest) keep(s *yamux.Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session = s
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Guest) serveSession(ctx context.Context, p Port) {
	defer p.Close()
	stop := context.AfterFunc(ctx, func() { p.Close() })
	defer stop()
	// A host that still is in a session with a guest before us learns here
	// that it is over. One that is not there does not matter.
	_ = p.SetWriteDeadline(time.Now().Add(endTimeout))
	_, _ = p.Write(filler)
	r := bufio.NewReaderSize(p, readBytes)
	if answer(p, r) != nil {
		return
	}
	s, err := yamux.Server(&guard{Port: p, r: r}, yamuxConfig())
	if err != nil {
		return
	}
	defer s.Close()
	g.keep(s)
	defer g.keep(nil)
	for {
		y, err := s.AcceptStream()
		if err != nil {
			return
		}
		go accept(newStream(y), g.serve)
	}
}

func accept(conn *stream, serve func(net.Conn, uint32)) {
	_ = conn.SetDeadline(time.Now().Add(wire.PreambleTimeout))
	port, err := wire.Accept(conn)
	if err != nil {
		conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	serve(conn, port)
}
