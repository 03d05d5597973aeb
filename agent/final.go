package agent

import (
	"context"
	"encoding/json"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// finalTool is final_answer: it only checks; a call of it that succeeded ends
// the run.
type finalTool struct{ schema *definition.ResultSchema }

func (f finalTool) Spec() llm.ToolSpec { return f.schema.Spec() }

func (f finalTool) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

func (f finalTool) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	if _, wrong := f.schema.FromCall(req.Args); wrong != nil {
		return tool.Fail(tool.CodeArgs, definition.ResultCorrection(wrong)), nil
	}
	return tool.Text("The result was accepted."), nil
}
