// Package gvisor boots machines in gVisor: a kernel in user space that answers
// every system call of the guest, without KVM, without a daemon, without an
// installation. gVisor is linked into the program, which starts itself again
// as gVisor:
//
//	func main() {
//		gvisor.Main() // first thing: never returns in a process that is gVisor
//		…
//		p, err := gvisor.New(gvisor.Config{Dir: dir})
//		m, err := p.Create(ctx, boot)
//	}
//
// The program must be static (CGO_ENABLED=0); New says so if it is not. It
// must never start itself through /proc/self/exe, which is how gVisor does.
//
// # A machine
//
// is two processes of the host: the sentry (the kernel, and with it all
// processes of the guest) and the gofer (opens host files for it), both in
// namespaces, chroots and seccomp filters of their own. They are started by
// `runsc run --detach` and outlive the server.
//
//	Dir/runsc/                gVisor's state files and control sockets
//	Dir/machines/ID/          bundle, record, log; made first, removed last
//	Dir/machines/ID/boot/     shown read-only at /.skete: guest, boot.json, host.sock
//	Dir/machines/ID/overlay/  pages of the root's writable layer (an unlinked file)
//	Dir/machines/ID/spool/    pages of the guest's spools
//	/skete-HASH(Dir)/ID       control group: of memory, cpu and pids
//
// Every name derives from the ID, so Destroy needs no memory of Create and
// List finds what a crash left. A record names the two processes exactly
// (number, start time, boot), so that a later server follows the right ones.
//
// # What the guest sees
//
// Its root is the template, read-only, below an overlay that the sentry keeps;
// the template's directory is never written. The workspace is a bind mount,
// shared with the host. There is no network device but lo, and no way out but
// one: a unix socket in a read-only directory that only root inside may enter,
// on which the guest dials us (--host-uds=open; see guest/channel).
//
// # Limits
//
// Memory and cpu are the control group's. With version 1 we make it and start
// runsc in it, since gVisor's own way of joining costs tens of milliseconds,
// and tell the sentry what it allows; with version 2 gVisor does all that. Near
// the memory limit the guest ends the largest command. Where memory is taken
// faster than it looks, the kernel ends that command (memory.go) or the machine,
// and the reason of either is "out of memory"; 64 MiB above what the user asked
// for are the sentry's own. Tasks are counted by the guest: a low
// pids.max would kill the sentry, so the group's is a backstop of thousands.
// The root's writable layer, /tmp included, is bounded by the sentry, the
// workspace by its volume. Both are weaker than a quota of the
// kernel against a guest that has taken over the sentry; no RLIMIT_FSIZE backs
// them up, because gVisor grows its memory files by whole gigabytes of holes.
//
// # Snapshots
//
// are gVisor's checkpoints: three files, the guest program, and a manifest of
// what they were made by and on (saved.go). Saving ends the sentry, since
// one that is left running keeps half of its connections to us; a new one goes
// on from the files, under the same ID, and the record says so in between, for a
// server that comes after a crash. Any number of machines load the same files,
// each with its own directory, workspace and name. What must be equal: gVisor's
// version, the processor's abilities, the mounts and their order, capabilities,
// limits, root file system. Files that were open in the workspace must be there;
// one that was deleted while open is saved with the memory. Connections to the
// host break, those inside go on. Without root gVisor restores nothing.
//
// # Without root
//
// One user of the host can be mapped, and it is mapped to the sandbox's user,
// so that files in the workspace belong to the commands that made them. gVisor
// then starts the guest as that user with root's capabilities, and the guest's
// init becomes root inside by itself. There are no control groups: memory and
// cpu are not limited, and Capabilities says so. The template's files look
// like the sandbox user's own, which may change them in its own layer.
//
// # Concurrency and failure
//
// All methods are safe for concurrent use. Few machines boot at once (see
// Config.Creates), everything else runs in parallel. Destroy is legal in every
// state: it cancels a Create under way and waits for its end. Create leaves
// nothing when it fails.
package gvisor
