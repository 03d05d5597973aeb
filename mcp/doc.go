// Package mcp serves the API to models: sandboxes, commands, files, histories,
// services and runs as tools and resources of the Model Context Protocol.
//
//	s := mcp.New(mcp.Config{Client: c, Scopes: login.Scopes})
//	err := s.Run(ctx, os.Stdin, os.Stdout)
//
//	h := mcp.NewHandler(mcp.HandlerConfig{API: table.Handler(), Admit: admit}) // at /mcp
//
// It has no machinery of its own: each tool is one call of the client, or a few. So
// what a tool changes is a step of the sandbox's history, by the key of the caller
// and with the name of its program; and a tool may do what the key may do. Tools that
// a key may not use are not listed, and say so when they are called.
//
// Over HTTP it keeps nothing between requests: what a session id says is in it, and a
// server that was killed goes on with the next call. The calls that tools make there
// go to the API's handler within the process, with the key of the request.
//
// Results are for models and bounded. What is left out is said, with how to get it.
//
// A Server and a Handler are safe for concurrent use.
package mcp
