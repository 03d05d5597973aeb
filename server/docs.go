package server

import (
	"embed"
	"net/http"

	"github.com/skete-dev/skete/server/route"
)

// This file is the page that documents the API: it draws the server's own
// OpenAPI document, without any outside part, so it works where the server does.

//go:embed web/docs
var docsFiles embed.FS

// docsPolicy is the content security policy of documents: this server's own parts alone.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// registerDocs adds the page to the table.
func registerDocs(t *route.Table) {
	for path, file := range map[string]struct{ name, contentType string }{
		"/docs":          {"index.html", "text/html; charset=utf-8"},
		"/docs/docs.js":  {"docs.js", "text/javascript; charset=utf-8"},
		"/docs/docs.css": {"docs.css", "text/css; charset=utf-8"},
	} {
		t.Plain(path, route.Public, map[string]bool{}, func(w http.ResponseWriter, r *http.Request) {
			body, err := docsFiles.ReadFile("web/docs/" + file.name)
			if err != nil {
				t.Refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", file.contentType)
			w.Header().Set("Content-Security-Policy", docsPolicy)
			_, _ = w.Write(body)
		})
	}
}
