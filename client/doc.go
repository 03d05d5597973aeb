// Package client is the Go SDK: it drives sandboxes of a skete server.
//
//	c, err := client.FromEnv()
//	sb, err := c.CreateSandbox(ctx, api.CreateSandbox{Language: "python"})
//	cmd := c.Sandbox(sb.ID).Shell("python3 -c 'print(6*7)'")
//	cmd.Stdout = os.Stdout
//	err = cmd.Run(ctx)
//
// A command is keyed and its output is spooled in the sandbox, so a Cmd
// survives a broken connection and a restart of the server: it attaches again
// at the byte where it stopped and sends unacknowledged input again. An exit
// status is never invented.
//
// Errors of the server are *Error and carry the whole api.Problem; errs.Of,
// errs.Public and errs.Hint work on every error that this package returns.
// Calls that may be repeated are, a few times and with back-off, when the
// error says that the same call may work later; nothing else is.
//
// A run of an agent goes on without its client; StartRun returns at once, and
// Events, Live and Tree show it from any event on:
//
//	run, err := c.StartRun(ctx, api.StartRun{Task: "Fix the failing test."})
//	for event, err := range c.Run(run.ID).Events(ctx, 0) { … }
//
// A Client, a Sandbox and a Run are safe for concurrent use. A Cmd belongs to one
// goroutine until Start returned; Signal, Resize and Wait may then be called
// from any.
package client
