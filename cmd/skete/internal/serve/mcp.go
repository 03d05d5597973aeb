package serve

import (
	"strconv"

	"github.com/skete-dev/skete/api"
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
	r.mcp = s
	return []tool.Source{s}
}

// mcpServers tells how the servers are. It is a server.MCPServers.
type mcpServers struct{ s *mcpclient.Source }

// Servers implements server.MCPServers.
func (x mcpServers) Servers(tenant string) []api.MCPServer {
	var list []api.MCPServer
	for _, st := range x.s.Servers(tenant) {
		list = append(list, api.MCPServer{
			Name: st.Server, Tenant: st.Tenant, Transport: st.Transport, Agents: append([]string{}, st.Agents...), State: string(st.State),
			Tools: st.Tools, Sessions: st.Sessions, Failures: st.Failures, Error: st.Error, Since: st.Since.UTC(),
		})
	}
	return list
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
