package doctor

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/cgroup"
)

// What a host should have at least.
const (
	diskWarn   = 4 << 30
	diskError  = 256 << 20
	memoryWarn = 1 << 30
	clockEarly = 2026 // a year before which no skete was built
)

func (h Host) platform() Check {
	const name = "platform"
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return bad(name, err)
	}
	text := fmt.Sprintf("%s/%s, kernel %s, %d CPUs", runtime.GOOS, runtime.GOARCH, unix.ByteSliceToString(u.Release[:]), runtime.NumCPU())
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return bad(name, errs.New(errs.Unsupported, "%s: gVisor runs on amd64 and arm64", text))
	}
	return ok(name, "%s", text)
}

// privileges: root, or a kernel that gives namespaces to everyone.
func (h Host) privileges(ctx context.Context) Check {
	const name = "privileges"
	if os.Geteuid() == 0 {
		return ok(name, "root: memory, cpu, process and disk limits can be enforced")
	}
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return Check{Name: name, Status: Error, Detail: "not root, and user namespaces are refused: " + err.Error(), Hint: h.namespaceHint()}
	}
	return warn(name, "run skete as root to have every limit enforced",
		"not root: sandboxes are isolated, but memory, cpu and disk limits are watched instead of enforced")
}

func (h Host) namespaceHint() string {
	on := func(path, value string) bool { return h.read(path) == value }
	switch {
	case on("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run skete as root"
	case on("/proc/sys/kernel/unprivileged_userns_clone", "0"):
		return "sysctl kernel.unprivileged_userns_clone=1, or run skete as root"
	case on("/proc/sys/user/max_user_namespaces", "0"):
		return "sysctl user.max_user_namespaces=15000, or run skete as root"
	}
	return "run skete as root"
}

// static: gVisor's parts start in an empty root directory, without a loader.
func (h Host) static() Check {
	const name = "program"
	exe := h.Program
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return bad(name, err)
		}
	}
	f, err := elf.Open(exe)
	if err != nil {
		return bad(name, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return bad(name, errs.New(errs.Unsupported, "skete is dynamically linked and cannot run gVisor").
				WithHint("build it with CGO_ENABLED=0, as `make build` does"))
		}
	}
	return ok(name, "statically linked")
}

func (h Host) guest() Check {
	const name = "guest"
	path, err := h.Guest()
	if err != nil {
		return bad(name, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return bad(name, err)
	}
	return ok(name, "the guest program is there, %.1f MB", float64(info.Size())/(1<<20))
}

func (h Host) cgroups(ctx context.Context) Check {
	const name = "cgroups"
	const hint = "a kernel with the memory, cpu and pids controllers, and root, are needed for hard limits"
	if os.Geteuid() != 0 {
		return warn(name, "run skete as root", "not root: no control group can be made; limits are watched instead of enforced")
	}
	tree, err := cgroup.Find()
	if err != nil {
		return warn(name, hint, "none can be used: %v", err)
	}
	if err := tree.Probe(ctx, fmt.Sprintf("/skete-doctor-%d", os.Getpid())); err != nil {
		return warn(name, hint, "none can be made: %v", err)
	}
	var missing []string
	for _, c := range []string{"memory", "cpu", "pids"} {
		if !tree.Has(c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return warn(name, hint, "controllers are missing: %s", strings.Join(missing, ", "))
	}
	c := ok(name, "memory, cpu and pids can be limited")
	if !tree.LimitsSwap() {
		c.Detail += "; swap cannot be limited apart"
	}
	return c
}

func (h Host) disk(ctx context.Context) Check {
	const name = "disk quota"
	method, enforced, err := h.Volume(ctx)
	if err != nil {
		return bad(name, err)
	}
	if enforced {
		return ok(name, "workspaces have a hard size (%s)", method)
	}
	if os.Geteuid() != 0 {
		return warn(name, "run skete as root", "the size of workspaces is watched, not enforced: that needs root")
	}
	if h.program("mkfs.ext4") == "" {
		return warn(name, "apt-get install e2fsprogs", "the size of workspaces is watched, not enforced: mkfs.ext4 is missing").installable(h, "e2fsprogs")
	}
	return warn(name, "loop devices are needed: modprobe loop", "the size of workspaces is watched, not enforced (%s)", method).loadable("loop")
}

// workspaces: after a disk that was full or failed, the kernel may refuse writes
// to a workspace's file system until it has been checked.
func (h Host) workspaces() Check {
	const name = "workspaces"
	if h.ReadOnly == nil {
		return Check{Name: name, Status: Info, Detail: "not looked at"}
	}
	ids, err := h.ReadOnly()
	switch {
	case err != nil:
		return bad(name, err)
	case len(ids) == 0:
		return ok(name, "every one that is mounted takes writes")
	}
	slices.Sort(ids)
	shown := strings.Join(ids[:min(len(ids), 5)], ", ")
	return Check{
		Name: name, Status: Error, Detail: fmt.Sprintf("%d took an error of the disk and refuse writes: %s", len(ids), shown),
		Hint: "see to room on the disk, then `skete vm stop` and `skete vm start` them: a start checks the file system",
	}
}

func (h Host) space() Check {
	const name = "disk space"
	dir := nearest(h.Home)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return bad(name, err)
	}
	free := int64(st.Bavail) * st.Bsize
	text := fmt.Sprintf("%.1f GB free at %s", float64(free)/1e9, dir)
	switch {
	case free < diskError:
		return bad(name, errs.New(errs.Limit, "%s", text).WithHint("free some, or set SKETE_HOME to a larger disk"))
	case free < diskWarn:
		return warn(name, "free some, or set SKETE_HOME to a larger disk", "%s", text)
	}
	return ok(name, "%s", text)
}

func (h Host) memory() Check {
	const name = "memory"
	free, known := kilobytes(h.read("/proc/meminfo"), "MemAvailable")
	switch {
	case !known:
		return warn(name, "", "the kernel does not say how much is available")
	case free < memoryWarn:
		return warn(name, "an idle sandbox takes about 15 MB, a busy one up to its limit", "%d MB available", free>>20)
	}
	return ok(name, "%d MB available", free>>20)
}

func (h Host) home() Check {
	const name = "data directory"
	info, err := os.Stat(h.Home)
	if errors.Is(err, fs.ErrNotExist) {
		return ok(name, "%s will be made", h.Home)
	}
	if err != nil {
		return bad(name, err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		c := bad(name, errs.New(errs.Denied, "others may write into %s", h.Home).WithHint("chmod 700 %s", h.Home))
		c.Fixable, c.fix = true, func(context.Context) error { return os.Chmod(h.Home, 0o700) }
		return c
	}
	if err := unix.Access(h.Home, unix.W_OK|unix.X_OK); err != nil {
		return bad(name, errs.New(errs.Denied, "%s cannot be written: %v", h.Home, err).WithHint("set SKETE_HOME to a directory that is yours"))
	}
	return ok(name, "%s", h.Home)
}

func (h Host) server(ctx context.Context) Check {
	const name = "server"
	if h.Answers {
		return ok(name, "one answers on the socket")
	}
	if h.Listen == "" {
		return ok(name, "none runs; a command starts one when needed")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.Listen)
	if err != nil {
		return bad(name, errs.New(errs.Conflict, "none runs, and %s cannot be listened on: %v", h.Listen, err).
			WithHint("set `listen` in skete.yaml, or SKETE_LISTEN, to another address, or to '' for the unix socket alone"))
	}
	_ = l.Close()
	return ok(name, "none runs; a command starts one when needed; %s is free", h.Listen)
}

func (h Host) clock() Check {
	const name = "clock"
	now := time.Now()
	if now.Year() < clockEarly {
		return bad(name, errs.New(errs.Invalid, "it says %s, which is in the past", now.Format(time.DateOnly)).
			WithHint("set it: expiry and certificates depend on it"))
	}
	return ok(name, "%s", now.UTC().Format(time.RFC3339))
}
