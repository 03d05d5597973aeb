// Package supervisor keeps runs going: it starts them, wakes them after a restart,
// a decision, a message or the end of a sub-agent, and knows them all.
//
//	k, err := supervisor.Open(ctx, supervisor.Config{Threads: threads, Records: kv, Models: catalog, …})
//	run, err := k.Start(ctx, tenant, runs.Start{Input: …})
//	err = k.Decide(ctx, tenant, run.ID, []runs.Decide{{Call: call, Decision: thread.Approve}})
//	defer k.Close() // runs stay as they are; the next Open goes on with them
//
// What it promises. The log of a thread is the truth; a run's record is what
// lists show, written before the first event and brought up to date from the
// log. A run that is not over is driven by at most one server at a time, or by
// none while it waits: then it costs a record in memory and no goroutine. After
// kill -9 the next Open drives on whatever can go on.
//
// A Supervisor is safe for concurrent use.
package supervisor
