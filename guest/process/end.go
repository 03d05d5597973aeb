package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
)

// expire ends a process whose time is over: TERM, then KILL.
func (p *proc) expire() {
	c := p.core
	if c.signal(p, unix.SIGTERM, pair.ScopeGroup, pair.CauseTimeout) != nil {
		return
	}
	select {
	case <-p.exited:
	case <-c.quit:
		return
	case <-time.After(stopWait):
	}
	c.finish(p, pair.CauseTimeout)
}

// finish kills a process and all that it left behind.
func (c *Core) finish(p *proc, cause pair.Cause) {
	_ = c.signal(p, unix.SIGKILL, pair.ScopeGroup, cause)
	c.sweep(p)
}
