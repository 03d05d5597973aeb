package preview

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Hijack hands out the connection for a socket, bounded in its silence.
func (w patientWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return patientConn{conn, w.idle}, rw, nil
}

// redialEvery is how often a socket looks whether its app is back.
const redialEvery = 50 * time.Millisecond

// socket is the app's side of an upgraded connection. When the app dies, it
// does not end at once: a dev server's client would begin to poll once a
// second. It ends when the app listens again, or after ReloadWithin, so that
// the first thing such a client does is to reload from an app that is there.
type socket struct {
	io.ReadWriteCloser
	back   func(context.Context) bool // the app listens
	within time.Duration

	start  func() // called when the browser was told that the socket is open
	first  sync.Once
	once   sync.Once
	closed chan struct{} // by our side: no client waits for the app any more
}

func newSocket(inner io.ReadWriteCloser, within time.Duration, back func(context.Context) bool, start func()) *socket {
	return &socket{ReadWriteCloser: inner, back: back, within: within, start: start, closed: make(chan struct{})}
}

func (s *socket) Read(b []byte) (int, error) {
	s.first.Do(s.start)
	n, err := s.ReadWriteCloser.Read(b)
	if err == nil || n > 0 {
		return n, nil
	}
	s.await()
	return 0, io.EOF
}

// await returns when the app listens, our side closed, or it took too long.
func (s *socket) await() {
	ctx, cancel := context.WithTimeout(context.Background(), s.within)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-stop:
		}
	}()
	tick := time.NewTicker(redialEvery)
	defer tick.Stop()
	for !s.back(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Write takes what is meant for an app that died, and drops it: Read finds out.
func (s *socket) Write(b []byte) (int, error) {
	n, err := s.ReadWriteCloser.Write(b)
	if err == nil {
		return n, nil
	}
	select {
	case <-s.closed:
		return n, err
	default:
		return len(b), nil
	}
}

// Close ends the socket. It may be repeated.
func (s *socket) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.ReadWriteCloser.Close()
}
