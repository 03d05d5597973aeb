// Package thread is the truth about what agents did: a thread is an
// append-only log of typed events, and everything else (the prompt, the state
// of a run, what a user sees) is computed from it.
//
//	seq, err := log.Append(ctx, id, seq, events...)   // all or nothing; Conflict: another writer appended
//	for event, err := range log.Load(ctx, id, 1) { … }  // in order, without gaps
//	for event, err := range log.Watch(ctx, id, seq+1) { … } // and goes on as they come
//	err := thread.Check(events)                        // is it well-formed?
//
// Thread > Run > Step > Tool call. A thread is a durable conversation with an
// agent; a run is one activation on it; a step is one model call with the tool
// calls it asked for. A sub-agent is a thread of its own whose id is
// "parent/call". A checkpoint is a position in the log, nothing else.
//
// The log promises: an append that returned nil survives kill -9 and, by
// default, a power cut; the events of one append are never torn apart; events
// are numbered 1, 2, 3, … per thread without gaps; two writers with the same
// idea of the end cannot both succeed. threadtest is the suite for
// implementations; Memory is one, store has the durable one.
//
// Events are small (EventBytesMax each, AppendBytesMax together). What is
// larger is a blob by hash, written before the event that names it.
package thread
