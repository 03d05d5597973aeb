// Package web carries the web UI: what web/ui is built to, packed, in web/dist.
//
//	if web.Built {
//		web.ServePage(w, r, web.Page{Version: "1.2.3", Frames: []string{"http://*.preview.localhost:*"}})
//		web.ServeFile(w, r, "assets/index-abc.js")
//	}
//
// A page is static but for a nonce, which its policy asks style sheets and scripts for, and the
// server's version. Nothing of a tenant is in it: what it shows it asks of the API. Files whose
// names have a hash never change and may be kept for ever; the page and the others are asked
// for again each time, so that the parts fit each other after an upgrade.
//
// With the build tag noweb the program has no UI, and Built is false.
//
// The functions are safe for concurrent use.
package web
