package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// Templates lists what sandboxes can start from.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	l, err := transport.Fetch[api.TemplateList](ctx, c.t, transport.Get("/v1/templates", nil))
	return l.Items, err
}

// ImportTemplate makes a template of a root file system as a tar stream,
// plain or gzip.
func (c *Client) ImportTemplate(ctx context.Context, name string, tar io.Reader) (api.Template, error) {
	return transport.Fetch[api.Template](ctx, c.t, transport.Call{
		Method: http.MethodPost, Path: "/v1/templates", Query: url.Values{"name": {name}},
		Header: http.Header{"Content-Type": {"application/x-tar"}}, Stream: tar,
	})
}

// RemoveTemplate removes an imported template.
func (c *Client) RemoveTemplate(ctx context.Context, name string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: "/v1/templates/" + url.PathEscape(name), Repeatable: true})
}

// CreateKey makes an API key; its secret is shown this once. The call is not
// repeated by itself: a second key that the caller does not know would stay valid.
func (c *Client) CreateKey(ctx context.Context, k api.CreateKey) (api.CreatedKey, error) {
	return transport.Fetch[api.CreatedKey](ctx, c.t, transport.Call{Method: http.MethodPost, Path: "/v1/keys"}.WithJSON(k))
}

// Keys lists the keys of the caller's tenant.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	l, err := transport.Fetch[api.KeyList](ctx, c.t, transport.Get("/v1/keys", nil))
	return l.Items, err
}

// RevokeKey makes a key worthless from now on.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: "/v1/keys/" + url.PathEscape(id), Repeatable: true})
}

// Check looks at every log and blob of a tenant, "" = of all; nothing is repaired.
func (c *Client) Check(ctx context.Context, tenant string) (api.Checked, error) {
	q := url.Values{}
	if tenant != "" {
		q.Set("tenant", tenant)
	}
	return transport.Fetch[api.Checked](ctx, c.t, transport.Get("/v1/fsck", q))
}

// EraseTenant removes a tenant's conversations, its agents' files and the
// sandboxes that were made for them. Conflict: runs are under way.
func (c *Client) EraseTenant(ctx context.Context, name string) (api.Erased, error) {
	return transport.Fetch[api.Erased](ctx, c.t, transport.Call{Method: http.MethodDelete, Path: "/v1/tenants/" + url.PathEscape(name)})
}

// Login says who we are to the server.
func (c *Client) Login(ctx context.Context) (api.Login, error) {
	return transport.Fetch[api.Login](ctx, c.t, transport.Get("/v1/login", nil))
}

// LoginCode makes an address on the server that logs one browser in as we are.
func (c *Client) LoginCode(ctx context.Context) (api.LoginCode, error) {
	return transport.Fetch[api.LoginCode](ctx, c.t, transport.Call{Method: http.MethodPost, Path: "/v1/login/codes"})
}

// Metrics are the server's numbers in Prometheus' text format. It needs a key
// with scope admin, or the local socket.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	res, err := c.t.Do(ctx, transport.Get("/metrics", nil))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, metricsBytesMax))
	return string(text), err
}

const metricsBytesMax = 16 << 20
