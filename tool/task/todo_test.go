package task

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

func TestWriteTodos(t *testing.T) {
	r := &tool.Registry{}
	AddTodo(r)
	tools, err := r.Make(tool.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	many := `{"todos":[` + strings.Repeat(`{"content":"x","status":"pending"},`, 100) + `{"content":"x","status":"pending"}]}`
	long := `{"todos":[` + strings.Repeat(`{"content":"`+strings.Repeat("x", 400)+`","status":"pending"},`, 50) + `{"content":"x","status":"pending"}]}`
	for args, want := range map[string]struct {
		text, code string
		todos      []thread.Todo
	}{
		`{"todos":[{"content":"a","status":"completed"},{"content":"b\nc","status":"in_progress"},{"content":"d","status":"pending"}]}`: {
			"The plan, 1 of 3 done:\n[x] a\n[>] b c\n[ ] d", "",
			[]thread.Todo{{Content: "a", Status: "completed"}, {Content: "b\nc", Status: "in_progress"}, {Content: "d", Status: "pending"}},
		},
		`{"todos":"[{\"content\":\"a\",\"status\":\"pending\"}]"}`: {"The plan, 0 of 1 done:\n[ ] a", "", []thread.Todo{{Content: "a", Status: "pending"}}},
		`{"todos":[]}`: {"The plan is empty now.", "", []thread.Todo{}},
		`{"todos":[{"content":"a","status":"in_progress"},{"content":"b","status":"in_progress"}]}`: {
			"The plan, 0 of 2 done:\n[>] a\n[>] b\nNote: 2 items are in progress; one at a time is better, unless sub-agents work on them.", "",
			[]thread.Todo{{Content: "a", Status: "in_progress"}, {Content: "b", Status: "in_progress"}},
		},
		`{"todos":[{"content":"a","status":"done"}]}`:   {"todos[0].status: expected one of pending, in_progress, completed, got done", tool.CodeArgs, nil},
		`{"todos":[{"content":"","status":"pending"}]}`: {"todos[0].content", tool.CodeArgs, nil},
		`{}`: {"todos: missing", tool.CodeArgs, nil},
		many: {"todos", tool.CodeArgs, nil},
		long: {"too_large", tool.CodeTooLarge, nil},
	} {
		got, err := tools[0].Run(t.Context(), tool.Request{Args: json.RawMessage(args)})
		if err != nil || got.Code != want.code || !strings.Contains(got.Blocks[0].Text, want.text) || want.code == "" && got.Blocks[0].Text != want.text {
			t.Errorf("%.100s: %v, %v", args, got, err)
		}
		if d := cmp.Diff(want.todos, got.Todos); d != "" {
			t.Errorf("%.100s: %s", args, d)
		}
	}
}
