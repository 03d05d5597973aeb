package server

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/template"
)

func (s *Server) registerInfo(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/info", Scope: key.Read, ID: "get-info", Tag: "server",
		Summary: "Describe the server, its providers and limits",
	}, s.info)
}

type infoOut struct{ Body api.Info }

func (s *Server) info(ctx context.Context, _ *struct{}) (*infoOut, error) {
	l := s.sandboxes.Limits()
	info := api.Info{Version: s.version, Providers: []api.ProviderInfo{}, Limits: api.Limits{
		Sandboxes: l.Sandboxes, CPUsMax: l.CPUsMax, MemoryMBMax: l.MemoryMBMax, DiskMBMax: l.DiskMBMax, TTLMSMax: l.TTLMax.Milliseconds(),
		TenantCPUs: l.TenantCPUs, TenantMemoryMB: l.TenantMemoryMB, TenantDiskMB: l.TenantDiskMB,
	}}
	u := s.sandboxes.Used(auth.From(ctx).Tenant)
	info.Used = api.Used{Sandboxes: u.Sandboxes, CPUs: u.CPUs, MemoryMB: u.MemoryMB, DiskMB: u.DiskMB, DiskHeldMB: u.DiskHeldMB}
	if s.looked != nil {
		info.Used.LookMS = s.looked(auth.From(ctx).Tenant).Milliseconds()
	}
	if done, total := s.sandboxes.Attaching(); done < total {
		info.Attaching = &api.Attaching{Done: done, Total: total}
	}
	for _, p := range s.sandboxes.Probes(ctx) {
		info.Providers = append(info.Providers, providerView(p))
	}
	if p, err := s.sandboxes.Default(ctx); err == nil {
		info.Default = p.Name
	}
	return &infoOut{info}, nil
}

func providerView(p sandbox.ProbeResult) api.ProviderInfo {
	v := api.ProviderInfo{Name: p.Name, Isolation: string(p.Capabilities.Isolation), OK: p.Err == nil, Notes: p.Capabilities.Notes, Can: abilities(p.Capabilities)}
	if p.Err != nil {
		v.Error, v.Hint = errs.Public(p.Err), errs.Hint(p.Err)
	}
	return v
}

// abilities names what a provider can do of what not all can.
func abilities(c sandbox.Capabilities) []string {
	can := []string{}
	for _, a := range []struct {
		name string
		has  bool
	}{{"pause", c.Pause}, {"snapshot", c.Snapshot}, {"fork", c.Fork}, {"network", c.Network}} {
		if a.has {
			can = append(can, a.name)
		}
	}
	return can
}

func (s *Server) registerTemplates(t *route.Table) {
	const tag, base = "templates", "/v1/templates"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Read, ID: "list-templates", Tag: tag,
		Summary: "List templates",
	}, s.listTemplates)
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: base, Scope: key.Admin, ID: "import-template", Tag: tag,
		Summary: "Make a template of an archive: the tar of a root file system, docker save, an OCI layout, a bundle", Status: http.StatusCreated,
		Takes: "application/x-tar", Sends: route.Object[api.Template]("The template"),
	}, s.importTemplate)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: base + "/{name}", Scope: key.Admin, ID: "remove-template", Tag: tag,
		Summary: "Remove an imported template",
	}, s.removeTemplate)
	s.registerImages(t)
}

type listTemplatesOut struct{ Body api.TemplateList }

func (s *Server) listTemplates(ctx context.Context, _ *struct{}) (*listTemplatesOut, error) {
	infos, err := s.templates.List(ctx)
	if err != nil {
		return nil, err
	}
	list := api.TemplateList{Items: make([]api.Template, len(infos))}
	for i, t := range infos {
		list.Items[i] = templateView(t)
	}
	return &listTemplatesOut{list}, nil
}

func templateView(t template.Info) api.Template {
	v := api.Template{
		Name: t.Name, Kind: t.Kind, Hash: t.Hash, Bytes: t.Bytes, Languages: t.Languages,
		Skipped: t.Skipped, CreatedAt: optionalTime(t.CreatedAt), Source: sourceView(t),
		CPUs: t.Needs.CPUs, MemoryMB: t.Needs.MemoryMB,
	}
	if v.Languages == nil {
		v.Languages = []string{}
	}
	return v
}

type importTemplateIn struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"accepted; the same content under the same name is the same template anyway"`
	Name           string `query:"name" maxLength:"64" doc:"may be left out for a bundle"`
	Platform       string `query:"platform" maxLength:"100" doc:"of an image; default this machine's"`
}

func (s *Server) importTemplate(w http.ResponseWriter, r *http.Request, in *importTemplateIn) error {
	if err := checkIdempotencyKey(in.IdempotencyKey); err != nil {
		return err
	}
	limited, err := route.Body(w, r, s.limits.TemplateBytesMax)
	if err != nil {
		return err
	}
	body := &watchedBody{r: limited}
	info, err := s.templates.ImportFor(r.Context(), in.Name, in.Platform, body)
	if err != nil && body.err != nil {
		return route.BodyError(body.err)
	}
	if err != nil {
		return err
	}
	return route.WriteJSON(w, http.StatusCreated, templateView(info))
}

// watchedBody remembers why a body could not be read, for who reads it far away.
type watchedBody struct {
	r   io.Reader
	err error
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

type removeTemplateIn struct {
	Name string `path:"name" maxLength:"64"`
}

func (s *Server) removeTemplate(ctx context.Context, in *removeTemplateIn) (*struct{}, error) {
	return nil, s.templates.Remove(ctx, in.Name)
}

func (s *Server) registerKeys(t *route.Table) {
	const tag, base = "keys", "/v1/keys"
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base, Scope: key.Admin, ID: "create-key", Tag: tag,
		Summary: "Make an API key; the secret is shown this once", Status: http.StatusCreated,
	}, s.createKey)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Admin, ID: "list-keys", Tag: tag,
		Summary: "List API keys, never their secrets",
	}, s.listKeys)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: base + "/{id}", Scope: key.Admin, ID: "revoke-key", Tag: tag,
		Summary: "Revoke an API key, at once",
	}, s.revokeKey)
}

type createKeyIn struct{ Body api.CreateKey }

type createKeyOut struct {
	CacheControl string `header:"Cache-Control"`
	Body         api.CreatedKey
}

func (s *Server) createKey(ctx context.Context, in *createKeyIn) (*createKeyOut, error) {
	req := key.Request{Name: in.Body.Name, Tenant: in.Body.Tenant}
	if req.Tenant == "" {
		req.Tenant = auth.From(ctx).Tenant
	}
	for _, scope := range in.Body.Scopes {
		req.Scopes = append(req.Scopes, key.Scope(scope))
	}
	secret, rec, err := s.keys.Create(ctx, req)
	if err != nil {
		return nil, err
	}
	return &createKeyOut{"no-store", api.CreatedKey{Key: keyView(rec), Secret: secret.Reveal()}}, nil
}

type listKeysOut struct{ Body api.KeyList }

// listKeys shows the keys of all tenants: who may see them is admin of all.
func (s *Server) listKeys(ctx context.Context, _ *struct{}) (*listKeysOut, error) {
	recs, err := s.keys.List(ctx, "")
	if err != nil {
		return nil, err
	}
	list := api.KeyList{Items: make([]api.Key, len(recs))}
	for i, rec := range recs {
		list.Items[i] = keyView(rec)
	}
	return &listKeysOut{list}, nil
}

func keyView(r key.Record) api.Key {
	k := api.Key{ID: r.ID, Name: r.Name, Tenant: r.Tenant, Scopes: []string{}, CreatedAt: r.CreatedAt, RevokedAt: optionalTime(r.RevokedAt)}
	for _, scope := range r.Scopes {
		k.Scopes = append(k.Scopes, string(scope))
	}
	return k
}

type revokeKeyIn struct {
	ID string `path:"id"`
}

func (s *Server) revokeKey(ctx context.Context, in *revokeKeyIn) (*struct{}, error) {
	rec, err := s.keys.Revoke(ctx, "", in.ID)
	if err != nil {
		return nil, err
	}
	s.hub.Cut(rec.ID)
	return nil, nil
}
