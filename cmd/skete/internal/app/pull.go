package app

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
)

// barEvery is how often a bar is drawn at most.
const barEvery = 100 * time.Millisecond

// Pulling tells people how a pull goes and returns the template: a bar on a
// terminal, else a line for each layer; with --json the news as lines of JSON
// on stderr.
func (a *App) Pulling(news iter.Seq2[api.TemplateNews, error]) (t api.Template, err error) {
	p := &layers{app: a, of: map[string]*[2]int64{}}
	defer p.clear()
	for n, err := range news {
		if err != nil {
			return t, err
		}
		if n.Made != nil {
			t = *n.Made
		}
		switch {
		case a.JSON:
			_ = PrintJSONLine(a.Err, n)
		case !a.Quiet:
			p.take(n)
		}
	}
	return t, nil
}

// layers sums up how far layers are.
type layers struct {
	app   *App
	stage string
	of    map[string]*[2]int64 // done, total
	drawn time.Time
	wide  int // of the bar that is on the screen
}

func (p *layers) take(n api.TemplateNews) {
	if n.Stage != p.stage && n.Layer != "" {
		p.stage, p.of = n.Stage, map[string]*[2]int64{}
	}
	if n.Layer == "" {
		if n.Text != "" {
			p.clear()
			p.app.Note("%s", Printable(n.Text))
		}
		return
	}
	had := p.of[n.Layer]
	whole := n.Done == n.Total && n.Total > 0 && (had == nil || had[0] != had[1])
	p.of[n.Layer] = &[2]int64{n.Done, n.Total}
	if width, ok := p.app.barWidth(); ok {
		p.draw(width)
		return
	}
	if whole {
		p.app.Note("%s %s %s", Cell(n.Stage), shortDigest(n.Layer), BytesText(n.Total))
	}
}

// barWidth is how wide a bar may be; false: stderr is no terminal.
func (a *App) barWidth() (int, bool) {
	f, ok := a.Err.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil && width >= 40
}

func (p *layers) draw(width int) {
	if time.Since(p.drawn) < barEvery {
		return
	}
	p.drawn = time.Now()
	line := p.line(width)
	_, _ = io.WriteString(p.app.Err, "\r"+line+strings.Repeat(" ", max(p.wide-len(line), 0)))
	p.wide = len(line)
}

// line is the bar: all layers together.
func (p *layers) line(width int) string {
	var done, total int64
	for _, l := range p.of {
		done += l[0]
		total += l[1]
	}
	text := fmt.Sprintf("%s %s of %s", p.stage, BytesText(done), BytesText(total))
	cells := min(width-len(text)-4, 40)
	full := 0
	if total > 0 {
		full = int(int64(cells) * done / total)
	}
	return fmt.Sprintf("[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", max(cells-full, 0)), text)
}

func (p *layers) clear() {
	if p.wide > 0 {
		_, _ = io.WriteString(p.app.Err, "\r"+strings.Repeat(" ", p.wide)+"\r")
		p.wide = 0
	}
}

func shortDigest(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return Cell(hex[:min(12, len(hex))])
}
