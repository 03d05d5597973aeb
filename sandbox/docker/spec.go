package docker

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
)

// Bounds of what a container gets beside what its user asked for.
const (
	overheadBytes  = 48 << 20         // the guest's two processes, allowed on top of MemoryMB
	guestThreads   = 32               // of each of the two, made before any command can take the room for them
	overheadTasks  = 2 * guestThreads // what the guest has at least: commands get no more than PidsMax
	runBytes       = 16 << 20
	shmBytesMax    = 256 << 20
	spoolBytes     = 288 << 20 // the guest's own 256 MiB of output, and its journal
	openFilesMax   = 1 << 16
	processesMax   = 1 << 15 // by rlimit, as Podman limits itself; the bound that counts is PidsLimit
	cpuPeriodUS    = 100_000
	oomScoreAdjust = 500 // under pressure sandboxes go before the server
)

// stateDir is where the guest keeps spools and journal: a place of its own, so
// that commands that fill the disk do not cost the guest its spools.
const stateDir = "/.skete-state"

// guestCaps are what skete-guest may do as root inside. Commands of the
// sandbox's user have none of it, because they are not root. Files are read and
// written for the user with the user's own rights, so that takes nothing.
var guestCaps = []string{
	"SETUID", "SETGID", // start commands, and touch files, as the sandbox's user
	"KILL",  // end its processes
	"CHOWN", // give it its terminal, and its pipes so that /dev/stdout opens by name
}

// rootCaps come on top where root was granted: what installing packages and
// running services takes. Docker's own default but MKNOD, NET_RAW and SETPCAP.
var rootCaps = []string{
	"AUDIT_WRITE", "DAC_OVERRIDE", "FOWNER", "FSETID", "NET_BIND_SERVICE", "SETFCAP", "SYS_CHROOT",
}

// networkCaps come on top where the guest captures connections (guest/capture). It
// keeps them from commands, also from root's.
var networkCaps = []string{"NET_ADMIN", "NET_RAW", "SETPCAP"}

// plan is all that a container's description is made of.
type plan struct {
	boot    sandbox.Boot
	labels  map[string]string
	bootDir string // of the host, shown at wire.BootDir
	root    root
	most    most
}

// spec writes the container's description. It is pure. No host path of a
// user's choosing is ever in it, nor an option.
func (pl plan) spec() engine.Container {
	b := pl.boot
	caps := slices.Clone(guestCaps)
	if b.Spec.Root {
		caps = append(caps, rootCaps...)
	}
	if b.Spec.HasNetwork() {
		caps = append(caps, networkCaps...)
	}
	h := engine.HostConfig{
		NetworkMode: "none", IpcMode: "private", CgroupnsMode: "private",
		ReadonlyRootfs: pl.root.readonly,
		CapDrop:        []string{"ALL"}, CapAdd: caps,
		SecurityOpt: []string{"no-new-privileges"},
		OomScoreAdj: oomScoreAdjust,
		ShmSize:     min(shmBytesMax, pl.memoryBytes()/4),
		Mounts:      pl.mounts(),
		Tmpfs:       map[string]string{"/run": fmt.Sprintf("rw,nosuid,nodev,mode=0755,size=%d", runBytes)},
		Ulimits: []engine.Ulimit{
			{Name: "nofile", Soft: pl.most.openFiles, Hard: pl.most.openFiles},
			{Name: "nproc", Soft: pl.most.processes, Hard: pl.most.processes},
			{Name: "core"},
		},
		LogConfig:     engine.LogConfig{Type: "none"}, // or commands of root could fill the host's disk
		RestartPolicy: engine.RestartPolicy{Name: "no"},
	}
	for _, name := range pl.root.tmpfs {
		h.Tmpfs["/"+name] = fmt.Sprintf("rw,nosuid,nodev,mode=1777,size=%d", h.ShmSize)
	}
	pl.limit(&h)
	return engine.Container{
		Image: pl.root.image, Hostname: b.BootFile().Hostname, User: "0:0", WorkingDir: "/",
		Entrypoint: []string{wire.GuestBinary, "init"}, Cmd: []string{},
		Env:    []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
		Labels: pl.labels, NetworkDisabled: true, HostConfig: h,
	}
}

// most are the limits of our own process that a container's may not exceed: an
// engine that may not raise limits, as in some virtual machines, starts nothing
// else, and Podman raises what it is not told.
type most struct {
	openFiles int64
	processes int64 // of a user on the whole host; the container's own count is another
}

func ownMost() most {
	return most{openFiles: min(ownLimit(unix.RLIMIT_NOFILE), openFilesMax), processes: ownLimit(unix.RLIMIT_NPROC)}
}

func ownLimit(resource int) int64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return openFilesMax
	}
	return int64(min(l.Max, processesMax))
}

func (pl plan) limit(h *engine.HostConfig) {
	s := pl.boot.Spec
	if s.MemoryMB > 0 {
		h.Memory = pl.memoryBytes() + overheadBytes
		h.MemorySwap = h.Memory // so no swap
	}
	if s.CPUs > 0 {
		h.CPUPeriod, h.CPUQuota = cpuPeriodUS, int64(s.CPUs*cpuPeriodUS)
	}
	if s.PidsMax > 0 {
		h.PidsLimit = int64(s.PidsMax) + overheadTasks
	}
}

func (pl plan) memoryBytes() int64 {
	if mb := pl.boot.Spec.MemoryMB; mb > 0 {
		return int64(mb) << 20
	}
	return 512 << 20
}

// mounts are all of the host that the machine sees.
func (pl plan) mounts() []engine.Mount {
	ms := append([]engine.Mount{}, pl.root.mounts...)
	for _, b := range pl.boot.Rootfs.Binds {
		ms = append(ms, bind(b.Source, b.Target, true))
	}
	return append(ms,
		bind(pl.bootDir, wire.BootDir, true),
		bind(pl.boot.Workspace, sandbox.WorkspaceDir, false))
}

// bind shows a directory or file, without what is mounted below it: of that a
// read-only bind would be read-only only at its top.
func bind(source, target string, readOnly bool) engine.Mount {
	return engine.Mount{Type: "bind", Source: source, Target: target, ReadOnly: readOnly, BindOptions: engine.BindOptions{NonRecursive: true}}
}
