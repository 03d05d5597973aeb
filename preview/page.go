package preview

import (
	"crypto/rand"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// pageData is what a person sees in the app's place.
type pageData struct {
	Title, Text, Hint, Nonce, Up, SignIn string
	Wait                                 bool
}

// html is the page. It needs nothing from anywhere, and runs no script but its
// own. Written by hand: with a template package in it, the linker would keep
// every method of every type of the program.
func (d pageData) html() string {
	e := html.EscapeString
	var b strings.Builder
	b.WriteString(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
`)
	if d.Wait {
		b.WriteString(`<noscript><meta http-equiv="refresh" content="2"></noscript>`)
	}
	b.WriteString(`<title>` + e(d.Title) + `</title>
<style nonce="` + e(d.Nonce) + `">
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:18vh auto;padding:0 1em}
h1{font-size:1.3em}p{opacity:.8}code{font-size:.95em}
</style>
<h1>` + e(d.Title) + `</h1>
<p>` + e(d.Text) + `</p>
`)
	if d.Hint != "" {
		b.WriteString(`<p>` + e(d.Hint) + `</p>`)
	}
	if d.SignIn != "" {
		b.WriteString(`<p><a href="` + e(d.SignIn) + `" target="_top" rel="noreferrer">Open it with skete</a></p>`)
	}
	if d.Wait {
		up, _ := json.Marshal(d.Up) // which escapes what could end the script
		b.WriteString(`<p id="state" role="status">This page comes back by itself.</p>
<script nonce="` + e(d.Nonce) + `">
(async () => {
  const began = Date.now();
  for (;;) {
    try {
      const r = await fetch(` + string(up) + `, {cache: 'no-store'});
      if (r.status === 204) { location.reload(); return; }
      if (r.status === 401) { location.reload(); return; }
    } catch {}
    const waited = Date.now() - began;
    await new Promise(r => setTimeout(r, waited < 60000 ? 100 : waited < 600000 ? 1000 : 5000));
  }
})();
</script>`)
	}
	b.WriteString("</html>\n")
	return b.String()
}

// wait answers while nothing listens: a page that comes back by itself, or for
// who is no person, a 503.
func (p *Previews) wait(w http.ResponseWriter, r *http.Request, s *stay, err error) {
	w.Header().Set("Retry-After", "1")
	class := errs.Of(err)
	if class == errs.NotFound { // the sandbox, or a closed port: which, is in the text
		class = errs.Unavailable
	}
	text := "Nothing answers on this port of the sandbox yet."
	if public := errs.Public(err); errs.Of(err) != errs.Internal {
		text = public
	}
	if !person(r) {
		problem(w, http.StatusServiceUnavailable, class, text, "")
		return
	}
	p.show(w, http.StatusServiceUnavailable, pageData{Title: "Waiting for the app", Text: text, Hint: errs.Hint(err), Up: upPath, Wait: true})
}

// refuse says why a visitor does not get in.
func (p *Previews) refuse(w http.ResponseWriter, r *http.Request, t Target, status int, err error) {
	if !person(r) {
		problem(w, status, errs.Of(err), errs.Public(err), errs.Hint(err))
		return
	}
	d := pageData{Title: http.StatusText(status), Text: errs.Public(err), Hint: errs.Hint(err)}
	if t.Port != 0 && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
		to := r.URL.RequestURI()
		if strings.HasPrefix(r.URL.Path, ownPath) || len(to) > pathLenMax {
			to = "/"
		}
		d.SignIn = p.SignInURL(t, to)
	}
	p.show(w, status, d)
}

// person reports whether a browser asks for a page.
func person(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") && (mode == "" || mode == "navigate")
}

func (p *Previews) show(w http.ResponseWriter, status int, d pageData) {
	d.Nonce = rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; style-src 'nonce-"+d.Nonce+
		"'; script-src 'nonce-"+d.Nonce+"'; "+framePolicy(p.c.AppOrigin))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, d.html())
}

func problem(w http.ResponseWriter, status int, class errs.Class, detail, hint string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "class": string(class), "detail": detail, "hint": hint})
}
