package server_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server"
)

// mcpOf names the tenant that is asked for.
type mcpOf struct{}

// Servers implements server.MCPServers.
func (mcpOf) Servers(tenant string) []api.MCPServer {
	return []api.MCPServer{{Name: "files", Tenant: tenant, Transport: "stdio", Agents: []string{}, State: "unused"}}
}

// A tenant is shown its own MCP servers, an operator those of all; a key that reads no more than runs none.
func TestMCPServers(t *testing.T) {
	w := newWorld(t, func(c *server.Config) { c.MCPServers = mcpOf{} })
	other, _ := w.key(t, "other", "read", "write")
	watch, _ := w.key(t, "other", "runs:read")
	for secret, tenant := range map[string]string{w.admin: "", other: "other"} {
		var list api.MCPServerList
		w.call(t, secret, http.MethodGet, "/v1/mcp/servers", nil, http.StatusOK, &list)
		if d := cmp.Diff(mcpOf{}.Servers(tenant), list.Items); d != "" {
			t.Error(d)
		}
	}
	w.call(t, watch, http.MethodGet, "/v1/mcp/servers", nil, http.StatusForbidden, nil)
}

// A server without any has an empty list.
func TestMCPServers_none(t *testing.T) {
	w := newWorld(t)
	var list api.MCPServerList
	w.call(t, w.admin, http.MethodGet, "/v1/mcp/servers", nil, http.StatusOK, &list)
	if d := cmp.Diff(api.MCPServerList{Items: []api.MCPServer{}}, list); d != "" {
		t.Error(d)
	}
}
