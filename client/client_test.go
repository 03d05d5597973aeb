package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
)

func TestNew_refuses(t *testing.T) {
	for _, url := range []string{
		"localhost:7733", "ftp://host", "http://", "http://user:pw@host", "http://host/?q=1", "unix://relative.sock", "http://host/#f", "\x00",
	} {
		if _, err := New(Config{URL: url}); !errs.Is(err, errs.Invalid) {
			t.Errorf("New(%q) = %v", url, err)
		}
	}
}

// pipeClient talks to a handler over in-memory connections, so that a
// synctest bubble can hold it.
func pipeClient(t *testing.T, h http.Handler) *Client {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	hc := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			a, b := net.Pipe()
			select {
			case l.conns <- b:
				return a, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}}
	t.Cleanup(func() { _ = srv.Close() })
	c, err := New(Config{URL: "http://pipe", HTTPClient: hc})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func TestRetries(t *testing.T) {
	tests := []struct {
		name   string
		status int
		do     func(context.Context, *Client) error
		calls  int
	}{
		{"unavailable create", 503, func(ctx context.Context, c *Client) error {
			_, err := c.CreateSandbox(ctx, api.CreateSandbox{})
			return err
		}, transport.AttemptsMax},
		{"unavailable snapshot", 503, func(ctx context.Context, c *Client) error {
			_, err := c.Sandbox("s").Snapshot(ctx, api.CreateSnapshot{})
			return err
		}, transport.AttemptsMax},
		{"unavailable fork", 503, func(ctx context.Context, c *Client) error {
			_, err := c.Sandbox("s").Fork(ctx, api.ForkSandbox{})
			return err
		}, transport.AttemptsMax},
		{"denied create", 403, func(ctx context.Context, c *Client) error {
			_, err := c.CreateSandbox(ctx, api.CreateSandbox{})
			return err
		}, 1},
		{"limit", 429, func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err }, 1},
		{"unavailable get", 502, func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err }, transport.AttemptsMax},
		{"key creation is not repeated", 503, func(ctx context.Context, c *Client) error {
			_, err := c.CreateKey(ctx, api.CreateKey{Name: "x"})
			return err
		}, 1},
		{"a secret is not set again", 503, func(ctx context.Context, c *Client) error {
			_, err := c.PutSecret(ctx, "x", api.PutSecret{})
			return err
		}, 1},
		{"a secret is changed again", 503, func(ctx context.Context, c *Client) error {
			_, err := c.ChangeSecret(ctx, "x", api.ChangeSecret{})
			return err
		}, transport.AttemptsMax},
		{"a secret is deleted again", 503, func(ctx context.Context, c *Client) error { return c.DeleteSecret(ctx, "x") }, transport.AttemptsMax},
		{"append is not repeated", 503, func(ctx context.Context, c *Client) error {
			_, err := c.Sandbox("s").Files().Write(ctx, "f", []byte("x"), WriteOptions{Append: true})
			return err
		}, 1},
		{"whole write is", 503, func(ctx context.Context, c *Client) error {
			_, err := c.Sandbox("s").Files().Write(ctx, "f", []byte("x"), WriteOptions{})
			return err
		}, transport.AttemptsMax},
	}
	classes := map[int]errs.Class{403: errs.Denied, 429: errs.Limit, 502: errs.Unavailable, 503: errs.Unavailable}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := map[string]bool{}
				calls := 0
				c := pipeClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					calls++
					_, _ = io.Copy(io.Discard, r.Body)
					keys[r.Header.Get("Idempotency-Key")] = true
					w.WriteHeader(tt.status)
				}))
				err := tt.do(t.Context(), c)
				if err == nil || errs.Of(err) != classes[tt.status] {
					t.Errorf("error %v of class %s", err, errs.Of(err))
				}
				if calls != tt.calls || len(keys) != 1 {
					t.Errorf("%d calls with %d idempotency keys, want %d with one", calls, len(keys), tt.calls)
				}
			})
		})
	}
}

func TestUnixSocket_longPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "skete.sock")
	var l net.Listener
	if err := WithShortPath(path, func(p string) (err error) { l, err = net.Listen("unix", p); return err }); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Info{Version: "9"})
	})}
	go srv.Serve(l)
	defer srv.Close()
	c, err := New(Config{URL: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	info, err := c.Info(t.Context())
	if err != nil || info.Version != "9" {
		t.Fatalf("Info = %+v, %v", info, err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	c, err := New(Config{Socket: filepath.Join(t.TempDir(), "none.sock")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Sandbox("s").Stop(t.Context())
	if !errs.Is(err, errs.Unavailable) || !errors.Is(err, fs.ErrNotExist) || errs.Hint(err) == "" {
		t.Fatalf("got %v of class %s", err, errs.Of(err))
	}
}

func TestEvents_comeBackBehindTheLastOne(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		switch len(asked) {
		case 1:
			_, _ = io.WriteString(w, ": hello\n\nid: w:1\nevent: write\ndata: {\"seq\":1,\ndata: \"type\":\"write\"}\n\nid: w:2\ndata: {\"seq\":2}\n\nid: w:3\ndata: {\"se")
		case 2:
			_, _ = io.WriteString(w, "id: w:3\r\ndata: {\"seq\":3}\r\n\r\nevent: problem\ndata: {\"title\":\"gone\",\"status\":404,\"class\":\"not_found\"}\n\n")
		}
	}))
	defer srv.Close()
	c, _ := New(Config{URL: srv.URL})
	defer c.Close()
	var seqs []uint64
	var last error
	for ev, err := range c.Sandbox("s").Files().Watch(t.Context(), ".", true) {
		if err != nil {
			last = err
			continue
		}
		seqs = append(seqs, ev.Seq)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3}, seqs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "w:2"}, asked); diff != "" {
		t.Error(diff)
	}
	if !errs.Is(last, errs.NotFound) {
		t.Errorf("ended with %v", last)
	}
}
