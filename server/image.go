package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/template"
)

// Images is what the server needs of *template.Store beside the plain list.
type Images interface {
	Get(ctx context.Context, name string) (template.Info, error)
	ImportFor(ctx context.Context, name, platform string, tar io.Reader) (template.Info, error)
	Pull(ctx context.Context, ref string, o template.PullOptions, tell func(template.Progress)) (template.Info, error)
	Export(ctx context.Context, name string, w io.Writer) error
	GC(ctx context.Context, all bool) (template.Swept, error)
	Usage(ctx context.Context) (template.Usage, error)
}

// layerNewsEvery is how often it is told how far a layer is.
const layerNewsEvery = 100 * time.Millisecond

func (s *Server) registerImages(t *route.Table) {
	const tag, base = "templates", "/v1/templates"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{name}", Scope: key.Read, ID: "get-template", Tag: tag,
		Summary: "Describe a template",
	}, s.getTemplate)
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: base + "/pull", Scope: key.Admin, ID: "pull-template", Tag: tag,
		Summary: "Make a template of an image in a registry, and tell how it goes", Sends: route.Events[api.TemplateNews](),
	}, s.pullTemplate)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{name}/bundle", Scope: key.Admin, ID: "export-template", Tag: tag,
		Summary: "Read a template and what goes with it as a bundle", Sends: route.Bytes("application/x-tar", "The bundle; the import takes it"),
	}, s.exportTemplate)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/usage/templates", Scope: key.Read, ID: "get-template-usage", Tag: tag,
		Summary: "Say what templates take of the disk",
	}, s.templateUsage)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base + "/gc", Scope: key.Admin, ID: "sweep-templates", Tag: tag,
		Summary: "Delete what no template and no sandbox needs",
	}, s.sweepTemplates)
}

type getTemplateIn struct {
	Name string `path:"name" maxLength:"64"`
}

type getTemplateOut struct{ Body api.Template }

func (s *Server) getTemplate(ctx context.Context, in *getTemplateIn) (*getTemplateOut, error) {
	info, err := s.templates.Get(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &getTemplateOut{templateView(info)}, nil
}

type pullTemplateIn struct{ Body api.PullTemplate }

// pullTemplate ends when the client is gone. Its password is in no log: bodies
// are not logged, and what a registry answers is not shown.
func (s *Server) pullTemplate(w http.ResponseWriter, r *http.Request, in *pullTemplateIn) error {
	p := in.Body
	o := template.PullOptions{
		Name: p.Name, Platform: p.Platform, InsecureHTTP: p.InsecureHTTP,
		Auth: template.NewAuth(p.Username, p.Password, p.IdentityToken, p.RegistryToken),
	}
	return s.narrate(w, r, func(ctx context.Context, tell func(api.TemplateNews)) error {
		info, err := s.templates.Pull(ctx, p.Reference, o, thin(tell))
		if err != nil {
			return err
		}
		tell(made(info))
		return nil
	})
}

// thin tells of a layer now and then, and of its begin and end.
func thin(tell func(api.TemplateNews)) func(template.Progress) {
	var mu sync.Mutex // guards told
	told := map[string]time.Time{}
	return func(p template.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Layer != "" && p.Done > 0 && p.Done < p.Total && time.Since(told[p.Layer]) < layerNewsEvery {
			return
		}
		told[p.Layer] = time.Now()
		tell(api.TemplateNews{Kind: api.NewsProgress, Stage: p.Stage, Text: p.Text, Layer: p.Layer, Done: p.Done, Total: p.Total})
	}
}

type exportTemplateIn struct {
	Name string `path:"name" maxLength:"64"`
}

// exportTemplate answers an error as one as long as nothing was written;
// afterwards it breaks the answer off.
func (s *Server) exportTemplate(w http.ResponseWriter, r *http.Request, in *exportTemplateIn) error {
	out := &late{w: w}
	err := s.templates.Export(r.Context(), in.Name, out)
	if err != nil && out.begun {
		route.Note(r, err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// late sends the header with the first byte.
type late struct {
	w     http.ResponseWriter
	begun bool
}

func (l *late) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-tar")
		l.w.Header().Set("Cache-Control", "no-store")
	}
	return l.w.Write(b)
}

type templateUsageOut struct{ Body api.TemplateUsage }

func (s *Server) templateUsage(ctx context.Context, _ *struct{}) (*templateUsageOut, error) {
	u, err := s.templates.Usage(ctx)
	if err != nil {
		return nil, err
	}
	return &templateUsageOut{api.TemplateUsage{
		Trees: u.Trees, TreeBytes: u.TreeBytes, Images: u.Images, ImageBytes: u.ImageBytes, Blobs: u.Blobs, BlobBytes: u.BlobBytes,
	}}, nil
}

type sweepTemplatesIn struct {
	All bool `query:"all" doc:"also what was fetched by pulls that did not end"`
}

type sweepTemplatesOut struct{ Body api.TemplatesSwept }

func (s *Server) sweepTemplates(ctx context.Context, in *sweepTemplatesIn) (*sweepTemplatesOut, error) {
	swept, err := s.templates.GC(ctx, in.All)
	if err != nil {
		return nil, err
	}
	return &sweepTemplatesOut{api.TemplatesSwept{Trees: swept.Trees, Images: swept.Images, Blobs: swept.Blobs, Bytes: swept.Bytes}}, nil
}

// sourceView says which image a template was made of.
func sourceView(t template.Info) *api.TemplateSource {
	if t.Source == nil {
		return nil
	}
	c := t.Source.Config
	return &api.TemplateSource{
		Reference: t.Source.Reference, Digest: t.Source.Digest, Platform: t.Source.Platform,
		Env: c.Env, WorkingDir: c.WorkingDir, User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
	}
}
