// Package acp lets editors work with agents of a server: the agent's side of the Agent
// Client Protocol, over stdin and stdout.
//
//	a := acp.New(acp.Config{Connect: connect, Write: acp.Ask})
//	err := a.Run(ctx, os.Stdin, os.Stdout)
//
// A session of an editor is a sandbox, and the thread of the runs in it; its id is the
// sandbox's. So all that is known of a session is on the server: a prompt is a run that
// goes on without its editor, and a session that is loaded again is told from the log.
//
// The files of the editor's directory are copied into the sandbox, before each prompt
// those that the person has changed. What the agent changed is offered after each
// prompt, and written to the editor's files only if the person permits. What both have
// agreed on last is kept in a file on the editor's machine (Config.State). Paths and
// contents that come from the sandbox are hostile: see directory.
//
// It has no machinery of its own: what it asks of the server are calls of the client.
//
// An Agent is for one connection, whose requests it serves concurrently.
package acp
