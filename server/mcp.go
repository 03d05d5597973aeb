package server

import (
	"net/http"

	"github.com/skete-dev/skete/mcp"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// mcpPath is where models find the API as tools.
const mcpPath = "/mcp"

// registerMCP adds the API as tools of the Model Context Protocol to the table. What
// the tools do are calls of the API, with the key of the request.
func (s *Server) registerMCP() {
	s.table.Foreign(mcpPath, mcp.NewHandler(mcp.HandlerConfig{
		API: s.table.Handler(), Admit: s.admitMCP, Version: s.version, Log: s.log,
	}))
}

// admitMCP admits keys and the unix socket, and no browser's login: a page that is shown
// somewhere must not call tools.
func (s *Server) admitMCP(w http.ResponseWriter, r *http.Request) (mcp.Caller, bool) {
	keyed := r.Clone(r.Context())
	keyed.Header.Del("Cookie")
	id, err := s.gate.Admit(keyed, key.RunsRead) // what each key may do at least
	if err != nil {
		route.Refused(r)
		s.table.Refuse(w, r, err)
		return mcp.Caller{}, false
	}
	var scopes []string
	for _, scope := range id.Scopes {
		scopes = append(scopes, string(scope))
	}
	return mcp.Caller{Request: s.table.Admitted(r, route.Admission{Identity: id, Operation: "mcp"}), Owner: id.Owner, Scopes: scopes}, true
}
