package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// writer is a tool that writes.
type writer struct{ tool.Tool }

func (writer) Spec() llm.ToolSpec                 { return llm.ToolSpec{Name: "write"} }
func (writer) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Once} }

// What one call of a step has written when the next one begins is the first one's: else an
// undo of the step would leave it.
func TestRevisions_ofCallsSideBySide(t *testing.T) {
	changed := ""
	var made []string
	h := &revisions{
		revise: func(_ context.Context, m Mark) error {
			if changed != "" {
				made = append(made, changed+" by "+m.Actor+" "+m.Call)
				changed = ""
			}
			return nil
		},
		call:  func(context.Context) func() { return func() {} },
		tools: map[string]tool.Tool{"write": writer{}},
		log:   slog.New(slog.DiscardHandler),
	}
	call := func(id string, run func()) {
		_, err := h.AroundTool(func(context.Context, hook.ToolCall) (tool.Result, error) {
			run()
			return tool.Text("ok"), nil
		})(t.Context(), hook.ToolCall{ID: id, Name: "write"})
		if err != nil {
			t.Fatal(err)
		}
	}
	changed = "found"
	call("one", func() {
		changed = "a"
		call("two", func() { changed = "b" })
		changed = "c"
	})
	changed = "left"
	call("three", func() {})
	want := []string{"found by outside ", "a by agent one", "b by agent two", "c by agent one", "left by outside "}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
