package process

import (
	"os"
	"strings"
	"time"

	"github.com/skete-dev/skete/guest/process/task"
)

const (
	sweepRounds = 200
	sweepWait   = 10 * time.Millisecond
)

// sweep kills what a command left behind: its group, its session, its
// descendants, and those that have gone elsewhere but still carry its key in
// their environment. It looks again until no process is found, because a
// fork bomb makes new ones meanwhile. What drops its parents, its session and its
// environment too is out of reach here and ends with the machine.
func (c *Core) sweep(p *proc) {
	for range sweepRounds {
		if isClosed(c.quit) {
			return
		}
		victims := c.descendants(p)
		for _, t := range victims {
			task.Kill(t)
		}
		if len(victims) == 0 {
			return
		}
		<-time.After(sweepWait)
	}
	c.logf("processes of %q are still there after %d rounds of KILL", p.key, sweepRounds)
}

// descendants finds the living processes that belong to a command.
func (c *Core) descendants(p *proc) []task.Task {
	leader := p.entry.PID
	if leader <= 1 {
		return nil
	}
	tasks := task.Now()
	mine := map[int]bool{}
	if !isClosed(p.exited) {
		mine[leader] = true
	}
	mark := "\x00" + keyName + "=" + p.key + "\x00"
	for _, t := range tasks {
		if t.Session == leader || t.Group == leader || strings.Contains("\x00"+task.Read(task.Path(t.PID, "environ")), mark) {
			mine[t.PID] = true
		}
	}
	task.Descend(tasks, mine)
	var list []task.Task
	for _, t := range tasks {
		if mine[t.PID] && t.State != 'Z' && t.State != 'X' && t.PID != os.Getpid() && t.PID > 1 {
			list = append(list, t)
		}
	}
	return list
}
