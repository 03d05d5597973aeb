package api

import "encoding/json"

// RunTool asks for one call of a tool that is not built in: a declared one, or one of an MCP
// server.
type RunTool struct {
	Args    json.RawMessage `json:"args,omitempty" doc:"the arguments, an object that fits the tool's schema; default {}"`
	Sandbox string          `json:"sandbox,omitempty" doc:"in which a tool works that has no sandbox of its own, and from which files are taken, by its id, the beginning of it, or its name"`
	Agent   string          `json:"agent,omitempty" maxLength:"64" doc:"the tool as this agent has it: some tools and secrets are for some agents alone"`
}

// ToolResult is what an agent would be told.
type ToolResult struct {
	Failed bool   `json:"failed" doc:"it was done and did not work, or was refused"`
	Code   string `json:"code,omitempty" doc:"of a failure"`
	Exit   *int   `json:"exit,omitempty" doc:"the exit status of a command"`
	Text   string `json:"text"`
}
