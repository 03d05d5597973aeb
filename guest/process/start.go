package process

import (
	"context"
	"fmt"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/wire"
)

// start starts a process, or returns the one that has the key.
func (c *Core) start(ctx context.Context, req *wire.StartRequest) (p *proc, existed bool, err error) {
	s, err := c.plan(req)
	if err != nil {
		return nil, false, err
	}
	if !s.Auto {
		p, unlock, err := c.lockKey(ctx, s.Key)
		if err != nil {
			return nil, false, err
		}
		if p != nil {
			return p, true, p.sameAs(req)
		}
		defer unlock()
	}
	if p, existed, err = c.spawn(s); existed && err == nil {
		err = p.sameAs(req)
	}
	return p, existed, err
}

// sameAs refuses a request that has the process's key and asks for something
// else: an answer with the one for the other would be a lie.
func (p *proc) sameAs(req *wire.StartRequest) error {
	if mine := p.entry.Fingerprint; mine == "" || len(req.Fingerprint) == 0 || mine == string(req.Fingerprint) {
		return nil
	}
	return errs.New(errs.Conflict, "the key %q was used for another command", p.key).
		WithHint("the same key never runs twice; take a new one for a new command")
}

// lockKey lets one caller at a time start a key; who comes later gets the process.
func (c *Core) lockKey(ctx context.Context, key string) (*proc, func(), error) {
	for {
		c.mu.Lock()
		if p := c.byKey[key]; p != nil {
			c.mu.Unlock()
			return p, nil, nil
		}
		other := c.starting[key]
		if other == nil {
			mine := make(chan struct{})
			c.starting[key] = mine
			c.mu.Unlock()
			return nil, func() {
				c.mu.Lock()
				delete(c.starting, key)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (c *Core) spawn(s *pair.Spawn) (*proc, bool, error) {
	e, existed, err := c.init.Spawn(*s)
	if err != nil {
		return nil, false, spawnError(err, s)
	}
	if existed { // an evicted key, or one of an earlier boot
		return c.bare(e), true, nil
	}
	p, err := newProc(c, e, nil)
	if err != nil {
		e.CloseFiles()
		return nil, false, err
	}
	c.register(p)
	return p, false, nil
}

func (c *Core) autoKey() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.autoKeys++
	return fmt.Sprintf("auto-%.8s-%d-%d", c.boot.ID, c.boot.Starts, c.autoKeys)
}
