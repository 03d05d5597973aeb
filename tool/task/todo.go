package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file has write_todos: the agent's plan for the task at hand.
//
// A call replaces the whole plan. The plan is nowhere else: it is what the
// last successful call wrote (Result.Todos, thread.ToolCompleted.Todos).

const about = `Writes the plan of your work: replaces the whole list. For simple requests leave it away. ` +
	`Example: {"todos":[{"content":"Find where dates are parsed","status":"in_progress"},{"content":"Add a test","status":"pending"}]}`

// The schema's bounds keep a plan within one event.
const schema = `{"type":"object","additionalProperties":false,"required":["todos"],"properties":{"todos":{"type":"array","maxItems":100,"items":
{"type":"object","additionalProperties":false,"required":["content","status"],"properties":{
"content":{"type":"string","minLength":1,"maxLength":500},
"status":{"type":"string","enum":["pending","in_progress","completed"]}}}}}}`

// planBytesMax bounds the plan as a whole; it stands in one event.
const planBytesMax = 16 << 10

// AddTodo adds write_todos.
func AddTodo(r *tool.Registry) {
	r.Add("write_todos", func(tool.Env) (tool.Tool, error) { return writeTodos{}, nil })
}

type writeTodos struct{}

// Spec implements tool.Tool.
func (writeTodos) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "write_todos", Description: about, Schema: json.RawMessage(schema)}
}

// Effect implements tool.Tool. It changes nothing but what its result says.
func (writeTodos) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (writeTodos) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	var args struct {
		Todos []thread.Todo `json:"todos"`
	}
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	}
	size, working := 0, 0
	for _, t := range args.Todos {
		size += len(t.Content) + 64
		if t.Status == "in_progress" {
			working++
		}
	}
	if size > planBytesMax {
		return tool.Fail(tool.CodeTooLarge, fmt.Sprintf("Error: too_large: the plan has about %d bytes, at most %d are possible; write shorter items", size, planBytesMax)), nil
	}
	text := showTodos(args.Todos)
	if working > 1 {
		text += fmt.Sprintf("\nNote: %d items are in progress; one at a time is better, unless sub-agents work on them.", working)
	}
	r := tool.Text(text)
	r.Todos = args.Todos
	if r.Todos == nil {
		r.Todos = []thread.Todo{}
	}
	return r, nil
}

var marks = map[string]string{"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}

// showTodos writes the plan as a person would.
func showTodos(todos []thread.Todo) string {
	if len(todos) == 0 {
		return "The plan is empty now."
	}
	var b strings.Builder
	done := 0
	for _, t := range todos {
		if t.Status == "completed" {
			done++
		}
		fmt.Fprintf(&b, "\n%s %s", marks[t.Status], strings.ReplaceAll(t.Content, "\n", " "))
	}
	return fmt.Sprintf("The plan, %d of %d done:%s", done, len(todos), b.String())
}
