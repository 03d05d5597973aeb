package server

import (
	"context"
	"embed"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/gate"
	"github.com/skete-dev/skete/server/key"
)

// docs is a page without any outside part: the server's documentation works
// where the server does.
//
//go:embed docs
var docs embed.FS

const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const readyTimeout = 3 * time.Second

// registerHouse adds what is not of the API: health, metrics, documentation,
// profiles.
func (s *Server) registerHouse() {
	none := map[string]bool{}
	s.mount(http.MethodGet, "/healthz", public, none, func(w http.ResponseWriter, _ *http.Request) {
		_ = writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	s.mount(http.MethodGet, "/readyz", public, none, s.readyz)
	s.mount(http.MethodGet, "/metrics", key.Admin, nil, s.metrics.handler().ServeHTTP)
	s.mount(http.MethodGet, "/openapi.json", public, none, s.document("application/openapi+json", func() ([]byte, error) {
		return json.MarshalIndent(s.api.OpenAPI(), "", " ")
	}))
	s.mount(http.MethodGet, "/openapi.yaml", public, none, s.document("application/openapi+yaml", func() ([]byte, error) {
		return s.api.OpenAPI().YAML()
	}))
	for path, file := range map[string]struct{ name, contentType string }{
		"/docs":          {"docs/index.html", "text/html; charset=utf-8"},
		"/docs/docs.js":  {"docs/docs.js", "text/javascript; charset=utf-8"},
		"/docs/docs.css": {"docs/docs.css", "text/css; charset=utf-8"},
	} {
		s.mount(http.MethodGet, path, public, none, s.document(file.contentType, func() ([]byte, error) {
			return docs.ReadFile(file.name)
		}))
	}
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		s.mount(http.MethodGet, path, key.Admin, nil, s.localOnly(h))
		s.routes[len(s.routes)-1].Local = true
	}
	s.mux.HandleFunc("/", s.notFound)
}

// readyz says whether requests can be served; why not is in the log alone.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		s.refuse(w, r, errs.Wrap(errs.Unavailable, err, "the server is not ready"))
		return
	}
	_ = writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// document serves something that is made once.
func (s *Server) document(contentType string, build func() ([]byte, error)) http.HandlerFunc {
	once := sync.OnceValues(build)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := once()
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", docsPolicy)
		_, _ = w.Write(body)
	}
}

// localOnly hides what only the machine's own operator may see.
func (s *Server) localOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !gate.Local(r) {
			s.notFound(w, r)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h(w, r)
	}
}
