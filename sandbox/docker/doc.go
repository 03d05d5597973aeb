// Package docker boots machines as containers, through the API of an engine
// that runs on this host (Docker, Podman):
//
//	p, err := docker.New(docker.Config{Dir: dir, Guest: guest})
//	m, err := p.Create(ctx, boot)
//
// It is for hosts that have an engine and nothing stronger: a container shares
// the host's kernel, and its isolation is called what it is, `container`.
//
// # A machine
//
// is one container, labelled skete.sandbox=ID and skete.server=HASH(Dir), and
//
//	Dir/machines/ID/         made first, removed last: the sign that there may be a container
//	Dir/machines/ID/boot/    shown read-only at /.skete: guest, boot.json, host.sock
//	Dir/machines/ID/root/    its root, an overlay: the template below, a volume above
//	Dir/scratch/ID           that volume, of Spec.DiskMB
//	Dir/scratch/ID-state     the guest's spools and journal, shown at /.skete-state
//
// Every name derives from the ID and the container's state is the engine's to
// tell, so List, Attach and Destroy need no memory and no record.
//
// # The root file system
//
// An engine takes an image for a root, and most kinds of its storage do not
// bound what is written above one. So the image is a skeleton, a few hundred
// bytes of empty directories and links like the template's top level, and each
// directory is bound from an overlay that we mount ourselves. The template is
// not copied, is ready at once, and shares its pages with every other machine;
// the writable layer has a bound that the host's kernel keeps. The price: / itself is
// read-only, so root inside can make names everywhere but directly there; and
// the engine must see our mounts, which Probe finds out. A server that is not
// root cannot mount: then the template is imported into the engine, once for
// each content, and what is written has no bound (Capabilities say so).
//
// # What the guest sees
//
// Of the host: the directory boot, its workspace, the template and what the
// template binds, read-only. Network: none but lo. It runs with the engine's
// seccomp filter, no-new-privileges, private namespaces, no devices, no engine
// socket, and the few capabilities that skete-guest needs (see guestCaps);
// commands, which are another user's, have none. The guest dials us through
// the socket (see guest/channel).
//
// # Limits
//
// Memory (without swap), cpu and tasks are the container's control group's. A
// few tasks and 48 MiB for the guest itself come on top. The guest ends the
// largest command before the machine is full; the kernel ends a process if
// that was too late: the command's reason is "out of memory" then too, and
// Wait's if it was the guest. The kernel's count is the host's, so that a
// command which is killed in the half second of another container's end may be
// given it too.
//
// # Concurrency and failure
//
// All methods are safe for concurrent use. Create and start are never
// cancelled in the middle, since engines finish what a caller gave up; what
// came of them is removed afterwards. Destroy is legal in every state, cancels
// a Create under way, and with an engine that is away fails as Unavailable
// without having changed anything; the same call later does it. Containers
// outlive the server, and Podman's outlive the engine; Wait asks again until
// the engine is back.
package docker
