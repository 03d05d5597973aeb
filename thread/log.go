package thread

import (
	"context"
	"iter"
)

// Bounds of a log.
const (
	EventBytesMax  = 48 << 10  // one event as JSON; content beyond InlineBytesMax is a blob
	InlineBytesMax = 16 << 10  // content that may stand in an event
	AppendBytesMax = 192 << 10 // the events of one append
	AppendMax      = 64        // events of one append
)

// Log keeps threads. It belongs to one tenant.
//
// A thread exists from its first append to Delete. Seq counts its events from
// 1; 0 is the position before the first. Safe for concurrent use.
type Log interface {
	// Append adds events after the one numbered after, all or nothing, and
	// returns the number of the last. It sets Seq and Body of the events it was
	// given to what Load will yield (see Encode), so that folding them now is
	// folding them after a restart.
	// Conflict: the thread does not end there (read again). NotFound: the
	// thread, or one above it, was deleted, or after is not 0 and there is no
	// such thread; stop. Limit: too large, or no space. Unavailable: it is not
	// known whether it happened; Append with the same events and position again
	// finds out, and never doubles them.
	Append(ctx context.Context, id ID, after uint64, events ...Event) (uint64, error)
	// Load yields the events from number from to the end as it is now. An
	// unknown thread yields nothing. Corrupt: a record cannot be read; the
	// error says which, and nothing follows. NotFound: it was deleted while it
	// was read.
	Load(ctx context.Context, id ID, from uint64) iter.Seq2[Event, error]
	// Watch yields like Load and goes on as events are appended, until the loop
	// or ctx ends; then the last it yields is the context's error. An unknown
	// thread may still come. NotFound: the thread was deleted.
	Watch(ctx context.Context, id ID, from uint64) iter.Seq2[Event, error]
	// Head returns the number of the last event, 0 for an unknown thread.
	Head(ctx context.Context, id ID) (uint64, error)
	// List yields the ids of all threads that are the root or beneath it, in
	// order; root "" means all. Sub-agents' threads are among them.
	List(ctx context.Context, root ID) iter.Seq2[ID, error]
	// Delete removes a thread and its sub-agents' threads. A writer that still
	// knows the old end, or believes that there was none, is refused (NotFound).
	// It may be repeated; an unknown thread is no error.
	Delete(ctx context.Context, id ID) error
}

// Blobs keep content by hash (sha256, hex). They belong to one tenant.
// Safe for concurrent use.
type Blobs interface {
	// Put stores content durably and returns its hash; the same content twice
	// is one blob. Limit: over BlobBytesMax, or no space.
	Put(ctx context.Context, content []byte) (hash string, err error)
	// Get reads a blob whole. NotFound: no such blob. Corrupt: its bytes are not
	// what the hash says.
	Get(ctx context.Context, hash string) ([]byte, error)
	// ReadAt reads at most len(p) bytes from off, unchecked, and says how large
	// the blob is. Like io.ReaderAt it returns io.EOF with less than len(p).
	ReadAt(ctx context.Context, hash string, p []byte, off int64) (n int, size int64, err error)
}
