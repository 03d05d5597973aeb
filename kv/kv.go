// Package kv is what skete needs of a store of small values: durable, each with
// a revision. store.KV is one; kvtest has the suite, and one in memory for tests.
package kv

import "context"

// Store keeps values by key. A call that returned nil survives a power cut, and
// every write is a compare-and-set on the key's revision. Keys are paths.
//
// Safe for concurrent use.
type Store interface {
	// Create stores a new key and returns its revision. Exists: it is there.
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Get reads a key as it is now. NotFound: it is not there.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Update replaces the value if the revision is still the given one and
	// returns the new one. Conflict: it moved, or the key is gone.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes the key if the revision is still the given one. Conflict:
	// it moved. It is no error if the key is gone.
	Delete(ctx context.Context, key string, revision uint64) error
	// List visits every key that begins with prefix ("" or something that
	// ends in "/") in no order; an error from visit ends it and is returned.
	List(ctx context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error
	// Watch visits every key that begins with prefix as it is, in no order, then
	// one Change that only says Synced, then each change of such keys in the order
	// of their revisions; changes that follow each other closely may be told as
	// one. It returns the error of visit or of ctx. Unavailable: the store was
	// closed or does not answer; begin again, from the start.
	Watch(ctx context.Context, prefix string, visit func(Change) error) error
}

// Change is a key as a Watch tells it.
type Change struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool // or expired
	Synced   bool // no key: all that was there at the start was visited
}
