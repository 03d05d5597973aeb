package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Models is what the server needs to show models.
type Models interface {
	Models(ctx context.Context) []api.Model
}

func (s *Server) registerModels(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/models", Scope: key.RunsRead, ID: "list-models", Tag: "agents",
		Summary: "List models that agents can use",
	}, s.listModels)
}

type listModelsOut struct{ Body api.ModelList }

func (s *Server) listModels(ctx context.Context, _ *struct{}) (*listModelsOut, error) {
	if s.models == nil {
		return nil, errs.New(errs.Unsupported, "this server runs no agents")
	}
	return &listModelsOut{api.ModelList{Items: s.models.Models(ctx)}}, nil
}
