// Package qemu makes machines in QEMU: a kernel of their own on virtual
// hardware where KVM works, on an emulated CPU anywhere else.
//
//	p, err := qemu.New(qemu.Config{Dir: state, Cache: cache, Guest: guest})
//	err = p.Probe(ctx) // really boots one
//	m, err := p.Create(ctx, boot)
//
// A machine has no network card and three disks: the template's image, a
// layer above it and the workspace. We open all that QEMU needs and hand it
// over as descriptors, sockets included, so that it runs as a user of its own
// who can reach nothing by name, in its own network namespace and control
// group, under QEMU's seccomp filter. The guest's console is a ring in QEMU's
// memory: nothing that a guest says fills our disk.
//
// QEMU outlives us. The next server finds it by the machine's directory
// (machine.json, and two sockets) and goes on.
//
// # Memory and snapshots
//
// A machine's memory is a memory file that QEMU alone has open. A snapshot is
// QEMU's state of the devices, a copy of that file (pages with nothing in them
// left out) and a copy of the layer. Machines that come from one snapshot
// share its memory until they write to it: we keep it in a sealed memory file
// for a while, because QEMU before 8.2 wants to open the file for writing and
// must not be able to. The memory of such a machine is no file any more, and
// its own snapshots have it in QEMU's state instead.
//
// All methods are safe for concurrent use; a server may die at any point, and
// Destroy removes whatever it left.
package qemu
