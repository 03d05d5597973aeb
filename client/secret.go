package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

func secretPath(name string) string { return "/v1/secrets/" + url.PathEscape(name) }

// Secrets lists the secrets of the caller's tenant, never their values.
func (c *Client) Secrets(ctx context.Context) ([]api.Secret, error) {
	l, err := transport.Fetch[api.SecretList](ctx, c.t, transport.Get("/v1/secrets", nil))
	return l.Items, err
}

// Secret returns what is known of a secret.
func (c *Client) Secret(ctx context.Context, name string) (api.Secret, error) {
	return transport.Fetch[api.Secret](ctx, c.t, transport.Get(secretPath(name), nil))
}

// PutSecret sets a secret: a new one, or a new version. The call is not repeated by
// itself, which would make versions.
func (c *Client) PutSecret(ctx context.Context, name string, p api.PutSecret) (api.Secret, error) {
	return transport.Fetch[api.Secret](ctx, c.t, transport.Call{Method: http.MethodPut, Path: secretPath(name)}.WithJSON(p))
}

// ChangeSecret changes where a secret is sent, or goes back to a version.
func (c *Client) ChangeSecret(ctx context.Context, name string, p api.ChangeSecret) (api.Secret, error) {
	return transport.Fetch[api.Secret](ctx, c.t, transport.Call{Method: http.MethodPatch, Path: secretPath(name), Repeatable: true}.WithJSON(p))
}

// DeleteSecret deletes a secret with all its versions.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: secretPath(name), Repeatable: true})
}
