package server

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// pageRuns lists those of a tenant; *supervisor.Supervisor does.
type pageRuns interface {
	List(ctx context.Context, tenant string, f runs.Filter) (runs.Page, error)
}

// How much of each list is shown.
const (
	homeSandboxesMax = 200
	homeRunsMax      = 50
	shortRun         = 12 // characters of an id
)

// homePolicy allows a style sheet, the mark, and the form that logs out.
const homePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// homePage is the page at /: what the caller's key may see. It has no script.
type homePage struct {
	pageConfig
	t *route.Table
}

func (h homePage) serve(w http.ResponseWriter, r *http.Request) {
	id, err := h.Gate.Admit(r, key.RunsRead)
	if p := problem.Of(err); p != nil && p.Status == http.StatusUnauthorized && h.Logins && !homeKeyed(r) {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, "/login?next=%2F", http.StatusSeeOther)
		return
	}
	if err != nil {
		h.t.Refuse(w, r, err)
		return
	}
	var b strings.Builder
	if err := h.write(r.Context(), &b, id); err != nil {
		h.t.Refuse(w, r, err)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", homePolicy)
	head.Set("Cache-Control", "no-store")
	head.Set("Referrer-Policy", "same-origin") // the form that logs out says where it comes from
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	_, _ = w.Write([]byte(b.String()))
}

// homeKeyed reports whether the caller shows a key, as programs do: a wrong one is
// answered, and not sent elsewhere.
func homeKeyed(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || r.Header.Get("X-API-Key") != ""
}

// write makes the page. By hand: see package login.
func (h homePage) write(ctx context.Context, b *strings.Builder, id auth.Identity) error {
	b.WriteString(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>skete</title><link rel="icon" type="image/svg+xml" href="/s/icon.svg"><link rel="stylesheet" href="/s/home.css"></head>
<body><header><img src="/s/icon.svg" alt="" width="28" height="28"><h1>skete</h1><span class="quiet">tenant ` + homeText(id.Tenant) + `</span>`)
	if id.Login != "" {
		b.WriteString(`<form method="post" action="/logout"><button>Log out</button></form>`)
	}
	b.WriteString("</header>\n<main>\n<h2>Sandboxes</h2>\n")
	names := map[string]string{} // of sandboxes, by id
	if !id.Scopes.Allow(key.Read) {
		b.WriteString(`<p class="empty">This key may see runs alone.</p>` + "\n")
	} else if err := h.sandboxes(ctx, b, id.Tenant, names); err != nil {
		return err
	}
	b.WriteString("<h2>Runs</h2>\n")
	if h.Runs == nil {
		b.WriteString(`<p class="empty">This server runs no agents.</p>` + "\n")
	} else if err := h.runs(ctx, b, id.Tenant, names); err != nil {
		return err
	}
	b.WriteString(`</main><footer><p><small><a href="/docs">The API</a></small></p></footer></body></html>` + "\n")
	return nil
}

// sandboxes writes the list of them and notes the names of those that have one.
func (h homePage) sandboxes(ctx context.Context, b *strings.Builder, tenant string, names map[string]string) error {
	page, err := h.Sandboxes.List(ctx, tenant, sandbox.Filter{PageSize: homeSandboxesMax})
	if err != nil {
		return err
	}
	if len(page.Items) == 0 {
		b.WriteString(`<p class="empty">There is no sandbox yet. <code>skete vm create --name demo</code> makes one, and so does each run.</p>` + "\n")
		return nil
	}
	homeTable(b, "Name", "State", "Isolation", "Run", "Made")
	for _, i := range page.Items {
		name := string(i.ID)
		if i.Spec.Name != "" {
			name = i.Spec.Name
			names[string(i.ID)] = name
		}
		state := string(i.State)
		if i.Reason != "" && i.State != sandbox.Running {
			state += " (" + i.Reason + ")"
		}
		homeRow(b, homeLink(name), homeText(state), homeText(string(i.Isolation)), homeText(shortText(i.ForRun.Run)), homeWhen(i.CreatedAt))
	}
	homeEnd(b, page.Next != "", homeSandboxesMax, "skete vm list")
	return nil
}

func (h homePage) runs(ctx context.Context, b *strings.Builder, tenant string, names map[string]string) error {
	page, err := h.Runs.List(ctx, tenant, runs.Filter{PageSize: homeRunsMax})
	if errs.Is(err, errs.Unsupported) {
		b.WriteString(`<p class="empty">` + homeText(errs.Public(err)) + "</p>\n")
		return nil
	}
	if err != nil {
		return err
	}
	if len(page.Runs) == 0 {
		b.WriteString(`<p class="empty">There is no run yet. <code>skete run 'Fix the failing test'</code> starts one.</p>` + "\n")
		return nil
	}
	homeTable(b, "Run", "State", "Agent", "Sandbox", "Begun", "Title")
	for _, r := range page.Runs {
		state := strings.ReplaceAll(string(r.State), "_", " ")
		if r.Waiting > 0 {
			state += fmt.Sprintf(" (%d approvals open)", r.Waiting)
		}
		at := ""
		if r.Sandbox != "" {
			at = homeLink(cmp.Or(names[r.Sandbox], r.Sandbox))
		}
		homeRow(b, "<code>"+homeText(shortText(string(r.ID)))+"</code>", homeText(state), homeText(r.Agent), at, homeWhen(r.Created), homeText(r.Title))
	}
	homeEnd(b, page.Next != "", homeRunsMax, "skete runs")
	b.WriteString("<p><small><code>skete show RUN</code> tells what a run did, <code>skete attach RUN</code> watches it.</small></p>\n")
	return nil
}

func homeTable(b *strings.Builder, heads ...string) {
	b.WriteString(`<div class="wide"><table><thead><tr>`)
	for _, head := range heads {
		b.WriteString(`<th scope="col">` + head + "</th>")
	}
	b.WriteString("</tr></thead><tbody>\n")
}

// homeRow writes cells that are HTML already; the last one may be long.
func homeRow(b *strings.Builder, cells ...string) {
	b.WriteString("<tr>")
	for i, cell := range cells {
		if i == len(cells)-1 {
			b.WriteString(`<td class="title">` + cell + "</td>")
			continue
		}
		b.WriteString("<td>" + cell + "</td>")
	}
	b.WriteString("</tr>\n")
}

func homeEnd(b *strings.Builder, more bool, shown int, command string) {
	b.WriteString("</tbody></table></div>\n")
	if more {
		b.WriteString("<p><small>These are the newest " + strconv.Itoa(shown) + "; <code>" + command + "</code> lists all.</small></p>\n")
	}
}

// homeText makes HTML of what people, models and guests wrote.
func homeText(s string) string { return html.EscapeString(strings.ToValidUTF8(s, "\uFFFD")) }

// homeLink leads to the page of a sandbox, by its name or id.
func homeLink(name string) string {
	return `<a href="/s/` + homeText(url.PathEscape(name)) + `">` + homeText(name) + "</a>"
}

func shortText(run string) string { return run[:min(shortRun, len(run))] }

// homeWhen is a moment, with the time since then.
func homeWhen(at time.Time) string {
	ago, since := "just now", time.Since(at)
	switch {
	case since >= 48*time.Hour:
		ago = fmt.Sprintf("%d days ago", int(since.Hours()/24))
	case since >= 2*time.Hour:
		ago = fmt.Sprintf("%d hours ago", int(since.Hours()))
	case since >= 2*time.Minute:
		ago = fmt.Sprintf("%d minutes ago", int(since.Minutes()))
	}
	utc := at.UTC().Format(time.RFC3339)
	return `<time datetime="` + utc + `" title="` + utc + `">` + ago + "</time>"
}
