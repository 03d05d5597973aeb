package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// EventFilter selects events; the zero value those of all kinds from now on.
type EventFilter struct {
	Kind string // sandbox, run, workspace; "" = all
	// From is the first number to read, 1 = all that are kept; 0 = from now.
	From uint64
}

// Events follows what happens to sandboxes, workspaces and runs. The stream comes back by
// itself after a disconnect, where it was, and ends with ctx or with an error that
// will not go away.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[api.Event, error] {
	q := url.Values{}
	if f.Kind != "" {
		q.Set("kind", f.Kind)
	}
	if f.From > 0 {
		q.Set("from", strconv.FormatUint(f.From, 10))
	}
	return transport.Events[api.Event](ctx, c.t, "/v1/events", q, "")
}
