package app

import (
	"context"
	"fmt"
	"iter"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
)

// Making tells people how templates are made and returns those that are there
// now. With --json the news are lines of JSON on stderr.
func (a *App) Making(news iter.Seq2[api.TemplateNews, error]) ([]api.Template, error) {
	var done []api.Template
	for n, err := range news {
		if err != nil {
			return done, err
		}
		if n.Made != nil {
			done = append(done, *n.Made)
		}
		switch {
		case a.JSON:
			_ = PrintJSONLine(a.Err, n)
		case a.Quiet:
		case n.Kind == api.NewsOutput:
			_, _ = fmt.Fprint(a.Err, Printable(n.Text)) // what a step writes, as it comes
		case n.Kind == api.NewsStep:
			done := ""
			if n.Cached {
				done = " (done before)"
			}
			a.Note("[%d/%d] %s%s", n.Step, n.Steps, Printable(n.Text), done)
		case n.Kind == api.NewsProgress:
			a.Note("%s: %s", Cell(n.Template), Printable(n.Text))
		}
	}
	return done, nil
}

// Prepare lets the sandbox's template be made, if it is a ready one that is
// not there yet, and shows how it goes: the create would do so too, in silence.
func (a *App) Prepare(ctx context.Context, c *client.Client, req api.CreateSandbox) error {
	hostTools := req.Provider == "gvisor" || req.Provider == "process"
	if req.Template == "" && hostTools || req.Template != "" && !template.IsReady(req.Template) {
		return nil
	}
	_, err := a.Making(c.PrepareTemplates(ctx, api.PrepareTemplates{For: &req}))
	if req.Template == "" && (errs.Is(err, errs.Unsupported) || errs.Is(err, errs.NotFound)) {
		return nil // what cannot be had, the create says better; an older server makes none
	}
	return err
}
