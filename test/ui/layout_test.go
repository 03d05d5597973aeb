package ui

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/test/browser"
)

// lay runs a function of layout.mjs, which is called by name.
func lay[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"], args["themes"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds(), []string{"light", "dark"}
	args["axe"] = filepath.Join(browser.Install(w.t, filepath.Join("..", "browser")), "axe-core", "axe.min.js")
	return browser.Run[T](w.t, w.page, "layout.mjs", args)
}

// accessible is what was seen of a page.
type accessible struct {
	Found   []string `json:"found"`   // by axe
	Rules   int      `json:"rules"`   // that axe looked at, at least
	Wide    []string `json:"wide"`    // for a window of 320 pixels
	Unseen  []string `json:"unseen"`  // have the focus and do not look so
	Focused int      `json:"focused"` // had the focus
	Title   string   `json:"title"`
	Inside  bool     `json:"inside"` // the focus is in a dialog
	Closed  bool     `json:"closed"` // by Escape
}

func (a accessible) check(t *testing.T, where string) {
	t.Helper()
	a.atLeast(t, where, 10)
}

// atLeast is check for a page of which axe has so many rules.
func (a accessible) atLeast(t *testing.T, where string, rules int) {
	t.Helper()
	for what, list := range map[string][]string{"axe": a.Found, "at 320 pixels": a.Wide, "a focus that is not seen": a.Unseen} {
		for _, found := range list {
			t.Errorf("%s: %s: %s", where, what, found)
		}
	}
	if a.Rules < rules {
		t.Errorf("%s: %d rules were looked at", where, a.Rules)
	}
}

// places are the ids of what the pages of a layout show.
type places struct {
	run, asks, steps, machine, flow string
	later                           uint64 // a revision that cannot be taken back by itself
}

// layout is a world with something on every page.
func layout(t *testing.T) (w *world, p places) {
	t.Helper()
	w = newWorld(t, setup{
		scripts: map[string]string{
			"work": `
replies:
  - reasoning: I think first.
    text: "# A heading\n\nSome *text* with [a link](https://example.test/) and\n\n- a list\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    calls:
      - {name: write_todos, args: {todos: [{content: Read, status: completed}, {content: Write, status: in_progress}, {content: Test, status: pending}]}}
      - {name: write_file, args: {file_path: /workspace/a.txt, content: "one\ntwo\n"}}
  - calls: [{name: execute, args: {command: 'ls -la; exit 3'}}]
  - calls: [{name: edit_file, args: {file_path: /workspace/a.txt, old_string: two, new_string: three}}]
else: {text: done}
`,
			"careful": `
replies:
  - calls:
      - {name: execute, args: {command: 'rm -rf build'}}
      - {name: write_file, args: {file_path: /workspace/b, content: b}}
else: {text: done}
`,
			"steps": executes("echo base > a", "echo mid > a", "echo late > a"),
			"gated": gatedScript,
			"slow": `
replies:
  - calls: [{name: execute, args: {command: 'until [ -e go1 ]; do sleep 0.05; done; exit 3'}}]
  - calls: [{name: execute, args: {command: 'until [ -e go2 ]; do sleep 0.05; done; echo two'}}]
  - calls: [{name: execute, args: {command: 'until [ -e go3 ]; do sleep 0.05; done; echo three'}}]
else: {text: one word after another}
`,
		},
		agents: map[string]string{
			"careful": "approvals:\n  - {action: ask, tools: [execute, write_file]}\n",
			"mender":  "model: work\n",
		},
	})
	asks := w.run("careful", api.StartRun{Agent: "careful", Title: "waits for you"})
	steps := w.run("steps", api.StartRun{Title: "one file, again and again"})
	run := w.ended(w.run("work", api.StartRun{}).ID)
	_, err := w.c.PutWorkflow(w.ctx(), api.PutWorkflow{Text: `
name: review
description: Reviews a change, and asks a person.
topology: sequential
input: {type: object, properties: {branch: {type: string, description: to look at}}}
nodes:
  - {name: accept, human: {ask: Is it good now?, choices: [merge, again, drop]}}
  - {name: mend, agent: mender, task: Mend it.}
`})
	w.ok(err)
	flow, err := w.c.StartWorkflow(w.ctx(), api.StartWorkflow{Workflow: "review"})
	w.ok(err)
	_, err = w.c.InstallSkill(w.ctx(), api.InstallSkill{Archive: w.skill("forms", "Fills forms.", "# Forms\n\nRun `fill.py`.\n"), From: "forms.zip"})
	w.ok(err)
	grants := []api.SecretGrant{{Host: "api.example.com", As: "bearer"}}
	_, err = w.c.PutSecret(w.ctx(), "forge", api.PutSecret{Value: "not-a-real-one", Grants: &grants})
	w.ok(err)
	_, err = w.c.Sandbox(run.Sandbox).Snapshot(w.ctx(), api.CreateSnapshot{Name: "before"})
	w.ok(err)
	w.until("two calls wait", func() error {
		open, err := w.c.Run(asks.ID).Approvals(w.ctx())
		if err == nil && len(open) != 2 {
			err = errors.New("they do not")
		}
		return err
	})
	ended := w.ended(steps.ID)
	w.ask(run.Sandbox, "http://"+publicIP+"/a")
	return w, places{run: run.ID, asks: asks.ID, steps: steps.ID, machine: run.Sandbox, flow: flow.ID, later: w.changing(ended.Sandbox, "a", 1)}
}

// skill is the archive of a skill.
func (w *world) skill(name, about, text string) []byte {
	w.t.Helper()
	data, err := skill.Tree{Files: []skill.Entry{
		{Path: name + "/SKILL.md", Content: []byte("---\nname: " + name + "\ndescription: " + about + "\nallowed-tools: Read\n---\n" + text)},
		{Path: name + "/scripts/fill.py", Content: []byte("print(1)\n")},
	}}.Tar()
	w.ok(err)
	return data
}

// routes are the pages of each route of app.tsx, with all of their parts.
func (p places) routes() map[string][]string {
	under := func(base string, parts []string) (all []string) {
		for _, part := range parts {
			all = append(all, base+part)
		}
		return all
	}
	return map[string][]string{
		"/":                  {"/", "/?state=failed"},
		"/runs":              {"/runs"},
		"/runs/:id/*?":       {"/runs/" + p.run, "/runs/" + p.asks, "/runs/" + p.run + "?pane=files", "/runs/" + p.run + "?at=9", "/runs/" + p.run + "?page=1", "/runs/no-such-run"},
		"/runs/:id/compare":  {"/runs/" + p.run + "/compare?a=1&b=2"},
		"/approvals":         {"/approvals"},
		"/vms":               {"/vms"},
		"/vms/:id/:tab?":     under("/vms/"+p.machine+"/", []string{"overview", "terminal", "files", "changes", "preview", "network", "snapshots", "events"}),
		"/workflows/:name?":  {"/workflows", "/workflows?new=1", "/workflows/review"},
		"/workflow-runs/:id": {"/workflow-runs/" + p.flow},
		"/skills/:name?":     {"/skills", "/skills/forms"},
		"/network":           {"/network"},
		"/secrets":           {"/secrets"},
		"/usage":             {"/usage"},
		"/settings/:part?":   under("/settings/", []string{"models", "providers", "templates", "keys", "plugins", "mcp", "audit", "appearance", "about"}),
		"(what is no route)": {"/workflow-runs/no/such"},
	}
}

// source reads a file of the UI.
func source(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "web", "ui", "src", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// matches are the first groups of a pattern in a text, in their order.
func matches(pattern, text string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestLayout_knowsEveryRoute: a page that is new is looked at too.
func TestLayout_knowsEveryRoute(t *testing.T) {
	app := source(t, "app.tsx")
	is := matches(`<Route path="([^"]+)"`, app)
	if strings.Contains(app, "<Route>") {
		is = append(is, "(what is no route)")
	}
	routes := places{machine: "m"}.routes()
	if want := slices.Sorted(maps.Keys(routes)); !slices.Equal(slices.Sorted(slices.Values(is)), want) {
		t.Errorf("app.tsx has the routes %q, the test has %q", is, want)
	}
	has := func(route string, parts []string) {
		t.Helper()
		if len(parts) < 2 {
			t.Fatalf("%s: the parts %q were found", route, parts)
		}
		for _, part := range parts {
			if !slices.ContainsFunc(routes[route], func(path string) bool { return strings.HasSuffix(path, "/"+part) }) {
				t.Errorf("%s: the part %s is not looked at", route, part)
			}
		}
	}
	has("/vms/:id/:tab?", matches(`"(\w+)"`, strings.Join(matches(`(?m)^const tabs = \[(.*)\]`, source(t, "pages/machine.tsx")), " ")))
	has("/settings/:part?", matches(`(?m)^\t(\w+): \["`, source(t, "pages/settings.tsx")))
}

var notName = regexp.MustCompile(`[^a-z]+`)

// pictures is the directory in which pictures of pages are kept.
func pictures(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".build", "screenshots"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// shot is where pictures of a page are kept.
func shot(t *testing.T, i int, route string) string {
	t.Helper()
	name := strings.Trim(notName.ReplaceAllString(strings.SplitN(route[1:]+"/", "/", 2)[0], "-"), "-")
	if name == "" {
		name = "home"
	}
	return filepath.Join(pictures(t), fmt.Sprintf("%02d-%s-THEME.png", i, name))
}

// Scenario 20: every page can be used by all, in both themes and with each dialog open, and by
// the keys alone; it fits a narrow window, and a change of the window's size asks for nothing
// and makes nothing anew.
func TestLayout(t *testing.T) {
	w, p := layout(t)
	t.Run("Pages", func(t *testing.T) { everyPage(t, w.with(t), p) })
	t.Run("Dialogs", func(t *testing.T) { everyDialog(t, w.with(t), p) })
	t.Run("Narrow", func(t *testing.T) { narrow(t, w.with(t), p) })
	t.Run("Keys", func(t *testing.T) { byKeys(t, w.with(t)) })
	t.Run("Resize", func(t *testing.T) { resize(t, w.with(t), p) })
	t.Run("Wishes", func(t *testing.T) { wishes(t, w.with(t), p) })
	t.Run("Spoken", func(t *testing.T) { spoken(t, w.with(t)) })
	t.Run("TheTestWouldSee", func(t *testing.T) {
		w := w.with(t)
		lay[accessible](w, "visit", map[string]any{"path": "/usage"})
		got := lay[accessible](w, "spoil", nil)
		found := strings.Join(got.Found, "\n")
		for _, rule := range []string{"light: label:", "dark: label:", "target-size:"} {
			if !strings.Contains(found, rule) {
				t.Errorf("of what was spoiled axe finds %s, and not %s", found, rule)
			}
		}
		if len(got.Wide) == 0 || len(got.Unseen) != 2 {
			t.Errorf("of what was spoiled these were found: too wide %q, without a focus %q", got.Wide, got.Unseen)
		}
	})
	got := do[watched](w, "watched", nil)
	got.Outside = slices.DeleteFunc(got.Outside, func(request string) bool { return strings.Contains(request, ".preview.localhost:") }) // they are asked for
	w.report(got)
}

func everyPage(t *testing.T, w *world, p places) {
	routes, focused, i := p.routes(), 0, 0
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		for _, path := range routes[route] {
			args := map[string]any{"path": path, "shot": shot(t, i, path)}
			got := lay[accessible](w, "visit", args)
			got.check(t, path)
			if got.Title == "" {
				t.Errorf("%s has no title", path)
			}
			focused += got.Focused
			i++
		}
	}
	t.Logf("%d pages, on which %d elements had the focus", i, focused)
	if focused < 20*i {
		t.Errorf("on %d pages %d elements had the focus", i, focused)
	}
}

func everyDialog(t *testing.T, w *world, p places) {
	run, asks := "/runs/"+p.run, "/runs/"+p.asks
	machine, err := w.c.Sandbox(p.machine).Get(w.ctx())
	w.ok(err)
	name := machine.Name
	if name == "" {
		name = machine.ID
	}
	for _, d := range []struct {
		title, path, open string
		args              map[string]any
	}{
		{"New machine", "/vms", "button", map[string]any{"button": "New machine"}},
		{"Undo", run, "key", map[string]any{"key": "Control+z", "says": "a.txt"}},
		{"Revert", fmt.Sprintf("/runs/%s?rev=%d", p.steps, p.later), "button", map[string]any{"button": "Revert only this", "says": "Changed again since"}},
		{"Fork from event", run, "button", map[string]any{"button": "Fork"}},
		{"Share this run", run, "button", map[string]any{"button": "Share", "says": "It is not shared."}},
		{"Keys", run, "key", map[string]any{"key": "?"}},
		{"Go to", run, "key", map[string]any{"key": "Control+k"}},
		{"Allow for", "/network", "group", map[string]any{"host": publicIP}},
		{"New secret", "/secrets", "button", map[string]any{"button": "New secret"}},
		{"New key", "/settings/keys", "button", map[string]any{"button": "New key"}},
		{"Install a skill", "/skills", "button", map[string]any{"button": "Install"}},
		{"Destroy", "/vms/" + p.machine, "button", map[string]any{"button": "Destroy " + name}},
		{"Snapshot", "/vms/" + p.machine, "button", map[string]any{"button": "Snapshot " + name}},
		{"Public links", run + "?pane=preview", "button", map[string]any{"button": "Public links"}},
		{"", "/workflows/review", "button", map[string]any{"button": "Only say what would be started"}},
		{"", asks, "act", map[string]any{"act": "edit"}},
		{"", asks, "act", map[string]any{"act": "reject"}},
		{"", asks, "act", map[string]any{"act": "respond"}},
		{"", "/approvals", "act", map[string]any{"act": "reject"}},
		{"", "/vms/" + p.machine + "/terminal", "shell", map[string]any{}},
		{"", run + "?pane=terminal", "shell", map[string]any{}},
	} {
		d.args["path"], d.args["open"], d.args["dialog"] = d.path, d.open, d.title != ""
		got := lay[accessible](w, "opened", d.args)
		got.check(t, d.path+" with "+d.title+d.open)
		if d.title != "" && (!strings.HasPrefix(got.Title, d.title) || !got.Inside || !got.Closed) {
			t.Errorf("%s: the dialog %q: %+v", d.path, d.title, got)
		}
	}
}

// narrow: what waits covers a narrow window, and what is touched there is large enough.
func narrow(t *testing.T, w *world, p places) {
	const touch = 44
	got := lay[struct {
		accessible
		Whole   bool     `json:"whole"` // it covers the window
		Modal   string   `json:"modal"`
		Sticky  string   `json:"sticky"`
		Buttons int      `json:"buttons"`
		Low     float64  `json:"low"`    // the lowest button of a decision
		Lowest  float64  `json:"lowest"` // of the bars
		Bar     []string `json:"bar"`
		Keys    []string `json:"keys"`
	}](w, "full", map[string]any{"path": "/runs/" + p.asks})
	got.check(t, "the approvals in a narrow window")
	if !got.Whole || got.Modal != "true" || !got.Closed || got.Sticky != "sticky" || got.Buttons != 8 || got.Low < touch {
		t.Errorf("in a narrow window the approvals are %+v", got)
	}
	if want := []string{"Timeline", "Changes", "Preview", "Terminal", "Files", "Plan"}; !slices.Equal(got.Bar, want) || got.Lowest < touch {
		t.Errorf("the bar has %q, and parts %v high", got.Bar, got.Lowest)
	}
	if want := []string{"Ctrl", "Esc", "Tab", "←", "↑", "↓", "→"}; !slices.Equal(got.Keys, want) {
		t.Errorf("the keys of the terminal are %q", got.Keys)
	}
}

// byKeys: a run is started, and its calls are decided in all four ways, without the mouse. That
// an undo and a redo are, TestUndo_doesWhatItsPlanSaid sees.
func byKeys(t *testing.T, w *world) {
	got := lay[struct {
		ID    string `json:"id"`
		Agent string `json:"agent"`
		Model string `json:"model"`
		Focus bool   `json:"focus"` // is somewhere
	}](w, "decideByKeys", map[string]any{"agent": "careful", "model": "gated", "edited": "echo after-the-edit", "reject": rejectText, "respond": respondText})
	if got.Agent != "careful" || got.Model != "gated" || !got.Focus {
		t.Fatalf("the keys did %+v", got)
	}
	ended := w.ended(got.ID)
	for _, part := range []string{"first ran-as-asked", "\n\nafter-the-edit\n", "third", rejectText, "fourth " + respondText} {
		if !strings.Contains(ended.Text, part) {
			t.Errorf("the model was not told %q: it says %q", part, ended.Text)
		}
	}
	decisions := map[string]string{}
	for _, e := range w.events(got.ID) {
		if e.Kind == "approval.decided" {
			d := data[decidedData](w, e)
			decisions[d.Call] += d.Decision
		}
	}
	if want := map[string]string{"c-approve": "approve", "c-edit": "edit", "c-reject": "reject", "c-respond": "respond"}; !maps.Equal(decisions, want) {
		t.Errorf("by the keys these decisions were made: %v", decisions)
	}
}

func resize(t *testing.T, w *world, p places) {
	type resized struct {
		Requests []string `json:"requests"`
		Lost     []string `json:"lost"`
		Parts    int      `json:"parts"` // that were looked at
	}
	for what, got := range map[string]resized{
		"a run":            do[resized](w, "resize", map[string]any{"path": "/runs/" + p.run}),
		"a run that waits": lay[resized](w, "crossing", map[string]any{"path": "/runs/" + p.asks, "act": "reject"}),
	} {
		// The pane of changes looks for what no event tells of, by a clock.
		got.Requests = slices.DeleteFunc(got.Requests, func(url string) bool { return strings.Contains(url, "/history?") })
		if len(got.Requests) > 0 {
			t.Errorf("%s: the page asked for %v", what, got.Requests)
		}
		if len(got.Lost) > 0 || got.Parts < 3 {
			t.Errorf("%s: of %d parts of the page these were made anew: %q", what, got.Parts, got.Lost)
		}
	}
}

// wishes: with less motion nothing moves, and in the system's colours the focus is still seen.
func wishes(t *testing.T, w *world, p places) {
	type motion struct {
		Bad     int    `json:"bad"`
		Moving  int    `json:"moving"`
		Control string `json:"control"` // the style of an element that would move
	}
	got := lay[struct {
		Free    motion   `json:"free"`
		Reduced motion   `json:"reduced"`
		Unseen  []string `json:"unseen"`
		Focused int      `json:"focused"`
		Forced  bool     `json:"forced"`
		Words   string   `json:"words"`
	}](w, "moved", map[string]any{"path": "/runs/" + p.asks})
	if got.Free.Control != "spin 5s" {
		t.Errorf("the test would see no motion: %+v", got.Free)
	}
	if got.Reduced.Bad != 0 || got.Reduced.Moving != 0 || got.Reduced.Control != "none 0s" {
		t.Errorf("with less motion there is %+v", got.Reduced)
	}
	if !got.Forced || got.Focused < 20 || len(got.Unseen) > 0 || got.Words == "" {
		t.Errorf("with the colours of the system: %+v", got)
	}
}

// spoken: what is streamed is not read aloud; a step that is over is, once, and what waits or
// failed at once.
func spoken(t *testing.T, w *world) {
	type said struct {
		Status []string `json:"status"`
		Alert  []string `json:"alert"`
		Live   []string `json:"live"` // that the timeline has of texts
	}
	run := w.run("slow", api.StartRun{})
	lay[any](w, "spoken", map[string]any{"path": "/runs/" + run.ID})
	var got said
	want := []string{"Step 1: 1 call, 1 failed", "Step 2: 1 call", "Step 3: 1 call", "The run succeeded"}
	for i, words := range want {
		if i != 2 { // the last step of a run may be over with it
			if i < 3 {
				w.touch(run.ID, fmt.Sprint("go", i+1))
			}
			got = lay[said](w, "said", map[string]any{"words": words})
		} else {
			w.touch(run.ID, "go3")
		}
	}
	for _, words := range got.Status {
		if !slices.Contains(want, words) {
			t.Errorf("%q was said", words)
		}
	}
	if once := slices.Compact(slices.Sorted(slices.Values(got.Status))); len(once) != len(got.Status) {
		t.Errorf("something was said twice: %q", got.Status)
	}
	if len(got.Alert) > 0 || len(got.Live) > 0 {
		t.Errorf("at once was said %q, and the timeline would say %q", got.Alert, got.Live)
	}
	asking := w.run("careful", api.StartRun{Agent: "careful"})
	lay[any](w, "spoken", map[string]any{"path": "/runs/" + asking.ID})
	words := "2 calls wait for your decision. Press Shift A to go there."
	got = lay[said](w, "said", map[string]any{"words": words})
	if !slices.Contains(got.Alert, words) || slices.Contains(got.Status, words) {
		t.Errorf("of what waits was said %+v", got)
	}
}
