package channel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// accept serves a guest's streams until the test ends: port 7 echoes, port 8
// stays open, all others are refused.
func accept(t *testing.T, path string) *channel.Acceptor {
	t.Helper()
	a, err := channel.Accept(path, func(conn net.Conn, port uint32) {
		switch port {
		case 7:
			_ = wire.Grant(conn, port)
			_, _ = io.Copy(conn, conn)
		case 8:
			_ = wire.Grant(conn, port)
			_, _ = io.Copy(io.Discard, conn)
		default:
			_ = wire.Refuse(conn, errs.New(errs.Denied, "not this one"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestAccept_streamsOfTheGuest(t *testing.T) {
	path := channel.AcceptPath(filepath.Join(t.TempDir(), "host.sock"))
	accept(t, path)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			conn, err := channel.Open(ctx(t), dialer(path), 7)
			if err != nil {
				t.Error(err)
				return
			}
			echo(t, conn, 300_000)
		})
	}
	wg.Wait()
	if _, err := channel.Open(ctx(t), dialer(path), 9); !errs.Is(err, errs.Denied) || errs.Public(err) != "not this one" {
		t.Errorf("a refused port: %v", err)
	}
}

func TestAccept_bounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	accept(t, path)
	var conns []net.Conn
	for i := range 64 {
		conn, err := channel.Open(ctx(t), dialer(path), 8)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		conns = append(conns, conn)
		defer conn.Close()
	}
	if _, err := channel.Open(ctx(t), dialer(path), 8); !errs.Is(err, errs.Limit) {
		t.Errorf("one more than the bound: %v", err)
	}
	for range 200 { // connections that say nothing: no more are kept than twice the bound
		conn, err := dialer(path)(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for _, conn := range conns {
		conn.Close()
	}
}

func TestAccept_badPreambles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	accept(t, path)
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "CONNECT x\n", "CONNECT -1\n", "CONNECT 99999999999\n", "\n", string(make([]byte, 300))} {
		conn, err := dialer(path)(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.SetReadDeadline(time.Now().Add(patience.Of(5 * time.Second)))
		if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !isReset(err) {
			t.Errorf("%.20q was answered with %q, %v", text, b, err)
		}
		conn.Close()
	}
	conn, err := channel.Open(ctx(t), dialer(path), 7)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, conn, 10)
}

func isReset(err error) bool {
	var ne net.Error
	return !errors.As(err, &ne) || !ne.Timeout()
}

func TestAccept_closeAndAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if _, err := channel.Open(ctx(t), dialer(path), 7); !errs.Is(err, errs.Unavailable) {
		t.Errorf("without a host: %v", err)
	}
	a := accept(t, path)
	conn, err := channel.Open(ctx(t), dialer(path), 8)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("a stream of a host that closed: %v", err)
	}
	conn.Close()
	if _, err := channel.Open(ctx(t), dialer(path), 7); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a host that closed: %v", err)
	}
	accept(t, path) // a server that was started again
	if conn, err = channel.Open(ctx(t), dialer(path), 7); err != nil {
		t.Fatal(err)
	}
	echo(t, conn, 10)
}

func TestOpen_endsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	hold := make(chan struct{})
	a, err := channel.Accept(path, func(net.Conn, uint32) { <-hold })
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer close(hold)
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := channel.Open(short, dialer(path), 7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a host that does not answer: %v", err)
	}
}
