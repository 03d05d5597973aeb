package ui

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// wire is what lies between a browser and a server. It can be cut, and it can go silent; both
// are for the socket that pages follow by, and for no other call.
type wire struct {
	address, to string
	ln          net.Listener
	wg          sync.WaitGroup

	mu      sync.Mutex
	silent  bool
	strands map[*strand]bool
}

// strand is one connection.
type strand struct {
	browser, server net.Conn
	socket          bool
	silent          chan struct{} // closed: nothing passes any more, and no end is told
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: ln.Addr().String(), to: to, ln: ln, strands: map[*strand]bool{}}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		w.end(func(*strand) bool { return true })
		w.wg.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		c, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.wg.Go(func() { w.carry(c) })
	}
}

func (w *wire) carry(c net.Conn) {
	s := &strand{browser: c, silent: make(chan struct{})}
	w.mu.Lock()
	w.strands[s] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.strands, s)
		w.mu.Unlock()
		_ = c.Close()
	}()
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", w.to)
	if err != nil {
		return // the server is away, and so is what leads there
	}
	defer up.Close()
	w.mu.Lock()
	s.server, s.socket = up, strings.HasPrefix(line, "GET /v1/follow")
	if s.socket && w.silent {
		close(s.silent)
	}
	w.mu.Unlock()
	if _, err := io.WriteString(up, line); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { s.copy(up, in); _ = up.Close() })
	s.copy(c, up)
	select {
	case <-s.silent: // the browser hears nothing of this
		_, _ = io.Copy(io.Discard, in)
	default:
	}
	_ = c.Close()
	both.Wait()
}

// copy carries bytes in one direction; those that come when it is silent are lost.
func (s *strand) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-s.silent:
			continue
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wire) end(which func(*strand) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.strands {
		if !which(s) {
			continue
		}
		_ = s.browser.Close()
		if s.server != nil {
			_ = s.server.Close()
		}
	}
}

// cut ends the sockets that there are.
func (w *wire) cut() { w.end(func(s *strand) bool { return s.socket }) }

// freeze lets nothing pass through sockets, old and new, and ends none.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
	for s := range w.strands {
		if s.socket {
			select {
			case <-s.silent:
			default:
				close(s.silent)
			}
		}
	}
}

// thaw lets new sockets pass; those that were silent stay so.
func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = false
}
