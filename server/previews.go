package server

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/envd"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// This file lets callers of the API into previews.
//
// Who may use a sandbox may see its ports: both need the scope write, since an
// app does what it is asked. All handlers are safe for concurrent use.

// Previews is what is needed of *preview.Previews.
type Previews interface {
	Invite(ctx context.Context, v preview.Visitor, t preview.Target, path string) (string, time.Time, error)
	Share(ctx context.Context, v preview.Visitor, t preview.Target, r preview.ShareRequest) (preview.Link, error)
	Links(ctx context.Context, tenant, sandbox string) ([]preview.Link, error)
	Revoke(ctx context.Context, tenant, sandbox, id string) error
	LinkURL(l preview.Link) string
	URL(t preview.Target) string
	PublicKey() ed25519.PublicKey
	http.Handler
	// Match reports whether a Host header is one of previews.
	Match(host string) bool
	// Close ends what is under way.
	Close() error
}

// apartPreviews tells hosts of previews from those of the app: what sandboxes serve
// never meets a route of ours. Beneath their domain the bridge has names as well. p
// and b may be nil.
func apartPreviews(p Previews, b *envd.Bridge, app http.Handler) http.Handler {
	if p == nil {
		return app
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth.Local(r) || !p.Match(r.Host) {
			app.ServeHTTP(w, r)
			return
		}
		if b != nil {
			if named, ok := b.Named(r); ok {
				app.ServeHTTP(w, named)
				return
			}
		}
		p.ServeHTTP(w, r)
	})
}

// previewFrames are the origins of all previews, as a content security policy names
// them, for a page that shows some in a frame. nil: there are none.
func previewFrames(p Previews) []string {
	scheme, domain := previewDomain(p)
	if domain == "" {
		return nil
	}
	return []string{scheme + "://*." + domain}
}

// previewDomain is what all previews are beneath, with its port. domain "": there
// are none.
func previewDomain(p Previews) (scheme, domain string) {
	if p == nil {
		return "", ""
	}
	u, err := url.Parse(p.URL(preview.Target{Sandbox: "sbx_x", Port: 1}))
	if err != nil {
		return "", ""
	}
	_, domain, _ = strings.Cut(u.Host, ".")
	return u.Scheme, domain
}

// endPreviews ends what is under way. p may be nil.
func endPreviews(p Previews) {
	if p != nil {
		_ = p.Close()
	}
}

// previewsConfig of the routes.
type previewsConfig struct {
	Previews  Previews // nil = the server shows none; its routes say so
	Sandboxes Sandboxes
	Gate      *auth.Authenticator
}

type previewService struct{ previewsConfig }

// registerPreviews adds the routes to the table.
func registerPreviews(t *route.Table, c previewsConfig) {
	s := previewService{c}
	const tag, base = "previews", "/v1/sandboxes/{id}/previews"
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base, Scope: key.Write, ID: "create-preview", Tag: tag,
		Summary: "Get a way to see a port of a sandbox: once and for the caller, or a public link", Status: http.StatusCreated, Step: route.NoStep(),
	}, s.create)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Write, ID: "list-previews", Tag: tag,
		Summary: "List the public links of a sandbox", Step: route.NoStep(),
	}, s.list)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: base + "/{preview}", Scope: key.Write, ID: "revoke-preview", Tag: tag,
		Summary: "Take a public link back; visitors who came by it are shown out", Step: route.NoStep(),
	}, s.revoke)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/previews/key", Scope: key.Read, ID: "get-preview-key", Tag: tag,
		Summary: "Get the key that signs who visits an app",
	}, s.key)
	t.Plain("/preview/{label}", route.Public, map[string]bool{"to": false, "again": false}, s.open)
}

func (s previewService) on() error {
	if s.Previews == nil {
		return errs.New(errs.Unsupported, "this server shows no previews").WithHint("it needs a TCP address: `listen`, and `preview.domain`")
	}
	return nil
}

// PreviewPath names the sandbox of a request.
type PreviewPath struct {
	ID string `path:"id" doc:"of the sandbox, sbx_…, the beginning of it, or its name"`
}

// find checks that the sandbox is the caller's.
func (s previewService) find(ctx context.Context, text string) (sandbox.ID, error) {
	id, err := sandbox.ParseID(text)
	if err != nil {
		return "", err
	}
	info, err := s.Sandboxes.Get(ctx, auth.From(ctx).Tenant, id)
	if err == nil && info.State == sandbox.Destroyed {
		err = errs.New(errs.NotFound, "the sandbox %s was destroyed", id)
	}
	if err != nil {
		return "", err
	}
	return id, s.on()
}

// previewVisitor is how previews know the caller. What lets in is the login if there
// is one: logging out ends it.
func previewVisitor(id auth.Identity) preview.Visitor {
	v := preview.Visitor{Tenant: id.Tenant, User: id.User, Owner: id.Owner}
	if id.Login != "" {
		v.Owner = id.Login
	}
	return v
}

type createPreviewIn struct {
	PreviewPath
	Body api.CreatePreview
}

type previewOut struct{ Body api.Preview }

func (s previewService) create(ctx context.Context, in *createPreviewIn) (*previewOut, error) {
	if _, err := s.find(ctx, in.ID); err != nil {
		return nil, err
	}
	t, err := preview.ParseTarget(in.ID, in.Body.Port)
	if err != nil {
		return nil, err
	}
	v := previewVisitor(auth.From(ctx))
	if !in.Body.Public {
		if in.Body.Name != "" || in.Body.TTLMS != 0 {
			return nil, errs.New(errs.Invalid, "name and ttl_ms are of public links")
		}
		address, until, err := s.Previews.Invite(ctx, v, t, in.Body.Path)
		if err != nil {
			return nil, err
		}
		p := api.Preview{Sandbox: in.ID, Port: in.Body.Port, URL: address, Address: s.Previews.URL(t), ExpiresAt: until}
		p.Listens = s.listens(ctx, in.ID, in.Body.Port)
		return &previewOut{p}, nil
	}
	if in.Body.Path != "" {
		return nil, errs.New(errs.Invalid, "a public link leads to /")
	}
	if in.Body.TTLMS > int64(previewMaxTTL/time.Millisecond) {
		return nil, errs.New(errs.Invalid, "ttl_ms is too large")
	}
	l, err := s.Previews.Share(ctx, v, t, preview.ShareRequest{Name: in.Body.Name, For: time.Duration(in.Body.TTLMS) * time.Millisecond})
	if err != nil {
		return nil, err
	}
	p := s.view(l)
	p.Listens = s.listens(ctx, in.ID, in.Body.Port)
	return &previewOut{p}, nil
}

// previewListenTimeout bounds looking whether something listens.
const previewListenTimeout = 2 * time.Second

// listens reports whether something listens at a port; nil = that is not known, or
// the port is our own. A sandbox that sleeps is not woken for it.
func (s previewService) listens(ctx context.Context, text string, port int) *bool {
	id, err := sandbox.ParseID(text)
	if err != nil || port == preview.SupervisorPort {
		return nil
	}
	tenant, listens := auth.From(ctx).Tenant, false
	info, err := s.Sandboxes.Get(ctx, tenant, id)
	switch {
	case err != nil || info.State == sandbox.Paused || info.Waiting != "":
		return nil
	case info.State != sandbox.Running:
		return &listens
	}
	ctx, cancel := context.WithTimeout(ctx, previewListenTimeout)
	defer cancel()
	conn, err := s.Sandboxes.Dial(ctx, tenant, id, uint32(port))
	if err == nil {
		listens = true
		_ = conn.Close()
	} else if ctx.Err() != nil {
		return nil
	}
	return &listens
}

// previewMaxTTL is what fits into a duration; previews know how long is allowed.
const previewMaxTTL = 100 * 365 * 24 * time.Hour

func (s previewService) view(l preview.Link) api.Preview {
	return api.Preview{
		ID: l.ID, Sandbox: l.Sandbox, Port: int(l.Port), URL: s.Previews.LinkURL(l), Address: s.Previews.URL(l.Target), Public: true, Name: l.Name,
		CreatedBy: l.By, CreatedAt: l.CreatedAt, ExpiresAt: l.ExpiresAt,
	}
}

type listPreviewsOut struct{ Body api.PreviewList }

func (s previewService) list(ctx context.Context, in *PreviewPath) (*listPreviewsOut, error) {
	if _, err := s.find(ctx, in.ID); err != nil {
		return nil, err
	}
	links, err := s.Previews.Links(ctx, auth.From(ctx).Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	out := api.PreviewList{Items: []api.Preview{}}
	for _, l := range links {
		out.Items = append(out.Items, s.view(l))
	}
	return &listPreviewsOut{out}, nil
}

type revokePreviewIn struct {
	PreviewPath
	Preview string `path:"preview" doc:"of the link, lnk_…"`
}

// revoke works for a sandbox that is gone, too.
func (s previewService) revoke(ctx context.Context, in *revokePreviewIn) (*struct{}, error) {
	if _, err := s.find(ctx, in.ID); err != nil && (s.Previews == nil || !errs.Is(err, errs.NotFound)) {
		return nil, err
	}
	return nil, s.Previews.Revoke(ctx, auth.From(ctx).Tenant, in.ID, in.Preview)
}

type previewKeyOut struct{ Body api.PreviewKey }

func (s previewService) key(context.Context, *struct{}) (*previewKeyOut, error) {
	if err := s.on(); err != nil {
		return nil, err
	}
	return &previewKeyOut{api.PreviewKey{PublicKey: base64.StdEncoding.EncodeToString(s.Previews.PublicKey())}}, nil
}

// open is where a preview sends who is not let in. A browser that comes from
// another site does not show its login; so the first time it is sent here once
// more by a page of ours.
func (s previewService) open(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to := q.Get("to")
	t, err := preview.ParseLabel(r.PathValue("label"))
	if err == nil {
		err = s.on()
	}
	if err != nil {
		problem.Write(w, err)
		return
	}
	id, err := s.Gate.Admit(r, key.Write)
	if err != nil {
		here := "/preview/" + t.Label() + "?" + url.Values{"to": {to}, "again": {"1"}}.Encode()
		if q.Get("again") != "" {
			here = "/login?" + url.Values{"next": {here}}.Encode()
		}
		previewForward(w, here)
		return
	}
	ctx := auth.With(r.Context(), id)
	address := ""
	if _, err = s.find(ctx, t.Sandbox); err == nil {
		address, _, err = s.Previews.Invite(ctx, previewVisitor(id), t, to)
	}
	if err != nil {
		problem.Write(w, err)
		return
	}
	previewForward(w, address)
}

// previewForward sends a browser on by a page, so that its next request is ours.
func previewForward(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	to = html.EscapeString(to)
	_, _ = io.WriteString(w, `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=`+to+`">
<title>skete</title><p><a href="`+to+`" rel="noreferrer">Go on</a></p></html>
`)
}
