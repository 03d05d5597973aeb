package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd"
)

// expire ends a process whose time is over: TERM, then KILL.
func (p *proc) expire() {
	c := p.core
	if c.signal(p, unix.SIGTERM, initd.ScopeGroup, initd.CauseTimeout) != nil {
		return
	}
	select {
	case <-p.exited:
	case <-c.quit:
		return
	case <-time.After(stopWait):
	}
	c.finish(p, initd.CauseTimeout)
}

// finish kills a process and all that it left behind.
func (c *Core) finish(p *proc, cause initd.Cause) {
	_ = c.signal(p, unix.SIGKILL, initd.ScopeGroup, cause)
	c.sweep(p)
}
