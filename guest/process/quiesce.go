package process

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/task"
)

// Quiesce stops every command and returns how many processes it stopped. They
// go on at Thaw, or by themselves after a while. What was stopped already
// (by the user) stays so. A second call only moves the time.
func (c *Core) Quiesce(thawAfter time.Duration) uint32 {
	c.launchMu.Lock()
	defer c.launchMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0
	}
	if c.thaw != nil {
		c.thaw.Stop()
	}
	_ = os.WriteFile(c.frozenFile(), nil, 0o600)
	if c.thawed == nil {
		c.thawed = make(chan struct{})
	}
	c.thaw = setAlarm(thawAfter, func() { c.Thaw() })
	count := uint32(0)
	for range stopRounds { // a process may fork before the stop reaches it
		n := c.stopLocked()
		count += n
		if n == 0 {
			break
		}
	}
	return count
}

const stopRounds = 20

// stopLocked stops who runs in a session of ours and was not stopped yet.
func (c *Core) stopLocked() uint32 {
	if c.stopped == nil {
		c.stopped = map[int]bool{}
	}
	n := uint32(0)
	for _, t := range c.tasksLocked() {
		if c.stopped[t.PID] || t.State == 'T' || t.State == 't' {
			continue
		}
		if unix.Kill(t.PID, unix.SIGSTOP) == nil {
			c.stopped[t.PID] = true
			n++
		}
	}
	return n
}

// Thaw continues what Quiesce stopped and returns how many processes that were.
func (c *Core) Thaw() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.thaw != nil {
		c.thaw.Stop()
		c.thaw = nil
	}
	n := uint32(0)
	for pid := range c.stopped {
		if unix.Kill(pid, unix.SIGCONT) == nil {
			n++
		}
	}
	c.stopped = nil
	if c.thawed != nil {
		close(c.thawed)
		c.thawed = nil
	}
	_ = os.Remove(c.frozenFile())
	return n
}

// frozenFile is there while commands are stopped: a supervise that finds it
// continues them, because nothing else would.
func (c *Core) frozenFile() string { return filepath.Join(c.spoolDir, "frozen") }

// thawLeft continues what an earlier supervise has stopped.
func (c *Core) thawLeft() {
	if _, err := os.Stat(c.frozenFile()); err != nil {
		return
	}
	c.mu.Lock()
	c.stopped = map[int]bool{}
	for _, t := range c.tasksLocked() {
		c.stopped[t.PID] = true
	}
	c.mu.Unlock()
	c.Thaw()
}

// tasksLocked lists the living processes in the sessions of commands.
func (c *Core) tasksLocked() []task.Task {
	leaders := map[int]bool{}
	for _, p := range c.byID {
		leaders[p.entry.PID] = true
	}
	var list []task.Task
	for _, t := range task.Now() {
		if leaders[t.Session] && t.State != 'Z' {
			list = append(list, t)
		}
	}
	return list
}

// Alive is the number of living processes in the sessions of commands.
func (c *Core) Alive() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint32(len(c.tasksLocked()))
}

// isRunning reports whether a process has not ended.
func (p *proc) isRunning() bool { return p.entry.State == pair.Running && !isClosed(p.exited) }
