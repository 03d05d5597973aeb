package api

import "time"

// MCPServerList are the MCP servers whose tools agents may use.
type MCPServerList struct {
	Items []MCPServer `json:"items"`
}

// MCPServer is an MCP server, as it was found when it was last used for a tenant.
type MCPServer struct {
	Name      string   `json:"name" doc:"in the configuration"`
	Tenant    string   `json:"tenant,omitempty" doc:"for whom it was used; without it no one was"`
	Transport string   `json:"transport" enum:"stdio,http,sse" doc:"stdio: a program in the sandbox of each thread"`
	Agents    []string `json:"agents" doc:"that may use it: names or globs; empty: all"`
	State     string   `json:"state" enum:"unused,working,broken,refused" doc:"unused: not since the server began; broken: it does not start, has ended, or does not answer as it should; refused: it does not let us in"`
	Tools     int      `json:"tools" doc:"that it had when it last worked"`
	Sessions  int      `json:"sessions" doc:"open now: one for each thread"`
	Failures  int      `json:"failures" doc:"since it last worked"`
	Error     string   `json:"error,omitempty" doc:"of the last failure"`
	// A time that is not known is left out.
	Since time.Time `json:"since,omitzero" doc:"when it came into the state"`
}
