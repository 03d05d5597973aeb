// Package layer lays the tars of an image's layers over each other, as a tree
// on disk with a manifest beside it.
//
//	t := layer.New(root, layer.Limits{Bytes: 20 << 30, Entries: 1_000_000})
//	err = t.Apply(ctx, tar, layer.OCI)   // once for each layer, the lowest first
//	err = t.Dir("workspace", layer.Attr{Mode: 0o755, UID: 1000, GID: 1000}, false)
//	hash, err := t.Seal(ctx, manifestFile)
//
// The tars are not trusted. What each name means is decided in memory, where
// links lead beneath the root and nowhere else; the disk, behind an *os.Root,
// only follows. Names, depth, entries, bytes and attributes are bounded.
// Devices, fifos and sockets are left out and counted.
//
// Files that are as in another tree can be shared with it (Share), as one file
// with two names: sealed trees must never be written into.
//
// Without root the tree's owners, some modes and attributes cannot be set on
// disk; the manifest has them all the same.
//
// A Tree is not safe for concurrent use. After an error it is of no use.
package layer
