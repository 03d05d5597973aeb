// Package docs is the page that documents the API: it draws the server's own
// OpenAPI document, without any outside part, so it works where the server does.
//
//	docs.Register(table)
package docs

import (
	"embed"
	"net/http"

	"github.com/skete-dev/skete/server/route"
)

//go:embed index.html docs.js docs.css
var files embed.FS

// Policy is the content security policy of documents: this server's own parts alone.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Register adds the page to the table.
func Register(t *route.Table) {
	for path, file := range map[string]struct{ name, contentType string }{
		"/docs":          {"index.html", "text/html; charset=utf-8"},
		"/docs/docs.js":  {"docs.js", "text/javascript; charset=utf-8"},
		"/docs/docs.css": {"docs.css", "text/css; charset=utf-8"},
	} {
		t.Plain(path, route.Public, map[string]bool{}, func(w http.ResponseWriter, r *http.Request) {
			body, err := files.ReadFile(file.name)
			if err != nil {
				t.Refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", file.contentType)
			w.Header().Set("Content-Security-Policy", Policy)
			_, _ = w.Write(body)
		})
	}
}
