package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// ToolRuns calls tools that are not built in.
type ToolRuns interface {
	// Run calls one and returns what an agent would be told. NotFound: there is none.
	Run(ctx context.Context, tenant, by, name string, in api.RunTool) (api.ToolResult, error)
}

func (s *Server) registerTools(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/tools/{name}/run", Scope: key.RunsWrite, ID: "run-tool", Tag: "agents",
		Summary: "Call a tool that is declared, or of an MCP server, once, as an agent would; leaving it ends what it does",
	}, s.runTool)
}

type runToolIn struct {
	Name string `path:"name" maxLength:"64" doc:"of the tool"`
	Body api.RunTool
}

type runToolOut struct{ Body api.ToolResult }

func (s *Server) runTool(ctx context.Context, in *runToolIn) (*runToolOut, error) {
	if s.toolRuns == nil {
		return nil, errs.New(errs.Unsupported, "this server runs no agents")
	}
	who := auth.From(ctx)
	if in.Body.Sandbox != "" {
		var err error
		if in.Body.Sandbox, err = s.table.SandboxOf(ctx, in.Body.Sandbox); err != nil {
			return nil, err
		}
	}
	ctx, release, err := s.hub.Open(ctx, who.Owner) // long: it must end when the server does
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := s.toolRuns.Run(ctx, who.Tenant, who.Owner, in.Name, in.Body)
	if err != nil {
		return nil, err
	}
	return &runToolOut{r}, nil
}
