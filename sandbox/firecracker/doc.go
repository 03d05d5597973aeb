// Package firecracker boots machines in Firecracker: each has a kernel of its
// own behind hardware virtualisation, and Firecracker itself is locked into a
// jail. It needs KVM that works, root, control groups of version 2, and the
// programs firecracker and jailer of release 1.16.1 or newer.
//
//	p, err := firecracker.New(firecracker.Config{Dir: dir}) // finds the programs
//	err = p.Probe(ctx)                                      // boots a kernel
//	m, err := p.Create(ctx, boot)
//
// # A machine
//
// is one Firecracker, started by its jailer and detached: it outlives the
// server. It sees nothing but its own root directory and an empty network
// namespace, is a user that nothing else on the host has, the first process of
// its own process namespace, in a control group, and behind a seccomp filter
// for each thread.
//
//	Dir/machines/ID/machine.json        record; the directory is made first, removed last but one
//	Dir/machines/ID/jail/firecracker/…/root   Firecracker's root directory
//	  root.img    the template: a hard link, read-only, shared by all machines
//	  layer.img   what changes in the root, empty at first
//	  work.img    the workspace: a hard link of Boot.Disk
//	  vmlinux, initrd.img, or vm.state, vm.mem of a snapshot: hard links
//	  v.sock, api.sock, console.log, firecracker.log
//	Dir/uids/N                          link to the ID whose user N is; removed last
//	skete-HASH(Dir)/sbx-…               control group
//
// Every name derives from the ID, so Destroy needs no memory of Create and
// List finds what a crash left.
//
// # What the guest sees
//
// Three disks, which guest/stage puts together, a source of randomness, a
// console that is cut off after a quarter of a megabyte, and a vsock device,
// the only way in and out. There is no network card and no metadata service.
//
// # Streams
//
// Firecracker shows the guest's vsock as a unix socket in the jail: we connect,
// name the guest's port, and are answered when the guest listens; until then
// Firecracker hangs up, which means "not yet". The jail belongs to a process
// that may have been taken over, so no link in it is ever followed. All
// streams are closed before a machine is paused, and none can be opened until
// it runs again: Firecracker 1.16 spins for ever otherwise, and a snapshot
// resets them anyway.
//
// # Snapshots
//
// A snapshot is a directory: memory, the state of the devices, a copy of the
// root's layer, and a manifest of all that must be equal where it is loaded
// (see saved.go). The paths in it are names in the jail, so any number of
// clones can run from one, each on its own disks; memory is mapped privately
// from the one file by a hard link. What does not fit, or does not load, is
// sandbox.ErrSnapshot. Clones share all randomness and the time of the
// snapshot until the caller calls Control.Adopt.
//
// The clock and the entropy of a machine that boots cold are set before Create
// returns.
//
// # Concurrency and failure
//
// All methods are safe for concurrent use. Few machines boot at once (see
// Config.Creates), everything else runs in parallel. Destroy is legal in every
// state: it cancels a Create under way and waits for its end. Create leaves
// nothing when it fails. A server that dies while it takes a snapshot leaves a
// paused machine, which the next one's Attach resumes.
package firecracker
