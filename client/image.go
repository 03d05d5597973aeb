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

// Template describes one template.
func (c *Client) Template(ctx context.Context, name string) (api.Template, error) {
	return transport.Fetch[api.Template](ctx, c.t, transport.Get("/v1/templates/"+url.PathEscape(name), nil))
}

// PullTemplate makes a template of an image in a registry and goes through what
// happens; the last news has the template. Leaving the stream cancels the pull;
// what was fetched is kept, and a later pull goes on with it.
func (c *Client) PullTemplate(ctx context.Context, p api.PullTemplate) iter.Seq2[api.TemplateNews, error] {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/templates/pull"}
	return transport.Once[api.TemplateNews](ctx, c.t, k.WithJSON(p))
}

// ImportTemplateFor is ImportTemplate that chooses an image by its platform; ""
// as name takes the one that a bundle has.
func (c *Client) ImportTemplateFor(ctx context.Context, name, platform string, tar io.Reader) (api.Template, error) {
	q := url.Values{}
	for k, v := range map[string]string{"name": name, "platform": platform} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return transport.Fetch[api.Template](ctx, c.t, transport.Call{
		Method: http.MethodPost, Path: "/v1/templates", Query: q,
		Header: http.Header{"Content-Type": {"application/x-tar"}}, Stream: tar,
	})
}

// ExportTemplate writes a template and what goes with it as a bundle.
func (c *Client) ExportTemplate(ctx context.Context, name string, w io.Writer) error {
	k := transport.Get("/v1/templates/"+url.PathEscape(name)+"/bundle", nil)
	k.Repeatable = false
	res, err := c.t.Do(ctx, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return transport.Broken(ctx, err)
	}
	return nil
}

// TemplateUsage says what templates take of the server's disk.
func (c *Client) TemplateUsage(ctx context.Context) (api.TemplateUsage, error) {
	return transport.Fetch[api.TemplateUsage](ctx, c.t, transport.Get("/v1/usage/templates", nil))
}

// SweepTemplates deletes what no template and no sandbox needs, with all also
// what was fetched by pulls that did not end.
func (c *Client) SweepTemplates(ctx context.Context, all bool) (api.TemplatesSwept, error) {
	q := url.Values{}
	if all {
		q.Set("all", "true")
	}
	return transport.Fetch[api.TemplatesSwept](ctx, c.t, transport.Call{Method: http.MethodPost, Path: "/v1/templates/gc", Query: q, Repeatable: true})
}
