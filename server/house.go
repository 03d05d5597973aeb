package server

import (
	"context"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

const readyTimeout = 3 * time.Second

// registerHouse adds what is not of the API: health, metrics, documentation,
// profiles.
func (s *Server) registerHouse(t *route.Table) {
	none := map[string]bool{}
	t.Plain("/healthz", route.Public, none, func(w http.ResponseWriter, _ *http.Request) {
		status := map[string]string{"status": "alive"}
		if done, total := s.sandboxes.Attaching(); done < total { // how many is not for everyone
			status["doing"] = "attaching sandboxes"
		}
		_ = route.WriteJSON(w, http.StatusOK, status)
	})
	t.Plain("/readyz", route.Public, none, s.readyz)
	t.Plain("/metrics", key.Admin, nil, s.metrics.Handler().ServeHTTP)
	t.Plain("/openapi.json", route.Public, none, s.document("application/openapi+json", func() ([]byte, error) { return t.Document(false) }))
	t.Plain("/openapi.yaml", route.Public, none, s.document("application/openapi+yaml", func() ([]byte, error) { return t.Document(true) }))
	registerDocs(t)
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		t.Local(path, h)
	}
}

// readyz says whether requests can be served; why not is in the log alone.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		s.table.Refuse(w, r, errs.Wrap(errs.Unavailable, err, "the server is not ready"))
		return
	}
	_ = route.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// document serves something that is made once.
func (s *Server) document(contentType string, build func() ([]byte, error)) http.HandlerFunc {
	once := sync.OnceValues(build)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := once()
		if err != nil {
			s.table.Refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", docsPolicy)
		_, _ = w.Write(body)
	}
}
