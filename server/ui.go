package server

import (
	"net"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/web"
)

// This file serves the web UI: one page for all of its routes, and the files that it needs.
// The page is static. A browser without a login is led to it.

// uiRoutes are those of the page: see web/ui/src/app.tsx.
var uiRoutes = []string{
	"/{$}", "/runs", "/runs/{rest...}", "/approvals", "/vms", "/vms/{rest...}", "/workflows", "/workflows/{rest...}", "/workflow-runs/{rest...}",
	"/skills", "/skills/{rest...}", "/network", "/secrets", "/usage", "/settings", "/settings/{rest...}",
}

// uiConfig of the page.
type uiConfig struct {
	Page web.Page
	Gate *auth.Authenticator
	// Logins: a browser can log in at /login.
	Logins bool
}

// registerUI adds the page to the table.
func registerUI(t *route.Table, c uiConfig) {
	u := ui{c, t}
	for _, path := range uiRoutes {
		t.Plain(path, route.Public, nil, u.page)
	}
	t.Plain("/s/{id}", route.Public, map[string]bool{}, u.short)
	t.Plain("/ui/{name...}", route.Public, map[string]bool{}, func(w http.ResponseWriter, r *http.Request) {
		if err := web.ServeFile(w, r, r.PathValue("name")); err != nil {
			t.Refuse(w, r, err)
		}
	})
}

type ui struct {
	uiConfig
	t *route.Table
}

func (u ui) page(w http.ResponseWriter, r *http.Request) {
	if to := byName(r); to != "" {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	if u.away(r) {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	if !web.Built {
		u.t.Refuse(w, r, unbuilt())
		return
	}
	if err := web.ServePage(w, u.Page); err != nil {
		u.t.Refuse(w, r, err)
	}
}

// short is the short address of a sandbox, by its id or its name: it leads to what its files went
// through. It needs no login and asks for no sandbox, so it tells nothing of which there are.
func (u ui) short(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if err := sandbox.CheckIDOrName(id); err != nil {
		u.t.Refuse(w, r, errs.Wrap(errs.NotFound, err, "there is no such page").WithHint("/s/ and a sandbox's id, sbx_…, or name"))
		return
	}
	if !web.Built {
		u.t.Refuse(w, r, unbuilt())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/vms/"+url.PathEscape(id)+"/changes", http.StatusSeeOther)
}

func unbuilt() error {
	return errs.New(errs.Unsupported, "this program was built without the web UI").WithHint("`skete runs` and `skete vm list` show the same")
}

// byName is where a person goes who went to a loopback address: the name, to which the
// addresses of previews belong. "" = that is no person, or the name was used.
func byName(r *http.Request) string {
	host, port, err := net.SplitHostPort(r.Host)
	ip := net.ParseIP(host)
	if err != nil || ip == nil || !ip.IsLoopback() || r.TLS != nil || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return ""
	}
	return "http://" + net.JoinHostPort("localhost", port) + r.URL.RequestURI()
}

// away reports whether a browser has to log in first. A program that shows a key is none.
func (u ui) away(r *http.Request) bool {
	if !u.Logins || r.Header.Get("Authorization") != "" || r.Header.Get("X-API-Key") != "" {
		return false
	}
	_, err := u.Gate.Admit(r, key.RunsRead)
	p := problem.Of(err)
	return p != nil && p.Status == http.StatusUnauthorized
}
