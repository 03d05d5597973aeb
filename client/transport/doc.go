// Package transport carries the calls of package client: HTTP requests with
// bounded repetition, server-sent events that come back after a disconnect,
// and WebSockets, over TCP or a unix socket.
//
//	t, err := transport.New(transport.Config{Socket: path})
//	info, err := transport.Fetch[api.Info](ctx, t, transport.Get("/v1/info", nil))
//
// A refusal of the server is *Error; a broken connection is errs.Unavailable;
// the end of a context stays the context's error. A Client is safe for
// concurrent use.
package transport
