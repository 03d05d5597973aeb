package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Upkeep is what operators do to what is kept for tenants.
type Upkeep interface {
	// Check looks at every log and blob of a tenant, "" = of all, and repairs
	// nothing. NotFound: nothing is kept for the tenant.
	Check(ctx context.Context, tenant string) (api.Checked, error)
	// Erase removes all that there is of a tenant but its keys. It may be
	// repeated; what it began is finished by the next start at the latest.
	// Conflict: runs are under way. NotFound: nothing is kept for the tenant.
	Erase(ctx context.Context, tenant string) (api.Erased, error)
}

func (s *Server) registerUpkeep(t *route.Table) {
	const tag = "server"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/fsck", Scope: key.Admin, ID: "check-store", Tag: tag,
		Summary: "Check every log and blob of a tenant, or of all; nothing is repaired",
	}, s.checkStore)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: "/v1/tenants/{name}", Scope: key.Admin, ID: "erase-tenant", Tag: tag,
		Summary: "Erase all that there is of a tenant but its keys: conversations, sandboxes, histories, snapshots, links, secrets; for ever", Status: http.StatusOK,
	}, s.eraseTenant)
}

type checkStoreIn struct {
	Tenant string `query:"tenant" doc:"only this one; default all"`
}

type checkedOut struct{ Body api.Checked }

func (s *Server) checkStore(ctx context.Context, in *checkStoreIn) (*checkedOut, error) {
	if in.Tenant != "" && !key.TenantOK(in.Tenant) {
		return nil, errs.New(errs.Invalid, "%.40q is not a tenant", in.Tenant)
	}
	if s.upkeep == nil {
		return nil, errs.New(errs.Unsupported, "this server runs no agents")
	}
	c, err := s.upkeep.Check(ctx, in.Tenant)
	if c.Problems == nil {
		c.Problems = []api.StoreProblem{}
	}
	return &checkedOut{c}, err
}

type eraseTenantIn struct {
	Name string `path:"name" doc:"of the tenant"`
}

type erasedOut struct{ Body api.Erased }

func (s *Server) eraseTenant(ctx context.Context, in *eraseTenantIn) (*erasedOut, error) {
	if !key.TenantOK(in.Name) {
		return nil, errs.New(errs.Invalid, "%.40q is not a tenant", in.Name)
	}
	if s.upkeep == nil {
		return nil, errs.New(errs.Unsupported, "this server runs no agents")
	}
	e, err := s.upkeep.Erase(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	s.log.Warn("a tenant was erased", "tenant", in.Name, "threads", e.Threads)
	return &erasedOut{e}, nil
}
