// Package backend holds the backends in which an agent's files are, each a
// tool.Files:
//
//	own := backend.NewMap(blobs)               // the thread's own: the log is its state
//	kept := backend.NewStore(kv, blobs, "acme") // durable, across threads
//	all := backend.NewComposite(guest,          // tool/backend/guest: the sandbox
//		backend.Route{At: "/memories", Files: kept},
//		backend.Route{At: "/large_tool_results", Files: backend.ReadOnly(own)})
//
// All take the paths that the agent sees: a backend that is mounted at
// /memories is asked for /memories/notes.md, so nothing is rewritten on the
// way. Paths have to be clean (tool.CleanPath); the tools see to that.
//
// tooltest.Files is the suite that each of them passes. All are safe for
// concurrent use. A write is whole or not at all, and of several writes that
// expect the same hash one succeeds.
package backend
