// Package jail is the directory and the process of one Firecracker: what lies
// where, who owns it, how it is started, and how its files and sockets are
// reached from outside without trusting what is inside.
//
//	j := jail.Jail{Dir: dir, Exec: exec, Jailer: jailer, ID: "sbx-…", UID: 910000, GID: 910000, …}
//	err := j.Make()
//	err = j.Link(image, "root.img")          // read-only, shared, root's
//	err = j.LinkOwn(disk, "work.img")        // writable, of the machine's user
//	ref, err := j.Start(ctx)                 // jailer, then Firecracker, detached
//	conn, err := j.Dial(ctx, "v.sock")
//
// Firecracker sees Root as "/", or, without a jailer, as its working
// directory. So a name without a slash means the same file in both, and in
// every clone its own: this is what lets a snapshot, which holds the paths of
// its drives, be loaded twice.
//
// The directory belongs to a process that a guest may have taken over. Nothing
// in it is opened through a symbolic link, and no process number in it is
// believed before the process has been looked at.
//
// Methods may be called from any goroutine; those that make things, once.
package jail

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Names in Root.
const (
	APISocket   = "api.sock"
	VsockSocket = "v.sock"
	Kernel      = "vmlinux"
	Initrd      = "initrd.img"
	RootImage   = "root.img"
	Layer       = "layer.img"
	Work        = "work.img"
	State       = "vm.state"
	Memory      = "vm.mem"
	Console     = "console.log"
	Log         = "firecracker.log"
	Metrics     = "metrics" // a pipe
)

// Limits of the process on the host; 0 = none.
type Limits struct {
	MemoryBytes int64 // of the guest and Firecracker together
	NoSwap      bool  // its memory is never written to the host's swap
	Tasks       int64
	FileBytes   int64 // of the largest file it may write
}

// openFilesMax bounds descriptors: a thousand vsock connections and some disks.
const openFilesMax = 2048

// Jail of one machine. All fields are fixed from Make on.
type Jail struct {
	// Dir is the machine's own directory; Root is below it.
	Dir string
	// ID is letters, digits and hyphens, at most 64.
	ID string
	// Exec is Firecracker's program, Jailer the one that locks it in; "" = it
	// runs as we do, in a directory, with nothing but its own seccomp filter
	// around it.
	Exec, Jailer string
	// UID and GID that Firecracker runs as, with a jailer.
	UID, GID int
	// Parent is the control group (version 2, relative to the mount) below
	// which the machine gets its own; "" = no limits.
	Parent string
	Limits Limits
}

// Base is the directory that the jailer is told.
func (j Jail) Base() string { return filepath.Join(j.Dir, "jail") }

// Root is Firecracker's root directory; the jailer decides its name.
func (j Jail) Root() string {
	return filepath.Join(j.Base(), filepath.Base(j.Exec), j.ID, "root")
}

// Path of a file in Root, for messages and for files that we made ourselves.
func (j Jail) Path(name string) string { return filepath.Join(j.Root(), name) }

// command is what is started: arguments follow the program.
func (j Jail) command() (program string, args []string) {
	own := []string{"--api-sock", APISocket, "--log-path", Log, "--level", "Info", "--show-level"}
	if j.Jailer == "" {
		return j.Exec, append([]string{"--id", j.ID}, own...)
	}
	args = []string{
		"--id", j.ID, "--exec-file", j.Exec, "--uid", strconv.Itoa(j.UID), "--gid", strconv.Itoa(j.GID),
		"--chroot-base-dir", j.Base(), "--new-pid-ns",
		"--resource-limit", fmt.Sprintf("no-file=%d", openFilesMax),
	}
	if n := j.Limits.FileBytes; n > 0 {
		args = append(args, "--resource-limit", fmt.Sprintf("fsize=%d", n))
	}
	args = append(args, j.cgroups()...)
	return j.Jailer, append(append(args, "--"), own...)
}

// cgroups names the limits. The cpu's is set later: a machine may boot faster
// than it may run. Version 2 must be said: the default is 1.
func (j Jail) cgroups() []string {
	if j.Parent == "" {
		return nil
	}
	args := []string{"--cgroup-version", "2", "--parent-cgroup", j.Parent}
	add := func(file string, value any) { args = append(args, "--cgroup", fmt.Sprintf("%s=%v", file, value)) }
	add("cpu.weight", 100)
	if n := j.Limits.MemoryBytes; n > 0 {
		add("memory.max", n)
	}
	if j.Limits.NoSwap {
		add("memory.swap.max", 0)
	}
	if n := j.Limits.Tasks; n > 0 {
		add("pids.max", n)
	}
	return args
}
