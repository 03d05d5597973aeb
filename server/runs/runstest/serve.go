package runstest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/stream"
)

// Server is the routes of runs alone, on a loopback port, behind the real gate.
type Server struct {
	URL  string
	Key  string // of the tenant default, may do everything
	ring *key.Ring
	hub  *stream.Hub

	srv    *http.Server
	served sync.WaitGroup
	owners []string // of the keys that were made
}

// Serve serves a supervisor until the test ends.
func Serve(t testing.TB, k runs.Supervisor, change ...func(*runs.Config)) *Server {
	t.Helper()
	s, err := Open(k, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("the server does not end: %v", err)
		}
	})
	return s
}

// Open is Serve without a test; close the server.
func Open(k runs.Supervisor, change ...func(*runs.Config)) (*Server, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return OpenOn(ln, k, change...)
}

// OpenOn is Open with a listener, which the server closes.
func OpenOn(ln net.Listener, k runs.Supervisor, change ...func(*runs.Config)) (*Server, error) {
	s := &Server{ring: key.NewRing(kvtest.NewMemory()), hub: stream.NewHub(500)}
	g := auth.New(auth.Config{Keys: s.ring})
	table := route.New(route.Config{
		Gate: g, Log: slog.New(slog.DiscardHandler), Version: "test", Observe: func(string, int, time.Duration) {},
	})
	c := runs.Config{Supervisor: k, Hub: s.hub}
	for _, f := range change {
		f(&c)
	}
	runs.Register(table, c)
	var err error
	if s.Key, err = s.newKey(key.DefaultTenant, key.Admin); err != nil {
		return nil, err
	}
	s.srv = &http.Server{Handler: table.Handler(), ConnContext: g.ConnContext, ReadHeaderTimeout: 10 * time.Second}
	s.served.Go(func() { _ = s.srv.Serve(ln) })
	s.URL = "http://" + ln.Addr().String()
	return s, nil
}

// Close ends all streams and the server.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := errors.Join(s.hub.Close(ctx), s.srv.Close())
	s.served.Wait()
	return err
}

func (s *Server) newKey(tenant string, scopes ...key.Scope) (string, error) {
	secret, rec, err := s.ring.Create(context.Background(), key.Request{Name: "test", Tenant: tenant, Scopes: scopes})
	s.owners = append(s.owners, rec.ID)
	return secret.Reveal(), err
}

// NewKey makes an API key.
func (s *Server) NewKey(t testing.TB, tenant string, scopes ...key.Scope) string {
	t.Helper()
	secret, err := s.newKey(tenant, scopes...)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// CutAll ends all open streams as the revocation of every key would.
func (s *Server) CutAll() {
	for _, owner := range s.owners {
		s.hub.Cut(owner)
	}
}
