package app

import (
	"fmt"
	"iter"

	"github.com/skete-dev/skete/api"
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
