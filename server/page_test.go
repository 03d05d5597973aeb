package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/browsertest"
	"github.com/skete-dev/skete/server/history/historytest"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/workspace"
)

func register(t *route.Table) {
	registerPages(t, []string{"http://*.preview.localhost:*"})
}

func TestPageIsServedToAnybodyUnderAStrictPolicy(t *testing.T) {
	s := historytest.Serve(t, nil, register)
	status, h, body := s.Send(t, "", "GET", "/s/sbx_aaaaaaaaaaaaaaaaaaaa", "")
	if status != 200 || h.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", status, h)
	}
	policy := h.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "frame-src http://*.preview.localhost:*"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy allows what it must not: %s", policy)
	}
	// All that it asks for is there, with the type that a browser insists on.
	refs := regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(string(body), -1)
	if len(refs) != 5 {
		t.Errorf("%v", refs)
	}
	for _, ref := range append(refs, []string{"", "/s/show.js"}) {
		if ref[1] == "/" {
			continue // the list; see TestHome of package server
		}
		status, h, _ := s.Send(t, "", "GET", ref[1], "")
		if status != 200 || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %v", ref[1], status, h)
		}
	}
	for _, path := range []string{"/s/sbx_1", "/s/..%2fpage.js", "/s/sbx_aaaaaaaaaaaaaaaaaaaa/x", "/s/"} {
		if status, h, _ := s.Send(t, "", "GET", path, ""); status != http.StatusNotFound || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", path, status, h)
		}
	}
}

// What a sandbox wrote must never be read as HTML, and every element that the
// script asks for must be in the page.
func TestScriptsFitThePageAndMakeNoHTML(t *testing.T) {
	html, err := os.ReadFile("web/page/page.html")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?i)\son[a-z]+=|<script>|<style|style=`).Find(html); found != nil {
		t.Errorf("inline: %s", found)
	}
	for _, name := range []string{"page.js", "show.js"} {
		js, err := os.ReadFile("web/page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc`).Find(js); found != nil {
			t.Errorf("%s has %s", name, found)
		}
		for _, m := range regexp.MustCompile(`\$\("([a-z-]+)"\)`).FindAllSubmatch(js, -1) {
			if !strings.Contains(string(html), `id="`+string(m[1])+`"`) {
				t.Errorf("%s asks for #%s, which is not in the page", name, m[1])
			}
		}
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
	loginOut    struct{ Body api.Login }
	previewIn   struct {
		idIn
		Body struct {
			Port int `json:"port"`
		}
	}
	pagePreviewOut struct {
		Body struct {
			URL string `json:"url"`
		}
	}
)

func open(t *testing.T, fill func(*historytest.Box), flags ...string) *browser {
	t.Helper()
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
		route.JSON(table, route.Operation{Method: "POST", Path: "/v1/sandboxes/{id}/previews", Scope: key.Write, ID: "x-preview"}, func(_ context.Context, in *previewIn) (*pagePreviewOut, error) {
			out := &pagePreviewOut{}
			out.Body.URL = "http://5173-" + strings.ReplaceAll(in.ID, "_", "-") + ".preview.localhost:" + appURL.Port() + "/"
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
	p := b.Open(t, strings.Replace(session.URL, "127.0.0.1", "localhost", 1)+"/s/"+string(box.ID))
	return &browser{p, box, t}
}

func (b *browser) click(id string) { b.Do(b.t, `document.getElementById("`+id+`").click()`) }
func (b *browser) text(id string) string {
	return b.Text(b.t, `document.getElementById("`+id+`").innerText`)
}

func (b *browser) until(what, js string) { b.t.Helper(); b.Until(b.t, what, js) }

// quiet fails if the page complained but for what is left out here on purpose:
// a server without services.
func (b *browser) quiet() {
	b.t.Helper()
	for _, c := range b.Complaints() {
		if !strings.Contains(c, "/services") {
			b.t.Errorf("the page complains: %s", c)
		}
	}
}

const themed = "body { color: navy; }\nh1 { margin: 0; }\n"

func TestPageShowsTheTimelineAndUndoesWithAPreview(t *testing.T) {
	hostile := `<img src=x onerror=alert(1)>`
	b := open(t, func(box *historytest.Box) {
		box.Step(t, "src/theme.css", themed, workspace.Label{Actor: "outside"})
		box.Write(t, hostile, "x")
		box.Step(t, "src/theme.css", strings.Replace(themed, "navy", "crimson", 1), workspace.Label{Actor: "agent", Run: "run_1", Step: 3, Text: "edit " + hostile})
	})
	b.until("both revisions are there", `document.querySelectorAll("#revisions button").length === 2`)
	b.until("the newest one's diff is there", `document.querySelectorAll("#diff tr.add, #diff tr.remove").length >= 2`)
	b.until("the sandbox is named", `document.getElementById("name").textContent === "theme <b>shop</b>"`)
	if got := b.text("diff"); !strings.Contains(got, "crimson") || !strings.Contains(got, "navy") || !strings.Contains(got, hostile) {
		t.Errorf("the diff: %s", got)
	}
	if n := b.Do(t, `document.querySelectorAll("img:not(.mark), #revisions b, h1 b").length`); n != "0" {
		t.Errorf("%s elements were made of a sandbox's text", n)
	}

	b.click("undo")
	b.until("the plan is shown", `document.getElementById("plan").open`)
	if got := b.text("plan-files"); !strings.Contains(got, "changed src/theme.css") || !strings.Contains(got, "removed "+hostile) {
		t.Errorf("the plan: %s", got)
	}
	if got := b.Read(t, "src/theme.css"); !strings.Contains(got, "crimson") {
		t.Error("a plan changed the files")
	}
	b.click("go")
	b.until("it is said", `document.getElementById("notice").textContent.startsWith("Undo done: 2 paths")`)
	if got := b.Read(t, "src/theme.css"); got != themed {
		t.Errorf("after the undo: %q", got)
	}
	b.until("redo is possible", `!document.getElementById("redo").disabled && document.getElementById("undo").disabled`)

	b.click("redo")
	b.until("the plan is shown", `document.getElementById("plan").open && !document.getElementById("go").disabled`)
	b.Key(t, "Escape")
	b.until("Escape closes it", `!document.getElementById("plan").open`)
	if got := b.Read(t, "src/theme.css"); got != themed {
		t.Error("a plan that was closed changed the files")
	}
	b.quiet()
}

func TestPageFollowsAndPlansAgainWhenTheFilesMoved(t *testing.T) {
	b := open(t, nil)
	b.until("it says that nothing is there", `document.getElementById("revisions").textContent.includes("Nothing is recorded yet")`)
	b.Step(t, "a", "1", workspace.Label{})
	b.Step(t, "a", "2", workspace.Label{})
	b.until("new revisions come by themselves", `document.querySelectorAll("#revisions button").length === 2 && !document.getElementById("undo").disabled`)
	b.click("undo")
	b.until("the plan is shown", `document.getElementById("plan").open`)
	b.Write(t, "meanwhile", "x")
	b.click("go")
	b.until("the new plan is shown", `document.getElementById("plan-text").textContent.includes("changed meanwhile")`)
	if got := b.Read(t, "a") + b.Read(t, "meanwhile"); got != "2x" {
		t.Errorf("something was done: %q", got)
	}
	// The last change is now what happened meanwhile.
	if got := b.text("plan-files"); !strings.Contains(got, "removed meanwhile") {
		t.Errorf("%s", got)
	}
	b.click("go")
	b.until("it is done", `document.getElementById("notice").textContent.startsWith("Undo done")`)
	if got := b.Read(t, "a") + b.Read(t, "meanwhile"); got != "2" {
		t.Errorf("%q", got)
	}
}

func TestPageAsksWhereARevertCannotDecide(t *testing.T) {
	b := open(t, func(box *historytest.Box) {
		for _, content := range []string{"a\nb\n", "a\nB\n", "a\nX\n"} {
			box.Step(t, "f", content, workspace.Label{})
		}
	})
	b.until("they are there", `document.querySelectorAll("#revisions button").length === 3`)
	b.Do(t, `document.querySelector('#revisions button[data-n="2"]').focus()`)
	b.Key(t, "Enter") // the keyboard alone
	b.until("it is chosen", `document.getElementById("changes-title").textContent.startsWith("#2")`)
	b.click("revert")
	b.until("it asks", `document.querySelectorAll("#conflicts select").length === 1 && document.getElementById("go").disabled`)
	b.Do(t, `(() => { const s = document.querySelector("#conflicts select"); s.value = "take"; s.dispatchEvent(new Event("change")); })()`)
	b.click("go")
	b.until("the whole plan is shown", `document.getElementById("conflicts").hidden && !document.getElementById("go").disabled && document.getElementById("plan-files").children.length === 1`)
	if got := b.Read(t, "f"); got != "a\nX\n" {
		t.Errorf("something was done before it was shown: %q", got)
	}
	b.click("go")
	b.until("it is done", `document.getElementById("notice").textContent.startsWith("Revert done")`)
	if got := b.Read(t, "f"); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
	b.quiet()
}

func TestPageShowsTheAppOnItsOwnOrigin(t *testing.T) {
	b := open(t, nil)
	b.until("the port is proposed", `document.getElementById("port").value === "5173"`)
	reached := b.Text(t, `new Promise((said) => { addEventListener("message", (e) => said(e.data)); document.querySelector("#open button").click(); })`)
	if reached != "nothing" {
		t.Errorf("the app reaches %s", reached)
	}
	src := b.Text(t, `document.getElementById("frame").src`)
	u, err := url.Parse(src)
	if err != nil || !strings.HasSuffix(u.Hostname(), ".preview.localhost") {
		t.Errorf("%s", src)
	}
	if got := b.Text(t, `(() => { try { return "" + document.getElementById("frame").contentDocument } catch (e) { return e.name } })()`); got != "null" {
		t.Errorf("the page reaches into the app: %s", got)
	}
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
			b := open(t, func(box *historytest.Box) {
				for _, c := range []string{"1", "2", "3"} {
					box.Step(t, "a", c, workspace.Label{Actor: "agent", Text: strings.Repeat("long ", 50)})
				}
			}, "--window-size="+size)
			b.until("all is there", `document.querySelectorAll("#revisions button").length === 3 && document.querySelector("#diff details") && document.getElementById("port").value`)
			if got := b.Text(t, shifts); got != "" {
				t.Errorf("the layout shifted by %s", got)
			}
			if wide := b.Do(t, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide != "0" {
				t.Errorf("the page is %s px too wide", wide)
			}
		})
	}
}
