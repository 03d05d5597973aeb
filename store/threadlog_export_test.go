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

// FailNext cuts the next append off for as long as it tries.
func (l *ThreadLog) FailNext(tb testing.TB, f threadtest.Fault) {
	tb.Helper()
	var (
		late    sync.WaitGroup
		once    sync.Once
		until   time.Time // the append gives up
		publish = l.s.JS.PublishMsg
	)
	tb.Cleanup(func() {
		late.Wait()
		l.publish, l.request, l.patience = publish, l.s.NC.RequestWithContext, appendTimeout
	})
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
		return l.s.NC.RequestWithContext(ctx, subject, data)
	}
}

// Hurry makes appends wait for each acknowledgement only so long.
func (l *ThreadLog) Hurry(wait time.Duration) {
	l.wait = wait
}

// Inject stores a record as it is, past all checks.
func (l *ThreadLog) Inject(tb testing.TB, id thread.ID, events string, data []byte) uint64 {
	tb.Helper()
	subject, err := l.subject(id)
	if err != nil {
		tb.Fatal(err)
	}
	m := nats.NewMsg(subject)
	if events != "" {
		m.Header.Set(eventsHeader, events)
	}
	m.Data = data
	ack, err := l.s.JS.PublishMsg(tb.Context(), m)
	if err != nil {
		tb.Fatal(err)
	}
	return ack.Sequence
}

// Hole removes one record from the stream.
func (l *ThreadLog) Hole(tb testing.TB, at uint64) {
	tb.Helper()
	if err := l.stream.DeleteMsg(tb.Context(), at); err != nil {
		tb.Fatal(err)
	}
}

// Remembered is how many threads' ends, unsure appends and watched threads the
// log keeps.
func (l *ThreadLog) Remembered() (ends, unsure, topics int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return len(l.ends), len(l.unsure), len(l.hub.topics)
}
