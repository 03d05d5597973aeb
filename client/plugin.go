package client

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// Plugins lists the plug-ins of the server, and how their processes are. It needs the scope admin.
func (c *Client) Plugins(ctx context.Context) ([]api.Plugin, error) {
	list, err := transport.Fetch[api.PluginList](ctx, c.t, transport.Get("/v1/plugins", nil))
	return list.Items, err
}
