package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Warm is what the server needs to show the warm pool. It returns at once.
type Warm interface {
	Pool() api.Pool
}

// noPool is a server that keeps nothing warm.
type noPool struct{}

func (noPool) Pool() api.Pool { return api.Pool{} }

func (s *Server) registerPool(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/pool", Scope: key.Admin, ID: "get-pool", Tag: "server",
		Summary: "Describe the machines that are kept warm",
	}, s.pool)
}

type poolOut struct{ Body api.Pool }

func (s *Server) pool(context.Context, *struct{}) (*poolOut, error) {
	p := s.warm.Pool()
	if p.Kinds == nil {
		p.Kinds = []api.PoolKind{}
	}
	return &poolOut{p}, nil
}
