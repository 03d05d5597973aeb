package ui

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// pastScript writes files and a plan, at a price, and then waits for a file.
const pastScript = `
model: {price: {input: 1, output: 1}}
replies:
  - calls:
      - {name: write_todos, id: c-plan, args: {todos: [{content: Read, status: completed}, {content: Write, status: in_progress}, {content: Test, status: pending}]}}
      - {name: write_file, id: c-a, args: {file_path: /workspace/a.txt, content: one}}
    usage: {input: 110000, output: 0}
  - calls: [{name: write_file, id: c-b, args: {file_path: /workspace/b.txt, content: two}}]
    usage: {input: 220000, output: 0}
  - calls:
      - {name: write_todos, id: c-later, args: {todos: [{content: Read, status: completed}, {content: Write, status: completed}, {content: Test, status: in_progress}]}}
      - {name: execute, id: c-c, args: {command: 'rm a.txt; echo three > c.txt'}}
    usage: {input: 440000, output: 0}
  - calls: [{name: execute, id: c-wait, args: {command: 'until [ -e go ]; do sleep 0.05; done'}}]
else: {text: it is finished now}
scenes:
  - user: ` + forkTask + `
    else: {text: the fork has said it}
`

const forkTask = "Only say it."

// moment is what a run's page shows of a moment.
type moment struct {
	At    string   `json:"at"`
	Files string   `json:"files"`
	Plan  string   `json:"plan"`
	Head  string   `json:"head"`
	Said  int      `json:"said"` // that nothing is executed
	Rows  []uint64 `json:"rows"`
}

// Scenarios 10 and 11: the past is what the log says of it, to look at it changes nothing,
// and a fork begins with the files of then.
func TestPast(t *testing.T) {
	const slow = "c-wait"
	w := newWorld(t, setup{scripts: map[string]string{"past": pastScript}})
	run := w.run("past", api.StartRun{})
	var log []api.RunEvent
	w.until("the run waits", func() error {
		log = w.events(run.ID)
		for _, e := range log {
			if e.Kind == "tool.started" && data[decidedData](w, e).Call == slow {
				return nil
			}
		}
		return fmt.Errorf("its log has %d events", len(log))
	})
	var at uint64 // the moment at which b.txt has been written
	var cost float64
	for _, e := range log {
		if e.Kind == "model.completed" {
			cost += data[struct {
				Cost float64 `json:"cost_usd"`
			}](w, e).Cost
		}
		if e.Kind == "tool.completed" && data[decidedData](w, e).Call == "c-b" {
			at = e.Seq
			break
		}
	}
	last := log[len(log)-1].Seq
	if at == 0 || cost == 0 {
		t.Fatalf("the log has no such moment, or no cost: %d, $%v", at, cost)
	}
	path := fmt.Sprintf("/runs/%s?pane=files", run.ID)
	look := func(when string) {
		t.Helper()
		got := decide[moment](w, "past", map[string]any{"files": "a.txt b.txt"})
		if got.At != fmt.Sprint(at) || got.Said != 1 {
			t.Errorf("%s: the page looks at %q, and says %d times that nothing is executed", when, got.At, got.Said)
		}
		if !strings.Contains(got.Plan, "1/3") || !strings.Contains(got.Head, fmt.Sprintf("$%.2f", cost)) || !strings.Contains(got.Head, "2 steps") {
			t.Errorf("%s: at $%.2f the page says %q and %q", when, cost, got.Head, got.Plan)
		}
		if len(got.Rows) == 0 || slices.Max(got.Rows) > at {
			t.Errorf("%s: at event %d the timeline has rows of %v", when, at, got.Rows)
		}
	}
	t.Run("Travel", func(t *testing.T) {
		w := w.with(t)
		do[any](w, "open", map[string]any{"path": path, "row": true})
		if now := decide[moment](w, "past", map[string]any{"files": "b.txt c.txt"}); !strings.Contains(now.Plan, "2/3") || now.Said != 0 {
			t.Errorf("before, the page says %q", now.Plan)
		}
		decide[any](w, "record", nil)
		text := decide[string](w, "drag", map[string]any{"first": 1, "last": last, "to": at})
		if !strings.Contains(text, "b.txt") {
			t.Errorf("the bar says %q", text)
		}
		look("dragged")
		decide[any](w, "reload", nil)
		look("loaded anew")
		got := decide[struct {
			All      int      `json:"all"`
			Changing []string `json:"changing"`
			Sockets  []string `json:"sockets"`
		}](w, "recorded", nil)
		if got.All == 0 || len(got.Changing) > 0 || len(got.Sockets) > 0 {
			t.Errorf("of %d requests these may change something: %v; sockets: %v", got.All, got.Changing, got.Sockets)
		}
		w.touch(run.ID, "go")
		w.ended(run.ID)
		decide[int](w, "fresh", map[string]any{"least": 2})
		look("when more has come")
		decide[any](w, "live", map[string]any{"text": "it is finished now"})
		decide[moment](w, "past", map[string]any{"files": "b.txt c.txt go"})
	})
	t.Run("Fork", func(t *testing.T) {
		w := w.with(t)
		before, err := json.Marshal(w.events(run.ID))
		w.ok(err)
		do[any](w, "open", map[string]any{"path": fmt.Sprintf("/runs/%s?at=%d", run.ID, at), "row": true})
		got := decide[struct{ ID, Title string }](w, "fork", map[string]any{"run": run.ID, "task": forkTask})
		if want := fmt.Sprintf("Fork from event %d", at); got.Title != want {
			t.Errorf("the dialog is about %q, not %q", got.Title, want)
		}
		fork := w.ended(got.ID)
		if fork.Fork == nil || fork.Fork.Seq != at || fork.Thread == run.Thread || fork.Text != "the fork has said it" {
			t.Errorf("the fork is %+v", fork)
		}
		source, err := w.c.Run(run.ID).Get(w.ctx())
		w.ok(err)
		if fork.Sandbox == source.Sandbox {
			t.Error("the fork works in the machine of its source")
		}
		var want, root string
		for r, err := range w.c.Sandbox(source.Sandbox).History().Revisions(w.ctx(), client.RevisionFilter{Run: run.ID}) {
			w.ok(err)
			if r.Call == "c-b" {
				want = r.Root
			}
		}
		for r, err := range w.c.Sandbox(fork.Sandbox).History().Revisions(w.ctx(), client.RevisionFilter{}) {
			w.ok(err)
			root = r.Root
			break
		}
		if want == "" || root != want {
			t.Errorf("the fork's tree is %q, that of the moment %q", root, want)
		}
		after, err := json.Marshal(w.events(run.ID))
		w.ok(err)
		if string(after) != string(before) {
			t.Errorf("the log of the source was\n%s\nand is\n%s", before, after)
		}
	})
	w.clean()
}
