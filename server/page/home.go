package page

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
	"github.com/skete-dev/skete/server/gate"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// Sandboxes lists those of a tenant; *manager.Manager does.
type Sandboxes interface {
	List(ctx context.Context, tenant string, f sandbox.Filter) (sandbox.Page, error)
}

// Runs lists those of a tenant; *supervisor.Supervisor does.
type Runs interface {
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

// home is the page at /: what the caller's key may see. It has no script.
type home struct {
	Config
	t *route.Table
}

func (h home) serve(w http.ResponseWriter, r *http.Request) {
	id, err := h.Gate.Admit(r, key.RunsRead)
	if p := problem.Of(err); p != nil && p.Status == http.StatusUnauthorized && h.Logins && !keyed(r) {
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

// keyed reports whether the caller shows a key, as programs do: a wrong one is
// answered, and not sent elsewhere.
func keyed(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || r.Header.Get("X-API-Key") != ""
}

// write makes the page. By hand: see package login.
func (h home) write(ctx context.Context, b *strings.Builder, id gate.Identity) error {
	b.WriteString(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>skete</title><link rel="icon" type="image/svg+xml" href="/s/icon.svg"><link rel="stylesheet" href="/s/home.css"></head>
<body><header><img src="/s/icon.svg" alt="" width="28" height="28"><h1>skete</h1><span class="quiet">tenant ` + text(id.Tenant) + `</span>`)
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
func (h home) sandboxes(ctx context.Context, b *strings.Builder, tenant string, names map[string]string) error {
	page, err := h.Sandboxes.List(ctx, tenant, sandbox.Filter{PageSize: homeSandboxesMax})
	if err != nil {
		return err
	}
	if len(page.Items) == 0 {
		b.WriteString(`<p class="empty">There is no sandbox yet. <code>skete vm create --name demo</code> makes one, and so does each run.</p>` + "\n")
		return nil
	}
	table(b, "Name", "State", "Isolation", "Run", "Made")
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
		row(b, link(name), text(state), text(string(i.Isolation)), text(short(i.ForRun.Run)), when(i.CreatedAt))
	}
	end(b, page.Next != "", homeSandboxesMax, "skete vm list")
	return nil
}

func (h home) runs(ctx context.Context, b *strings.Builder, tenant string, names map[string]string) error {
	page, err := h.Runs.List(ctx, tenant, runs.Filter{PageSize: homeRunsMax})
	if errs.Is(err, errs.Unsupported) {
		b.WriteString(`<p class="empty">` + text(errs.Public(err)) + "</p>\n")
		return nil
	}
	if err != nil {
		return err
	}
	if len(page.Runs) == 0 {
		b.WriteString(`<p class="empty">There is no run yet. <code>skete run 'Fix the failing test'</code> starts one.</p>` + "\n")
		return nil
	}
	table(b, "Run", "State", "Agent", "Sandbox", "Begun", "Title")
	for _, r := range page.Runs {
		state := strings.ReplaceAll(string(r.State), "_", " ")
		if r.Waiting > 0 {
			state += fmt.Sprintf(" (%d approvals open)", r.Waiting)
		}
		at := ""
		if r.Sandbox != "" {
			at = link(cmp.Or(names[r.Sandbox], r.Sandbox))
		}
		row(b, "<code>"+text(short(string(r.ID)))+"</code>", text(state), text(r.Agent), at, when(r.Created), text(r.Title))
	}
	end(b, page.Next != "", homeRunsMax, "skete runs")
	b.WriteString("<p><small><code>skete show RUN</code> tells what a run did, <code>skete attach RUN</code> watches it.</small></p>\n")
	return nil
}

func table(b *strings.Builder, heads ...string) {
	b.WriteString(`<div class="wide"><table><thead><tr>`)
	for _, head := range heads {
		b.WriteString(`<th scope="col">` + head + "</th>")
	}
	b.WriteString("</tr></thead><tbody>\n")
}

// row writes cells that are HTML already; the last one may be long.
func row(b *strings.Builder, cells ...string) {
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

func end(b *strings.Builder, more bool, shown int, command string) {
	b.WriteString("</tbody></table></div>\n")
	if more {
		b.WriteString("<p><small>These are the newest " + strconv.Itoa(shown) + "; <code>" + command + "</code> lists all.</small></p>\n")
	}
}

// text makes HTML of what people, models and guests wrote.
func text(s string) string { return html.EscapeString(strings.ToValidUTF8(s, "\uFFFD")) }

// link leads to the page of a sandbox, by its name or id.
func link(name string) string {
	return `<a href="/s/` + text(url.PathEscape(name)) + `">` + text(name) + "</a>"
}

func short(run string) string { return run[:min(shortRun, len(run))] }

// when is a moment, with the time since then.
func when(at time.Time) string {
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
