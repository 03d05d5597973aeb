package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/template"
)

// Makers is what the server needs to make templates.
type Makers interface {
	// Ready names the templates that can be made when they are asked for.
	Ready() []string
	// Prepare makes one of them unless it is there.
	Prepare(ctx context.Context, name string, say func(line string)) (template.Info, error)
	// Build makes a template of a recipe and its files, as a tar stream.
	Build(ctx context.Context, b BuildRequest, tell func(api.TemplateNews)) (template.Info, error)
}

// BuildRequest asks for a template to be built.
type BuildRequest struct {
	Tenant  string
	Name    string    // of the template
	Fresh   bool      // take nothing from earlier builds
	Context io.Reader // a tar; read to its end before the first news
}

// newsMax is how much news may wait for a slow client; the oldest output is
// dropped then.
const newsMax = 4096

func (s *Server) registerMakers(t *route.Table) {
	const tag, base = "templates", "/v1/templates"
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: base + "/prepare", Scope: key.Write, ID: "prepare-templates", Tag: tag,
		Summary: "Make ready templates that are not there yet, and tell how it goes", Sends: route.Events[api.TemplateNews](),
	}, s.prepareTemplates)
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: base + "/build", Scope: key.Admin, ID: "build-template", Tag: tag,
		Summary: "Build a template of a recipe and its files, and tell how it goes", Takes: "application/x-tar", Sends: route.Events[api.TemplateNews](),
	}, s.buildTemplate)
}

var errNoMakers = errs.New(errs.Unsupported, "this server makes no templates")

type prepareTemplatesIn struct{ Body api.PrepareTemplates }

func (s *Server) prepareTemplates(w http.ResponseWriter, r *http.Request, in *prepareTemplatesIn) error {
	if s.makers == nil {
		return errNoMakers
	}
	names, err := s.toPrepare(r.Context(), in.Body)
	if err != nil {
		return err
	}
	return s.narrate(w, r, func(ctx context.Context, tell func(api.TemplateNews)) error {
		for _, name := range names {
			info, err := s.makers.Prepare(ctx, name, func(line string) {
				tell(api.TemplateNews{Kind: api.NewsProgress, Template: name, Text: line})
			})
			if err != nil {
				return err
			}
			tell(made(info))
		}
		return nil
	})
}

func made(info template.Info) api.TemplateNews {
	v := templateView(info)
	return api.TemplateNews{Kind: api.NewsDone, Template: info.Name, Made: &v}
}

// toPrepare names the ready templates that are meant and not there.
func (s *Server) toPrepare(ctx context.Context, p api.PrepareTemplates) ([]string, error) {
	ready := s.makers.Ready()
	names := slices.Clone(p.Names)
	if p.All {
		names = append(names, ready...)
	}
	if p.For != nil {
		spec, err := SpecOf(*p.For)
		if err != nil {
			return nil, err
		}
		if spec, err = s.sandboxes.Settle(ctx, spec); err != nil {
			return nil, err
		}
		if slices.Contains(ready, spec.Template) {
			names = append(names, spec.Template)
		}
	}
	if p.For == nil && len(names) == 0 {
		return nil, errs.New(errs.Invalid, "no template is named").WithHint("names, all or for")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

type buildTemplateIn struct {
	Name  string `query:"name" required:"true" maxLength:"64" doc:"of the template"`
	Fresh bool   `query:"fresh" doc:"take nothing from earlier builds"`
}

func (s *Server) buildTemplate(w http.ResponseWriter, r *http.Request, in *buildTemplateIn) error {
	if s.makers == nil {
		return errNoMakers
	}
	limited, err := route.Body(w, r, s.limits.TemplateBytesMax)
	if err != nil {
		return err
	}
	body := &watchedBody{r: limited}
	b := BuildRequest{Tenant: auth.From(r.Context()).Tenant, Name: in.Name, Fresh: in.Fresh, Context: body}
	return s.narrate(w, r, func(ctx context.Context, tell func(api.TemplateNews)) error {
		info, err := s.makers.Build(ctx, b, tell)
		switch {
		case err != nil && body.err != nil:
			return route.BodyError(body.err)
		case err != nil:
			return err
		}
		tell(made(info))
		return nil
	})
}

// narrate runs work, which ends when the client is gone, and sends what it
// tells. What goes wrong before it tells anything is answered like any error.
func (s *Server) narrate(w http.ResponseWriter, r *http.Request, work func(context.Context, func(api.TemplateNews)) error) error {
	ctx, release, err := s.hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := newNews()
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		n.end(work(ctx, n.tell))
	}()
	defer func() { cancel(); <-worked }()
	first, err := n.next(ctx)
	if err != nil && !errors.Is(err, stream.ErrEnd) {
		return err
	}
	out, serr := stream.NewSSE(w)
	if serr != nil || err != nil {
		return serr
	}
	send := func(v api.TemplateNews) error { return out.Event("", "news", v) }
	if err := send(first); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	return stream.Pump(ctx, cancel, out, n.next, send)
}

// news is a queue of bounded length between who works and who sends. Telling
// never waits.
type news struct {
	mu    sync.Mutex // guards list and err
	list  []api.TemplateNews
	err   error
	more  chan struct{} // holds one when there may be something
	limit int
}

func newNews() *news { return &news{more: make(chan struct{}, 1), limit: newsMax} }

func (n *news) tell(v api.TemplateNews) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) >= n.limit {
		if i := slices.IndexFunc(n.list, func(v api.TemplateNews) bool { return v.Kind == api.NewsOutput || v.Kind == api.NewsProgress }); i >= 0 {
			n.list = slices.Delete(n.list, i, i+1)
		}
	}
	n.list = append(n.list, v)
	n.wake()
}

func (n *news) end(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err = err; err == nil {
		n.err = stream.ErrEnd
	}
	n.wake()
}

func (n *news) wake() {
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// next returns what was told, in order, then how it ended.
func (n *news) next(ctx context.Context) (api.TemplateNews, error) {
	for {
		n.mu.Lock()
		if len(n.list) > 0 {
			v := n.list[0]
			n.list = n.list[1:]
			n.mu.Unlock()
			return v, nil
		}
		err := n.err
		n.mu.Unlock()
		if err != nil {
			return api.TemplateNews{}, err
		}
		select {
		case <-n.more:
		case <-ctx.Done():
			return api.TemplateNews{}, ctx.Err()
		}
	}
}
