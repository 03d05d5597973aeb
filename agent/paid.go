package agent

import (
	"sync"

	"github.com/skete-dev/skete/thread"
)

// Paid is what the model calls of a run cost that are not in its log: an agent that does
// not tell of them has them counted all the same. The zero value is ready. Safe for
// concurrent use.
type Paid struct {
	mu    sync.Mutex
	spent thread.Spent
}

// Add counts a call.
func (p *Paid) Add(s thread.Spent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = p.spent.Add(s)
}

// Told says that the log tells of a call that was added.
func (p *Paid) Told(s thread.Spent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := &p.spent.Usage
	u.Input, u.Output, u.Reasoning = u.Input-s.Usage.Input, u.Output-s.Usage.Output, u.Reasoning-s.Usage.Reasoning
	u.CacheRead, u.CacheWrite = u.CacheRead-s.Usage.CacheRead, u.CacheWrite-s.Usage.CacheWrite
	p.spent.Steps, p.spent.CostUSD = p.spent.Steps-s.Steps, p.spent.CostUSD-s.CostUSD
}

// Spent returns what is not told.
func (p *Paid) Spent() thread.Spent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent
}
