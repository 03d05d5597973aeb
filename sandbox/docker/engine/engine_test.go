package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a client of an engine that answers so.
func answering(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if r.URL.Path != "/_ping" {
			handler(w, r)
		}
	}))
	server.Listener.Close()
	server.Listener = ln
	server.Start()
	c, err := Open("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); server.Close() })
	return c
}

func TestOpenRefusesEnginesElsewhere(t *testing.T) {
	for _, host := range []string{"", "tcp://127.0.0.1:2375", "ssh://host", "/var/run/docker.sock", "unix://relative", "npipe:////./pipe/x"} {
		if _, err := Open(host); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func TestVersions(t *testing.T) {
	for theirs, want := range map[string]string{"1.40": "/v1.40", "1.41": "/v1.41", "1.47": "/v1.47", "1.99": "/v1.47"} {
		if got, err := choose(theirs); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", theirs, got, err, want)
		}
	}
	for _, theirs := range []string{"", "1", "1.", "1.39", "2.0", "1.-3", "1.4x", "1.99999999999999999999"} {
		if got, err := choose(theirs); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%q: %q, %v", theirs, got, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for status, want := range map[int]errs.Class{
		400: errs.Invalid, 401: errs.Denied, 403: errs.Denied, 404: errs.NotFound, 409: errs.Conflict, 301: errs.Unavailable, 500: errs.Unavailable, 503: errs.Unavailable,
	} {
		for _, body := range []string{`{"message":"words"}`, "words", "", strings.Repeat("x", 1<<20)} {
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = fmt.Fprint(w, body)
			})
			err := c.Start(t.Context(), "a")
			if errs.Of(err) != want || StatusOf(err) != status || len(err.Error()) > 2*wordsBytesMax {
				t.Errorf("%d %.20q: class %s, status %d, %d bytes", status, body, errs.Of(err), StatusOf(err), len(err.Error()))
			}
			if strings.Contains(errs.Public(err), "words") {
				t.Errorf("the engine's words reach users: %s", errs.Public(err))
			}
		}
	}
}

func TestBadAnswers(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"not JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") },
		"too large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, answerBytesMax+1)) },
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = fmt.Fprint(w, "{")
		},
		"another type": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"Id":7}`) },
	} {
		c := answering(t, handler)
		if _, err := c.Inspect(t.Context(), "a"); !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A container's name cannot become another path.
func TestNamesAreQuoted(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1.41/containers/..%2F..%2Fa%3Fb/start" {
			t.Errorf("asked for %s", r.URL.EscapedPath())
		}
		w.WriteHeader(http.StatusNoContent)
	})
	if err := c.Start(t.Context(), "../../a?b"); err != nil {
		t.Error(err)
	}
}

func TestEngineThatIsNotThere(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "none")
	dead := filepath.Join(t.TempDir(), "dead")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	for _, path := range []string{gone, dead} {
		c, err := Open("unix://" + path)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Ping(t.Context())
		var e *errs.Error
		if !errs.Is(err, errs.Unavailable) || !errors.As(err, &e) || !strings.Contains(e.Hint, "start") {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	hang := make(chan struct{})
	c := answering(t, func(http.ResponseWriter, *http.Request) { <-hang })
	defer close(hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(ctx, "a"); !errs.Is(err, errs.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestImportedID(t *testing.T) {
	for progress, want := range map[string]string{
		`{"status":"sha256:` + hex64 + `"}`:                              "sha256:" + hex64,
		`{"status":"reading"}` + "\n" + `{"status":"` + hex64 + `"}`:     hex64,
		`{"status":"sha256:` + hex64 + `","id":"x","progressDetail":{}}`: "sha256:" + hex64,
	} {
		if got, err := importedID([]byte(progress)); err != nil || got != want {
			t.Errorf("%s: %q, %v", progress, got, err)
		}
	}
	for _, progress := range []string{
		"", "{}", "[]", `"x"`, "{", `{"status":7}`, `{"status":"sha256:short"}`,
		`{"status":"` + hex64 + `"}{"error":"no space left"}`, `{"status":"../` + hex64 + `"}`,
	} {
		if got, err := importedID([]byte(progress)); !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: %q, %v", progress, got, err)
		}
	}
}

func FuzzImportedID(f *testing.F) {
	f.Add([]byte(`{"status":"` + hex64 + `"}`))
	f.Fuzz(func(t *testing.T, progress []byte) {
		if id, err := importedID(progress); err == nil && !imageID().MatchString(id) {
			t.Errorf("%q", id)
		}
	})
}

func FuzzRefusal(f *testing.F) {
	f.Add(500, []byte(`{"message":"words"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if err := refusal(status, body); len(err.Error()) > 2*wordsBytesMax || StatusOf(err) != status {
			t.Errorf("%d bytes, status %d", len(err.Error()), StatusOf(err))
		}
	})
}
