package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
)

// Templates lists what sandboxes can start from.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	l, err := fetch[api.TemplateList](ctx, c, get("/v1/templates", nil))
	return l.Items, err
}

// ImportTemplate makes a template of a root file system as a tar stream,
// plain or gzip.
func (c *Client) ImportTemplate(ctx context.Context, name string, tar io.Reader) (api.Template, error) {
	return fetch[api.Template](ctx, c, call{
		method: http.MethodPost, path: "/v1/templates", query: url.Values{"name": {name}},
		header: http.Header{"Content-Type": {"application/x-tar"}}, stream: tar,
	})
}

// RemoveTemplate removes an imported template.
func (c *Client) RemoveTemplate(ctx context.Context, name string) error {
	return c.send(ctx, call{method: http.MethodDelete, path: "/v1/templates/" + url.PathEscape(name), repeatable: true})
}

// CreateKey makes an API key; its secret is shown this once. The call is not
// repeated by itself: a second key nobody knows of would stay valid.
func (c *Client) CreateKey(ctx context.Context, k api.CreateKey) (api.CreatedKey, error) {
	return fetch[api.CreatedKey](ctx, c, call{method: http.MethodPost, path: "/v1/keys"}.withJSON(k))
}

// Keys lists the keys of the caller's tenant.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	l, err := fetch[api.KeyList](ctx, c, get("/v1/keys", nil))
	return l.Items, err
}

// RevokeKey makes a key worthless from now on.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.send(ctx, call{method: http.MethodDelete, path: "/v1/keys/" + url.PathEscape(id), repeatable: true})
}
