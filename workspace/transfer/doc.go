// Package transfer moves revisions, with the objects that they need, from one
// history to another that has an earlier part of it, or nothing.
//
//	err := transfer.Send(ctx, w, store, base, revisions)
//	r := transfer.NewReceiver(store, limits)
//	err := r.Receive(ctx, stream, known, begin, done)
//
// # Format
//
//	stream = "skmove1\n" item* end
//	item   = 'r' length(4) json      a revision, as package revlog writes it
//	       | 'o' length(4) record    an object, as package object keeps it
//	end    = 'e' 0(4)
//
// Integers are little-endian. A revision comes before its objects, and they
// come from the root down: a directory before what is in it. So a receiver
// knows of every object whether it is needed before it keeps it, and knows by
// itself when a revision is whole: nothing is kept on the sender's word.
//
// # What a receiver promises
//
// done is called with a revision only when every object that can be reached
// from its root is in the store and on disk, and matches its name. A stream of
// anything else is refused; what was taken of a revision that did not become
// whole may stay in the store, no larger than it, and a later stream goes on
// with it. Depth and number of files are bounded, so that later walks over a
// tree are, too.
//
// Senders and receivers are for one goroutine at a time.
package transfer
