// Package microvm is what the providers of small virtual machines share: a
// kernel to boot, an initramfs with our guest as its first program, the
// kernel's command line, a blank disk, and whether KVM really works here.
//
//	kernel, err := microvm.EnsureKernel(ctx, microvm.KernelConfig{Dir: cache}) // may download
//	initrd, hash, err := microvm.Initramfs(ctx, cache, kernel, guestBinary)
//	line, err := microvm.CommandLine(microvm.Line{
//		VMM: microvm.QEMU, TSCKHz: tsc.KHz(), Root: "vda", Layer: "vdb", Work: "vdc", Boot: boot,
//	})
//	// boot the machine, dial its guest, then:
//	err = microvm.Introduce(ctx, client, env) // clock, entropy, environment
//
// A machine has three disks: the root file system (read-only, shared), a layer
// above it and the workspace. Inside, guest/stage puts them together and
// starts the guest.
//
// Everything that is made once is kept in a cache directory under a name made
// of its content, and put there by a rename: any number of processes may share
// one, and a kill at any point leaves nothing half made to be found.
//
// All functions are safe for concurrent use.
package microvm
