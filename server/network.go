package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Networks is what the server needs to show what was decided. It returns at once.
type Networks interface {
	Decisions(id sandbox.ID, from uint64) []network.Decision
	Registries() registry.Set
}

func (s *Server) registerNetworks(t *route.Table) {
	const tag = "network"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes/{id}/network", Scope: key.Read, ID: "get-network", Tag: tag,
		Summary: "Get what may leave a sandbox",
	}, s.getNetwork)
	route.JSON(t, route.Operation{
		Method: http.MethodPut, Path: "/v1/sandboxes/{id}/network", Scope: key.Write, ID: "set-network", Tag: tag,
		Summary: "Set what may leave a sandbox, from the next request on",
	}, s.setNetwork)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes/{id}/network/log", Scope: key.Read, ID: "get-network-log", Tag: tag,
		Summary: "List the last decisions about what a sandbox sent, the oldest first",
	}, s.networkLog)
}

type networkOut struct{ Body api.NetworkPolicy }

func (s *Server) getNetwork(ctx context.Context, in *SandboxPath) (*networkOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	info, err := s.sandboxes.Get(ctx, auth.From(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	return &networkOut{s.networkView(info.Spec.Policy())}, nil
}

type setNetworkIn struct {
	SandboxPath
	Body api.NetworkPolicy
}

func (s *Server) setNetwork(ctx context.Context, in *setNetworkIn) (*networkOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	p := networkPolicy(in.Body)
	info, err := s.sandboxes.Update(ctx, auth.From(ctx).Tenant, id, sandbox.UpdateRequest{Network: &p})
	if err != nil {
		return nil, err
	}
	return &networkOut{s.networkView(info.Spec.Policy())}, nil
}

type networkLogIn struct {
	SandboxPath
	From uint64 `query:"from" doc:"the number of the first one; default the oldest that is kept"`
}

type networkLogOut struct{ Body api.NetworkLog }

func (s *Server) networkLog(ctx context.Context, in *networkLogIn) (*networkLogOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if _, err := s.sandboxes.Get(ctx, auth.From(ctx).Tenant, id); err != nil {
		return nil, err
	}
	if s.networks == nil {
		return nil, errs.New(errs.Unsupported, "this server has no networks")
	}
	out := &networkLogOut{api.NetworkLog{Items: []api.NetworkDecision{}}}
	for _, d := range s.networks.Decisions(id, in.From) {
		out.Body.Items = append(out.Body.Items, decisionView(d))
	}
	return out, nil
}

func decisionView(d network.Decision) api.NetworkDecision {
	return api.NetworkDecision{
		N: d.N, Time: d.At.UTC(), Times: d.Times, Host: d.Host, Port: d.Port, Method: d.Method, Path: d.Path, Allowed: d.Allowed, Rule: d.Rule, Why: d.Why, Secrets: d.Secrets,
	}
}

// networkPolicy reads a policy of the API; what is wrong with it is said where it is used.
func networkPolicy(p api.NetworkPolicy) egress.Policy {
	return egress.Policy{Profile: p.Profile, Allow: networkRules(p.Allow), Deny: networkRules(p.Deny)}
}

func networkRules(list []api.NetworkRule) []egress.Rule {
	var out []egress.Rule
	for _, r := range list {
		out = append(out, egress.Rule{Host: r.Host, Ports: r.Ports, Access: egress.Access(r.Access), Methods: r.Methods, Paths: r.Paths, Pinned: r.Pinned})
	}
	return out
}

func (s *Server) networkView(p egress.Policy) api.NetworkPolicy {
	view := func(list []egress.Rule) []api.NetworkRule {
		var out []api.NetworkRule
		for _, r := range list {
			out = append(out, api.NetworkRule{Host: r.Host, Ports: r.Ports, Access: string(r.Access), Methods: r.Methods, Paths: r.Paths, Pinned: r.Pinned})
		}
		return out
	}
	out := api.NetworkPolicy{Profile: p.Profile, Allow: view(p.Allow), Deny: view(p.Deny)}
	if p.Profile == egress.Default {
		out.Usual = view(s.networks.Registries().Rules())
	}
	return out
}
