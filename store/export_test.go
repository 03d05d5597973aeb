package store

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
