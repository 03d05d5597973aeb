package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/test/browser"
)

// person uses the page of a sandbox, its changes in the UI, in a browser, with cookies of their own.
type person struct {
	*story
	who, tab string
	quiet    bool // complaints are no fault here
}

type step []any

type visited struct {
	Found      []string `json:"found"`
	URL        string   `json:"url"`
	Complaints []string `json:"complaints"`
}

// do takes steps, as test/browser/tabs.mjs lists them, and returns what they
// found. That the page complains is a fault.
func (p person) do(steps ...step) visited {
	p.t.Helper()
	got := browser.Run[visited](p.t, p.page, filepath.Join(p.dir, "tabs.mjs"), map[string]any{"who": p.who, "tab": p.tab, "steps": steps})
	for _, c := range got.Complaints {
		if !p.quiet {
			p.t.Errorf("%s's page complains: %s", p.who, c)
		}
	}
	return got
}

// get is one value of the page.
func (p person) get(js string) string {
	p.t.Helper()
	return p.do(step{"get", js}).Found[0]
}

// until waits for something.
func (p person) until(js string) { p.t.Helper(); p.do(step{"until", js}) }

// in is p in another tab.
func (p person) in(tab string) person { p.tab = tab; return p }

// loud is p where the console must say something: that a request was refused.
func (p person) loud() person { p.quiet = true; return p }

// shots keeps pictures of the page where SKETE_SHOTS names a directory, for who
// wants to look at them.
func (p person) shots(name string) {
	dir := os.Getenv("SKETE_SHOTS")
	if dir == "" {
		return
	}
	for _, size := range [][2]int{{1280, 800}, {400, 860}} {
		for _, scheme := range []string{"light", "dark"} {
			p.do(step{"size", size[0], size[1], scheme}, step{"shot", filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, size[0], scheme))})
		}
	}
	p.do(step{"size", 1280, 800, "light"})
}

func (s *story) origin() string {
	_, port, _ := strings.Cut(s.address, ":")
	return "http://localhost:" + port
}

func (s *story) key(name string, scopes ...string) api.CreatedKey {
	s.t.Helper()
	k, err := s.c.CreateKey(s.ctx(), api.CreateKey{Name: name, Scopes: scopes})
	s.ok(err)
	return k
}

// visit opens the page of the sandbox as a user without a session: the login is
// in the way, and leads back.
func (s *story) visit(who string, k api.CreatedKey) person {
	s.t.Helper()
	p := person{story: s, who: who, tab: "first"}
	at := p.at()
	// The short address leads there, too.
	got := p.loud().do(step{"go", p.origin() + "/s/" + s.id}, step{"until", `location.pathname === "/login" && !!document.querySelector("input[name=key]")`})
	if !strings.HasSuffix(got.URL, "/login?next=%2Fvms%2F"+s.id+"%2Fchanges") {
		s.t.Errorf("who is not logged in is at %s", got.URL)
	}
	p.loud().do(step{"fill", "input[name=key]", "sk_wrong"}, step{"press", "Enter"}, step{"until", `!!document.querySelector("[role=alert]")`})
	if who == "alice" {
		p.loud().shots("login")
	}
	got = p.do(step{"fill", "input[name=key]", k.Secret}, step{"press", "Enter"},
		step{"until", arrived})
	if got.URL != at {
		s.t.Errorf("the login leads to %s, not back to %s", got.URL, at)
	}
	return p
}

// hostileFiles makes files whose names and lines try what they can. It is run in
// the workspace.
const hostileFiles = `import os
names = [
    b'<img src=x onerror=alert(1)>', b'"><svg onload=alert(1)>', b'&lt;b&gt;', b'\xe2\x80\xaegpj.exe', b'line\nbreak', b'bad \xff\xfe bytes',
    b'long-' + b'x' * 240, b'javascript:alert(1)', b'--help', '\u05e9\u05dc\u05d5\u05dd'.encode(), b'${alert(1)}',
]
lines = ['<script>alert(1)</script>', '</td></table><img src=x onerror=alert(1)>', 'if (admin \u202e\u2066// only\u2069 \u2066) {', 'y' * 100000, '\x1b[31mred\x1b[0m', 'zero\u200bwidth']
os.mkdir('hostile')
for n in names:
    with open(b'hostile/' + n, 'w') as f:
        f.write('\n'.join(lines) + '\n')
with open('hostile/not-text', 'wb') as f:
    f.write(b'half \xff\xfe\xc3( text <script>alert(1)</script>\n')
`

// What is looked for in the page, as selectors and as expressions of the page.
const (
	undo    = "[aria-label='Ways back'] button:has-text('Undo')"
	redo    = "[aria-label='Ways back'] button:has-text('Redo')"
	save    = "[aria-label='Ways back'] button:has-text('Save')"
	scope   = "[aria-label='What to undo']"
	agree   = "[role=dialog] button.main"
	cancel  = "[role=dialog] [data-first]"
	changes = "#vm-tab-changes"
	preview = "#vm-tab-preview"

	revisions = `document.querySelectorAll("[role=listbox][aria-label=Revisions] [role=option]")`
	arrived   = `/^\/vms\/sbx_[a-z0-9]+\/changes$/.test(location.pathname) && ` + revisions + `.length > 0`
	canUndo   = `document.querySelector("[aria-label='Ways back'] button[aria-keyshortcuts='Control+Z']")?.disabled === false`
	canRedo   = `document.querySelector("[aria-label='Ways back'] button[aria-keyshortcuts='Control+Shift+Z']")?.disabled === false`
	noDialog  = `!document.querySelector("[role=dialog]")`
	said      = `(document.querySelector("[data-done]")?.textContent ?? "")`
	undoDone  = said + `.startsWith("Undo done")`
	redoDone  = said + `.startsWith("Redo done")`
	// planShown is when a plan can be agreed to.
	planShown = `!!document.querySelector("[role=dialog] [data-plan]") && document.querySelector("[role=dialog] button.main")?.disabled === false`
	planned   = `document.querySelector("[role=dialog] [aria-label^='Paths that change']")?.innerText.replace(/\s+/g, " ")`
	newest    = `(document.querySelector("[role=option] [data-n]")?.innerText ?? "")`
	chosen    = `[...document.querySelectorAll("[role=option]")].findIndex((o) => o.getAttribute("aria-selected") === "true")`
)

// all collects what is in a list of which only the rows on the screen are in the page: find is an
// expression of a row.
func all(list, rows, find string) string {
	return `(async () => {
		const box = document.querySelector("` + list + `"), seen = new Set();
		for (let y = 0; ; y += box.clientHeight / 2) {
			box.scrollTop = y;
			await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
			for (const e of box.querySelectorAll("` + rows + `")) seen.add((` + find + `)(e));
			if (y >= box.scrollHeight) return [...seen].join("\n");
		}
	})()`
}

// theme is true once the app in the frame has one.
func theme(name string) step {
	return step{"app", `document.querySelector("main")?.dataset.theme === "` + name + `"`}
}

// The page of a sandbox from the login on, with the real server, an agent in
// gVisor, a dev server there and a real browser.
func TestPage_ofASandbox(t *testing.T) {
	s := &story{page: browser.Start(t), dir: filepath.Join("..", "browser")}
	s.serve(t, map[string]string{
		"edit":    "replies:\n  - calls: [" + darker + "]\nelse: {text: done}\n",
		"static":  command(`echo "<link rel=icon href=data:,>OLD" > static/index.html && touch -d 2020-01-01 static/index.html`),
		"newer":   command(`echo "<link rel=icon href=data:,>NEW" > static/index.html && touch -d 2020-01-01 static/index.html`),
		"hostile": command(`python3 /tmp/hostile.py && echo "<img src=x onerror=alert(1)>" > beside`),
	})
	s.agent("edit")
	alice := s.visit("alice", s.key("alice", "write"))
	t.Run("Timeline", func(t *testing.T) { alice.with(t).timeline() })
	t.Run("UndoAndRedo", func(t *testing.T) { alice.with(t).undoAndRedo() })
	t.Run("ByKeys", func(t *testing.T) { alice.with(t).byKeys() })
	t.Run("TwoPages", func(t *testing.T) { alice.with(t).twoPages() })
	t.Run("StalePlan", func(t *testing.T) { alice.with(t).stalePlan() })
	t.Run("StaticApp", func(t *testing.T) { alice.with(t).staticApp() })
	t.Run("Hostile", func(t *testing.T) { alice.with(t).hostile() })
	t.Run("Viewer", func(t *testing.T) { s.viewer(t) })
	t.Run("Port8001", func(t *testing.T) { alice.with(t).port8001() })
	t.Run("Paused", func(t *testing.T) { alice.with(t).paused() })
	t.Run("Logout", func(t *testing.T) { alice.with(t).logout() })
	t.Run("RevokedKey", func(t *testing.T) { s.revokedKey(t) })
}

func (p person) with(t *testing.T) person {
	t.Helper()
	p.story.with(t)
	return p
}

// paused: a page that is open lets a sandbox sleep. It asks what runs inside while a person is at
// its preview; that the sandbox was paused is no reason to ask again, which would wake it, and its
// changes are looked at without it. It has looked again when it has asked for the history twice more.
func (p person) paused() {
	p.t.Helper()
	made, err := p.c.CreateSandbox(p.ctx(), api.CreateSandbox{Provider: "gvisor"})
	p.ok(err)
	box := p.c.Sandbox(made.ID)
	defer func() { _ = box.Destroy(p.ctx()) }()
	p = p.in("paused")
	asked := func(what string) string {
		return `performance.getEntriesByType("resource").filter((e) => ` + what + `.test(e.name)).length`
	}
	p.do(step{"go", p.origin() + "/vms/" + made.ID + "/preview"}, step{"until", machineIs("running")}, step{"until", asked(`/\/ports$/`) + ` > 1`})
	_, err = box.Files().Write(p.ctx(), "/workspace/kept", []byte("x"), client.WriteOptions{})
	p.ok(err)
	_, err = box.Pause(p.ctx())
	p.ok(err)
	p.do(step{"until", machineIs("paused")}, step{"until", `document.getElementById("vm-pane-preview").innerText.includes("The machine is paused")`},
		step{"get", `(window.inside = ` + asked(`/\/(ports|services)$/`) + `)`}, step{"click", changes},
		step{"until", `document.getElementById("vm-pane-changes").innerText.includes("/workspace/kept")`},
		step{"get", `(window.looked = ` + asked(`/\/history\?/`) + `)`}, step{"until", asked(`/\/history\?/`) + ` > window.looked + 1`})
	if got := p.get(asked(`/\/(ports|services)$/`) + ` - window.inside`); got != "0" {
		p.t.Errorf("what runs inside was asked for %s times more", got)
	}
	now, err := box.Get(p.ctx())
	p.ok(err)
	if now.State != "paused" {
		p.t.Errorf("the sandbox is %s: its page woke it", now.State)
	}
	p.do(step{"close"})
}

// machineIs is true once the page says in a word that its machine is so.
func machineIs(state string) string {
	return `document.querySelector("h1")?.parentElement.innerText.split("\n").includes("` + state + `")`
}

// timeline: what the agent did is there, line by line, and its app is a tab away. The page comes by
// the name of the sandbox as well as by its id.
func (p person) timeline() {
	p.t.Helper()
	p.do(step{"until", canUndo}, step{"until", `!!document.querySelector("[data-diff] [data-kind=add]")`})
	if got := p.get(`[...document.querySelectorAll("[role=option]")].find((o) => o.querySelector("strong")?.textContent === "now").querySelector("bdi").textContent`); got != "edit_file /workspace/src/theme.js" {
		p.t.Errorf("the revision is called %q", got)
	}
	line := func(kind string) string {
		return `[...document.querySelectorAll("[data-diff] [data-kind=` + kind + `]")].map((r) => r.lastElementChild.innerText).join()`
	}
	for js, want := range map[string]string{
		line("remove"): "removed:\n" + `export const theme = {name: 'light', title: 'A light theme'};`,
		line("add"):    "added:\n" + `export const theme = {name: 'dark', title: 'A light theme'};`,
		`document.querySelector("[data-diff] [data-path] bdi").textContent`: "src/theme.js",
		machineIs("running"): "true",
	} {
		if got := p.get(js); got != want {
			p.t.Errorf("%s is %q, not %q", js, got, want)
		}
	}
	p.shots("timeline")
	p.do(step{"click", preview}, theme("dark"), step{"until", `document.querySelector("#vm-pane-preview [role=status]").innerText.trim() === "web is ready"`})
	if got := p.get(`new URL(document.querySelector("iframe").src).origin === location.origin`); got != "false" {
		p.t.Error("the app has the origin of the page")
	}
	p.do(step{"click", "summary:has-text('1 service')"}, step{"until", `document.querySelector("#vm-pane-preview details li").innerText.includes("web is ready")`}, step{"click", changes})

	name := "the page’s own"
	_, err := p.c.Sandbox(p.id).Update(p.ctx(), api.UpdateSandbox{Name: &name})
	p.ok(err)
	got := p.in("named").do(step{"go", p.origin() + "/s/" + url.PathEscape(name)}, step{"until", arrived}, step{"until", `document.querySelector("h1").textContent === "` + name + `"`})
	if got.URL != p.at() {
		p.t.Errorf("the name leads to %s", got.URL)
	}
	p.in("named").do(step{"close"})
}

// undoAndRedo: the paths are shown first, and nothing is done; then it is, and
// the app shows it without being loaded anew.
func (p person) undoAndRedo() {
	p.t.Helper()
	p.do(step{"app", `(window.marker = "kept")`}, step{"click", undo}, step{"until", planShown}, theme("dark"))
	if got := p.get(planned); !strings.Contains(got, "src/theme.js") {
		p.t.Errorf("the plan shows %q", got)
	}
	p.shots("plan")
	p.do(step{"click", agree}, step{"until", undoDone}, theme("light"), step{"app", `window.marker === "kept"`}, step{"until", canRedo})
	p.shots("undone")
	p.do(step{"click", redo}, step{"until", planShown}, step{"click", agree}, step{"until", redoDone}, theme("dark"), step{"app", `window.marker === "kept"`})
}

// byKeys: all of it without a pointer. What agrees to a plan is one Tab away from what does not.
func (p person) byKeys() {
	p.t.Helper()
	yes := []step{{"until", planShown}, {"press", "Tab"}, {"until", `document.activeElement === document.querySelector("[role=dialog] button.main")`}, {"press", "Enter"}}
	take := func(more ...step) { p.t.Helper(); p.do(append(more, yes...)...) }
	p.do(step{"get", `document.activeElement.blur()`}, step{"press", "Control+z"}, step{"until", planShown}, step{"press", "Escape"}, step{"until", noDialog}, theme("dark"))
	take(step{"press", "Control+z"})
	p.do(step{"until", undoDone}, theme("light"))
	take(step{"press", "Control+Shift+z"})
	p.do(step{"until", redoDone}, theme("dark"),
		step{"until", newest + `.includes("redo to")`}, // or the list moves on under the keys
		step{"get", `document.querySelector("[role=listbox]").focus()`}, step{"press", "ArrowDown"}, step{"until", chosen + ` === 1`},
		step{"press", "ArrowUp"}, step{"until", chosen + ` === 0`})
	// Every way with Tab alone can be seen.
	p.do(step{"get", `document.querySelector("a[href='#main']").focus()`})
	seen := map[string]bool{}
	for range 50 {
		p.do(step{"press", "Tab"})
		got := p.do(step{"get", `(() => { const e = document.activeElement; return e.getAttribute("aria-label") ?? e.textContent.trim(); })()`},
			step{"get", `document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== "none"`}).Found
		seen[got[0]] = true
		if got[1] != "true" {
			p.t.Errorf("no reader sees that %q has the focus", got[0])
		}
	}
	for _, name := range []string{"Undo", "What to undo", "Save a revision", "Log out", "Revisions"} {
		if !seen[name] {
			p.t.Errorf("Tab does not come to %q: %v", name, seen)
		}
	}
}

// twoPages: what is done in one is seen in the other, without a reload.
func (p person) twoPages() {
	p.t.Helper()
	other := p.in("second")
	other.do(step{"go", p.origin() + "/vms/" + p.id + "/preview"}, theme("dark"), step{"click", changes}, step{"until", arrived}, step{"get", `(window.marker = "kept")`})
	before := other.get(newest + `.split("\n")[0]`)
	p.do(step{"click", undo}, step{"until", planShown}, step{"click", agree}, step{"until", undoDone})
	other.do(step{"until", newest + `.split("\n")[0] !== "` + before + `" && ` + canRedo}, theme("light"))
	other.do(step{"click", redo}, step{"until", planShown}, step{"click", agree}, theme("dark"))
	p.do(theme("dark"), step{"until", newest + `.includes("redo to") && !(` + canRedo + `)`})
	if got := other.get(`window.marker`); got != "kept" {
		p.t.Error("the page that follows was loaded anew")
	}
	other.do(step{"close"})
}

// at is the address of the page.
func (p person) at() string { return p.origin() + "/vms/" + p.id + "/changes" }

// stalePlan: what was shown is not what would happen any more, so nothing does,
// and people read why.
func (p person) stalePlan() {
	p.t.Helper()
	p.do(step{"click", undo}, step{"until", planShown})
	_, err := p.c.Sandbox(p.id).Files().Write(p.ctx(), "/workspace/meanwhile", []byte("x"), client.WriteOptions{})
	p.ok(err)
	// The browser's console says 409, too.
	p.loud().do(step{"click", agree}, step{"until", `document.querySelector("[role=dialog] [data-plan]")?.textContent.includes("changed meanwhile")`})
	p.shots("stale")
	if got := p.get(planned); !strings.Contains(got, "meanwhile") {
		p.t.Errorf("the new plan shows %q", got)
	}
	p.do(theme("dark"), step{"until", planShown}, step{"click", cancel}, step{"until", noDialog}, theme("dark"))
	if got := p.shell(api.Run{Sandbox: p.id}, "cat /workspace/meanwhile"); got != "x" {
		p.t.Errorf("a plan that was not agreed to did something: %s", got)
	}
}

// staticApp: a server that tells its pages nothing, and compares files by their
// seconds, is shown anew after an undo.
func (p person) staticApp() {
	p.t.Helper()
	p.ok(second(p.c.Sandbox(p.id).Files().MakeDir(p.ctx(), "/workspace/static", true)))
	p.agent("static")
	_, err := p.c.Sandbox(p.id).Services().Declare(p.ctx(), api.ServiceSpec{
		Name: "static", Command: "python3 -m http.server 8100 --directory static", Ports: []int{8100}, ReadyTCP: 8100,
	}, time.Minute)
	p.ok(err)
	p.agent("newer")
	has := func(text string) step { return step{"app", `document.body?.innerText.trim() === "` + text + `"`} }
	p.do(step{"click", preview}, step{"until", `document.querySelector("[aria-label=Port]").innerText.includes("8100 static")`},
		step{"choose", "[aria-label=Port]", "8100"}, has("NEW"), step{"click", changes},
		step{"until", `document.querySelector("[data-diff]")?.innerText.includes("static/index.html")`},
		step{"choose", scope, "run"}, step{"click", undo}, step{"until", planShown}, step{"click", agree}, step{"until", undoDone},
		step{"click", preview}, has("OLD"), step{"click", changes},
		step{"click", redo}, step{"until", planShown}, step{"click", agree}, step{"until", redoDone}, step{"click", preview}, has("NEW"),
		step{"click", "[aria-label='Reload the app']"}, has("NEW"))
	// The same in a tab of its own, by the login.
	p.in("apart").do(step{"go", p.origin() + p.get(`document.querySelector("[aria-label='Open the app in a new tab']").getAttribute("href")`)}, step{"until", `document.body.innerText.trim() === "NEW"`}, step{"close"})
	p.do(step{"choose", "[aria-label=Port]", "5173"}, theme("dark"), step{"click", changes}, step{"choose", scope, "last"})
}

func second[T any](_ T, err error) error { return err }

// hostile: what a sandbox wrote is shown as text and does nothing.
func (p person) hostile() {
	p.t.Helper()
	p.ok(second(p.c.Sandbox(p.id).Files().Write(p.ctx(), "/tmp/hostile.py", []byte(hostileFiles), client.WriteOptions{})))
	p.agent("hostile")
	p.until(newest + `.includes("onerror") && !!document.querySelector("[data-diff]")?.innerText.includes("hostile/")`)
	p.shots("hostile")
	const mark = "\\u{" // how what hides is shown
	names := p.get(all("[data-diff]", "[data-path] bdi", `(e) => e.textContent`)) + "\n"
	for _, want := range []string{"hostile/<img src=x onerror=alert(1)>\n", `hostile/"><svg onload=alert(1)>`, "hostile/&lt;b&gt;\n", "hostile/" + mark + "202e}gpj.exe", "hostile/line" + mark + "a}break\n", "hostile/bad \uFFFD bytes", "xxx\n", "hostile/javascript:alert(1)\n", "hostile/${alert(1)}"} {
		if !strings.Contains(names, want) {
			p.t.Errorf("the names lack %q:\n%s", want, names)
		}
	}
	lines := p.get(all("[data-diff]", "[data-kind]", `(e) => e.lastElementChild.innerText`))
	for _, want := range []string{"<script>alert(1)</script>", "</td></table><img src=x onerror=alert(1)>", "if (admin " + mark + "202e}" + mark + "2066}// only" + mark + "2069} " + mark + "2066}) {", "yyy … and 98000 characters more", mark + "1b}[31mred" + mark + "1b}[0m", "zero" + mark + "200b}width"} {
		if !strings.Contains(lines, want) {
			p.t.Errorf("the lines lack %q:\n%.3000s", want, lines)
		}
	}
	for js, want := range map[string]string{
		`document.querySelectorAll("main img, svg:not(.lucide), script:not([src]), main b, [onerror], [onload]").length`:                            "0",
		`[...document.scripts].filter((s) => !new URL(s.src).pathname.startsWith("/ui/")).length`:                                                   "0",
		`document.documentElement.scrollWidth - document.documentElement.clientWidth`:                                                               "0",
		`[...document.querySelectorAll("[data-diff], [role=listbox]")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.ariaLabel).join()`: "",
	} {
		if got := p.get(js); got != want {
			p.t.Errorf("%s is %s, not %s", js, got, want)
		}
	}
	// A name that is no text is restored by its bytes.
	if got := p.shell(api.Run{Sandbox: p.id}, `rm -f /workspace/hostile/bad*; ls /workspace/hostile | grep -c bad`); !strings.HasPrefix(got, "0") {
		p.t.Fatal(got)
	}
	restore := "[data-diff] button:has-text('Restore this file'):has-text('hostile/bad ')"
	p.do(step{"until", newest + `.includes("exec rm -f")`}, step{"click", "[role=option]:nth-child(2)"},
		step{"until", `document.querySelectorAll("[aria-label='Paths that differ'] button").length > 12 || document.querySelector("[data-diff]")?.innerText.includes("hostile/")`},
		step{"get", `(async () => {
			const box = document.querySelector("[data-diff]"), there = () => [...box.querySelectorAll("button")].some((b) => b.textContent.includes("Restore this file") && b.textContent.includes("hostile/bad "));
			for (let y = 0; !there() && y < box.scrollHeight; y += box.clientHeight / 2) {
				box.scrollTop = y;
				await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
			}
		})()`},
		step{"click", restore}, step{"until", planShown}, step{"click", agree}, step{"until", said + `.startsWith("Restore done: 1 path")`})
	if got := p.shell(api.Run{Sandbox: p.id}, `cd /workspace/hostile && ls $'bad \xff\xfe bytes' | wc -l`); got != "1" {
		p.t.Errorf("the file is not back: %s", got)
	}
	// All of it goes by one undo, shown as text there too.
	p.do(step{"choose", scope, "run"}, step{"click", undo}, step{"until", planShown})
	if got := p.get(planned); !strings.Contains(got, mark+"202e}gpj.exe") || !strings.Contains(got, "<img src=x onerror=alert(1)>") || !strings.Contains(got, "line"+mark+"a}break") {
		p.t.Errorf("the plan shows %s", got)
	}
	p.shots("hostile-plan")
	p.do(step{"click", agree}, step{"until", undoDone}, step{"choose", scope, "last"})
	if got := p.shell(api.Run{Sandbox: p.id}, "ls /workspace/hostile"); !strings.Contains(got, "exit") {
		p.t.Errorf("after the undo there is %s", got)
	}
}

// viewer may look; the page says why nothing happens, by the pointer and by the keys, and the server
// refuses whatever the page would say.
func (s *story) viewer(t *testing.T) {
	s.with(t)
	p := s.visit("eve", s.key("eve", "read"))
	const why = "lacks the right “write”"
	p.do(step{"until", `document.getElementById("vm-pane-changes").innerText.includes("` + why + `") && !!document.querySelector("[data-diff]")`})
	p.shots("viewer")
	for name, js := range map[string]string{
		"undo":           `document.querySelector("[aria-keyshortcuts='Control+Z']")`,
		"save":           `[...document.querySelectorAll("button")].find((b) => b.textContent.includes("Save a revision"))`,
		"revert":         `[...document.querySelectorAll("button")].find((b) => b.textContent.includes("Revert only this"))`,
		"restore a file": `[...document.querySelectorAll("[data-diff] button")].find((b) => b.textContent.includes("Restore this"))`,
	} {
		if got := p.get(`(() => { const b = ` + js + `; return b.disabled + " " + b.title; })()`); !strings.HasPrefix(got, "true ") || !strings.Contains(got, why) {
			p.t.Errorf("%s: %s", name, got)
		}
	}
	p.do(step{"press", "Control+z"}, step{"until", `[...document.querySelectorAll("main [role=status]")].some((e) => e.innerText.includes("` + why + `"))`}, step{"until", noDialog})
	p.do(step{"click", preview}, step{"until", `document.getElementById("vm-pane-preview").innerText.includes("change something")`})
	if got := p.get(`document.querySelectorAll("iframe").length`); got != "0" {
		t.Error(got)
	}
	for path, body := range map[string]string{"history/plan": `{do: "undo"}`, "history": `{}`, "previews": `{port: 5173}`} {
		got := p.loud().get(`fetch("/v1/sandboxes/` + s.id + `/` + path + `", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(` + body + `)}).then((r) => r.status)`)
		if got != "403" {
			t.Errorf("a viewer's POST of %s is answered by %s", path, got)
		}
	}
	p.do(step{"close"})
}

// port8001 of a preview leads to the page: a user who is logged in, and one who
// logs in on the way, but not a visitor by a public link.
func (p person) port8001() {
	p.t.Helper()
	previews := p.c.Sandbox(p.id).Previews()
	own, err := previews.Open(p.ctx(), api.CreatePreview{Port: 8001})
	p.ok(err)
	app, err := previews.Open(p.ctx(), api.CreatePreview{Port: 5173, Public: true})
	p.ok(err)
	at, shown := p.at(), arrived
	arrive := func(who person, steps ...step) {
		p.t.Helper()
		if got := who.loud().do(append(steps, step{"until", shown})...); got.URL != at {
			p.t.Errorf("%s is led to %s, not to %s", who.who, got.URL, at)
		}
		who.do(step{"close"})
	}
	refused := []step{{"go", own.Address}, {"until", `document.querySelector("a")?.textContent === "Open it with skete"`}}
	arrive(p.in("8001"), append(refused, step{"click", "a"})...)

	k := p.key("frank", "write")
	arrive(person{story: p.story, who: "frank", tab: "8001"}, append(refused, step{"click", "a"}, step{"fill", "input[name=key]", k.Secret}, step{"press", "Enter"})...)

	// By a public link a stranger sees the app, but not the history.
	p.ok(previews.Revoke(p.ctx(), app.ID))
	app, err = previews.Open(p.ctx(), api.CreatePreview{Port: 5173, Public: true})
	p.ok(err)
	stranger := person{story: p.story, who: "stranger", tab: "app"}.loud()
	stranger.do(step{"go", app.URL}, step{"until", `!!document.querySelector("main")?.dataset.theme`})
	stranger.do(refused...)
	stranger.do(step{"click", "a"}, step{"until", `location.pathname === "/login"`})
	stranger.do(step{"go", at}, step{"until", `location.pathname === "/login"`})
	stranger.do(step{"go", p.origin() + "/healthz"})
	if got := stranger.get(`fetch("/v1/sandboxes/` + p.id + `/history").then((r) => r.status)`); got != "401" {
		p.t.Errorf("who came by a public link reads the history: %s", got)
	}
	// A public link to 8001 itself opens nothing either.
	if link, err := previews.Open(p.ctx(), api.CreatePreview{Port: 8001, Public: true}); err == nil {
		stranger.do(step{"go", link.URL}, step{"until", `location.pathname === "/login"`})
		p.ok(previews.Revoke(p.ctx(), link.ID))
	}
	p.ok(previews.Revoke(p.ctx(), app.ID))
	stranger.do(step{"close"})
}

// logout ends it in every tab, and going back shows nothing.
func (p person) logout() {
	p.t.Helper()
	other := p.in("other")
	other.do(step{"go", p.at()}, step{"until", arrived})
	atLogin := step{"until", `location.pathname === "/login" && !!document.querySelector("input[name=key]")`}
	p.loud().do(step{"click", "[aria-label='Log out']"}, atLogin)
	other.loud().do(atLogin, step{"close"})
	p.loud().do(step{"get", `(window.here = true, setTimeout(() => history.back()), 0)`}, step{"until", `!window.here`},
		step{"until", `location.pathname === "/login" || !document.querySelector("[role=option]")`}, atLogin, step{"close"})
}

// revokedKey: what was opened with a key closes with it.
func (s *story) revokedKey(t *testing.T) {
	s.with(t)
	k := s.key("mallory", "write")
	p := s.visit("mallory", k)
	p.until(canUndo)
	s.ok(s.c.RevokeKey(s.ctx(), k.ID))
	p.loud().do(step{"until", `location.pathname === "/login" && !!document.querySelector("input[name=key]")`})
	p.loud().do(step{"fill", "input[name=key]", k.Secret}, step{"press", "Enter"}, step{"until", `!!document.querySelector("[role=alert]")`}, step{"close"})
}
