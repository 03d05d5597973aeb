package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// RunTool calls a tool that is not built in, once. The end of ctx ends what it does.
func (c *Client) RunTool(ctx context.Context, name string, in api.RunTool) (api.ToolResult, error) {
	return transport.Fetch[api.ToolResult](ctx, c.t, transport.Call{Method: http.MethodPost, Path: "/v1/tools/" + url.PathEscape(name) + "/run"}.WithJSON(in))
}
