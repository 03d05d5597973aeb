// Package task looks at the processes and the counters of the machine in /proc.
//
//	for _, t := range task.Now() { … t.PID, t.Session … }
//	total, used := task.Memory()
//
// The programs of the sandbox choose much of what is written there (names,
// arguments), so every read is bounded and nothing is trusted to be well formed.
// All functions are safe for concurrent use.
package task

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidsMax bounds the entries of /proc that one look goes through.
const pidsMax = 1 << 16

// Task is one line of /proc, as far as it tells whose a process is.
type Task struct {
	PID, Parent, Group, Session int
	State                       byte // as /proc writes it: R, S, T, Z …
}

// Kill ends a process that is still the one that we saw.
func Kill(t Task) {
	fd, err := unix.PidfdOpen(t.PID, 0)
	if err != nil { // no pidfds here, or it is gone
		if err == unix.ENOSYS {
			_ = unix.Kill(t.PID, unix.SIGKILL)
		}
		return
	}
	defer unix.Close(fd)
	if now, ok := of(t.PID); ok && now.Session == t.Session && now.Group == t.Group {
		if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == unix.ENOSYS {
			_ = unix.Kill(t.PID, unix.SIGKILL)
		}
	}
}

// Now lists the processes of the machine (of the user, where /proc shows more).
func Now() []Task {
	f, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(pidsMax)
	var tasks []Task
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if t, ok := of(pid); ok {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// Path is that of a file of a process in /proc.
func Path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

// of looks at one process; false: it is gone.
func of(pid int) (Task, bool) { return parse(Read(Path(pid, "stat"))) }

// parse reads /proc/<pid>/stat: "pid (name) state ppid pgrp session …".
// The name is the program's own and may hold anything, also ") R 1 1 1".
func parse(s string) (Task, bool) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 1 || end < open {
		return Task{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(s[:open]))
	f := strings.Fields(s[end+1:])
	if err != nil || len(f) < 4 || len(f[0]) != 1 {
		return Task{}, false
	}
	t := Task{PID: pid, State: f[0][0]}
	for i, v := range []*int{&t.Parent, &t.Group, &t.Session} {
		if *v, err = strconv.Atoi(f[i+1]); err != nil {
			return Task{}, false
		}
	}
	return t, true
}

// procBytesMax bounds a read from /proc.
const procBytesMax = 1 << 20

// Read returns a file of /proc, "" when it cannot be read; at most procBytesMax.
// It makes the fewest system calls that it can: memory is looked at for as long
// as a command runs, and in gVisor each call costs several wake-ups on the host.
func Read(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 4<<10)
	for len(data) < procBytesMax {
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
		n, err := unix.Read(fd, data[len(data):min(cap(data), procBytesMax)])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		data = data[:len(data)+n]
	}
	return string(data)
}

// Descend adds to mine, by pid, those of tasks that descend from who is in it.
func Descend(tasks []Task, mine map[int]bool) {
	for grown := true; grown; {
		grown = false
		for _, t := range tasks {
			if !mine[t.PID] && mine[t.Parent] {
				mine[t.PID], grown = true, true
			}
		}
	}
}
