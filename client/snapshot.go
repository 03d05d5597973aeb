package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// Snapshot saves the sandbox as it is; it stands still meanwhile and goes on. A
// repeated attempt after a broken connection never makes a second one.
func (s *Sandbox) Snapshot(ctx context.Context, r api.CreateSnapshot) (api.Snapshot, error) {
	k := keyed(s.path("/snapshots"))
	return transport.Fetch[api.Snapshot](ctx, s.c.t, k.WithJSON(r))
}

// Fork makes sandboxes that go on from where this one is, all or none. A
// repeated attempt after a broken connection never makes more.
func (s *Sandbox) Fork(ctx context.Context, r api.ForkSandbox) ([]api.Sandbox, error) {
	k := keyed(s.path("/fork"))
	out, err := transport.Fetch[api.Forked](ctx, s.c.t, k.WithJSON(r))
	return out.Items, err
}

// Snapshots lists all snapshots, newest first.
func (c *Client) Snapshots(ctx context.Context) ([]api.Snapshot, error) {
	out, err := transport.Fetch[api.SnapshotList](ctx, c.t, transport.Get("/v1/snapshots", nil))
	return out.Items, err
}

// GetSnapshot returns one snapshot.
func (c *Client) GetSnapshot(ctx context.Context, id string) (api.Snapshot, error) {
	return transport.Fetch[api.Snapshot](ctx, c.t, transport.Get("/v1/snapshots/"+url.PathEscape(id), nil))
}

// DeleteSnapshot deletes a snapshot; sandboxes that were made from it go on.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: "/v1/snapshots/" + url.PathEscape(id), Repeatable: true})
}
