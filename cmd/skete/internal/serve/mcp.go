package serve

import (
	mcpclient "github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/tool"
)

// openMCP makes the tools of the configured MCP servers those of agents. No server is
// started before an agent needs it.
func (r *running) openMCP() []tool.Source {
	if len(r.c.MCP.Servers) == 0 {
		return nil
	}
	s := mcpclient.New(mcpclient.Config{Servers: r.c.MCP.Servers, Held: r.secrets.Held, Version: r.c.Version, Log: r.c.Log})
	r.onClose(s.Close)
	return []tool.Source{s}
}
