package server_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
)

// sdk is the Go client on the world's server.
func (w *world) sdk(t *testing.T) *client.Sandbox {
	t.Helper()
	c, err := client.New(client.Config{URL: w.base, Key: w.admin})
	must(t, err)
	t.Cleanup(c.Close)
	return c.Sandbox(w.sandbox())
}

// One pass of the Go client over this server: the two are built against the
// same types and must mean the same by them.
func TestGoClient(t *testing.T) {
	w := newWorld(t)
	sb := w.sdk(t)
	t.Run("exit code", func(t *testing.T) {
		var stderr bytes.Buffer
		cmd := sb.Shell("echo hi >&2; exit 3")
		cmd.Stderr = &stderr
		var exit *client.ExitError
		if err := cmd.Run(t.Context()); !errors.As(err, &exit) || exit.Code() != 3 || stderr.String() != "hi\n" {
			t.Errorf("%v, %q", err, &stderr)
		}
	})
	t.Run("stdin and back", func(t *testing.T) {
		size := 100 << 20
		if testing.Short() {
			size = 8 << 20
		}
		cmd := sb.Command("/bin/cat")
		cmd.Stdin = io.LimitReader(zeros{}, int64(size))
		got := &counter{}
		cmd.Stdout = got
		if err := cmd.Run(t.Context()); err != nil || got.n != size || got.other != 0 {
			t.Errorf("%d bytes of %d, %d of them wrong: %v", got.n, size, got.other, err)
		}
	})
	t.Run("not found", func(t *testing.T) {
		if err := sb.Command("/no/such").Run(t.Context()); !errs.Is(err, errs.NotFound) {
			t.Errorf("%v", err)
		}
	})
	t.Run("output as events", func(t *testing.T) {
		p, err := sb.StartProcess(t.Context(), api.StartProcess{Command: "echo one; echo two >&2"})
		must(t, err)
		var out string
		for ev, err := range sb.Output(t.Context(), p.Key, 0, 0, true) {
			must(t, err)
			out += string(ev.Data)
		}
		if out != "one\ntwo\n" && out != "two\none\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("files", func(t *testing.T) {
		name := t.TempDir() + "/f"
		_, err := sb.Files().Write(t.Context(), name, []byte("content"), client.WriteOptions{})
		must(t, err)
		data, err := sb.Files().Read(t.Context(), name, 1<<20)
		if string(data) != "content" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("port", func(t *testing.T) {
		port := listener(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
		conn, err := sb.DialPort(t.Context(), port)
		must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "echo")
		must(t, err)
		must(t, conn.(interface{ CloseWrite() error }).CloseWrite())
		if data, err := io.ReadAll(conn); string(data) != "echo" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("events", func(t *testing.T) {
		const dir = "watched" // in the workspace: a write may be under way when we leave
		_, err := sb.Files().MakeDir(t.Context(), dir, false)
		must(t, err)
		ctx, cancel := patience.Context(t.Context(), 20*time.Second)
		defer cancel()
		touched := make(chan struct{})
		go func() {
			defer close(touched)
			for i := 0; ctx.Err() == nil; i++ { // the watch begins at its own time
				_, _ = sb.Files().Write(ctx, dir+"/f", []byte(strings.Repeat("x", i)), client.WriteOptions{})
			}
		}()
		for ev, err := range sb.Files().Watch(ctx, dir, false) {
			must(t, err)
			if strings.HasSuffix(ev.Path, "/f") {
				break
			}
		}
		cancel()
		<-touched
	})
}

// counter counts bytes and those that are not spaces.
type counter struct{ n, other int }

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	c.other += len(p) - bytes.Count(p, []byte(" "))
	return len(p), nil
}

// panicky breaks where no server should.
type panicky struct{ server.Sandboxes }

func (panicky) Limits() sandbox.Limits { panic("a bug") }

func TestPanicsAreAnswered(t *testing.T) {
	w := newWorld(t, func(c *serverConfig) { c.Sandboxes = panicky{c.Sandboxes} })
	a := w.send(t, w.admin, http.MethodGet, "/v1/info", nil)
	p := a.problem(t, http.StatusInternalServerError)
	id := a.header.Get("X-Request-Id")
	if strings.Contains(p.Detail, "a bug") || !strings.Contains(p.Detail, id) {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(w.log.String(), "a bug") || !strings.Contains(w.log.String(), id) {
		t.Errorf("the log does not tell of it:\n%s", w.log)
	}
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes", nil, http.StatusOK, nil)
}

// starting is a manager that has just started.
type starting struct{ server.Sandboxes }

func (starting) Attaching() (done, total int) { return 12, 30 }

// A server that attaches its sandboxes takes requests, and says how far it is.
func TestAttachingIsShown(t *testing.T) {
	w := newWorld(t, func(c *serverConfig) { c.Sandboxes = starting{c.Sandboxes} })
	var info api.Info
	w.call(t, w.admin, http.MethodGet, "/v1/info", nil, http.StatusOK, &info)
	if want := (&api.Attaching{Done: 12, Total: 30}); info.Attaching == nil || *info.Attaching != *want {
		t.Errorf("attaching %+v, want %+v", info.Attaching, want)
	}
	w.call(t, w.admin, http.MethodGet, "/readyz", nil, http.StatusOK, nil)
	a := w.send(t, "", http.MethodGet, "/healthz", nil)
	if a.status != http.StatusOK || !contains(a.body, "attaching") || contains(a.body, "30") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
