// Package agent drives a thread: it asks the model, runs the tools that it
// asks for, and writes down each before and after, so that the next driver, after
// a crash, goes on exactly there.
//
//	r := agent.New(agent.Config{Thread: id, Log: log, Blobs: blobs, Model: model, Tools: tools, …})
//	outcome, err := r.Run(ctx)   // first start, after a crash, after an approval: the same call
//
// One Run goes as far as it can: to the end of the run, or until only people or
// other threads can bring it on. Then it holds nothing, no goroutine either;
// when there is news, the caller calls Run on a new Runner.
//
// What it promises. No effect happens before the tool.started that allows it
// is durable, and each append is fenced by the end of the log, so a driver that
// was replaced can start nothing. A finished call is never run again. A call
// that was under way when the server died is run again if it only reads,
// attached to if it is keyed, and reported as interrupted otherwise. Results
// enter the prompt in the order of the calls. Errors and panics of tools are
// results. Others may append inputs, decisions and cancels at any time; the
// Runner takes them in.
//
// A Runner is used by one goroutine; Poke may be called from any.
package agent
