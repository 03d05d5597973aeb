package store

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/thread/threadtest"
)

// FreeBytes is the free space of the disk that dir is on.
func FreeBytes(dir string) (int64, error) {
	_, free, err := diskSpace(dir)
	return free, err
}

// FailNext cuts the next append of a tenant off for as long as it tries.
func (t *Threads) FailNext(tb testing.TB, tenant string, f threadtest.Fault) {
	tb.Helper()
	l, err := t.log(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	var (
		late    sync.WaitGroup
		once    sync.Once
		until   time.Time // the append gives up
		publish = t.s.js.PublishMsg
	)
	tb.Cleanup(late.Wait)
	l.patience = 30 * time.Millisecond
	l.publish = func(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
		first := false
		once.Do(func() {
			until, _ = ctx.Deadline()
			until, first = until.Add(5*time.Millisecond), true
		})
		if time.Now().After(until) {
			return publish(ctx, m, opts...)
		}
		m = &nats.Msg{Subject: m.Subject, Header: maps.Clone(m.Header), Data: m.Data}
		switch {
		case f == threadtest.Mute:
			_, _ = publish(ctx, m, opts...)
		case f == threadtest.Later && first:
			late.Go(func() {
				<-time.After(time.Until(until) + time.Millisecond)
				_, _ = publish(context.WithoutCancel(ctx), m, opts...)
			})
		}
		return nil, nats.ErrTimeout
	}
	l.request = func(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
		if time.Now().Before(until) {
			return nil, nats.ErrTimeout
		}
		return t.s.nc.RequestWithContext(ctx, subject, data)
	}
}

// Hurry makes appends of a tenant wait for each acknowledgement only so long.
func (t *Threads) Hurry(tb testing.TB, tenant string, wait time.Duration) {
	tb.Helper()
	l, err := t.log(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	l.wait = wait
}

// Inject stores a record as it is, past all checks.
func (t *Threads) Inject(tb testing.TB, tenant string, id thread.ID, events string, data []byte) uint64 {
	tb.Helper()
	l, err := t.log(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	subject, err := l.subject(id)
	if err != nil {
		tb.Fatal(err)
	}
	m := nats.NewMsg(subject)
	if events != "" {
		m.Header.Set(eventsHeader, events)
	}
	m.Data = data
	ack, err := t.s.js.PublishMsg(tb.Context(), m)
	if err != nil {
		tb.Fatal(err)
	}
	return ack.Sequence
}

// Hole removes one record from the stream.
func (t *Threads) Hole(tb testing.TB, tenant string, at uint64) {
	tb.Helper()
	l, err := t.log(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.stream.DeleteMsg(tb.Context(), at); err != nil {
		tb.Fatal(err)
	}
}

// Remembered is how many threads' ends and unsure appends a tenant's log keeps.
func (t *Threads) Remembered(tb testing.TB, tenant string) (ends, unsure, topics int) {
	tb.Helper()
	l, err := t.log(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return len(l.ends), len(l.unsure), len(l.hub.topics)
}
