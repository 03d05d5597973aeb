// Package historytest is a server with histories for tests: real engines over
// directories, the real table of routes, and API keys.
//
//	box := historytest.NewBox(t)                  // a workspace and its history
//	s := historytest.Serve(t, historytest.Boxes{box}, nil)
//	box.Write(t, "a.txt", "1")
//	// requests to s.URL with s.Key
package historytest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/history"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/workspace"
)

// Box is a workspace with its history, as a sandbox of the default tenant.
type Box struct {
	ID      sandbox.ID
	Dir     string
	History workspace.History
	// Open counts how often the history was opened and not released.
	Open int
	mu   sync.Mutex
}

// NewBox makes an empty workspace.
func NewBox(t testing.TB) *Box {
	t.Helper()
	dir := t.TempDir()
	b := &Box{ID: sandbox.NewID(), Dir: filepath.Join(dir, "files")}
	if err := os.Mkdir(b.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Config{Dir: b.Dir, Staging: filepath.Join(dir, "staging"), Store: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	b.History = w
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if b.Open != 0 {
			t.Errorf("%d histories were not released", b.Open)
		}
	})
	return b
}

// Write writes a file of the workspace; "" removes it.
func (b *Box) Write(t testing.TB, path, content string) {
	t.Helper()
	name := filepath.Join(b.Dir, path)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil && content == "" {
		err = os.RemoveAll(name)
	} else if err == nil {
		err = os.WriteFile(name, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Read reads a file of the workspace; "" if it is not there.
func (b *Box) Read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.Dir, path))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// Step writes a file and makes a revision of it.
func (b *Box) Step(t testing.TB, path, content string, l workspace.Label) workspace.Revision {
	t.Helper()
	b.Write(t, path, content)
	rev, _, err := b.History.Snapshot(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// Boxes are history.Histories.
type Boxes []*Box

// Open implements history.Histories.
func (bs Boxes) Open(_ context.Context, tenant string, id sandbox.ID) (workspace.History, func(), error) {
	for _, b := range bs {
		if b.ID == id && tenant == key.DefaultTenant {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.Open++
			return b.History, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.Open--
			}, nil
		}
	}
	return nil, nil, errs.New(errs.NotFound, "no sandbox %s", id)
}

// Kept implements history.Histories: all sandboxes are there.
func (bs Boxes) Kept(context.Context, string) ([]sandbox.KeptHistory, error) { return nil, nil }

// Delete implements history.Histories.
func (bs Boxes) Delete(_ context.Context, tenant string, id sandbox.ID) error {
	for _, b := range bs {
		if b.ID == id && tenant == key.DefaultTenant {
			return errs.New(errs.Conflict, "sandbox %s is not destroyed", id)
		}
	}
	return errs.New(errs.NotFound, "nothing is kept of sandbox %s", id)
}

// Server is a server of histories.
type Server struct {
	URL  string
	Key  string // of an admin
	ring *key.Ring
}

// Serve serves histories, and what register adds (nil = nothing), until the
// test ends.
func Serve(t testing.TB, h history.Histories, register func(*route.Table)) *Server {
	t.Helper()
	s := &Server{ring: key.NewRing(kvtest.NewMemory())}
	g := auth.New(auth.Config{Keys: s.ring})
	table := route.New(route.Config{
		Gate: g, Log: slog.New(slog.DiscardHandler), Version: "test", Observe: func(string, int, time.Duration) {},
	})
	hub := stream.NewHub(500)
	history.Register(table, history.Config{Histories: h, Hub: hub})
	if register != nil {
		register(table)
	}
	s.Key = s.NewKey(t, key.DefaultTenant, key.Admin)
	srv := httptest.NewUnstartedServer(table.Handler())
	srv.Config.ConnContext = g.ConnContext
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := hub.Close(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

// NewKey makes another key.
func (s *Server) NewKey(t testing.TB, tenant string, scopes ...key.Scope) string {
	t.Helper()
	secret, _, err := s.ring.Create(t.Context(), key.Request{Name: "test", Tenant: tenant, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return secret.Reveal()
}

// Send makes a request; body "" is none.
func (s *Server) Send(t testing.TB, secret, method, path, body string, header ...string) (status int, h http.Header, answer []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	if err != nil {
		answer = nil // it broke off
	}
	return res.StatusCode, res.Header, answer
}
