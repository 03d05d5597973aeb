package client

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// MCPServers lists the MCP servers whose tools agents of the tenant may use, and how they were
// when they were last used; with the scope admin those of all tenants.
func (c *Client) MCPServers(ctx context.Context) ([]api.MCPServer, error) {
	list, err := transport.Fetch[api.MCPServerList](ctx, c.t, transport.Get("/v1/mcp/servers", nil))
	return list.Items, err
}
