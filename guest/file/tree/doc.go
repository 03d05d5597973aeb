// Package tree reads and changes file trees through directory descriptors, so
// that a symbolic link swapped in while a call runs never leads it elsewhere.
//
//	fd, err := tree.Open("/workspace/src", unix.O_RDONLY|unix.O_DIRECTORY, 0)
//	err = tree.Walk(ctx, fd, tree.Options{}, func(it tree.Item) error { … })
//	n, err := tree.Remove(ctx, parent, "build")
//
// Every call acts with the rights of the calling thread (see guest/file for
// how a thread gets them) and checks nothing itself: the kernel does. Errors
// are *fs.PathError whose Path is relative to the tree.
//
// Functions are safe for concurrent use; descriptors belong to the caller.
// A tree may change while it is walked: what vanished is passed over.
package tree
