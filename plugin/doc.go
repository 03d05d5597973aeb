// Package plugin lets programs of others be hooks of agents and models, without a line of
// theirs running on the host: each is a process in a sandbox of its own, which is spoken to
// over its stdin and stdout. docs/plugins.md describes the files and the protocol.
//
//	found, problems := plugin.ReadDir(dir)                  // NAME/plugin.yaml and what is beside it
//	host := plugin.NewHost(plugin.Config{Plugins: found, Launcher: machines})
//	defer host.Close()
//	out, err := host.Hook(ctx, tenant, "guard", event, time.Minute)
//	model, err := host.Model(tenant, "echo/parrot")         // an llm.Model
//
// The protocol is JSON-RPC 2.0, one message a line. A plug-in is hostile: what it writes is
// bounded, and a message that makes no sense ends its process. Calls under way fail then, as
// those of a program that broke; the next call starts it again, later each time that it
// breaks without having answered.
//
// A Host has one process for each plug-in and tenant, so that what a plug-in keeps in memory
// of one tenant cannot be in an answer to another. It starts at the first call and ends when
// it was idle.
//
// A Host and its models are safe for concurrent use. Parsing is pure.
package plugin
