package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// ErrClosing is what calls return while the server stops.
var ErrClosing error = errs.New(errs.Unavailable, "the server is stopping").WithHint("try again in a moment")

// eventsMax is how many events are kept for readers that fall behind.
const eventsMax = 4096

// Events is a ring of the newest events of all tenants. Readers that fall
// behind its length are told to list again.
//
// It is safe for concurrent use.
type Events struct {
	mu   sync.Mutex // guards all below
	ring []Event    // by Seq modulo its length
	next uint64     // Seq of the next event
	kept uint64     // how many the ring holds
	more chan struct{}
	done <-chan struct{} // never changes
}

// NewEvents starts numbering at the time in microseconds, so that numbers grow
// over restarts without being stored. Readers end when done is closed.
func NewEvents(now time.Time, done <-chan struct{}) *Events {
	return &Events{
		ring: make([]Event, eventsMax), next: uint64(max(now.UnixMicro(), 1)),
		more: make(chan struct{}), done: done,
	}
}

// Publish appends an event. The info must not be changed afterwards.
func (e *Events) Publish(now time.Time, info Info) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring[e.next%eventsMax] = Event{Seq: e.next, Time: now, Info: info}
	e.next++
	e.kept = min(e.kept+1, eventsMax)
	close(e.more)
	e.more = make(chan struct{})
}

// read returns the first event of the tenant at or behind seq, and where to go
// on; ok is false when there is none yet, and more is closed when there may be.
func (e *Events) read(tenant string, seq uint64) (ev Event, next uint64, ok bool, more chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if oldest := e.next - e.kept; seq < oldest || seq > e.next {
		// Its number is that of the last event that is not coming.
		return Event{Seq: oldest - 1, Time: time.Now(), Resync: true}, oldest, true, nil
	}
	for ; seq < e.next; seq++ {
		if ev := e.ring[seq%eventsMax]; ev.Info.Tenant == tenant {
			ev.Info = ev.Info.Clone()
			return ev, seq + 1, true, nil
		}
	}
	return Event{}, seq, false, e.more
}

// Subscription reads a tenant's events. It needs no closing. It is for one
// goroutine at a time.
type Subscription struct {
	events *Events
	tenant string
	seq    uint64 // of the next event to read
}

// Subscribe reads the tenant's events from sequence number from on; 0 = from
// now. Numbers grow over restarts too; a number that is not known (any more)
// gives an Event with Resync first.
func (e *Events) Subscribe(tenant string, from uint64) *Subscription {
	if from == 0 {
		e.mu.Lock()
		from = e.next
		e.mu.Unlock()
	}
	return &Subscription{events: e, tenant: tenant, seq: from}
}

// Next waits for the next event. Unavailable: the server stops.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		ev, next, ok, more := s.events.read(s.tenant, s.seq)
		s.seq = next
		if ok {
			return ev, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		case <-s.events.done:
			return Event{}, ErrClosing
		}
	}
}
