package channel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
)

const socketToken = "only-the-host-knows"

// sockets serves at a port of the loopback, behind a proxy that knows nothing of it:
// port 7 echoes until its client ends its direction and says "end" then, others are
// refused.
func sockets(t *testing.T) (direct, proxied *url.URL) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		channel.ServeSockets(ctx, ln, socketToken, func(conn net.Conn, port uint32) {
			defer conn.Close()
			if port != 7 {
				_ = wire.Refuse(conn, errs.New(errs.Denied, "not this one"))
				return
			}
			_ = wire.Grant(conn, port)
			if _, err := io.Copy(conn, conn); err == nil {
				_, _ = io.WriteString(conn, "end")
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			}
		})
	})
	direct = &url.URL{Scheme: "http", Host: ln.Addr().String()}
	proxy := httptest.NewServer(httputil.NewSingleHostReverseProxy(direct))
	t.Cleanup(func() {
		proxy.Close()
		stop()
		serving.Wait()
	})
	proxied, _ = url.Parse(proxy.URL)
	return direct, proxied
}

func TestSocket_throughAProxy(t *testing.T) {
	_, at := sockets(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			conn, err := channel.DialSocket(ctx(t), at, nil, socketToken, 7)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			data := bytes.Repeat([]byte("0123456789abcde\n"), 50_000)
			go func() {
				_, _ = conn.Write(data)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(conn)
			if err != nil || !bytes.Equal(got, append(data, "end"...)) {
				t.Errorf("%d bytes came back of %d, %v", len(got), len(data), err)
			}
		})
	}
	wg.Wait()
	if _, err := channel.DialSocket(ctx(t), at, nil, socketToken, 8); !errs.Is(err, errs.Denied) || errs.Public(err) != "not this one" {
		t.Errorf("a refused port: %v", err)
	}
}

// Who reaches the port without the token, or with another, gets nothing.
func TestSocket_token(t *testing.T) {
	at, _ := sockets(t)
	for _, token := range []string{"", "x", socketToken + "x", strings.ToUpper(socketToken)} {
		_, err := channel.DialSocket(ctx(t), at, nil, token, 7)
		no, ok := errors.AsType[*channel.NoSocketError](err)
		if !ok || no.Status != http.StatusForbidden {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// A read whose time is up loses nothing, wherever in a frame it stood.
func TestSocket_deadlines(t *testing.T) {
	_, at := sockets(t)
	conn, err := channel.DialSocket(ctx(t), at, nil, socketToken, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 20 {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Time{})
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(conn, b); err != nil || b[0] != 'x' {
			t.Fatalf("%q, %v", b, err)
		}
	}
}

// answering is a server that upgrades and then says raw bytes.
func answering(t *testing.T, raw string) *url.URL {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
			channel.AcceptOf(r.Header.Get("Sec-WebSocket-Key")) + "\r\n\r\n\x82\x0bOK 7 xxxxx\n" + raw)
		_ = rw.Flush()
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(srv.Close)
	u, _ := url.Parse(srv.URL)
	return u
}

func TestSocket_badFrames(t *testing.T) {
	for name, raw := range map[string]string{
		"masked": "\x82\x81abcdx", "text": "\x81\x01x", "reserved bits": "\xc2\x01x", "unknown kind": "\x83\x00", "long ping": "\x89\x7e\x00\xff", "part of a ping": "\x09\x01x",
		"cut": "\x82\x05ab", "closed": "\x88\x00", "nothing": "",
	} {
		conn, err := channel.DialSocket(ctx(t), answering(t, raw), nil, socketToken, 7)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(conn); err == nil {
			t.Errorf("%s: it is a clean end", name)
		}
		conn.Close()
	}
	conn, err := channel.DialSocket(ctx(t), answering(t, "\x02\x01a\x89\x01p\x80\x01b\x8a\x00\x82\x7e\x00\x01c\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x01d\x81\x00"), nil, socketToken, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "abcd" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzSocket(f *testing.F) {
	f.Add([]byte("\x82\x01a\x81\x00"), true)
	f.Add([]byte("\x82\x81abcdx\x81\x80abcd"), false)
	f.Fuzz(func(t *testing.T, raw []byte, client bool) {
		got, err := io.ReadAll(channel.SocketOn(bytes.NewReader(raw), client))
		if len(got) > len(raw) {
			t.Errorf("%d bytes of %d, %v", len(got), len(raw), err)
		}
	})
}
