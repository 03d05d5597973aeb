// Package saved keeps a machine in files: what a snapshot's directory holds,
// whether it is whole and fits this host, and its memory for those that load
// it.
//
//	m, err := saved.Read(dir)
//	if m.Shape != mine { … }
//	memory, err := images.Get(ctx, dir, m)
//
// It knows nothing of how QEMU writes and reads them.
package saved
