// Package client gives agents the tools of MCP servers: of programs that run in an agent's
// own machine and speak over stdin and stdout, and of services elsewhere that speak HTTP.
//
//	s := client.New(client.Config{Servers: c.MCP.Servers, Held: held, Log: log})
//	found, notes, err := s.Find(ctx, place) // s is a tool.Source
//	result, err := s.Call(ctx, place, found[0], request)
//	s.Release(tenant, thread) // ends the servers of a thread
//
// What a server says is data. Its names, descriptions, schemas and results are bounded and
// cleaned, and none of them decides what may be done: that its tools are read only, say,
// counts for servers that the operator trusts and for no other.
//
// A program of the configuration runs in the sandbox, never on the host; a thread that has
// none has no such tools. A server is started when a thread first needs it, and is the same
// one for all calls of the thread until it is not used for a while. One that ends is started
// again, at most as often as back-off allows, and the calls that it had fail. Each server
// that an earlier skete left running in a machine is ended before its next one starts.
//
// A Source is safe for concurrent use.
package client
