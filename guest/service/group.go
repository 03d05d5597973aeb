package service

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/process/task"
)

// This file keeps the processes of a service, all together, within limits.
//
// In a virtual machine the kernel does it: a control group of version 2 for
// memory and CPU, and one of version 1 beneath init's for the number of tasks.
// gVisor neither bounds the memory of a group nor weighs it, and lets the tasks
// of one group in three go past their number; so its groups say who is there,
// and memory is looked at, the oftener the nearer it is; what grows faster is
// over for that long. Elsewhere the kernel is not the machine's own, and
// nothing is touched: memory is looked at, and the rest is not kept.
//
// It has no state but the kernel's and files, so the next supervise goes on with
// it. All methods are safe for concurrent use; names are those of services.

// groupLimits of all processes of a service together; 0 = none.
type groupLimits struct {
	Memory    uint64 // bytes
	Tasks     uint64 // processes and threads
	CPUWeight uint64 // 1 to 10,000 where the kernel has too little for all; 100 is the default
}

const (
	mountPoint  = "/run/skete-services"
	gateDir     = "/run/skete-gates"
	ownPrefix   = "skete-" // of init's groups
	groupPrefix = "service-"

	putRounds    = 50 // a fork may be missed by a look; its child is not by the next
	removeRounds = 100
	removeWait   = 5 * time.Millisecond

	lookEvery = 80 * time.Millisecond
)

// cgroups knows what the machine's kernel can do.
type cgroups struct {
	v2    string // directory for groups that bound memory; "" = none
	cpu   bool   // of v2
	tasks string // for groups that count tasks, or say at least who is there
	count bool   // of tasks: a number that the kernel keeps
}

// findGroups looks what the kernel has, if it is the machine's own: init is PID 1
// and there are no groups but init's. Anywhere else the groups are the host's.
func findGroups() cgroups {
	k := cgroups{}
	if os.Getuid() != 0 || os.Getppid() != 1 {
		return k
	}
	for _, dir := range []string{"/sys/fs/cgroup/pids", "/run/skete-pids"} {
		if groups, own := groupsIn(dir, ownPrefix); own && len(groups) == 1 {
			k.tasks = groups[0]
			break
		}
	}
	k.count = !task.OnGVisor()
	if k.tasks == "" || os.MkdirAll(gateDir, 0o755) != nil { // init did not find it to be its own either
		return cgroups{}
	}
	if err := groupMount(); err != nil {
		return k
	}
	_, own := groupsIn(mountPoint, groupPrefix)
	has, _ := os.ReadFile(filepath.Join(mountPoint, "cgroup.controllers"))
	if own && strings.Contains(string(has), "memory") && writeGroup(mountPoint, "cgroup.subtree_control", "+memory") == nil {
		k.v2, k.cpu = mountPoint, writeGroup(mountPoint, "cgroup.subtree_control", "+cpu") == nil
		return k
	}
	_ = unix.Unmount(mountPoint, unix.MNT_DETACH)
	return k
}

// groupsIn lists the groups right beneath a hierarchy's root; own = all of them
// have names that begin so.
func groupsIn(root, begin string) (groups []string, own bool) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if !strings.HasPrefix(e.Name(), begin) {
			return nil, false
		}
		groups = append(groups, filepath.Join(root, e.Name()))
	}
	return groups, true
}

// groupMount mounts the hierarchy, unless an earlier supervise did.
func groupMount() error {
	if err := os.MkdirAll(mountPoint, 0o700); err != nil {
		return err
	}
	var s unix.Statfs_t
	if unix.Statfs(mountPoint, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	return unix.Mount("none", mountPoint, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

func writeGroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (k cgroups) memoryDir(name string) string { return filepath.Join(k.v2, groupPrefix+name) }
func (k cgroups) tasksDir(name string) string  { return filepath.Join(k.tasks, groupPrefix+name) }

// Gate is the path of a file that is there once a service is in its groups, so
// that it forks nothing before; "" = it has no groups here.
func (k cgroups) Gate(name string, l groupLimits) string {
	if k.tasks == "" || l == (groupLimits{}) {
		return ""
	}
	return filepath.Join(gateDir, name)
}

// Put bounds the processes of a service, and returns the names of the limits
// that cannot be kept here. What they have allocated before stays uncounted.
func (k cgroups) Put(name string, l groupLimits, members func() []int) (missing []string) {
	if l == (groupLimits{}) {
		return nil
	}
	var dirs []string
	if l.Memory > 0 || l.CPUWeight > 0 {
		weighed := false
		if k.v2 != "" && k.makeMemory(name, l) == nil {
			dirs = append(dirs, k.memoryDir(name))
			weighed = l.CPUWeight == 0 || k.cpu && writeGroup(k.memoryDir(name), "cpu.weight", strconv.FormatUint(l.CPUWeight, 10)) == nil
		}
		if l.CPUWeight > 0 && !weighed {
			missing = append(missing, "cpu_weight")
		}
	}
	made := k.tasks != "" && k.makeTasks(name, l) == nil
	if made {
		dirs = append(dirs, k.tasksDir(name))
	}
	if l.Tasks > 0 && !(made && k.count) {
		missing = append(missing, "pids")
	}
	if len(dirs) > 0 {
		moveToGroup(dirs, members)
	}
	if gate := k.Gate(name, l); gate != "" {
		_ = os.WriteFile(gate, nil, 0o644) //nolint:gosec // the service's user looks whether it is there
	}
	return missing
}

func (k cgroups) makeMemory(name string, l groupLimits) error {
	dir := k.memoryDir(name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if l.Memory == 0 {
		return nil
	}
	_ = writeGroup(dir, "memory.swap.max", "0") // where there is swap at all
	err := errors.Join(writeGroup(dir, "memory.max", strconv.FormatUint(l.Memory, 10)), writeGroup(dir, "memory.oom.group", "1"))
	if err != nil {
		_ = os.Remove(dir)
	}
	return err
}

func (k cgroups) makeTasks(name string, l groupLimits) error {
	dir := k.tasksDir(name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if l.Tasks == 0 || !k.count {
		return nil
	}
	err := writeGroup(dir, "pids.max", strconv.FormatUint(l.Tasks, 10))
	if err != nil {
		_ = os.Remove(dir)
	}
	return err
}

// moveToGroup puts all of them in, until a look finds no new process.
func moveToGroup(dirs []string, members func() []int) {
	in := map[int]bool{}
	for range putRounds {
		fresh := false
		for _, pid := range members() {
			if in[pid] {
				continue
			}
			in[pid], fresh = true, true
			for _, d := range dirs {
				_ = writeGroup(d, "cgroup.procs", strconv.Itoa(pid)) // it may have ended
			}
		}
		if !fresh {
			return
		}
	}
}

// OutOfMemory reports whether the kernel ended processes of the service since
// Put made its group.
func (k cgroups) OutOfMemory(name string) bool {
	if k.v2 == "" {
		return false
	}
	data, _ := os.ReadFile(filepath.Join(k.memoryDir(name), "memory.events"))
	return groupKills(string(data)) > 0
}

// groupKills reads the count of a memory.events file.
func groupKills(events string) uint64 {
	for s := bufio.NewScanner(strings.NewReader(events)); s.Scan(); {
		if n, ok := strings.CutPrefix(s.Text(), "oom_kill "); ok {
			count, _ := strconv.ParseUint(n, 10, 64)
			return count
		}
	}
	return 0
}

// Watch looks at the memory of a service where the kernel does not bound it,
// and calls over once when it is too much. It returns then, or when ctx ends.
func (k cgroups) Watch(ctx context.Context, name string, l groupLimits, members func() []int, over func()) {
	if l.Memory == 0 {
		return
	}
	if _, err := os.Stat(k.memoryDir(name)); k.v2 != "" && err == nil {
		return
	}
	for {
		used := k.used(name, members)
		if used > l.Memory {
			over()
			return
		}
		wait := lookEvery
		switch {
		case used > l.Memory/4*3:
			wait = lookEvery / 8
		case used > l.Memory/2:
			wait = lookEvery / 3
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// used is what the processes have resident for themselves.
func (k cgroups) used(name string, members func() []int) (bytes uint64) {
	pids, err := k.counted(name)
	if err != nil {
		pids = members()
	}
	for _, pid := range pids {
		bytes += uint64(task.Private(pid))
	}
	return bytes
}

// counted are the members of the group that counts them.
func (k cgroups) counted(name string) (pids []int, err error) {
	if k.tasks == "" {
		return nil, os.ErrNotExist
	}
	data, err := os.ReadFile(filepath.Join(k.tasksDir(name), "cgroup.procs"))
	for f := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// Remove takes the groups of a service away; there may be none.
func (k cgroups) Remove(name string) {
	if k.tasks == "" {
		return
	}
	_ = os.Remove(filepath.Join(gateDir, name))
	for parent, dir := range map[string]string{k.v2: k.memoryDir(name), k.tasks: k.tasksDir(name)} {
		if parent == "" {
			continue
		}
		for range removeRounds { // the kernel lets go of the last process a moment after its end
			if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			<-time.After(removeWait)
		}
	}
}
