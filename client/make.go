package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// PrepareTemplates makes ready templates that are not there yet, and goes
// through what happens. It may be repeated; the work ends when the stream is
// left, unless another caller waits for it too.
func (c *Client) PrepareTemplates(ctx context.Context, p api.PrepareTemplates) iter.Seq2[api.TemplateNews, error] {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/templates/prepare", Repeatable: true}
	return transport.Once[api.TemplateNews](ctx, c.t, k.WithJSON(p))
}

// BuildOptions say how a template is built.
type BuildOptions struct {
	Name  string // of the template
	Fresh bool   // take nothing from earlier builds
}

// BuildTemplate builds a template of a tar with a recipe and the files that it
// copies, and goes through what happens; the last news has the template. Steps
// that were finished are kept when the stream is left.
func (c *Client) BuildTemplate(ctx context.Context, o BuildOptions, tar io.Reader) iter.Seq2[api.TemplateNews, error] {
	q := url.Values{"name": {o.Name}}
	if o.Fresh {
		q.Set("fresh", "true")
	}
	return transport.Once[api.TemplateNews](ctx, c.t, transport.Call{
		Method: http.MethodPost, Path: "/v1/templates/build", Query: q,
		Header: http.Header{"Content-Type": {"application/x-tar"}}, Stream: tar,
	})
}
