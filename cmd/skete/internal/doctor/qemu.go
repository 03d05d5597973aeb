package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

const (
	qemuProgram = "qemu-system-x86_64"
	qemuPackage = "qemu-system-x86"
	pathMax     = 107 // bytes of a unix socket's path
	// socketName is about the longest path of a socket below the data directory.
	socketName = "/qemu/sbx_aaaaaaaaaaaaaaaaaaaaaaaa/channel.sock"
)

var qemuMin = [3]int{7, 2, 0}

// biosDirs hold QEMU's firmware.
var biosDirs = []string{"/usr/share/qemu", "/usr/share/seabios", "/usr/local/share/qemu", "/usr/share/qemu-kvm", "/usr/lib/ipxe/qemu"}

func (h Host) qemu(ctx context.Context) []Check {
	checks := []Check{}
	program := h.program(qemuProgram)
	if program == "" {
		checks = append(checks, fail("program", "apt-get install "+qemuPackage, "there is no %s", qemuProgram).installable(h, qemuPackage))
	} else {
		checks = append(checks, qemuVersion(ctx, program), qemuMachine(ctx, program), h.accelerator(ctx, program))
	}
	return append(checks, h.firmware(), h.tsc(), h.guestKernel(ctx, [3]int{}), h.sockets(), h.vsock(), h.mkfs())
}

func qemuVersion(ctx context.Context, program string) Check {
	const name, hint = "program", "QEMU 7.2 or newer; Debian 12 has it"
	text, err := ask(ctx, program, "--version")
	v, found := version(text)
	switch {
	case err != nil || !found:
		return fail(name, hint, "%s does not say its version: %v", qemuProgram, err)
	case older(v, qemuMin):
		return fail(name, hint, "QEMU %s is too old", dotted(v))
	}
	return ok(name, "QEMU %s", dotted(v))
}

func qemuMachine(ctx context.Context, program string) Check {
	const name = "machine type"
	text, err := ask(ctx, program, "-M", "help")
	if err == nil && lists(text, "microvm") {
		return ok(name, "microvm")
	}
	return fail(name, "a QEMU that is built with the machine type microvm, as Debian's is", "this QEMU does not know microvm")
}

// lists reports whether a line of what `-M help` says begins with a word.
func lists(text, word string) bool {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == word {
			return true
		}
	}
	return false
}

// accelerator decides as the provider does: KVM if a kernel really runs on it,
// else emulation.
func (h Host) accelerator(ctx context.Context, program string) Check {
	const name = "accelerator"
	text, err := ask(ctx, program, "-accel", "help")
	if err != nil {
		return fail(name, "another build of QEMU", "this QEMU does not say what it runs machines by: %v", err)
	}
	reason := "not tried"
	if h.KVM != nil {
		if err := h.KVM(ctx); err == nil && lists(text, "kvm") {
			return ok(name, "kvm: hardware speed")
		} else if err != nil {
			reason = err.Error()
		}
	}
	if !lists(text, "tcg") {
		return fail(name, "another build of QEMU, or a host with KVM", "neither KVM (%s) nor emulation is there", reason)
	}
	return warn(name, kvmHint, "tcg: strong isolation, but ten to twenty times slower, since KVM does not work (%s)", reason)
}

func (h Host) firmware() Check {
	const name, file = "firmware", "bios-microvm.bin"
	for _, dir := range biosDirs {
		if h.exists(filepath.Join(dir, file)) {
			return ok(name, "%s is in %s", file, dir)
		}
	}
	return fail(name, "apt-get install qemu-system-data seabios", "%s is missing", file).installable(h, "qemu-system-data", "seabios")
}

// tsc: a guest without a timer to measure by must be told how fast its time
// stamp counter is, or it hangs now and then.
func (h Host) tsc() Check {
	const name = "time stamp counter"
	if h.TSC == nil {
		return info(name, "", "not looked at")
	}
	khz, err := h.TSC()
	switch {
	case err != nil:
		return bad(name, err)
	case khz == 0:
		return fail(name, "", "its frequency is not known: machines would hang at their start now and then")
	}
	return ok(name, "%d.%03d MHz", khz/1000, khz%1000)
}

func (h Host) sockets() Check {
	const name = "socket paths"
	if n := len(filepath.Clean(h.Home)) + len(socketName); n > pathMax {
		return warn(name, "set SKETE_HOME to a shorter path", "up to %d bytes of %d: sockets are reached by detours", n, pathMax)
	}
	return ok(name, "short enough")
}

// vsock is a second way into machines; the first works everywhere.
func (h Host) vsock() Check {
	const name = "vsock"
	if h.exists("/dev/vhost-vsock") {
		return ok(name, "/dev/vhost-vsock is there")
	}
	return info(name, "modprobe vhost_vsock", "there is no /dev/vhost-vsock; machines are reached by a serial port of virtio").loadable("vhost_vsock")
}

func (h Host) mkfs() Check {
	const name = "mkfs.ext4"
	if h.program("mkfs.ext4") == "" {
		return warn(name, "apt-get install e2fsprogs", "missing: the disks of workspaces cannot be made").installable(h, "e2fsprogs")
	}
	return ok(name, "disks can be made")
}

// sockets of container engines, as they are found without configuration.
func engineSockets(uid int) []string {
	return []string{
		"/var/run/docker.sock", "/run/podman/podman.sock",
		fmt.Sprintf("/run/user/%d/docker.sock", uid), fmt.Sprintf("/run/user/%d/podman/podman.sock", uid),
	}
}
