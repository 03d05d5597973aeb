package stream

import (
	"context"
	"sync"
)

// credit bounds the output that is on its way to a client, or waits there: it is
// sent as far as the client has allowed. A client that never says how far gets all.
type credit struct {
	more chan struct{} // one token: the limit was raised

	mu    sync.Mutex
	sent  int64 // bytes
	limit int64 // -1 = there is none
}

func newCredit() *credit { return &credit{more: make(chan struct{}, 1), limit: -1} }

// raise sets the limit, or moves it up.
func (c *credit) raise(limit int64) {
	c.mu.Lock()
	c.limit = max(c.limit, limit)
	c.mu.Unlock()
	signal(c.more)
}

// spend waits until something may be sent, and counts n bytes as sent.
func (c *credit) spend(ctx context.Context, n int) error {
	for !c.trySpend(n) {
		select {
		case <-c.more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *credit) trySpend(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit >= 0 && c.sent >= c.limit {
		return false
	}
	c.sent += int64(n)
	return true
}
