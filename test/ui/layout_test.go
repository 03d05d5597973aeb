package ui

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/test/browser"
)

// layout is a world with something on every page.
func layout(t *testing.T) (w *world, routes []string, run api.Run) {
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
		},
		agents: map[string]string{"careful": "approvals:\n  - {action: ask, tools: [execute, write_file]}\n"},
	})
	run = w.ended(w.run("work", api.StartRun{}).ID)
	asks := w.run("careful", api.StartRun{Agent: "careful", Title: "waits for you"})
	w.until("two calls wait", func() error {
		open, err := w.c.Run(asks.ID).Approvals(w.ctx())
		if err == nil && len(open) != 2 {
			err = os.ErrNotExist
		}
		return err
	})
	return w, []string{
		"/", "/runs/" + run.ID, "/runs/" + asks.ID, "/approvals", "/vms", "/vms/" + run.Sandbox, "/workflows", "/skills", "/network", "/secrets", "/usage", "/settings/models",
		"/runs/" + run.ID + "/compare?a=1&b=2",
	}, run
}

var notName = regexp.MustCompile(`[^a-z]+`)

// shot is where a picture of a page is kept.
func shot(t *testing.T, i int, route, theme string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".build", "screenshots"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Trim(notName.ReplaceAllString(strings.SplitN(route[1:]+"/", "/", 2)[0], "-"), "-")
	if name == "" {
		name = "home"
	}
	return filepath.Join(dir, strings.Join([]string{string(rune('a' + i)), name, theme}, "-")+".png")
}

// Scenario 20: every page can be used by all, in both themes; it fits a narrow window, and a
// change of the window's size asks for nothing and makes nothing anew.
func TestLayout(t *testing.T) {
	w, routes, run := layout(t)
	axe := filepath.Join(browser.Install(t, filepath.Join("..", "browser")), "axe-core", "axe.min.js")
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			w := w.with(t)
			do[any](w, "theme", map[string]any{"theme": theme})
			for i, route := range routes {
				do[any](w, "open", map[string]any{"path": route})
				got := do[struct {
					Found []string `json:"found"`
					Rules int      `json:"rules"`
				}](w, "axe", map[string]any{"axe": axe, "shot": shot(t, i, route, theme)})
				if got.Rules < 10 {
					t.Errorf("%s: %d rules were looked at", route, got.Rules)
				}
				for _, found := range got.Found {
					t.Errorf("%s: %s", route, found)
				}
			}
		})
	}
	t.Run("TheTestWouldSee", func(t *testing.T) {
		w := w.with(t)
		got := do[struct {
			Found []string `json:"found"`
		}](w, "axe", map[string]any{"axe": axe, "spoil": true})
		if len(got.Found) != 1 || !strings.Contains(got.Found[0], "label") {
			t.Errorf("a field without a name: %v", got.Found)
		}
	})
	t.Run("narrow", func(t *testing.T) {
		w := w.with(t)
		for _, route := range routes {
			for _, found := range do[[]string](w, "narrow", map[string]any{"path": route}) {
				t.Errorf("%s at 320 pixels: %s", route, found)
			}
		}
	})
	t.Run("resize", func(t *testing.T) {
		w := w.with(t)
		got := do[struct {
			Requests []string `json:"requests"`
			Lost     []string `json:"lost"`
			Parts    int      `json:"parts"` // that were looked at
		}](w, "resize", map[string]any{"path": "/runs/" + run.ID})
		// The pane of changes looks for what no event tells of, by a clock.
		got.Requests = slices.DeleteFunc(got.Requests, func(url string) bool { return strings.Contains(url, "/history?") })
		if len(got.Requests) > 0 {
			t.Errorf("the page asked for %v", got.Requests)
		}
		if len(got.Lost) > 0 || got.Parts < 3 {
			t.Errorf("of %d parts of the page these were made anew: %q", got.Parts, got.Lost)
		}
	})
	w.clean()
}
