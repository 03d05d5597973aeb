// Package preview shows a port of a sandbox to a browser, on an origin of its
// own: http://<port>-<id>.preview.<domain>, never a path under the app, where
// agent-written scripts would be the app.
//
//	p, err := preview.Open(ctx, preview.Config{
//		Domain: "localhost", AppOrigin: "http://localhost:7733",
//		Grants: kv, Dial: dial, Supervisor: page,
//	})
//	if p.Match(r.Host) { p.ServeHTTP(w, r) }   // before anything of the app
//	open, err := p.Invite(ctx, preview.Visitor{…}, target, "/")  // one-time, 30 s
//	link, err := p.Share(ctx, …)                                 // public, until revoked
//
// How a visitor gets in. The app asks for a code, bound to a user, a sandbox and
// a port, good once and for 30 seconds; the preview host swaps it for a cookie
// of its own (`__Host-pv`, in frames the partitioned `__Host-pvf`). A public
// link carries a signature instead; its cookie is the link itself, and each
// request looks whether the link still exists. So taking back a link, a key or
// a login ends what it let in: requests at once, open streams at once when it
// was taken back here, within recheck when by another server on the same store.
//
// What the sandboxed app gets: the request as the browser sent it, without our
// cookies, keys and names (clean.go), with X-User-Id and a signature over it.
// What the browser gets: the answer as the app gave it, without what would
// reach beyond the preview's host. Other origins get nothing: no sockets, no
// writes, no reads but navigations.
//
// The app may be down: a small page waits and comes back by itself, and sockets
// of pages that are open end only when there is something to reload (socket.go).
// A page that is being loaded during an undo is loaded again (late.go).
//
// SupervisorPort is never the sandbox's: it is answered by Config.Supervisor,
// on the host, and works when nothing in the sandbox does.
//
// A Previews is safe for concurrent use. Close ends its streams.
package preview
