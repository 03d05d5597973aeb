package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// This part is the previews of a sandbox:
//
//	p := sandbox.Previews()
//	once, err := p.Open(ctx, api.CreatePreview{Port: 5173})               // once.URL lets one browser in
//	link, err := p.Open(ctx, api.CreatePreview{Port: 5173, Public: true}) // for anybody, until p.Revoke
//
// Everything is safe for concurrent use.

// Previews reaches the previews of one sandbox.
type Previews struct {
	t    *transport.Client
	path string
}

// newPreviews returns a handle on the previews at a path; it does not ask the server.
func newPreviews(t *transport.Client, path string) *Previews { return &Previews{t, path} }

// Open gets a way to see a port. It is not repeated after a broken connection:
// a public link may be there.
func (p *Previews) Open(ctx context.Context, r api.CreatePreview) (api.Preview, error) {
	k := transport.Call{Method: http.MethodPost, Path: p.path}
	return transport.Fetch[api.Preview](ctx, p.t, k.WithJSON(r))
}

// Links lists the public links, oldest first.
func (p *Previews) Links(ctx context.Context) ([]api.Preview, error) {
	l, err := transport.Fetch[api.PreviewList](ctx, p.t, transport.Get(p.path, nil))
	return l.Items, err
}

// Revoke takes a public link back; the visitors who came by it lose access.
func (p *Previews) Revoke(ctx context.Context, id string) error {
	return p.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: p.path + "/" + url.PathEscape(id)})
}

// Previews returns a handle on the sandbox's previews; it does not ask the server.
func (s *Sandbox) Previews() *Previews { return newPreviews(s.c.t, s.path("/previews")) }
