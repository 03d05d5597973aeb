// Package runs is what people ask of runs, and what they are shown of them:
// data, its checks, and what is computed from it.
//
//	if err := start.Check(); err != nil { … }
//	runs.Project(&record, state, now) // what a list shows of a thread
//	page, err := filter.Page(list)
//
// agent/supervisor is who acts on it. Everything is pure, but KeepInput, which
// writes blobs.
package runs
