package process

import (
	"time"

	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/task"
)

// Watching memory: near the machine's limit the largest command ends, so that
// the kernel does not end the machine.
const (
	memoryEvery   = 50 * time.Millisecond
	memoryPercent = 92
	memoryCalm    = 500 * time.Millisecond // after a kill, until its memory is back
	memoryWorth   = 25                     // a command with less than this part of the limit is spared: its end would not help
	// What is used by commands that stand still is looked at less and less often,
	// down to memoryStill: a look costs as much as a wake-up, and a machine may do
	// nothing for days. So long have they stood still if nothing changed by more
	// than a memoryMoves-th of the limit.
	memoryStill = 400 * time.Millisecond
	memoryMoves = 128
	memorySlow  = 8 // the wait is this part of the time without a change
	// memoryRate is what a command takes at most, in bytes per nanosecond: none
	// of them gets from where it stood still to the limit between two looks.
	memoryRate = 1
)

// watchMemory looks at the machine's memory while commands run, the oftener
// the less is free: a command takes tens of MB in the time of a slow look.
func (c *Core) watchMemory() {
	limit := c.cfg.Boot.MemoryBytes
	if limit <= 0 {
		return
	}
	// A kernel of the machine's own keeps a part of the memory for itself:
	// what is left is the limit that a command runs into.
	if total, _ := task.Memory(); total > 0 && total < limit {
		limit = total
	}
	var p pace
	for wait := memoryEvery / 10; c.waitRunning(); { // most commands are over by then
		select {
		case <-c.quit:
			return
		case <-time.After(wait):
		}
		if wait = memoryEvery / 10; c.anyRunning() {
			used := c.memoryUsed(limit)
			wait = p.slow(c.lookAtMemory(used, limit), used, limit, c.known())
		}
	}
}

// pace knows since when the memory in use has not moved.
type pace struct {
	used     int64
	commands int
	since    time.Time
}

// slow returns when to look again at what is used, at the earliest after wait.
func (p *pace) slow(wait time.Duration, used, limit int64, commands int) time.Duration {
	now := time.Now()
	if moved := used - p.used; max(moved, -moved) > limit/memoryMoves || commands != p.commands {
		*p = pace{used, commands, now}
	}
	untilFull := time.Duration((limit/100*memoryPercent - used) / memoryRate)
	return max(wait, min(now.Sub(p.since)/memorySlow, memoryStill, untilFull))
}

// known counts the commands, those that have ended too.
func (c *Core) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// lookAtMemory does what is to be done, and returns when to look again.
func (c *Core) lookAtMemory(used, limit int64) time.Duration {
	c.ooms.Look()
	switch {
	case used > limit/100*memoryPercent && c.killLargest(limit):
		return memoryCalm
	case used > limit/100*75:
		return memoryEvery / 10
	case used > limit/2:
		return memoryEvery / 3
	}
	return memoryEvery
}

// memoryUsed is what counts against the limit: all of the machine's memory,
// or, where the kernel is not the machine's own (the process provider), what
// the commands have resident for themselves.
func (c *Core) memoryUsed(limit int64) int64 {
	total, used := task.Memory()
	if total <= limit+limit/8 || c.ownKernel() {
		return used
	}
	var sum int64
	for _, shares := range c.resident() {
		sum += held(shares)
	}
	return sum
}

// share is a process of a command, and what it has resident for itself.
type share struct {
	task  task.Task
	bytes int64
}

func held(shares []share) (bytes int64) {
	for _, s := range shares {
		bytes += s.bytes
	}
	return bytes
}

// resident has the processes of each running command, by the leader's pid: those of its
// session, and those that descend from them and have sessions of their own.
func (c *Core) resident() map[int][]share {
	shares := map[int][]share{}
	for _, p := range c.list(0) {
		if p.isRunning() {
			shares[p.entry.PID] = nil
		}
	}
	tasks := task.Now()
	byPID := make(map[int]task.Task, len(tasks))
	for _, t := range tasks {
		byPID[t.PID] = t
	}
	for _, t := range tasks {
		if leader, ok := leaderOf(t, byPID, shares); ok {
			shares[leader] = append(shares[leader], share{t, task.Private(t.PID)})
		}
	}
	return shares
}

// leaderOf finds the command that a process belongs to.
func leaderOf(t task.Task, byPID map[int]task.Task, commands map[int][]share) (pid int, ok bool) {
	for range len(byPID) { // the list is of no one moment, so it may have circles
		if _, ok := commands[t.Session]; ok {
			return t.Session, true
		}
		if t, ok = byPID[t.Parent]; !ok {
			break
		}
	}
	return 0, false
}

// waitRunning blocks while no command runs; false: we close.
func (c *Core) waitRunning() bool {
	for !c.anyRunning() {
		select {
		case <-c.running:
		case <-c.quit:
			return false
		}
	}
	return true
}

func (c *Core) anyRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID) > len(c.ended)
}

// killLargest ends the command that has the most memory resident. Of one in the
// background, which is what a template is for, it ends the largest process alone, as a
// kernel does: its loop can start that again.
// Memory may be full of files (a tmpfs) instead: then no command is to blame.
func (c *Core) killLargest(limit int64) bool {
	shares := c.resident()
	var largest *proc
	most := limit / memoryWorth
	for _, p := range c.list(0) {
		if n := held(shares[p.entry.PID]); p.isRunning() && n > most {
			largest, most = p, n
		}
	}
	if largest == nil {
		return false
	}
	if t, ok := culprit(largest, shares[largest.entry.PID], limit); ok {
		c.logf("memory is short: ending a process of %q", largest.key)
		task.Kill(t)
		return true
	}
	c.logf("memory is short: ending %q", largest.key)
	c.finish(largest, pair.CauseMemory)
	return true
}

// culprit is the process whose end is enough.
func culprit(p *proc, shares []share, limit int64) (t task.Task, ok bool) {
	most := limit / memoryWorth
	for _, s := range shares {
		if s.bytes > most {
			t, most = s.task, s.bytes
		}
	}
	return t, p.req.Background && t.PID != 0 && t.PID != p.entry.PID
}
