package client

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// Pool says what the server keeps warm.
func (c *Client) Pool(ctx context.Context) (api.Pool, error) {
	return transport.Fetch[api.Pool](ctx, c.t, transport.Get("/v1/pool", nil))
}
