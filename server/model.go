package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Models is what the server needs to show models.
type Models interface {
	Models(ctx context.Context) []api.Model
	// Spent is what the programs of a sandbox have used.
	Spent(ctx context.Context, sandbox string) (gateway.Spent, error)
}

func (s *Server) registerModels(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/models", Scope: key.RunsRead, ID: "list-models", Tag: "agents",
		Summary: "List models that agents can use",
	}, s.listModels)
	const of = "/v1/sandboxes/{id}/models"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: of, Scope: key.Read, ID: "get-sandbox-models", Tag: "sandboxes",
		Summary: "Get which models the programs of a sandbox may use, and what they have used",
	}, s.getSandboxModels)
	route.JSON(t, route.Operation{
		Method: http.MethodPut, Path: of, Scope: key.Write, ID: "set-sandbox-models", Tag: "sandboxes",
		Summary: "Set which models the programs of a sandbox may use, from the next call on",
	}, s.setSandboxModels)
}

type sandboxModelsOut struct{ Body api.SandboxModels }

func (s *Server) getSandboxModels(ctx context.Context, in *SandboxPath) (*sandboxModelsOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	info, err := s.sandboxes.Get(ctx, auth.From(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	return s.sandboxModels(ctx, info)
}

func (s *Server) sandboxModels(ctx context.Context, info sandbox.Info) (*sandboxModelsOut, error) {
	if s.models == nil {
		return nil, errs.New(errs.Unsupported, "this server has no models")
	}
	spent, err := s.models.Spent(ctx, string(info.ID))
	if err != nil {
		return nil, err
	}
	out := api.SandboxModels{Models: []string{}, Used: usedView(spent)}
	if g := info.Spec.Models; g != nil {
		out.Models, out.Tokens, out.CostUSD, out.PerMinute = g.Models, g.Tokens, g.CostUSD, g.PerMinute
	}
	return &sandboxModelsOut{out}, nil
}

func usedView(s gateway.Spent) api.ModelsUsed {
	return api.ModelsUsed{Calls: s.Calls, Tokens: s.Tokens, CostUSD: s.CostUSD}
}

type setSandboxModelsIn struct {
	SandboxPath
	Body api.SetSandboxModels
}

func (s *Server) setSandboxModels(ctx context.Context, in *setSandboxModelsIn) (*sandboxModelsOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	b := in.Body
	info, err := s.sandboxes.Update(ctx, auth.From(ctx).Tenant, id, sandbox.UpdateRequest{
		Models: &sandbox.ModelGrant{Models: b.Models, Tokens: b.Tokens, CostUSD: b.CostUSD, PerMinute: b.PerMinute},
	})
	if err != nil {
		return nil, err
	}
	return s.sandboxModels(ctx, info)
}

func modelGrant(g *api.ModelGrant) *sandbox.ModelGrant {
	if g == nil {
		return nil
	}
	return &sandbox.ModelGrant{Models: g.Models, Tokens: g.Tokens, CostUSD: g.CostUSD, PerMinute: g.PerMinute}
}

func modelsView(g *sandbox.ModelGrant) *api.ModelGrant {
	if g == nil {
		return nil
	}
	return &api.ModelGrant{Models: g.Models, Tokens: g.Tokens, CostUSD: g.CostUSD, PerMinute: g.PerMinute}
}

func modelCallView(u gateway.Use) api.ModelCall {
	return api.ModelCall{
		N: u.N, Time: u.At.UTC(), Model: u.Model, Status: u.Status, TokensIn: int64(u.Usage.Total() - u.Usage.Output), TokensOut: int64(u.Usage.Output), Guessed: u.Usage.Estimated,
		CostUSD: u.CostUSD, FirstMS: u.First.Milliseconds(), TookMS: u.Took.Milliseconds(), Used: usedView(u.Spent),
	}
}

type listModelsOut struct{ Body api.ModelList }

func (s *Server) listModels(ctx context.Context, _ *struct{}) (*listModelsOut, error) {
	if s.models == nil {
		return nil, errs.New(errs.Unsupported, "this server runs no agents")
	}
	return &listModelsOut{api.ModelList{Items: s.models.Models(ctx)}}, nil
}
