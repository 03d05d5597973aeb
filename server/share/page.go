package share

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/skete-dev/skete/api"
)

// This file is the page at which a shared run is read. All texts of it are an agent's, or
// were read by one: they are escaped, and what would change how others are drawn is replaced.

// page is what is shown. Problem: why nothing is.
type page struct {
	Problem string
	Run     api.Run
	Story   api.Transcript
	Before  int
	Expires time.Time
	Now     time.Time
}

func write(w http.ResponseWriter, status int, p page) {
	nonce := rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address is the secret
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, p.html(nonce))
}

const style = `
:root{color-scheme:light dark;--back:#f7f8fa;--card:#fff;--line:#c9ced6;--text:#171a1f;--quiet:#596270;--main:#0b5fbf;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--back:#111418;--card:#181c22;--line:#3b434f;--text:#e7eaee;--quiet:#9aa5b3;--main:#6cabf7;--bad:#ff9389}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--back);color:var(--text);margin:0}
main{max-width:56em;margin:0 auto;padding:1em;overflow-wrap:anywhere}
h1{font-size:1.35em;margin:.2em 0}h2{font-size:1em;margin:0;color:var(--quiet);font-weight:600}
section,.said{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7em 1em;margin:.8em 0}
.said{border-left:4px solid var(--main)}.gone{opacity:.75;border-style:dashed}
p{margin:.4em 0}.text{white-space:pre-wrap;unicode-bidi:isolate}
pre{background:var(--back);border:1px solid var(--line);border-radius:6px;padding:.5em .7em;margin:.3em 0;white-space:pre-wrap;font:13px/1.45 ui-monospace,monospace;unicode-bidi:isolate}
code{font:13px ui-monospace,monospace;unicode-bidi:isolate}
small,.quiet{color:var(--quiet)}.bad{color:var(--bad)}a{color:var(--main)}:focus-visible{outline:2px solid var(--main);outline-offset:2px}
ul{margin:.3em 0;padding-left:1.3em}
`

// html is the page. Written by hand: with a template package in it, the linker would keep
// every method of every type of the program.
func (p page) html(nonce string) string {
	var b writer
	b.raw(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>skete</title><style nonce="`, nonce, `">`, style, `</style><main>`)
	if p.Problem != "" {
		b.raw(`<h1>There is nothing to see here</h1><p role="alert">`)
		b.text(p.Problem)
		b.raw("</p>")
	} else {
		p.head(&b)
		for _, s := range p.Story.Steps {
			step(&b, s)
		}
		p.foot(&b)
	}
	b.raw("</main></html>\n")
	return b.String()
}

func (p page) head(b *writer) {
	b.raw("<h1>")
	b.text(cmp.Or(p.Run.Title, p.Run.ID))
	b.raw(`</h1><p class="quiet">`)
	b.text(strings.ReplaceAll(p.Run.State, "_", " "), " · agent ", p.Run.Agent, " · ", plural(p.Story.Total, "step"), " · started ", stamp(p.Run.CreatedAt))
	if p.Run.EndedAt != nil {
		b.text(" · ended ", stamp(*p.Run.EndedAt))
	}
	b.raw("</p>")
	if len(p.Story.Todos) > 0 && p.Before == 0 {
		b.raw(`<section aria-label="Plan"><h2>Plan</h2><ul>`)
		for _, t := range p.Story.Todos {
			b.raw("<li>")
			b.text(t.Content, " ")
			b.raw("<small>")
			b.text(strings.ReplaceAll(t.Status, "_", " "))
			b.raw("</small></li>")
		}
		b.raw("</ul></section>")
	}
	if p.Story.Before > 0 {
		b.raw(`<p><a href="?before=`, strconv.Itoa(p.Story.Before), `">Earlier steps</a></p>`)
	}
}

func (p page) foot(b *writer) {
	if p.Run.EndedAt != nil && p.Run.State != "succeeded" {
		b.raw(`<p class="bad">`)
		b.text("The run ended as ", strings.ReplaceAll(p.Run.State, "_", " "), ": ", cmp.Or(p.Run.Text, strings.ReplaceAll(p.Run.Reason, "_", " "), "no reason is known"))
		b.raw("</p>")
	}
	if p.Before > 0 {
		b.raw(`<p><a href="?">The newest steps</a></p>`)
	} else if p.Run.EndedAt == nil {
		b.raw(`<p>The run goes on. <a href="?">Load it again</a></p>`)
	}
	b.raw(`<p><small>`)
	b.text("As it was at ", stamp(p.Now), ". Long texts and outputs are cut. Shared from skete until ", stamp(p.Expires), ".")
	b.raw(`</small></p>`)
}

func step(b *writer, s api.TranscriptStep) {
	for _, in := range s.Inputs {
		b.raw(`<div class="said"><h2>`)
		b.text(from(in))
		b.raw(`</h2><p class="text">`)
		b.text(in.Text)
		b.raw("</p></div>")
	}
	b.raw(`<section`)
	if s.Rewound {
		b.raw(` class="gone"`)
	}
	b.raw(`><h2>`)
	b.text("Step ", strconv.Itoa(s.Step))
	if s.Rewound {
		b.text(", taken back later")
	}
	b.raw("</h2>")
	if s.Text != "" {
		b.raw(`<p class="text">`)
		b.text(s.Text)
		if s.TextBytes > 0 {
			b.text(" …")
		}
		b.raw("</p>")
	}
	for _, c := range s.Calls {
		call(b, c)
	}
	for _, f := range s.Failures {
		b.raw(`<p class="bad">`)
		b.text("The model did not answer: ", f.Trouble)
		b.raw("</p>")
	}
	for _, n := range s.Notes {
		b.raw(`<p class="quiet">`)
		b.text(n)
		b.raw("</p>")
	}
	b.raw("</section>")
}

func from(in api.TranscriptInput) string {
	if in.From == "user" {
		return "A person"
	}
	return cmp.Or(in.Name, in.From)
}

func call(b *writer, c api.TranscriptCall) {
	b.raw("<p><code>")
	b.text(c.Tool, " ", c.Args)
	b.raw("</code> ")
	bad := c.Status == "failed" || c.Status == "rejected" || c.Exit != nil && *c.Exit != 0
	if bad {
		b.raw(`<small class="bad">`)
	} else {
		b.raw("<small>")
	}
	b.text(c.Status)
	if c.Exit != nil {
		b.text(", exit ", strconv.Itoa(*c.Exit))
	}
	if c.Approval != nil && c.Approval.Decision != "" {
		b.text(", decided: ", c.Approval.Decision)
	}
	b.raw("</small></p>")
	if c.Head != "" {
		b.raw(`<pre>`)
		b.text(c.Head)
		if c.Bytes > int64(len(c.Head)) {
			b.text(" …")
		}
		b.raw("</pre>")
	}
}

// writer writes HTML.
type writer struct{ strings.Builder }

func (b *writer) raw(parts ...string) {
	for _, s := range parts {
		b.WriteString(s)
	}
}

func (b *writer) text(parts ...string) {
	for _, s := range parts {
		b.WriteString(html.EscapeString(plain(s)))
	}
}

// colours are what programs write to colour a terminal.
var colours = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]") })

// plain takes out of a text what would change how others are drawn: colours, and, replaced by
// a sign that something was there, control characters and those that turn the direction.
func plain(s string) string {
	if strings.Contains(s, "\x1b") {
		s = colours().ReplaceAllString(s, "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return -1
		case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x61c:
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
