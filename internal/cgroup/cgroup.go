// Package cgroup makes, reads, empties and removes control groups, version 1
// and 2 alike.
//
//	tree, err := cgroup.Find()
//	g := tree.Group("/skete/x/sbx_…")
//	err = g.Create(cgroup.Limits{MemoryBytes: 1 << 30})
//	err = g.Start(cmd) // the command is born in the group
//	g.OOMKills(); g.Kill(ctx); g.Remove(ctx)
//
// A group is a path below the root of every mounted hierarchy: one directory
// in version 2, one for each controller in version 1. All methods may be
// repeated, are safe for concurrent use, and treat a missing group as empty.
package cgroup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Tree is the host's mounted hierarchies.
type Tree struct {
	// V2 says that there is the one unified hierarchy.
	V2 bool
	// dirs maps a controller to the directory of its hierarchy's root. Version
	// 2 has the key "" only; named hierarchies of version 1 have their name.
	dirs map[string]string
}

// Find looks at what is mounted. Unsupported: nothing is. A host with both
// versions counts as version 1, since the controllers are there.
func Find() (Tree, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Tree{}, err
	}
	tree := parseMounts(data)
	if len(tree.dirs) == 0 {
		return Tree{}, errs.New(errs.Unsupported, "no control groups are mounted").
			WithHint("mount cgroup2 on /sys/fs/cgroup, or run as a user that sees it")
	}
	return tree, nil
}

// parseMounts reads a mountinfo file.
func parseMounts(data []byte) Tree {
	v1, v2 := map[string]string{}, ""
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		// 36 35 98:0 /root /point opts [optional …] - type source superopts
		head, tail, ok := strings.Cut(s.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 2 {
			continue
		}
		point := h[4]
		switch t[0] {
		case "cgroup2":
			if v2 == "" {
				v2 = point
			}
		case "cgroup":
			// The directory's name is what gVisor and systemd go by.
			v1[filepath.Base(point)] = point
		}
	}
	if _, ok := v1["memory"]; ok {
		return Tree{dirs: v1}
	}
	if v2 != "" {
		return Tree{V2: true, dirs: map[string]string{"": v2}}
	}
	return Tree{dirs: v1}
}

// Has reports whether all the controllers can be used below the root.
func (t Tree) Has(controllers ...string) bool {
	have := []string{}
	if t.V2 {
		data, _ := os.ReadFile(filepath.Join(t.dirs[""], "cgroup.controllers"))
		have = strings.Fields(string(data))
	}
	for _, c := range controllers {
		_, v1 := t.dirs[c]
		if !v1 && !slices.Contains(have, c) {
			return false
		}
	}
	return true
}

// LimitsSwap reports whether a group's use of swap can be limited here.
func (t Tree) LimitsSwap() bool {
	if !t.V2 {
		_, err := os.Stat(filepath.Join(t.dirs["memory"], "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	swaps, err := os.ReadFile("/proc/swaps")
	return err == nil && bytes.Count(swaps, []byte("\n")) > 1
}

// Probe makes a group with a limit of memory and removes it: whether limits
// can be set here at all (root without delegation, a container with read-only
// cgroups and an ordinary user cannot).
func (t Tree) Probe(ctx context.Context, path string) error {
	g := t.Group(path)
	defer func() { _ = g.Remove(context.WithoutCancel(ctx)) }()
	file := "memory.limit_in_bytes"
	if t.V2 {
		file = "memory.max"
		if err := t.delegate(path); err != nil {
			return err
		}
	}
	if err := g.Make("memory"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(g.dir("memory"), file), []byte("1073741824"), 0); err != nil {
		return fmt.Errorf("limit a control group: %w", err)
	}
	return nil
}

// delegate switches the controllers on from the root down to path's parent.
func (t Tree) delegate(path string) error {
	dir := t.dirs[""]
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +cpu +pids"), 0)
		if err != nil {
			return fmt.Errorf("switch controllers on: %w", err)
		}
		dir = filepath.Join(dir, part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
	}
	return nil
}

// Group returns the group with an absolute path; it need not exist.
func (t Tree) Group(path string) Group { return Group{tree: t, path: path} }

// Group is one control group.
type Group struct {
	tree Tree
	path string
}

func (g Group) dir(controller string) string {
	if g.tree.V2 {
		controller = ""
	}
	root, ok := g.tree.dirs[controller]
	if !ok {
		return ""
	}
	return filepath.Join(root, g.path)
}

// Make makes the group in the hierarchy of one controller.
func (g Group) Make(controller string) error {
	dir := g.dir(controller)
	if dir == "" {
		return fmt.Errorf("make a control group: no controller %s", controller)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	return nil
}

// Limits of a group; 0 = none.
type Limits struct {
	MemoryBytes int64
	SwapToo     bool // MemoryBytes bounds memory and swap together
	CPUPeriodUS uint64
	CPUQuotaUS  int64
	Tasks       int64
}

// limiting are the controllers of version 1 in whose hierarchies Create makes
// a group: those that limit. Whatever has entered is in all of them.
var limiting = []string{"memory", "cpu", "pids"}

// Create makes a group with its limits, but for the cpu's: see LimitCPU. On
// error a part of it may be there; Remove takes that away.
func (g Group) Create(l Limits) error {
	if g.tree.V2 {
		return g.create2(l)
	}
	for _, c := range limiting {
		if err := g.Make(c); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		controller, file string
		value            int64
	}{
		{"memory", "memory.limit_in_bytes", l.MemoryBytes},
		{"memory", "memory.memsw.limit_in_bytes", onlyIf(l.SwapToo, l.MemoryBytes)}, // never below the line above
		{"pids", "pids.max", l.Tasks},
	} {
		if err := g.limit(s.controller, s.file, s.value); err != nil {
			return err
		}
	}
	return nil
}

// create2 is Create with version 2, where swap has a limit of its own.
func (g Group) create2(l Limits) error {
	if err := g.tree.delegate(g.path); err != nil {
		return err
	}
	for file, value := range map[string]int64{"memory.max": l.MemoryBytes, "pids.max": l.Tasks} {
		if err := g.limit("", file, value); err != nil {
			return err
		}
	}
	if !l.SwapToo {
		return nil
	}
	if err := g.write("", "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without swap
		return fmt.Errorf("limit a control group: %w", err)
	}
	return nil
}

// LimitCPU sets the limit of cpu time that Create leaves out. The kernel gives
// a quota by the period: who needs more than that once, to start, is made to
// wait until the next period begins.
func (g Group) LimitCPU(l Limits) error {
	if g.tree.V2 && l.CPUQuotaUS != 0 {
		if err := g.write("", "cpu.max", fmt.Sprintf("%d %d", l.CPUQuotaUS, l.CPUPeriodUS)); err != nil {
			return fmt.Errorf("limit a control group: %w", err)
		}
		return nil
	}
	if err := g.limit("cpu", "cpu.cfs_period_us", int64(l.CPUPeriodUS)); err != nil {
		return err
	}
	return g.limit("cpu", "cpu.cfs_quota_us", l.CPUQuotaUS)
}

func (g Group) limit(controller, file string, value int64) error {
	if value == 0 {
		return nil
	}
	if err := g.write(controller, file, strconv.FormatInt(value, 10)); err != nil {
		return fmt.Errorf("limit a control group: %w", err)
	}
	return nil
}

func onlyIf(yes bool, n int64) int64 {
	if yes {
		return n
	}
	return 0
}

// Start starts the command as a member of a group that Create made.
func (g Group) Start(cmd *exec.Cmd) error {
	if !g.tree.V2 {
		return g.Run(cmd.Start)
	}
	dir, err := os.Open(g.dir(""))
	if err != nil {
		return fmt.Errorf("enter a control group: %w", err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

// Run, with version 1, calls f on a thread in a group that Create made; what f
// forks is born there. The kernel moves a thread that asks for itself at once, where moving
// a process waits for every processor to pass a point of rest (RCU): 10 to
// 30 ms, once in and once out.
//
// The thread is f's alone and ends with it, so no other goroutine's work gets
// into the group; it may be a member for a moment after Run has returned.
func (g Group) Run(f func() error) error {
	done := make(chan error, 1)
	onOwnThread(func() {
		err := g.enter()
		if err == nil {
			err = f()
		}
		done <- err
	})
	return <-done
}

// onOwnThread starts f on a thread that ends with it. A goroutine that ends
// while locked takes its thread along, but for the main thread: that would
// stay, forever and in the group, so while it is what we were given we hold it
// and ask for another.
func onOwnThread(f func()) {
	found := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onOwnThread(f)
			runtime.UnlockOSThread()
			close(found)
			return
		}
		close(found)
		f()
	}()
	<-found
}

func (g Group) enter() error {
	for _, c := range limiting {
		if err := g.write(c, "tasks", "0"); err != nil {
			return fmt.Errorf("enter a control group: %w", err)
		}
	}
	return nil
}

// write sets a file of the group; the kernel makes it with the group.
func (g Group) write(controller, file, value string) error {
	f, err := os.OpenFile(filepath.Join(g.dir(controller), file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// dirs lists the group's directories, those that exist not only.
func (g Group) dirs() []string {
	var ds []string
	for c := range g.tree.dirs {
		ds = append(ds, g.dir(c))
	}
	return ds
}

// Exists reports whether the group is in any hierarchy.
func (g Group) Exists() bool {
	return slices.ContainsFunc(g.dirs(), func(d string) bool {
		_, err := os.Stat(d)
		return err == nil
	})
}

// Children names the groups directly below, of any hierarchy.
func (g Group) Children() []string {
	var names []string
	for _, d := range g.dirs() {
		entries, _ := os.ReadDir(d)
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}

// PIDs lists the processes in the group, of any hierarchy: a half-made
// machine may have joined some of them only.
func (g Group) PIDs() []int {
	var pids []int
	for _, d := range g.dirs() {
		data, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(f)
			if err == nil && pid > 1 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Kill ends all processes of the group and returns when none is left. What
// forks meanwhile is found in the next round. Our own process is left out.
func (g Group) Kill(ctx context.Context) error {
	self := os.Getpid()
	return retry(ctx, func() error {
		pids := slices.DeleteFunc(g.PIDs(), func(pid int) bool { return pid == self })
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // a member now, so the number is right
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		if len(pids) > 0 {
			return fmt.Errorf("%d processes are left in the control group", len(pids))
		}
		return nil
	})
}

// Remove removes the group, which must be empty; the kernel may hold it for a
// moment after its last process has gone.
func (g Group) Remove(ctx context.Context) error {
	return retry(ctx, func() error {
		var all error
		for _, d := range g.dirs() {
			if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
				all = errors.Join(all, fmt.Errorf("remove control group %s: %w", d, err))
			}
		}
		return all
	})
}

// goneWait is how long what was killed may take to be gone. A killed process ends
// when it is scheduled, which on a host with a load of hundreds takes seconds.
const goneWait = time.Minute

// retry calls f until it succeeds, ctx ends, or goneWait has passed.
func retry(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// OOMKills counts the processes that the kernel has killed because the group
// was at its limit.
func (g Group) OOMKills() uint64 {
	file := "memory.oom_control"
	if g.tree.V2 {
		file = "memory.events"
	}
	return g.counter("memory", file, "oom_kill")
}

// MemoryMax is the highest use of memory so far, 0 if the kernel does not say.
func (g Group) MemoryMax() uint64 {
	file := "memory.max_usage_in_bytes"
	if g.tree.V2 {
		file = "memory.peak"
	}
	data, err := os.ReadFile(filepath.Join(g.dir("memory"), file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n
}

func (g Group) counter(controller, file, key string) uint64 {
	data, err := os.ReadFile(filepath.Join(g.dir(controller), file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}
