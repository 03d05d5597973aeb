// Package inside drives a thread from within its sandbox.
//
//	d := inside.NewHost(parts, model, dial)   // on the host; it is an agent.Driver
//	outcome, err := d.Run(ctx)
//
//	err := inside.Drive(ctx, conn, machine)   // in the sandbox: the same agent.Runner
//
// The agent works in the sandbox, where its tools act. What it must not have stays on
// the host, and is asked for over one connection: the thread's log and its fence, blobs,
// the model, memories, sub-agents, the history of the files. The host takes the agent
// for hostile. It is given no thread but its own; what it appends is checked by what a
// Runner writes: decisions, messages of people, budgets, machines and claims are
// refused; times, and what was spent, are the host's own; calls of the model are
// counted whether they are logged or not, and the run's limits are held here too. What
// the agent says of its own work is its word alone, as is all that comes from a sandbox.
//
// Frames are a length of four bytes, big-endian, and one JSON object: a call, a part of
// an answer, the end of an answer, news without an answer, or that an answer is not
// wanted any more. Both sides call. The connection is the drive: when it breaks, the
// agent ends, and the next drive begins with another one, from the log.
package inside
