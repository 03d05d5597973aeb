package initd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processLimit counts the tasks of commands in a cgroup of the machine's own
// kernel (gVisor's, a VM's). Only the forking thread of init is a member, so
// that init and supervise never run into the limit themselves.
type processLimit struct{ dir string }

// errNotCounted: this machine has no pids controller that we may use.
var errNotCounted = errors.New("no usable pids controller")

// newProcessLimit makes the group and moves the calling thread into it. Only
// a PID 1 does so: elsewhere the cgroups are those of the host.
func newProcessLimit(name string, maxTasks int) (*processLimit, error) {
	if os.Getpid() != 1 || os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: not PID 1 of a machine", errNotCounted)
	}
	root, err := pidsHierarchy()
	if err != nil {
		return nil, err
	}
	l := &processLimit{dir: filepath.Join(root, "skete-"+name)}
	if err := os.Mkdir(l.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w: %w", errNotCounted, err)
	}
	// One more: the forking thread is counted too.
	if err := l.write("pids.max", strconv.Itoa(maxTasks+1)); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotCounted, err)
	}
	if err := l.write("tasks", strconv.Itoa(unix.Gettid())); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotCounted, err)
	}
	return l, nil
}

// pidsHierarchy finds or mounts a version 1 hierarchy: only there may a single
// thread be moved.
func pidsHierarchy() (string, error) {
	const ours = "/sys/fs/cgroup/pids"
	if _, err := os.Stat(filepath.Join(ours, "cgroup.procs")); err == nil {
		return ours, nil
	}
	dir := filepath.Join("/run", "skete-pids")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("%w: %w", errNotCounted, err)
	}
	if err := unix.Mount("none", dir, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "pids"); err != nil {
		return "", fmt.Errorf("%w: mount: %w", errNotCounted, err)
	}
	return dir, nil
}

func (l *processLimit) write(file, value string) error {
	f, err := os.OpenFile(filepath.Join(l.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// remove gives the group back, where the kernel outlives the machine (tests).
// Preconditions: its members are gone but the calling process's threads.
func (l *processLimit) remove() {
	tasks, _ := os.ReadFile(filepath.Join(l.dir, "tasks"))
	root := processLimit{dir: filepath.Dir(l.dir)}
	for tid := range strings.FieldsSeq(string(tasks)) {
		_ = root.write("tasks", tid)
	}
	_ = os.Remove(l.dir)
}

// stopForks makes every further fork of a command fail.
func (l *processLimit) stopForks() { _ = l.write("pids.max", "0") }

// killMembers kills all but ourselves and reports whether there was anybody.
func (l *processLimit) killMembers() bool {
	data, err := os.ReadFile(filepath.Join(l.dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	found := false
	for f := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(f)
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		found = true
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return found
}
