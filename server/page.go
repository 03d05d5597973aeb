package server

import (
	"embed"
	"net/http"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/route"
)

// This file is what people see of the server in a browser. At /s/{id} is one
// sandbox: its revisions, what each changed, the ways back with a preview of what
// they touch, its services, and its app in a frame of another origin.
//
// The page of a sandbox is static: nothing of a sandbox is in it, so it needs no login.
// What it shows it asks of the API, with the browser's session. Its policy
// allows no script, style or connection but this server's own; text goes in as
// text. What is shown in the frame cannot reach it: it has another origin.
//
// Handlers are safe for concurrent use.

//go:embed web/page
var pageFiles embed.FS

var pageAssets = map[string]string{
	"page.js":  "text/javascript; charset=utf-8",
	"show.js":  "text/javascript; charset=utf-8",
	"page.css": "text/css; charset=utf-8",
	"icon.svg": "image/svg+xml",
}

// registerPages adds the page to the table. frames are the origins of previews, as a content
// security policy names them; nil = there are none.
func registerPages(t *route.Table, frames []string) {
	if len(frames) == 0 {
		frames = []string{"'none'"}
	}
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; frame-src " +
		strings.Join(frames, " ")
	none := map[string]bool{}
	t.Plain("/s/{id}", route.Public, none, func(w http.ResponseWriter, r *http.Request) {
		// A name may stand for the id; whether there is one, its caller learns.
		if err := sandbox.CheckIDOrName(r.PathValue("id")); err != nil {
			t.Refuse(w, r, errs.Wrap(errs.NotFound, err, "there is no such page").WithHint("/s/ and a sandbox's id, sbx_…, or name"))
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
		sendPage(w, "page.html", "text/html; charset=utf-8")
	})
	for name, contentType := range pageAssets {
		t.Plain("/s/"+name, route.Public, none, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
			sendPage(w, name, contentType)
		})
	}
}

// sendPage answers with an embedded file. It is small, and asked for again each
// time: after an upgrade the parts must fit each other.
func sendPage(w http.ResponseWriter, name, contentType string) {
	body, err := pageFiles.ReadFile("web/page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-cache")
	_, _ = w.Write(body)
}
