package process

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sweepRounds = 200
	sweepWait   = 10 * time.Millisecond
	pidsMax     = 1 << 16 // entries of /proc that one look goes through
)

// task is one line of /proc, as far as it tells whose a process is.
type task struct {
	pid, parent, group, session int
	state                       byte
}

// sweep kills what a command left behind: its group, its session, its
// descendants, and those that have gone elsewhere but still carry its key in
// their environment. It looks again until nobody is found, because a fork
// bomb makes new ones meanwhile. What drops its parents, its session and its
// environment too is out of reach here and ends with the machine.
func (c *Core) sweep(p *proc) {
	for range sweepRounds {
		select {
		case <-c.quit:
			return
		default:
		}
		victims := c.descendants(p)
		for _, t := range victims {
			kill(t)
		}
		if len(victims) == 0 {
			return
		}
		time.Sleep(sweepWait)
	}
	c.logf("processes of %q are still there after %d rounds of KILL", p.key, sweepRounds)
}

// descendants finds the living processes that belong to a command.
func (c *Core) descendants(p *proc) []task {
	leader := p.entry.PID
	if leader <= 1 {
		return nil
	}
	tasks := tasksNow()
	mine := map[int]bool{}
	if !isClosed(p.exited) {
		mine[leader] = true
	}
	mark := "\x00" + keyName + "=" + p.key + "\x00"
	for _, t := range tasks {
		if t.session == leader || t.group == leader || strings.Contains("\x00"+readProc(procPath(t.pid, "environ")), mark) {
			mine[t.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, t := range tasks {
			if !mine[t.pid] && mine[t.parent] {
				mine[t.pid], grown = true, true
			}
		}
	}
	var list []task
	for _, t := range tasks {
		if mine[t.pid] && t.state != 'Z' && t.state != 'X' && t.pid != os.Getpid() && t.pid > 1 {
			list = append(list, t)
		}
	}
	return list
}

// kill ends a process that is still the one that we saw.
func kill(t task) {
	fd, err := unix.PidfdOpen(t.pid, 0)
	if err != nil { // no pidfds here, or it is gone
		if err == unix.ENOSYS {
			_ = unix.Kill(t.pid, unix.SIGKILL)
		}
		return
	}
	defer unix.Close(fd)
	if now, ok := taskOf(t.pid); ok && now.session == t.session && now.group == t.group {
		if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == unix.ENOSYS {
			_ = unix.Kill(t.pid, unix.SIGKILL)
		}
	}
}

// tasksNow lists the processes of the machine (of the user, where /proc shows more).
func tasksNow() []task {
	f, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(pidsMax)
	var tasks []task
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if t, ok := taskOf(pid); ok {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

func procPath(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

func taskOf(pid int) (task, bool) { return parseStat(readProc(procPath(pid, "stat"))) }

// parseStat reads /proc/<pid>/stat: "pid (name) state ppid pgrp session …".
// The name is the program's own and may hold anything, also ") R 1 1 1".
func parseStat(s string) (task, bool) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 1 || end < open {
		return task{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(s[:open]))
	f := strings.Fields(s[end+1:])
	if err != nil || len(f) < 4 || len(f[0]) != 1 {
		return task{}, false
	}
	t := task{pid: pid, state: f[0][0]}
	for i, v := range []*int{&t.parent, &t.group, &t.session} {
		if *v, err = strconv.Atoi(f[i+1]); err != nil {
			return task{}, false
		}
	}
	return t, true
}
