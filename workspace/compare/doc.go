// Package compare looks into the trees of a history and says what differs
// between them. It needs the objects and nothing else, so it works where the
// files are and where only a copy of their history is.
//
//	e, err := compare.At(store, rev.Root, "src/main.go")
//	err = compare.Content(ctx, store, e, w)
//	d, err := compare.Trees(ctx, store, before.Root, after.Root, compare.Options{Hunks: true})
//
// Only directories that differ are read. All functions are safe for concurrent
// use; none changes the store.
package compare
