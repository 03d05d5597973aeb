package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
)

// listener is a server inside the sandbox: with the process provider the
// test's own loopback is the sandbox's.
func listener(t *testing.T, serve func(*net.TCPConn)) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c.(*net.TCPConn))
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().(*net.TCPAddr).Port
}

func (w *world) tunnel(t *testing.T, port int) *websocket.Conn {
	t.Helper()
	s := w.open(t, fmt.Sprintf("/v1/sandboxes/%s/ports/%d/connect", w.sandbox(), port))
	s.ws.SetReadLimit(1 << 20)
	return s.ws
}

// drain reads messages until the empty one.
func drain(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 30*time.Second)
	defer cancel()
	var all []byte
	for {
		_, b, err := ws.Read(ctx)
		must(t, err)
		if len(b) == 0 {
			return string(all)
		}
		all = append(all, b...)
	}
}

func TestTunnelHalfCloses(t *testing.T) {
	w := newWorld(t)
	port := listener(t, func(c *net.TCPConn) {
		data, err := io.ReadAll(c) // the end of the client's direction must arrive
		if err == nil {
			_, _ = fmt.Fprintf(c, "got %d bytes", len(data))
		}
	})
	ws := w.tunnel(t, port)
	for range 10 {
		must(t, ws.Write(t.Context(), websocket.MessageBinary, pattern(0, 100_000)))
	}
	must(t, ws.Write(t.Context(), websocket.MessageBinary, nil))
	if got := drain(t, ws); got != "got 1000000 bytes" {
		t.Errorf("%q", got)
	}
	var ce websocket.CloseError
	if _, _, err := ws.Read(t.Context()); !errors.As(err, &ce) || ce.Code != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", err)
	}
}

func TestTunnelServerHalfClosesFirst(t *testing.T) {
	w := newWorld(t)
	got := make(chan string, 1)
	port := listener(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "that is all from me")
		_ = c.CloseWrite()
		data, _ := io.ReadAll(c)
		got <- string(data)
	})
	ws := w.tunnel(t, port)
	if s := drain(t, ws); s != "that is all from me" {
		t.Errorf("%q", s)
	}
	must(t, ws.Write(t.Context(), websocket.MessageBinary, []byte("but I go on")))
	must(t, ws.Write(t.Context(), websocket.MessageBinary, nil))
	if s := <-got; s != "but I go on" {
		t.Errorf("%q", s)
	}
}

func TestTunnelEndsWithItsClient(t *testing.T) {
	w := newWorld(t)
	ended := make(chan error, 1)
	port := listener(t, func(c *net.TCPConn) {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	})
	ws := w.tunnel(t, port)
	_ = ws.CloseNow()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the connection goes on")
		}
	case <-time.After(patience.Of(20 * time.Second)):
		t.Error("the connection is left open")
	}
}

func TestClosedPort(t *testing.T) {
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	_, res, err := w.socketAt(t, w.admin, fmt.Sprintf("/v1/sandboxes/%s/ports/%d/connect", w.sandbox(), port))
	if err == nil || res == nil || res.StatusCode == http.StatusSwitchingProtocols || res.StatusCode < 400 || res.StatusCode == http.StatusInternalServerError {
		t.Errorf("connected to a closed port: %v, %v", res, err)
	}
}

func TestPortEvents(t *testing.T) {
	w := newWorld(t)
	e := w.events(t, "/v1/sandboxes/"+w.sandbox()+"/ports/watch", "")
	port := listener(t, func(*net.TCPConn) {})
	want := fmt.Sprintf(`"port":%d`, port)
	for {
		ev, ok := e.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if ev.name == "opened" && contains(ev.data, want) {
			break
		}
	}
	var list api.PortList
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes/"+w.sandbox()+"/ports", nil, http.StatusOK, &list)
	for _, p := range list.Items {
		if p.Port == port {
			return
		}
	}
	t.Errorf("port %d is not in %+v", port, list)
}
