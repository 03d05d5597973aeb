package gvisor

import (
	"fmt"
	"slices"
	"sort"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
)

// This file writes down for gVisor what a machine is: its OCI
// specification. It is pure.

// Bounds of what the sentry keeps in memory and what a machine costs beyond
// what its user asked for.
const (
	overheadBytes  = 64 << 20 // of the sentry itself, allowed on top of MemoryMB
	runBytes       = 16 << 20
	shmBytesMax    = 256 << 20
	spoolBytes     = 288 << 20 // the guest's own 256 MiB of output, and its journal
	openFilesMax   = 1 << 16
	hostTasksMin   = 4096 // gVisor's own threads count; a low bound kills it
	hostTasksPer   = 4    // host tasks for each task of the sandbox
	cpuPeriodUS    = 100_000
	oomScoreAdjust = 500 // under pressure sandboxes go before the server
)

// guestStateDir is where the guest keeps spools and journal by default.
const guestStateDir = "/var/lib/skete-guest"

// supervisorCaps are what skete-guest may do as root inside: switch users,
// end and look at any process, give files away. Commands of the user have none.
var supervisorCaps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
}

// rootCaps come on top where root was granted: what installing packages and
// running services takes.
var rootCaps = []string{
	"CAP_AUDIT_WRITE", "CAP_FSETID", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SYS_CHROOT",
}

// networkCaps come on top where the guest captures connections (guest/capture).
var networkCaps = []string{"CAP_NET_ADMIN", "CAP_NET_RAW"}

// bundlePlan is all that the bundle's specification is made of.
type bundlePlan struct {
	Boot      sandbox.Boot
	BootDir   string // of the host, shown at wire.BootDir
	SpoolDir  string // of the host, where the guest's own files are kept
	GroupPath string // "" = no control group
	LimitSwap bool
	Args      []string
	// HostUID and HostGID are set without root: the one identity that there is.
	HostUID, HostGID int
}

func (pl bundlePlan) rootless() bool { return pl.HostUID != 0 }

// Spec writes the OCI specification. It is pure. Nothing that a user wrote is
// ever an annotation: gVisor lets annotations widen what its flags forbid.
func (pl bundlePlan) Spec() *specs.Spec {
	b := pl.Boot
	caps := slices.Clone(supervisorCaps)
	if b.Spec.Root {
		caps = append(caps, rootCaps...)
	}
	if b.Spec.HasNetwork() {
		caps = append(caps, networkCaps...)
	}
	oom := oomScoreAdjust
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: b.BootFile().Hostname,
		Root:     &specs.Root{Path: b.Rootfs.Dir}, // not Readonly: that would switch the overlay off
		Process: &specs.Process{
			Args:            pl.Args,
			Cwd:             "/",
			Env:             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			NoNewPrivileges: true,
			OOMScoreAdj:     &oom,
			User:            pl.user(),
			Capabilities:    pl.capabilities(caps),
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: openFilesMax, Hard: openFilesMax},
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
			},
		},
		Mounts:      pl.mounts(),
		Linux:       pl.linux(),
		Annotations: pl.hints(),
	}
}

// hints tell gVisor more of two mounts.
//
// The guest's state directory is a tmpfs whose pages are kept in a file of the
// host: commands that fill the root's writable layer must not cost the guest
// its spools, and the spools must not cost the machine memory.
//
// The boot directory without root: its modes keep its owner out (see
// gvisor.Provider.openDoor), which is who the sentry is then; the gofer gets in.
func (pl bundlePlan) hints() map[string]string {
	h := map[string]string{}
	add := func(name string, fields map[string]string) {
		for k, v := range fields {
			h["dev.gvisor.spec.mount."+name+"."+k] = v
		}
	}
	add("spool", map[string]string{
		"source": pl.SpoolDir, "type": "tmpfs", "share": "container",
		"options": fmt.Sprintf("rw,nosuid,nodev,mode=0700,size=%d", spoolBytes),
	})
	if pl.rootless() {
		add("boot", map[string]string{"source": pl.BootDir, "type": "bind", "share": "shared", "directfs": "off"})
	}
	return h
}

// user: without root, the one identity of the host that we have is mapped to
// the sandbox's user, so that files in the workspace can be made and owned by
// commands. gVisor can then start processes of no other user; the guest's init
// becomes root by itself.
func (pl bundlePlan) user() specs.User {
	if pl.rootless() {
		return specs.User{UID: sandbox.UserID, GID: sandbox.UserID}
	}
	return specs.User{}
}

func (pl bundlePlan) capabilities(caps []string) *specs.LinuxCapabilities {
	c := &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	if pl.rootless() { // not root yet: the exec would drop them; init does so later
		c.Inheritable, c.Ambient = caps, caps
	}
	return c
}

// mounts: /proc, /sys and /dev are gVisor's own. /tmp is a part of the root's
// writable layer, so that it is kept on disk and counts against the disk
// limit; an empty /tmp would get a boundless tmpfs from gVisor, which the
// small mount below it prevents.
func (pl bundlePlan) mounts() []specs.Mount {
	ms := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev"}},
		tmpfsMount("/run", "0755", runBytes),
		tmpfsMount("/dev/shm", "1777", min(shmBytesMax, pl.memoryBytes()/4)),
		tmpfsMount("/tmp/.X11-unix", "1777", 64<<10),
	}
	binds := append(ms[:0:0], bindMount(pl.BootDir, wire.BootDir, "ro"))
	for _, b := range pl.Boot.Rootfs.Binds {
		binds = append(binds, bindMount(b.Source, b.Target, "ro"))
	}
	sort.SliceStable(binds, func(i, j int) bool { return len(binds[i].Destination) < len(binds[j].Destination) })
	binds = append(binds,
		bindMount(pl.Boot.Workspace, sandbox.WorkspaceDir, "rw"),
		bindMount(pl.SpoolDir, guestStateDir, "rw")) // see hints
	return append(ms, binds...)
}

func (pl bundlePlan) memoryBytes() int64 {
	if mb := pl.Boot.Spec.MemoryMB; mb > 0 {
		return int64(mb) << 20
	}
	return 512 << 20
}

func tmpfsMount(target, mode string, bytes int64) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "tmpfs", Source: "tmpfs",
		Options: []string{"nosuid", "nodev", "mode=" + mode, fmt.Sprintf("size=%d", bytes)},
	}
}

func bindMount(source, target, mode string) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "bind", Source: source,
		Options: []string{"rbind", mode, "nosuid", "nodev"},
	}
}

func (pl bundlePlan) linux() *specs.Linux {
	l := &specs.Linux{Namespaces: []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
	}}
	if pl.rootless() {
		l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		l.UIDMappings = []specs.LinuxIDMapping{{ContainerID: sandbox.UserID, HostID: uint32(pl.HostUID), Size: 1}}
		l.GIDMappings = []specs.LinuxIDMapping{{ContainerID: sandbox.UserID, HostID: uint32(pl.HostGID), Size: 1}}
	}
	if pl.GroupPath == "" {
		return l
	}
	s := pl.Boot.Spec
	l.CgroupsPath = pl.GroupPath
	tasks := int64(hostTasksMin + hostTasksPer*s.PidsMax)
	l.Resources = &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: tasks}}
	if s.MemoryMB > 0 {
		limit := pl.memoryBytes() + overheadBytes
		l.Resources.Memory = &specs.LinuxMemory{Limit: &limit}
		if pl.LimitSwap {
			l.Resources.Memory.Swap = &limit
		}
	}
	if s.CPUs > 0 {
		period, quota := uint64(cpuPeriodUS), int64(s.CPUs*cpuPeriodUS)
		l.Resources.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	return l
}
