package store

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// leaseTTLMin is the shortest time to live that the server counts.
const leaseTTLMin = time.Second

// Leases are keys that vanish when their holder does.
type Leases struct{ kv *KV }

// Leases opens the leases of this store.
func (s *Store) Leases(ctx context.Context) (*Leases, error) {
	kv, err := s.KV(ctx, "leases")
	if err != nil {
		return nil, err
	}
	return &Leases{kv: kv}, nil
}

// Lease is a held lease. It renews itself until Release, Lost, or the store's
// Close.
type Lease struct {
	kv     *KV
	key    string
	holder []byte
	ttl    time.Duration

	mu       sync.Mutex // guards revision; held over a renewal
	revision uint64

	lost    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{} // the renewing has ended
}

// holding is a lease's value.
type holding struct {
	Holder string `json:"holder"`
}

// Acquire takes the lease on key and keeps renewing it. Exists: another
// holder has it. The same holder takes its own over: the lease it had is lost.
func (l *Leases) Acquire(ctx context.Context, key, holder string, ttl time.Duration) (*Lease, error) {
	if ttl < leaseTTLMin || holder == "" {
		return nil, errs.New(errs.Invalid, "a lease needs a holder and at least %s", leaseTTLMin)
	}
	value, err := json.Marshal(holding{Holder: holder})
	if err != nil {
		return nil, err
	}
	since := time.Now()
	rev, err := l.kv.create(ctx, key, value, ttl)
	if errs.Is(err, errs.Exists) {
		rev, err = l.takeOver(ctx, key, holder, value, ttl)
	}
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	lease := &Lease{
		kv: l.kv, key: key, holder: value, ttl: ttl, revision: rev,
		lost: make(chan struct{}), stop: stop, stopped: make(chan struct{}),
	}
	l.kv.s.leases.Go(func() { lease.keep(run, since) })
	return lease, nil
}

func (l *Leases) takeOver(ctx context.Context, key, holder string, value []byte, ttl time.Duration) (uint64, error) {
	old, rev, err := l.kv.Get(ctx, key)
	if errs.Is(err, errs.NotFound) {
		return l.kv.create(ctx, key, value, ttl) // it has just expired
	}
	if err != nil {
		return 0, err
	}
	var h holding
	if err := json.Unmarshal(old, &h); err != nil {
		return 0, errs.Wrap(errs.Corrupt, err, "the lease %.64q cannot be read", key)
	}
	if h.Holder != holder {
		return 0, errs.New(errs.Exists, "%.64q is held by %.64q", key, h.Holder)
	}
	rev, err = l.kv.put(ctx, write{key: key, value: value, ttl: ttl, fenced: true, revision: rev})
	if errs.Is(err, errs.Conflict) {
		return 0, errs.New(errs.Exists, "%.64q was taken by another holder", key)
	}
	return rev, err
}

// Hold is Acquire in plain types, as consumers declare it.
func (l *Leases) Hold(ctx context.Context, key, holder string, ttl time.Duration) (lost <-chan struct{}, release func(context.Context) error, err error) {
	lease, err := l.Acquire(ctx, key, holder, ttl)
	if err != nil {
		return nil, nil, err
	}
	return lease.Lost(), lease.Release, nil
}

// Lost is closed when the lease is gone or can no longer be proved: before
// another holder can get it, as far as clocks run at the same pace.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// keep renews until the lease is given back or lost. since is when the last
// write that counts was sent.
func (l *Lease) keep(ctx context.Context, since time.Time) {
	defer close(l.stopped)
	tick := time.NewTicker(l.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kv.s.done:
			return
		case <-tick.C:
		}
		sent := time.Now()
		err := l.Renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			since = sent
		case errs.Is(err, errs.Conflict), time.Since(since) > l.ttl*2/3:
			l.kv.s.c.Log.Warn("lease lost", "key", l.key, "error", err)
			close(l.lost)
			return
		}
	}
}

// Renew extends the lease now. Conflict: it is not ours any more.
func (l *Lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.ttl/4)
	defer cancel()
	// Not an update of the bucket's kind: that would drop the time to live,
	// and the lease would be held for ever.
	rev, err := l.kv.put(ctx, write{key: l.key, value: l.holder, ttl: l.ttl, fenced: true, revision: l.revision})
	if err == nil {
		l.revision = rev
	}
	return err
}

// Release gives the lease back. It may be repeated, and after a loss it does
// nothing.
func (l *Lease) Release(ctx context.Context) error {
	l.stop()
	<-l.stopped
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revision == 0 {
		return nil
	}
	err := l.kv.Delete(ctx, l.key, l.revision)
	if err == nil || errs.Is(err, errs.Conflict) {
		l.revision = 0
		return nil // gone, or another holder's
	}
	return err
}
