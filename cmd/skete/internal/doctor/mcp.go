package doctor

import (
	"context"
	"fmt"
)

// MCPServers is what is known of the MCP servers whose tools agents use.
type MCPServers struct {
	Count int
	// Asked: a server of skete runs here, and has told how they are.
	Asked    bool
	Problems []string // of those that could not be used
}

// mcp looks how the MCP servers of the server that runs are.
func (h Host) mcp(ctx context.Context) Check {
	const name = "MCP servers"
	if h.MCP == nil {
		return info(name, "", "not looked at")
	}
	s, err := h.MCP(ctx)
	switch {
	case err != nil:
		return info(name, "", "the server does not tell: %v", err)
	case len(s.Problems) > 0:
		text := s.Problems[0]
		if more := len(s.Problems) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more)", more)
		}
		return warn(name, "`skete mcp servers` says all of it; runs go on without their tools", "of %d, not all could be used: %s", s.Count, text)
	case s.Count > 0 && !s.Asked:
		return ok(name, "%d are named; how they are is known while a server runs", s.Count)
	}
	return ok(name, "%d", s.Count)
}
