package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// MCPServers is what the server needs to show the MCP servers whose tools agents use: those of
// a tenant, "" = of all. It returns at once.
type MCPServers interface {
	Servers(tenant string) []api.MCPServer
}

// noMCPServers is a server that has none.
type noMCPServers struct{}

func (noMCPServers) Servers(string) []api.MCPServer { return nil }

func (s *Server) registerMCPServers(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/mcp/servers", Scope: key.Read, ID: "list-mcp-servers", Tag: "agents",
		Summary: "List the MCP servers whose tools agents of the tenant may use, and how they are; with the scope admin for all tenants",
	}, s.listMCPServers)
}

type mcpServerListOut struct{ Body api.MCPServerList }

func (s *Server) listMCPServers(ctx context.Context, _ *struct{}) (*mcpServerListOut, error) {
	who := auth.From(ctx)
	tenant := who.Tenant
	if who.Scopes.Allow(key.Admin) {
		tenant = ""
	}
	out := &mcpServerListOut{api.MCPServerList{Items: []api.MCPServer{}}}
	out.Body.Items = append(out.Body.Items, s.mcpServers.Servers(tenant)...)
	return out, nil
}
