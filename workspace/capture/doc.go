// Package capture writes what a directory holds into an object store, and only
// what changed since the last time.
//
//	c, err := capture.Open(dir, store, capture.Config{})
//	r, err := c.Scan(ctx) // r.Root names the tree; r.Skipped what is not in it
//
// # What is looked at
//
// Everything: what programs and shells did counts, not what tools say. Each
// name is looked at by its inode, size, times, mode and owner; a file is read
// again only if one of them moved, or if its change time is so near the last
// reading that a later write could have the same (the racy rule). The caller
// runs syncfs before a scan (Scan does it): without it, the second store into
// a mapped page changes no time at all.
//
// # What is hostile
//
// Who writes into the directory may want us to read elsewhere: every name is
// opened relative to its parent's descriptor, never through a symbolic link,
// never on another file system, and never in a way that blocks (a fifo).
// Files that change while they are read are read again, and marked torn if
// they never hold still.
//
// A Capture is for one goroutine at a time.
package capture
