package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// pane runs a function of pane.mjs, as do runs one of page.mjs.
func pane[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return browser.Run[T](w.t, w.page, "pane.mjs", args)
}

// talkScript is two steps that change files.
const talkScript = `
replies:
  - calls: [{name: write_file, id: c-a, args: {file_path: /workspace/a.txt, content: one}}]
  - calls: [{name: execute, id: c-b, args: {command: 'echo two > b.txt; echo three > c.txt'}}]
else: {text: it is done}
`

// What changed is shown by step and by turn, a comment on a line goes into the message and no
// further, the past can be played and gone through by revisions, and the files of a moment
// that is looked at can be had again.
func TestPanes(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"talk": talkScript}})
	run := w.worked("talk", api.StartRun{Task: "Write three files."})
	pane[any](w, "range", map[string]any{"since": "step", "want": "b.txt c.txt"})
	pane[any](w, "range", map[string]any{"since": "turn", "want": "a.txt b.txt c.txt"})
	got := pane[struct {
		Text string   `json:"text"`
		Sent []string `json:"sent"`
	}](w, "comment", map[string]any{"path": "b.txt", "words": "Why two?"})
	if want := "> `b.txt:1` (added)\n>\n>     two\n\nWhy two?"; got.Text != want || len(got.Sent) > 0 {
		t.Errorf("the message is %q, not %q; sent were %v", got.Text, want, got.Sent)
	}
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	if text := pane[string](w, "pages", nil); !strings.Contains(text, "revision") {
		t.Errorf("the bar says %q", text)
	}
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	played := pane[struct {
		Seen []int  `json:"seen"`
		Text string `json:"text"`
	}](w, "play", nil)
	if len(played.Seen) < 3 || !strings.HasPrefix(played.Text, "live") {
		t.Errorf("it was played by %v to %q", played.Seen, played.Text)
	}
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	if plan := pane[string](w, "undoStep", map[string]any{"call": "echo two"}); !strings.HasPrefix(plan, "undo-") {
		t.Errorf("the key shows the plan %q", plan)
	}
	do[any](w, "open", map[string]any{"path": fmt.Sprintf("/runs/%s?at=%d", run.ID, w.answered(run.ID, "c-a")), "row": true})
	if plan := act[planned](w, "press", map[string]any{"name": "Undo to here"}); !strings.HasPrefix(plan.Plan, "restore-") {
		t.Errorf("the plan is %+v", plan)
	}
	if done := act[outcome](w, "apply", nil); done.Done != "restore" || done.Same != "true" {
		t.Errorf("the page says %+v", done)
	}
	if got := w.cat(run.Sandbox, "a.txt") + " " + w.cat(run.Sandbox, "b.txt"); got != "one gone" {
		t.Errorf("the files are %s", got)
	}
	w.clean()
}

// An undo takes the conversation back only if it is asked to; its message is in the composer then.
// A fork's page has what it took over.
func TestConversationToo(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"talk": talkScript}})
	run := w.worked("talk", api.StartRun{Task: "Write three files."})
	act[planned](w, "plan", nil)
	asked := pane[struct {
		Was  bool   `json:"was"`
		Says string `json:"says"`
	}](w, "too", nil)
	if asked.Was || !strings.Contains(asked.Says, "before step 2") {
		t.Errorf("the dialog says, checked %v: %s", asked.Was, asked.Says)
	}
	if done := act[outcome](w, "apply", nil); done.Done != "undo" {
		t.Fatalf("the page says %+v", done)
	}
	said := pane[struct {
		Done string `json:"done"`
		Said string `json:"said"`
		Text string `json:"text"`
		Rows int    `json:"rows"`
	}](w, "talk", nil)
	if said.Done != "back" || said.Text != "" || said.Rows != 1 { // it was in the middle of a turn
		t.Errorf("the page says %+v", said)
	}
	if got := w.cat(run.Sandbox, "c.txt"); got != "gone" {
		t.Errorf("c.txt is %q", got)
	}
	_, err := w.c.Run(run.ID).Rewind(w.ctx(), w.answered(run.ID, "c-a")-1, false) // as another page may
	w.ok(err)
	pane[any](w, "rewinds", map[string]any{"n": 2})
	fork, err := w.c.Run(run.ID).Fork(w.ctx(), api.ForkRun{At: w.answered(run.ID, "c-a"), Task: "Say it."})
	w.ok(err)
	w.ended(fork.ID)
	do[any](w, "open", map[string]any{"path": "/runs/" + fork.ID, "row": true})
	from := pane[struct {
		Href  string   `json:"href"`
		Lines []string `json:"lines"`
	}](w, "origin", nil)
	if !strings.HasPrefix(from.Href, "/runs/"+run.ID+"?at=") || !slices.ContainsFunc(from.Lines, func(l string) bool { return strings.Contains(l, "Write three files.") }) {
		t.Errorf("the fork's page says %+v", from)
	}
	w.clean()
}

// answered is the event that ended a call.
func (w *world) answered(run, call string) (seq uint64) {
	w.t.Helper()
	w.until("the call has ended", func() error {
		for _, e := range w.events(run) {
			if e.Kind == "tool.completed" && data[decidedData](w, e).Call == call {
				seq = e.Seq
				return nil
			}
		}
		return fmt.Errorf("call %s has not", call)
	})
	return seq
}
