package server

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/browsertest"
	"github.com/skete-dev/skete/server/history/historytest"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/web"
	"github.com/skete-dev/skete/workspace"
)

func register(t *route.Table) {
	registerUI(t, uiConfig{Page: web.Page{Version: "test", Frames: []string{"http://*.preview.localhost:*"}}})
}

// The short address of a sandbox leads to its page, needs no login, and tells nothing of which
// sandboxes there are.
func TestPageIsServedToAnybodyUnderAStrictPolicy(t *testing.T) {
	s := historytest.Serve(t, nil, register)
	if !web.Built {
		if status, _, body := s.Send(t, "", "GET", "/s/sbx_aaaaaaaaaaaaaaaaaaaa", ""); status != http.StatusNotImplemented || !strings.Contains(string(body), "without the web UI") {
			t.Errorf("without the UI: %d %s", status, body)
		}
		t.Skip("this program was built without the web UI")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, want := range map[string]string{"/s/sbx_aaaaaaaaaaaaaaaaaaaa": "/vms/sbx_aaaaaaaaaaaaaaaaaaaa/changes", "/s/my%20web%3F": "/vms/my%20web%3F/changes"} {
		res, err := client.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if to := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || to != want || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d to %q", path, res.StatusCode, to)
		}
	}
	status, h, body := s.Send(t, "", "GET", "/s/sbx_aaaaaaaaaaaaaaaaaaaa", "")
	if status != 200 || h.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", status, h)
	}
	policy := h.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self' 'nonce-", "connect-src 'self';", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'", "frame-src http://*.preview.localhost:*;", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
	// Terminals set colours by style attributes, which run nothing.
	if strings.Contains(strings.Replace(policy, "style-src-attr 'unsafe-inline'", "", 1), "unsafe") {
		t.Errorf("the policy allows what it must not: %s", policy)
	}
	if found := regexp.MustCompile(`(?i)\son[a-z]+=|<script>|<style|style=`).Find(body); found != nil {
		t.Errorf("inline: %s", found)
	}
	// All that it asks for is there, with the type that a browser insists on.
	refs := regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(string(body), -1)
	if len(refs) < 4 {
		t.Errorf("%v", refs)
	}
	for _, ref := range refs {
		status, h, _ := s.Send(t, "", "GET", ref[1], "")
		if status != 200 || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") == "" {
			t.Errorf("%s: %d %v", ref[1], status, h)
		}
	}
	for _, path := range []string{"/s/sbx_1", "/s/..%2fpage.js", "/s/%2e%2e", "/s/sbx_aaaaaaaaaaaaaaaaaaaa/x", "/s/"} {
		if status, h, _ := s.Send(t, "", "GET", path, ""); status != http.StatusNotFound || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", path, status, h)
		}
	}
}

// What a sandbox wrote must never be read as HTML: one module may make some, of text that it has
// cleaned.
func TestScriptsMakeNoHTML(t *testing.T) {
	const cleans = "ui/md.tsx"
	makes := regexp.MustCompile(`dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcDoc|srcdoc`)
	seen := 0
	sources := os.DirFS("../web/ui/src")
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(filepath.Ext(path), ".ts") {
			return err
		}
		seen++
		text, err := fs.ReadFile(sources, path)
		if found := makes.Find(text); (found != nil) != (path == cleans) {
			t.Errorf("%s has %q", path, found)
		}
		return err
	})
	if err != nil || seen < 100 {
		t.Errorf("%d sources were read: %v", seen, err)
	}
}

// browser is the page in a real browser. The session is played by a proxy that
// adds the key, as the session's cookie would.
type browser struct {
	*browsertest.Page
	*historytest.Box
	t *testing.T
}

type (
	idIn struct {
		ID string `path:"id"`
	}
	pageInfoOut struct{ Body api.Sandbox }
	portsOut    struct{ Body api.PortList }
	servicesOut struct{ Body api.ServiceList }
	loginOut    struct{ Body api.Login }
	previewIn   struct {
		idIn
		Body struct {
			Port int    `json:"port"`
			Path string `json:"path,omitempty"`
		}
	}
	pagePreviewOut struct {
		Body struct {
			URL     string `json:"url"`
			Address string `json:"address"`
		}
	}
)

// open opens a tab of the page of a sandbox whose workspace fill has filled.
func open(t *testing.T, tab string, fill func(*historytest.Box), flags ...string) *browser {
	t.Helper()
	if !web.Built {
		t.Skip("this program was built without the web UI")
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<script>let reach = "nothing"; try { reach = parent.document.title } catch {} onload = () => parent.postMessage(reach, "*")</script>`))
	}))
	t.Cleanup(app.Close)
	appURL, err := url.Parse(app.URL)
	if err != nil {
		t.Fatal(err)
	}
	box := historytest.NewBox(t)
	if fill != nil {
		fill(box)
	}
	s := historytest.Serve(t, historytest.Boxes{box}, func(table *route.Table) {
		register(table)
		get := func(path, id string) route.Operation {
			return route.Operation{Method: "GET", Path: "/v1/sandboxes/{id}" + path, Scope: key.Read, ID: id}
		}
		route.JSON(table, get("", "x-info"), func(_ context.Context, in *idIn) (*pageInfoOut, error) {
			return &pageInfoOut{api.Sandbox{ID: in.ID, Name: "theme <b>shop</b>", State: "running", Provider: "gvisor", Isolation: "user-kernel"}}, nil
		})
		route.JSON(table, route.Operation{Method: "GET", Path: "/v1/login", Scope: key.Read, ID: "x-login"}, func(context.Context, *struct{}) (*loginOut, error) {
			return &loginOut{api.Login{Tenant: "default", Scopes: []string{"write"}, By: "login"}}, nil
		})
		route.JSON(table, get("/ports", "x-ports"), func(context.Context, *idIn) (*portsOut, error) {
			return &portsOut{api.PortList{Items: []api.Port{{Port: 5173}}}}, nil
		})
		route.JSON(table, get("/services", "x-services"), func(context.Context, *idIn) (*servicesOut, error) {
			return &servicesOut{api.ServiceList{Items: []api.Service{}}}, nil
		})
		route.JSON(table, route.Operation{Method: "POST", Path: "/v1/sandboxes/{id}/previews", Scope: key.Write, ID: "x-preview"}, func(_ context.Context, in *previewIn) (*pagePreviewOut, error) {
			out := &pagePreviewOut{}
			out.Body.URL = "http://5173-" + strings.ReplaceAll(in.ID, "_", "-") + ".preview.localhost:" + appURL.Port() + "/"
			out.Body.Address = out.Body.URL
			return out, nil
		})
	})
	b := browsertest.Start(t, flags...)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	session := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+s.Key)
	}})
	t.Cleanup(func() { session.Close(); transport.CloseIdleConnections() })
	p := b.Open(t, strings.Replace(session.URL, "127.0.0.1", "localhost", 1)+"/vms/"+string(box.ID)+"/"+tab)
	return &browser{p, box, t}
}

// What the tests look for, as expressions of the page.
const (
	revisions = `document.querySelectorAll("[role=listbox] [role=option]")`
	planned   = `document.querySelector("[role=dialog] [data-plan]")`
	agree     = `document.querySelector("[role=dialog] button.main")`
	notice    = `(document.querySelector("[data-done]")?.textContent ?? "")`
)

// way is a button of those that go back.
func way(name string) string {
	return `[...document.querySelectorAll("[aria-label='Ways back'] button")].find((b) => b.textContent.trim() === "` + name + `")`
}

func (b *browser) click(button string) { b.t.Helper(); b.Do(b.t, button+`.click()`) }

// text is what a person reads in an element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return b.Text(b.t, `document.querySelector("`+selector+`").innerText.replace(/\s+/g, " ")`)
}

// paths are those of the plan that is shown.
func (b *browser) paths() string {
	b.t.Helper()
	b.until("the plan lists them", `!!document.querySelector("[role=dialog] [aria-label^='Paths that change']")`)
	return b.text("[role=dialog] [aria-label^='Paths that change']")
}

// agreeTo does what is planned.
func (b *browser) agreeTo() {
	b.t.Helper()
	b.until("the plan can be agreed to", agree+`?.disabled === false`)
	b.click(agree)
}

func (b *browser) until(what, js string) { b.t.Helper(); b.Until(b.t, what, js) }

// quiet fails if the page complained but for what is left out here on purpose: a server without
// runs and events.
func (b *browser) quiet() {
	b.t.Helper()
	left := regexp.MustCompile(`/v1/(info|approvals|follow|sandboxes\?)`)
	for _, c := range b.Complaints() {
		if !left.MatchString(c) {
			b.t.Errorf("the page complains: %s", c)
		}
	}
}

const themed = "body { color: navy; }\nh1 { margin: 0; }\n"

func TestPageShowsTheTimelineAndUndoesWithAPreview(t *testing.T) {
	hostile := `<img src=x onerror=alert(1)>`
	b := open(t, "changes", func(box *historytest.Box) {
		box.Step(t, "src/theme.css", themed, workspace.Label{Actor: "outside"})
		box.Write(t, hostile, "x")
		box.Step(t, "src/theme.css", strings.Replace(themed, "navy", "crimson", 1), workspace.Label{Actor: "agent", Run: "run_1", Step: 3, Text: "edit " + hostile})
	})
	b.until("both revisions are there", revisions+`.length === 2`)
	b.until("the newest one's diff is there", `document.querySelectorAll("[data-diff] [data-kind=add], [data-diff] [data-kind=remove]").length >= 2`)
	b.until("the sandbox is named", `document.querySelector("h1").textContent === "theme <b>shop</b>"`)
	if got := b.text("[data-diff]"); !strings.Contains(got, "crimson") || !strings.Contains(got, "navy") || !strings.Contains(got, hostile) {
		t.Errorf("the diff: %s", got)
	}
	if n := b.Do(t, `document.querySelectorAll("main img, [role=listbox] b, h1 b").length`); n != "0" {
		t.Errorf("%s elements were made of a sandbox's text", n)
	}

	b.click(way("Undo"))
	if got := b.paths(); !strings.Contains(got, "changed src/theme.css") || !strings.Contains(got, "removed "+hostile) {
		t.Errorf("the plan: %s", got)
	}
	if got := b.Read(t, "src/theme.css"); !strings.Contains(got, "crimson") {
		t.Error("a plan changed the files")
	}
	b.agreeTo()
	b.until("it is said", notice+`.startsWith("Undo done: 2 paths")`)
	if got := b.Read(t, "src/theme.css"); got != themed {
		t.Errorf("after the undo: %q", got)
	}
	b.until("redo is possible", `!`+way("Redo")+`.disabled && `+way("Undo")+`.disabled`)

	b.click(way("Redo"))
	b.until("the plan is shown", agree+`?.disabled === false`)
	b.Key(t, "Escape")
	b.until("Escape closes it", `!`+planned)
	if got := b.Read(t, "src/theme.css"); got != themed {
		t.Error("a plan that was closed changed the files")
	}
	b.quiet()
}

func TestPageFollowsAndPlansAgainWhenTheFilesMoved(t *testing.T) {
	b := open(t, "changes", nil)
	b.until("it says that nothing is there", `document.querySelector("[aria-label=Revisions]")?.textContent.includes("Nothing is recorded yet")`)
	b.Step(t, "a", "1", workspace.Label{})
	b.Step(t, "a", "2", workspace.Label{})
	b.until("new revisions come by themselves", revisions+`.length === 2 && !`+way("Undo")+`.disabled`)
	b.click(way("Undo"))
	b.until("the plan is shown", agree+`?.disabled === false`)
	b.Write(t, "meanwhile", "x")
	b.agreeTo()
	b.until("the new plan is shown", planned+`?.textContent.includes("changed meanwhile")`)
	if got := b.Read(t, "a") + b.Read(t, "meanwhile"); got != "2x" {
		t.Errorf("something was done: %q", got)
	}
	// The last change is now what happened meanwhile.
	if got := b.paths(); !strings.Contains(got, "removed meanwhile") {
		t.Errorf("%s", got)
	}
	b.agreeTo()
	b.until("it is done", notice+`.startsWith("Undo done")`)
	if got := b.Read(t, "a") + b.Read(t, "meanwhile"); got != "2" {
		t.Errorf("%q", got)
	}
}

func TestPageAsksWhereARevertCannotDecide(t *testing.T) {
	b := open(t, "changes", func(box *historytest.Box) {
		for _, content := range []string{"a\nb\n", "a\nB\n", "a\nX\n"} {
			box.Step(t, "f", content, workspace.Label{})
		}
	})
	b.until("they are there", revisions+`.length === 3`)
	b.Do(t, `document.querySelector("[role=listbox]").focus()`)
	b.Key(t, "ArrowDown") // the keyboard alone
	b.until("it is chosen", `document.getElementById("changes-title")?.textContent.startsWith("#2")`)
	b.click(`[...document.querySelectorAll("button")].find((b) => b.textContent === "Revert only this")`)
	b.until("it asks", `document.querySelectorAll("[role=dialog] fieldset select").length === 1 && `+agree+`.disabled`)
	b.Do(t, `(() => { const s = document.querySelector("[role=dialog] fieldset select"); s.value = "take"; s.dispatchEvent(new Event("change", { bubbles: true })); })()`)
	b.agreeTo()
	b.until("the whole plan is shown", `!document.querySelector("[role=dialog] fieldset") && `+agree+`?.disabled === false && document.querySelectorAll("[role=dialog] [aria-label^='Paths that change'] li").length === 1`)
	if got := b.Read(t, "f"); got != "a\nX\n" {
		t.Errorf("something was done before it was shown: %q", got)
	}
	b.agreeTo()
	b.until("it is done", notice+`.startsWith("Revert done")`)
	if got := b.Read(t, "f"); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
	b.quiet()
}

func TestPageShowsTheAppOnItsOwnOrigin(t *testing.T) {
	b := open(t, "preview", nil)
	b.until("the port is proposed", `document.querySelector("[aria-label=Port]")?.value === "5173"`)
	b.until("the app is shown", `!!document.querySelector("iframe")`)
	reached := b.Text(t, `new Promise((said) => { addEventListener("message", (e) => said(e.data)); document.querySelector("[aria-label='Reload the app']").click(); })`)
	if reached != "nothing" {
		t.Errorf("the app reaches %s", reached)
	}
	src := b.Text(t, `document.querySelector("iframe").src`)
	u, err := url.Parse(src)
	if err != nil || !strings.HasSuffix(u.Hostname(), ".preview.localhost") {
		t.Errorf("%s", src)
	}
	// Before it has loaded, a frame holds an empty document of the page's own.
	b.until("the page cannot reach into the app", `document.querySelector("iframe").contentDocument === null`)
	b.quiet()
}

func TestPageMovesNothingUnderTheReader(t *testing.T) {
	const shifts = `new Promise((done) => {
		let sum = 0; const where = [];
		new PerformanceObserver((l) => { for (const e of l.getEntries()) { sum += e.value; where.push(...e.sources.map((s) => "\n" + (s.node?.id || s.node?.className || s.node?.nodeName) + " in " + (s.node?.parentNode?.id || s.node?.parentNode?.className || s.node?.parentNode?.nodeName) + " from " + JSON.stringify(s.previousRect) + " to " + JSON.stringify(s.currentRect))); } }).observe({ type: "layout-shift", buffered: true });
		requestAnimationFrame(() => requestAnimationFrame(() => done(sum ? sum + ": " + where : "")));
	})`
	for _, size := range []string{"1400,900", "480,900"} {
		t.Run(size, func(t *testing.T) {
			b := open(t, "changes", func(box *historytest.Box) {
				for _, c := range []string{"1", "2", "3"} {
					box.Step(t, "a", c, workspace.Label{Actor: "agent", Text: strings.Repeat("long ", 50)})
				}
			}, "--window-size="+size)
			b.until("all is there", revisions+`.length === 3 && !!document.querySelector("[data-diff] [data-kind]")`)
			if got := b.Text(t, shifts); got != "" {
				t.Errorf("the layout shifted by %s", got)
			}
			if wide := b.Do(t, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide != "0" {
				t.Errorf("the page is %s px too wide", wide)
			}
		})
	}
}
