// Package volume makes directories of bounded size on the host, for the
// workspaces of sandboxes.
//
//	store, err := volume.Open("/var/lib/skete/volumes")
//	v, err := store.Create(ctx, id, 2<<30) // v.Path is ready to be written
//	err = store.Detach(ctx, id)            // the bytes stay
//	v, err = store.Attach(ctx, id)         // after a restart or a reboot
//	err = store.Remove(ctx, id)
//
// As root, where loop devices and mkfs.ext4 are, a volume is a sparse file
// with an ext4 file system, mounted: the host's kernel refuses what does not
// fit, and the same file can be the disk of a virtual machine. Elsewhere it is
// a plain directory (Enforced is false) whose Usage the caller must watch.
//
// Everything that a volume is on the host lies beneath one directory named by
// its id: the file, the mount point; the loop device frees itself with the
// unmount, or with the death of the process that was about to mount it. So after a
// kill -9 at any point, List and Remove leave nothing behind.
//
// Why an image: ADR 0005.
//
// Methods are safe for concurrent use for different ids. Calls on the same id
// must come one after another.
package volume
