package task

import (
	"context"
	"encoding/json"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file has compact_conversation: the model asks for a shorter conversation.

const aboutCompact = `Replaces the conversation so far by a summary, before your next step: between two parts of a long task, when what was read and tried ` +
	`is no longer needed in full. It stays readable as a file. Example: {"focus":"names and ports of the services"}`

// AddCompact adds compact_conversation.
func AddCompact(r *tool.Registry) {
	r.Add("compact_conversation", func(tool.Env) (tool.Tool, error) { return compact{}, nil })
}

type compact struct{}

// Spec implements tool.Tool.
func (compact) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "compact_conversation", Description: aboutCompact, Schema: json.RawMessage(
		`{"type":"object","additionalProperties":false,"properties":{"focus":{"type":"string","maxLength":1000,"description":"What the summary must keep above all"}}}`)}
}

// Effect implements tool.Tool. It changes nothing but what its result says.
func (compact) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (compact) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	var args struct {
		Focus string `json:"focus"`
	}
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	}
	r := tool.Text("The conversation is replaced by a summary before your next step.")
	r.Compact = &thread.CompactAsked{By: "agent", Focus: args.Focus}
	return r, nil
}
