package process

import (
	"sort"
	"strconv"

	"github.com/skete-dev/skete/errs"
)

// spoolsOver reports whether all spools together are larger than allowed.
func (c *Core) spoolsOver() bool { return c.used.Load() > c.usedMax }

// dropOldOutput removes the output of ended processes, oldest first, until
// the bound holds. Status and sizes stay.
func (c *Core) dropOldOutput() {
	c.mu.Lock()
	ended := append([]*proc(nil), c.ended...)
	c.mu.Unlock()
	for _, p := range ended {
		if !c.spoolsOver() {
			return
		}
		if p.over() {
			for _, s := range p.spools() {
				s.Drop(true)
			}
		}
	}
}

// evictOldest forgets the details of the oldest ended processes beyond
// exitedMax; their keys stay known to init.
func (c *Core) evictOldest() {
	for {
		p := c.takeOldest()
		if p == nil {
			return
		}
		p.halt()
		_, _, out, _ := p.out.Extent()
		var errSize int64
		if p.err != nil {
			_, _, errSize, _ = p.err.Extent()
		}
		if err := c.init.Evict(p.id, out, errSize); err != nil {
			return
		}
		c.remove(p)
		for _, s := range p.spools() {
			s.Forget()
		}
	}
}

// takeOldest takes the oldest ended process off the list if that is too long.
// Those whose descendants still write stay for another round.
func (c *Core) takeOldest() *proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; len(c.ended) > exitedMax && i < len(c.ended); i++ {
		if p := c.ended[i]; p.over() || len(c.ended) > 2*exitedMax {
			c.ended = append(c.ended[:i:i], c.ended[i+1:]...)
			return p
		}
	}
	return nil
}

func (c *Core) remove(p *proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[p.key] == p {
		delete(c.byKey, p.key)
	}
	delete(c.byID, p.id)
	for i, e := range c.ended {
		if e == p {
			c.ended = append(c.ended[:i:i], c.ended[i+1:]...)
			break
		}
	}
}

// forget drops an ended process, its output and its key.
func (c *Core) forget(p *proc) error {
	if !isClosed(p.exited) {
		return errs.New(errs.Conflict, "process %q is running", p.key)
	}
	if p.stop != nil {
		p.halt()
	}
	if err := c.init.Forget(p.id); err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	c.remove(p)
	for _, s := range p.spools() {
		s.Forget()
	}
	return nil
}

// sortEnded puts adopted processes in the order of their ends.
func (c *Core) sortEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	sort.Slice(c.ended, func(i, j int) bool { return c.ended[i].exit.EndedUnixNs < c.ended[j].exit.EndedUnixNs })
}

func parseToken(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errs.New(errs.Invalid, "page_token is not one of ours")
	}
	return n, nil
}

func formatToken(id uint64) string { return strconv.FormatUint(id, 10) }
