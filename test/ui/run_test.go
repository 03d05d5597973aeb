package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
)

// longTask is how long a page may be deaf: a reference machine's 100 ms.
const longTask = 100 * time.Millisecond

// longParagraphs are more than an event of the log holds; the text is kept beside it.
const longParagraphs = 60

// words are a text of so many paragraphs, each of plain words.
func words(paragraphs int) string {
	var b strings.Builder
	for p := range paragraphs {
		if p > 0 {
			b.WriteString("\n\n")
		}
		for i := range 20 {
			fmt.Fprintf(&b, "word %03d of %03d. ", i, p)
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(b.String(), " \n", "\n"))
}

type startedRun struct {
	ID   string `json:"id"`
	At   int64  `json:"at"` // when its first item was there, ms
	Word string `json:"word"`
}

func (w *world) startByKeys(model string) startedRun {
	w.t.Helper()
	return do[startedRun](w, "start", map[string]any{"task": "Do it.", "model": model})
}

// Scenarios 1 to 3: a run is started by keys, its text grows as it is written, and the lines
// of a command are there before the next ones are written.
func TestRun_isSeenAsItHappens(t *testing.T) {
	const lines = 5
	text, long := words(20), words(longParagraphs)
	command := ""
	for i := 1; i <= lines; i++ {
		command += fmt.Sprintf("echo line-%d; until [ -e go-%d ]; do sleep 0.1; done; ", i, i)
	}
	w := newWorld(t, setup{scripts: map[string]string{
		"stream":  fmt.Sprintf("piece: %d\npace: 4ms\nelse: {text: %q}\n", len(text)/500, text),
		"long":    fmt.Sprintf("piece: 2048\nelse: {text: %q}\n", long),
		"command": fmt.Sprintf("replies:\n  - calls: [{name: execute, args: {command: %q}}]\n  - calls: [{name: execute, args: {command: 'echo bad; exit 3'}}]\nelse: {text: done}\n", command),
	}})
	t.Run("Stream", func(t *testing.T) {
		w := w.with(t)
		run := w.startByKeys("stream")
		if !strings.HasPrefix(run.Word, "running: running") {
			t.Errorf("the state is %q", run.Word)
		}
		got := do[struct {
			Text   string `json:"text"`
			Paints int    `json:"paints"`
			Long   []int  `json:"long"`
		}](w, "text", nil)
		log, first := w.said(run.ID)
		t.Logf("the first item was there %d ms after the first event; %d lengths of the text were seen, long tasks took %v ms", run.At-first.UnixMilli(), got.Paints, got.Long)
		if log != text || got.Text != log {
			t.Errorf("the page says\n%q\nthe log\n%q", got.Text, log)
		}
		if got.Paints < 5 {
			t.Errorf("the text was seen to grow %d times", got.Paints)
		}
		for _, ms := range got.Long {
			if d := time.Duration(ms) * time.Millisecond; d > patience.Of(longTask) {
				t.Errorf("the page was deaf for %s", d)
			}
		}
	})
	t.Run("Long", func(t *testing.T) {
		w := w.with(t)
		id := w.startByKeys("long").ID
		w.ended(id)
		do[struct{}](w, "says", map[string]any{"text": long})
		do[any](w, "open", map[string]any{"path": "/runs/" + id, "row": true})
		do[struct{}](w, "says", map[string]any{"text": long})
	})
	t.Run("Command", func(t *testing.T) {
		w := w.with(t)
		id := w.startByKeys("command").ID
		for i := 1; i <= lines; i++ {
			do[string](w, "line", map[string]any{"line": fmt.Sprintf("line-%d", i)})
			if i == lines-1 { // a page that is opened in the middle shows what was written so far
				do[any](w, "open", map[string]any{"path": "/runs/" + id, "row": true})
				do[string](w, "line", map[string]any{"line": "line-1"})
				do[string](w, "line", map[string]any{"line": fmt.Sprintf("line-%d", i)})
			}
			run, err := w.c.Run(id).Get(w.ctx())
			w.ok(err)
			_, err = w.c.Sandbox(run.Sandbox).Files().Write(w.ctx(), fmt.Sprintf("/workspace/go-%d", i), nil, client.WriteOptions{})
			w.ok(err)
		}
		do[string](w, "row", map[string]any{"nth": 0, "words": []string{"exit 0"}})
		do[string](w, "row", map[string]any{"nth": 1, "words": []string{"exit 3", "failed"}})
		w.ended(id)
	})
	w.clean()
}

// said is what a run's model said, and when its first event was.
func (w *world) said(id string) (text string, first time.Time) {
	w.t.Helper()
	w.ended(id)
	for e, err := range w.c.Run(id).History(w.ctx(), 1) {
		w.ok(err)
		if first.IsZero() {
			first = e.At
		}
		if e.Kind == "model.completed" {
			text += textOf(w.t, e)
		}
	}
	return text, first
}
