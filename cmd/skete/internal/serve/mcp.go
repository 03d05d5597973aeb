package serve

import (
	"strconv"

	"github.com/skete-dev/skete/audit"
	mcpclient "github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/tool"
)

// openMCP makes the tools of the configured MCP servers those of agents. No server is
// started before an agent needs it.
func (r *running) openMCP() []tool.Source {
	if len(r.c.MCP.Servers) == 0 {
		return nil
	}
	s := mcpclient.New(mcpclient.Config{
		Servers: r.c.MCP.Servers, Held: r.secrets.Held, Version: r.c.Version, Log: r.c.Log,
		Called: func(c mcpclient.Called) { r.audit.Later(recordOfMCP(c)) },
	})
	r.onClose(s.Close)
	return []tool.Source{s}
}

// recordOfMCP is what the audit log keeps of a call that leaves this host. What was sent is
// not among it: the thread has that.
func recordOfMCP(c mcpclient.Called) audit.Record {
	return audit.Record{
		Tenant: c.Tenant, Who: "run " + string(c.Run), What: "mcp.called", On: c.Server, Result: c.Result,
		Detail: map[string]string{
			"run": string(c.Run), "tool": c.Tool, "bytes": strconv.Itoa(c.Bytes), "took_ms": strconv.FormatInt(c.Took.Milliseconds(), 10),
		},
	}
}
