package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
)

// payload is a text that means no good.
type payload struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

const payloadsMin = 60

func corpus(t *testing.T) (list []payload) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hostile.json"))
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < payloadsMin {
		t.Fatalf("%d payloads, at least %d", len(list), payloadsMin)
	}
	return list
}

// fileName is a payload as a name that a file can have.
func fileName(p payload) string {
	name := strings.NewReplacer("/", "\u2215", "\x00", "").Replace(p.Text)
	for len(name) > 150 {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	return name
}

// quoted is a text as YAML; brackets would count as levels.
func quoted(text string) string {
	return strings.NewReplacer("[", `\x5b`, "{", `\x7b`).Replace(strconv.QuoteToASCII(text))
}

// hostileScript says each payload, as a text, as arguments, as a file's name, and as what
// a tool gives back.
func hostileScript(list []payload) string {
	var b strings.Builder
	b.WriteString("replies:\n")
	for _, p := range list {
		text := "before-" + p.Name + "\n\n" + p.Text + "\n\n~~~~~~\n~~~~~~\n\nafter-" + p.Name
		if strings.HasPrefix(p.Text, "```") {
			text = "before-" + p.Name + "\n\n" + p.Text + "\nafter-" + p.Name
		}
		path := "/workspace/" + p.Name + " " + fileName(p)
		fmt.Fprintf(&b, "  - text: %s\n    calls:\n", quoted(text))
		fmt.Fprintf(&b, "      - {name: write_file, args: {file_path: %s, content: %s}}\n", quoted(path), quoted("in-"+p.Name+"\n"+p.Text))
		fmt.Fprintf(&b, "      - {name: execute, args: {command: 'cat %s*; echo out-%s'}}\n", p.Name, p.Name)
	}
	b.WriteString("else: {text: done}\n")
	return b.String()
}

// Scenario 19: nothing that models, tools and files say does anything in the page.
func TestHostile_textStaysText(t *testing.T) {
	const most = 14 // payloads of a run: a script is small
	s := setup{scripts: map[string]string{}}
	var models []string
	list := corpus(t)
	for part := range slices.Chunk(list, most) {
		name := fmt.Sprintf("hostile%d", len(models))
		models = append(models, name)
		s.scripts[name] = hostileScript(part)
	}
	w := newWorld(t, s)
	var runs []api.Run
	for i, model := range models {
		p := list[i]
		runs = append(runs, w.run(model, api.StartRun{Task: p.Text, Title: p.Text, Budget: api.Budget{Steps: 500}}))
	}
	var said strings.Builder
	for i, run := range runs {
		run = w.ended(run.ID)
		do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
		got := do[struct {
			Said  string   `json:"said"`
			Wrong []string `json:"wrong"`
		}](w, "unfold", nil)
		said.WriteString(got.Said)
		for _, wrong := range got.Wrong {
			t.Errorf("a page has %s", wrong)
		}
		if i > 0 {
			continue
		}
		do[[]string](w, "tabs", nil)
		for _, path := range []string{"/", "/approvals", "/vms", "/vms/" + run.Sandbox, "/vms/" + run.Sandbox + "/files", "/vms/" + run.Sandbox + "/history", "/network"} {
			do[any](w, "open", map[string]any{"path": path})
		}
	}
	for _, p := range list {
		for _, mark := range []string{"before-", "after-", "in-", "out-"} {
			if !strings.Contains(said.String(), mark+p.Name) {
				t.Errorf("the page does not show %s%s", mark, p.Name)
			}
		}
	}
	w.clean()
	t.Run("TheTestWouldSee", func(t *testing.T) {
		w := w.with(t)
		do[any](w, "attack", nil)
		if got := do[watched](w, "watched", nil); len(got.Violations) < 2 || len(got.Titles) == 0 {
			t.Errorf("an attack was not seen: %+v", got)
		}
	})
}
