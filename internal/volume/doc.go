// Package volume makes directories of bounded size.
//
//	s, err := volume.Open(dir)
//	v, err := s.Create(ctx, "sbx_…", 2<<30)   // v.Path is the directory
//	err = s.Remove(ctx, "sbx_…")
//
// As root, on a machine with loop devices and mkfs.ext4, a volume is a sparse
// ext4 image of that size, mounted: the host's kernel refuses the byte beyond
// (ENOSPC), and the image can later be a virtual machine's disk. Everywhere
// else it is a plain directory that somebody must watch (Volume.Enforced is
// false). See ADR 0005.
//
// All host resources derive from the id: DIR/ID.img, the mount at DIR/ID, and
// a loop device that the kernel frees with the mount. So Remove needs no
// memory of Create, and a killed process leaves nothing that List does not name.
//
// A Store is safe for concurrent use with different ids; calls for one id must
// not overlap.
package volume
