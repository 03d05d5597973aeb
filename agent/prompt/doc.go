// Package prompt turns a thread's state into the request that the model gets.
//
//	b := prompt.NewBuilder(blobs)
//	p, err := b.Build(ctx, s, specs, model.Info())   // p.Request, p.Hash, p.Ledger
//
// The prompt is a function of the log (and of the blobs that it names, and of
// this program): a Builder that saw every step and one that begins with the
// last give the same bytes, and Hash proves it. What looks different from one
// call to the next (the date, memory, a summary) is therefore an event.
//
// A step costs what it adds, not what there is: messages that are done are
// built, counted and hashed once. So the request of one Build is valid until
// the next one.
//
// A Builder belongs to one goroutine.
package prompt
