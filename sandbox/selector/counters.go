package selector

import (
	"context"
	"errors"
	"sync"

	"github.com/skete-dev/skete/sandbox"
)

// This file sums what the monitors of one provider's machines count.
//
// A machine counts from zero when another server follows it, and what it did
// after it was asked last is not known when it ends. So sums only grow, from
// zero when the server starts, and are a little too low.
//
// A counters is safe for concurrent use.

// askedAtOnce bounds the machines that are asked at the same time: each costs
// a question to its monitor.
const askedAtOnce = 16

// counters is of one provider. The zero value is ready.
type counters struct {
	mu    sync.Mutex
	last  map[sandbox.Machine]sandbox.Counts // as they were told; of those that count
	swept int                                // how many were left when the ended were forgotten
	sum   sandbox.Counts
	used  bool // some machine counts
}

// Note remembers a machine until it ends, if it counts. It may be repeated.
func (t *counters) Note(m sandbox.Machine) {
	if _, counts := m.(sandbox.Counter); !counts {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[sandbox.Machine]sandbox.Counts{}
	}
	t.used = true
	if _, known := t.last[m]; known {
		return
	}
	if len(t.last) >= 2*t.swept+askedAtOnce { // seldom enough to cost nothing
		t.sweep()
	}
	t.last[m] = sandbox.Counts{}
}

// sweep forgets machines that have ended or that the server has let go of.
//
// Preconditions: t.mu is held.
func (t *counters) sweep() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for m := range t.last {
		if _, err := m.Wait(over); !errors.Is(err, context.Canceled) {
			delete(t.last, m)
		}
	}
	t.swept = len(t.last)
}

// Counts asks all machines and returns the sums; counted is false where no machine
// of the provider ever counted. One that does not answer before ctx ends is as
// it was told last.
func (t *counters) Counts(ctx context.Context) (sum sandbox.Counts, counted bool) {
	room := make(chan struct{}, askedAtOnce)
	var wg sync.WaitGroup
	for _, m := range t.running() {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			if now, err := m.(sandbox.Counter).Counts(ctx); err == nil {
				t.add(m, now)
			}
		})
	}
	wg.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum, t.used
}

func (t *counters) running() []sandbox.Machine {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	ms := make([]sandbox.Machine, 0, len(t.last))
	for m := range t.last {
		ms = append(ms, m)
	}
	return ms
}

// add takes what a machine says now. Another who asked at the same time may
// have been told more already.
func (t *counters) add(m sandbox.Machine, now sandbox.Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[m]
	if !known { // it ended, and was swept
		return
	}
	for _, c := range []struct{ sum, last, now *int64 }{
		{&t.sum.DiskReadBytes, &last.DiskReadBytes, &now.DiskReadBytes},
		{&t.sum.DiskWrittenBytes, &last.DiskWrittenBytes, &now.DiskWrittenBytes},
		{&t.sum.DiskReads, &last.DiskReads, &now.DiskReads},
		{&t.sum.DiskWrites, &last.DiskWrites, &now.DiskWrites},
		{&t.sum.DiskThrottled, &last.DiskThrottled, &now.DiskThrottled},
		{&t.sum.ChannelInBytes, &last.ChannelInBytes, &now.ChannelInBytes},
		{&t.sum.ChannelOutBytes, &last.ChannelOutBytes, &now.ChannelOutBytes},
		{&t.sum.Denied, &last.Denied, &now.Denied},
	} {
		if more := *c.now - *c.last; more > 0 {
			*c.sum += more
			*c.last = *c.now
		}
	}
	t.last[m] = last
}
