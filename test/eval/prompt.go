package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/kit"
)

// promptVersion is a short hash of what an agent is told in any thread: its
// instructions, as the server has resolved them, and its tools, as this program
// has them. Lines with different ones are results of different agents. calling
// wins over the agent's own.
func promptVersion(agent json.RawMessage, calling string) (string, error) {
	var d definition.Definition
	if err := json.Unmarshal(agent, &d); err != nil {
		return "", err
	}
	d.Calling = cmp.Or(calling, d.Calling)
	specs, err := specsOf(d)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, part := range []any{d.Instructions, d.Calling, action.New(specs).System(specs)} {
		if err := enc.Encode(part); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:8], nil
}

// Both have other names here than methods of theirs, which embedding needs.
type (
	services = tool.Services
	tasks    = tool.Tasks
)

// specsOf returns the tools of an agent in a sandbox that has everything. Their
// texts are all that is wanted of them, so they get nothing to work with.
func specsOf(d definition.Definition) ([]llm.ToolSpec, error) {
	env := tool.Env{
		Files: struct{ tool.Files }{}, Commands: struct{ tool.Commands }{}, Past: struct{ tool.Past }{},
		Services: struct{ services }{}, Spawner: struct{ tool.Spawner }{}, Tasks: struct{ tasks }{},
	}
	for name, sub := range d.Subagents {
		env.Agents = append(env.Agents, tool.Agent{Name: name, Description: sub.Description})
	}
	tools, err := kit.New().Fitting(env, d.Tools)
	if err != nil {
		return nil, err
	}
	specs := make([]llm.ToolSpec, len(tools))
	for i, t := range tools {
		specs[i] = t.Spec()
	}
	return specs, nil
}
