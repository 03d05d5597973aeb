package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// What a sandbox has used is in its record before it is used: calls are set aside with all
// that they may cost, and the record says somewhat more than is set aside, so that not
// each call waits for the disk. After kill -9 the sandbox has used what its record says,
// which is too much by what the open calls left over, and by this at most.
const (
	aheadTokens = 200_000
	aheadCost   = 0.25 // US dollars
	aheadPart   = 50   // of a budget, if that is less: one of so many
)

// amount is what is used.
type amount struct {
	calls  int64
	tokens int64
	cost   float64 // US dollars
}

func (a amount) plus(b amount) amount {
	return amount{a.calls + b.calls, a.tokens + b.tokens, a.cost + b.cost}
}

func (a amount) minus(b amount) amount {
	return amount{a.calls - b.calls, max(a.tokens-b.tokens, 0), max(a.cost-b.cost, 0)}
}

func (a amount) spent() Spent { return Spent{a.calls, a.tokens, a.cost} }

// Spent is what a sandbox has used, with what its open calls may use at most.
type Spent struct {
	Calls   int64   `json:"calls"`
	Tokens  int64   `json:"tokens"`
	CostUSD float64 `json:"cost_usd"`
}

// books keeps what sandboxes have used. Safe for concurrent use.
type books struct {
	store kv.Store
	now   func() time.Time

	mu   sync.Mutex
	open map[string]*book // by sandbox
}

// book is that of one sandbox.
type book struct {
	mu       sync.Mutex // is held over the store, too
	read     bool
	revision uint64
	used     amount // with what is set aside
	written  Spent
	open     int64 // calls under way
	gone     bool  // its sandbox is
	minute   time.Time
	calls    int // in the minute
}

// locked returns a sandbox's book, read. The caller unlocks it.
func (b *books) locked(ctx context.Context, key string) (*book, error) {
	b.mu.Lock()
	k := b.open[key]
	if k == nil {
		k = &book{}
		b.open[key] = k
	}
	b.mu.Unlock()
	k.mu.Lock()
	if k.read {
		return k, nil
	}
	data, revision, err := b.store.Get(ctx, key)
	if err == nil {
		err = json.Unmarshal(data, &k.written)
	}
	if err != nil && !errs.Is(err, errs.NotFound) {
		k.mu.Unlock()
		return nil, errs.Wrap(errs.Unavailable, err, "what this sandbox has used cannot be read now")
	}
	k.read, k.revision, k.used = true, revision, amount{k.written.Calls, k.written.Tokens, k.written.CostUSD}
	return k, nil
}

// hold sets aside what a call may cost. Limit: the budget does not have it. Conflict: not
// now; Unavailable: it could not be written down.
func (b *books) hold(ctx context.Context, c Client, most amount) (*book, error) {
	k, err := b.locked(ctx, c.Sandbox)
	if err != nil {
		return nil, err
	}
	defer k.mu.Unlock()
	if err := b.holdLocked(ctx, c, k, most); err != nil {
		return nil, err
	}
	return k, nil
}

func (b *books) holdLocked(ctx context.Context, c Client, k *book, most amount) error {
	next, budget := k.used.plus(most), c.Grant.Budget
	switch now := b.now(); {
	case k.open >= callsMax:
		return errs.New(errs.Conflict, "%d calls of this sandbox are under way, which is the most at once", callsMax)
	case budget.Tokens > 0 && next.tokens > budget.Tokens:
		return errs.New(errs.Limit, "the sandbox's budget has %d of %d tokens left, and this call may use %d: ask for fewer max_tokens, or for a larger budget", max(budget.Tokens-k.used.tokens, 0), budget.Tokens, most.tokens)
	case budget.CostUSD > 0 && next.cost > budget.CostUSD:
		return errs.New(errs.Limit, "the sandbox's budget has $%.4f of $%.2f left, and this call may cost $%.4f: ask for fewer max_tokens, or for a larger budget", max(budget.CostUSD-k.used.cost, 0), budget.CostUSD, most.cost)
	case budget.PerMinute > 0 && now.Sub(k.minute) < time.Minute && k.calls >= budget.PerMinute:
		return errs.New(errs.Conflict, "the sandbox has made its %d calls of this minute", budget.PerMinute)
	case now.Sub(k.minute) >= time.Minute:
		k.minute, k.calls = now, 0
	}
	if next.tokens > k.written.Tokens || next.cost > k.written.CostUSD {
		if err := b.write(ctx, c.Sandbox, k, next.plus(ahead(budget))); err != nil {
			return err
		}
	}
	k.used = next
	k.open++
	k.calls++
	return nil
}

// ahead is how much more a record says than is used.
func ahead(budget Budget) amount {
	a := amount{tokens: aheadTokens, cost: aheadCost}
	if budget.Tokens > 0 {
		a.tokens = min(a.tokens, budget.Tokens/aheadPart)
	}
	if budget.CostUSD > 0 {
		a.cost = min(a.cost, budget.CostUSD/aheadPart)
	}
	return a
}

// write puts a record. Precondition: k.mu is held.
func (b *books) write(ctx context.Context, key string, k *book, as amount) error {
	next := as.spent()
	data, err := json.Marshal(next)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "what this sandbox has used cannot be written down")
	}
	var revision uint64
	if k.revision == 0 {
		revision, err = b.store.Create(ctx, key, data)
	} else {
		revision, err = b.store.Update(ctx, key, data, k.revision)
	}
	if err != nil {
		k.read = k.read && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Exists) // another server wrote it
		return errs.Wrap(errs.Unavailable, err, "what this sandbox has used cannot be written down now")
	}
	k.revision, k.written = revision, next
	return nil
}

// settle puts what a call cost in the place of what was set aside for it, and returns what
// is used now.
func (b *books) settle(ctx context.Context, c Client, k *book, held, real amount) (Spent, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = k.used.minus(held).plus(real)
	k.open--
	if !k.gone && (k.used.tokens > k.written.Tokens || k.used.cost > k.written.CostUSD) { // a vendor told more than there can be
		return k.used.spent(), b.write(ctx, c.Sandbox, k, k.used)
	}
	return k.used.spent(), nil
}

func (b *books) spent(ctx context.Context, sandbox string) (Spent, error) {
	k, err := b.locked(ctx, sandbox)
	if err != nil {
		return Spent{}, err
	}
	defer k.mu.Unlock()
	return k.used.spent(), nil
}

// forget drops a sandbox's book.
func (b *books) forget(ctx context.Context, key string) error {
	b.mu.Lock()
	k := b.open[key]
	delete(b.open, key)
	b.mu.Unlock()
	if k != nil {
		k.mu.Lock()
		k.gone = true
		k.mu.Unlock()
	}
	_, revision, err := b.store.Get(ctx, key)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err == nil {
		err = b.store.Delete(ctx, key, revision)
	}
	return err
}

// sweep drops the books of sandboxes that are gone.
func (b *books) sweep(ctx context.Context, exists func(sandbox string) bool) error {
	var gone []string
	err := b.store.List(ctx, "", func(key string, _ []byte, _ uint64) error {
		if !exists(key) {
			gone = append(gone, key)
		}
		return nil
	})
	for _, key := range gone {
		err = errors.Join(err, b.forget(ctx, key))
	}
	return err
}

// flush writes down exactly what has been used.
func (b *books) flush(ctx context.Context) error {
	b.mu.Lock()
	all := maps.Clone(b.open)
	b.mu.Unlock()
	var failed error
	for key, k := range all {
		k.mu.Lock()
		if k.read && k.written != k.used.spent() {
			failed = errors.Join(failed, b.write(ctx, key, k, k.used))
		}
		k.mu.Unlock()
	}
	return failed
}
