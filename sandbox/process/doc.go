// Package process runs the guest as an ordinary process of the host: no
// isolation at all. It exists for tests and for a first look on hosts where
// nothing else starts, and refuses to work unless it is told that this is
// wanted (--unsafe-no-isolation).
//
//	p, err := process.New(process.Config{Dir: dir, Allow: true})
//	m, err := p.Create(ctx, boot)
//
// The guest is `skete-guest init`, detached, with the workspace as its working
// directory and a home of its own; it serves the same protocol over the same
// kind of channel as every other provider's guest. It acts as the user that
// runs the server. Limits are not enforced by the host; what the guest itself
// keeps (processes, output) is kept.
//
// A machine outlives the server. Its processes are found again by the record
// of its first process, by descent from it, and by a mark in the environment
// that they inherit; a program that leaves the tree and wipes its environment
// is not found, which is one more reason to call this provider unsafe.
//
// All methods are safe for concurrent use.
package process
