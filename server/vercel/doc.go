// Package vercel lets the SDK of Vercel Sandbox work here, unmodified: it speaks its
// REST API of sandboxes, their sessions, commands, files and snapshots.
//
//	b := vercel.New(vercel.Config{Sandboxes: manager, Gate: gate, Hub: hub})
//	b.Register(table) // at /vercel/
//
// It is a translation and has no machinery and no store of its own. A sandbox is one
// of the manager's, a command one of the guest's, and what a call changes is a step of
// the sandbox's history, by the API key that the client shows as its token. What
// clients say of a sandbox and we have no field for stands in its metadata.
//
// A sandbox has one session, whose id is the sandbox's own: one that is started again
// goes on as the same. A call to one that is stopped is answered with 410, by which the
// SDK knows to start it.
//
// What clients may send and we do not have is refused, in the shape of their errors:
// an option that was ignored might have been a restriction. No refusal has a status
// of 500 or more unless another try may help: the SDK tries those again.
//
// Source: the behaviour of the npm package @vercel/sandbox 3.5.0.
// A Bridge is safe for concurrent use.
package vercel
