package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd"
)

// Quiesce stops every command and returns how many processes it stopped. They
// go on at Thaw, or by themselves after a while. What was stopped already
// (by the user) stays so. A second call only moves the time.
func (c *Core) Quiesce(thawAfter time.Duration) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0
	}
	if c.thaw != nil {
		c.thaw.Stop()
	}
	c.thaw = time.AfterFunc(thawAfter, func() { c.Thaw() })
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
	leaders := map[int]bool{}
	for _, p := range c.byID {
		leaders[p.entry.PID] = true
	}
	if c.stopped == nil {
		c.stopped = map[int]bool{}
	}
	n := uint32(0)
	for _, t := range tasksNow() {
		if !leaders[t.session] || c.stopped[t.pid] || t.state == 'T' || t.state == 't' || t.state == 'Z' {
			continue
		}
		if unix.Kill(t.pid, unix.SIGSTOP) == nil {
			c.stopped[t.pid] = true
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
	return n
}

// Alive is the number of living processes in the sessions of commands.
func (c *Core) Alive() uint32 {
	c.mu.Lock()
	leaders := map[int]bool{}
	for _, p := range c.byID {
		leaders[p.entry.PID] = true
	}
	c.mu.Unlock()
	n := uint32(0)
	for _, t := range tasksNow() {
		if leaders[t.session] && t.state != 'Z' {
			n++
		}
	}
	return n
}

// isRunning reports whether a process has not ended.
func (p *proc) isRunning() bool { return p.entry.State == initd.Running && !isClosed(p.exited) }
