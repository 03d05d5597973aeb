package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
)

func openLeases(t *testing.T, s *store.Store) *store.Leases {
	t.Helper()
	l, err := s.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, l *store.Leases, key, holder string, ttl time.Duration) *store.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, holder, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lease.Release(ctx)
	})
	return lease
}

func TestLease_oneHolder(t *testing.T) {
	l := openLeases(t, open(t, store.Config{}))
	a := acquire(t, l, "node/one", "a", 2*time.Second)
	_, err := l.Acquire(t.Context(), "node/one", "b", 2*time.Second)
	wantClass(t, "second holder", err, errs.Exists)
	acquire(t, l, "node/two", "b", 2*time.Second)
	for range 2 {
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, l, "node/one", "b", 2*time.Second)
	for _, bad := range []time.Duration{0, -1, time.Millisecond} {
		_, err := l.Acquire(t.Context(), "bad", "a", bad)
		wantClass(t, "ttl "+bad.String(), err, errs.Invalid)
	}
}

func TestLease_outlivesItsTTLByRenewal(t *testing.T) {
	l := openLeases(t, open(t, store.Config{}))
	a := acquire(t, l, "k", "a", time.Second)
	for range 3 { // each renewal would let it live for ever, were the TTL dropped: see the next test
		select {
		case <-a.Lost():
			t.Fatal("lost while renewing")
		case <-time.After(700 * time.Millisecond):
		}
	}
	_, err := l.Acquire(t.Context(), "k", "b", time.Second)
	wantClass(t, "another holder after 2 TTLs", err, errs.Exists)
}

func TestLease_expiresWithItsHolder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	a := acquire(t, openLeases(t, s), "k", "a", time.Second)
	if err := a.Renew(t.Context()); err != nil { // a renewed lease must expire too
		t.Fatal(err)
	}
	_ = s.Close() // the renewing ends, nothing is given back
	l := openLeases(t, open(t, store.Config{Dir: dir}))
	storetest.Eventually(t, "take over", func() error {
		lease, err := l.Acquire(t.Context(), "k", "b", time.Second)
		if err == nil {
			defer lease.Release(t.Context())
		}
		return err
	})
}

func TestLease_zombieLearnsOfItsLoss(t *testing.T) {
	s := open(t, store.Config{})
	l := openLeases(t, s)
	zombie := acquire(t, l, "k", "a", time.Second)
	// The same holder again: a restarted server does not wait for its own past.
	heir := acquire(t, l, "k", "a", time.Second)
	wantClass(t, "the zombie renews", zombie.Renew(t.Context()), errs.Conflict)
	select {
	case <-zombie.Lost():
	case <-time.After(patience.Of(10 * time.Second)):
		t.Fatal("the zombie never learned of its loss")
	}
	if err := zombie.Release(t.Context()); err != nil {
		t.Errorf("the zombie gives back: %v", err)
	}
	if err := heir.Renew(t.Context()); err != nil {
		t.Errorf("the heir renews after the zombie gave back: %v", err)
	}
}
