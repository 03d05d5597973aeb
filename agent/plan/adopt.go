package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Tool is the name of the tool that adopts a plan.
const Tool = "adopt_plan"

// Add adds adopt_plan to a registry.
func Add(r *tool.Registry, set *Set) {
	r.Add(Tool, func(tool.Env) (tool.Tool, error) {
		if len(set.names()) == 0 {
			return nil, errs.New(errs.Unsupported, "there is no plan to adopt")
		}
		return newTool(set), nil
	})
}

// newTool returns adopt_plan, which replaces the agent's todos by the steps of
// a template. It changes nothing else.
func newTool(set *Set) tool.Tool { return &adopt{set: set, spec: specOf(set)} }

type adopt struct {
	set  *Set
	spec llm.ToolSpec
}

// specOf tells the model which plans there are; the same set gives the same bytes.
func specOf(set *Set) llm.ToolSpec {
	var b strings.Builder
	b.WriteString("Begins with a proven plan: replaces your todos by its steps, which you then adapt with write_todos. The plans:")
	for _, name := range set.names() {
		fmt.Fprintf(&b, "\n- %s: %s", name, strings.Join(strings.Fields(set.entries[name].Template.When), " "))
	}
	schema, _ := json.Marshal(map[string]any{ // texts are always JSON
		"type": "object", "additionalProperties": false, "required": []string{"name"},
		"properties": map[string]any{"name": map[string]any{"type": "string", "enum": set.names()}},
	})
	return llm.ToolSpec{Name: Tool, Description: b.String(), Schema: schema}
}

// Spec implements tool.Tool.
func (a *adopt) Spec() llm.ToolSpec { return a.spec }

// Effect implements tool.Tool.
func (a *adopt) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (a *adopt) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	var args struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(req.Args, &args) != nil {
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	}
	t, err := a.set.Find(args.Name)
	if err != nil {
		return tool.Fail(tool.CodeArgs, fmt.Sprintf("There is no plan %.80q. The plans are: %s.", args.Name, strings.Join(a.set.names(), ", "))), nil
	}
	r := tool.Text(t.Text())
	r.Todos = t.Todos()
	return r, nil
}
