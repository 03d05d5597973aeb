// Package apply makes a directory be what a tree of the history says.
//
//	ops, left, err := apply.Plan(ctx, store, now, target, apply.Filter{})
//	result, err := apply.Run(ctx, apply.Config{Dir: dir, Staging: staging, Journal: path}, store, ops)
//	…                         // write down, durably, that it is done
//	err = apply.Done(config)
//	left, err := apply.Recover(config) // at every start; then the same
//
// # Order
//
// A Run writes its list of operations into the journal, puts the new contents
// into the staging directory, syncs them, marks the journal, and only then
// touches the directory: it removes, makes directories, renames the staged
// files into their places, sets modes and owners, syncs, and marks the journal
// once more. Before the first mark nothing has happened, and Recover drops what
// was staged; behind it, Recover does the operations again, each of which finds
// out whether it is done; behind the second, it touches nothing. The journal
// goes with Done, when the caller has written down what was done: until then
// Recover tells of it at every start. So a Run happens whole or not at all, and
// is known, whenever the process or the machine dies.
//
// Staging must be on the directory's file system and outside the directory: no
// half-written file is ever seen in it.
//
// # What is git's
//
// The user's commits are in a .git, those made after the target too. A plan
// changes and removes nothing there, unless its path leads into one; it puts
// back what is missing and what git does not itself make go (repository.go, and
// "Going back" in docs/history-format.md).
//
// # What is hostile
//
// Who may write into the directory may swap a part of a path for a symbolic
// link at any moment: each parent is opened from the directory's descriptor by
// openat2 with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV, and
// the last element is handled relative to it, never followed. Nothing is
// removed or replaced that the history does not know. What another process has
// made impossible is left as it is and reported in Result.Kept: it does not stop
// the rest of an undo, or the next opening. The flags "immutable" and "append
// only" are taken off.
package apply
