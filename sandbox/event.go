package sandbox

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
)

// ErrClosing is what calls return while the server stops.
var ErrClosing error = errs.New(errs.Unavailable, "the server is stopping").WithHint("try again in a moment")

// NewEvent tells how a sandbox is. Its environment stays out: an event outlives
// what its owner wants gone.
func NewEvent(now time.Time, node string, revision uint64, i Info) event.Event {
	i.Spec.Env = nil
	data, _ := json.Marshal(i) // plain data
	return event.Event{
		Time: now, Tenant: i.Tenant, Node: node, Kind: event.Sandbox, ID: string(i.ID), State: string(i.State), Revision: revision, Data: data,
	}
}

// waitsMax is how many waits a reader may be behind; it misses what is more.
const waitsMax = 256

// Events are what a server tells of its sandboxes: changes of state, which are
// kept, and at once what a sandbox waits for, which is not.
//
// It is safe for concurrent use.
type Events struct {
	log  event.Log
	done <-chan struct{}

	mu      sync.Mutex
	readers map[*Subscription]bool
}

// NewEvents tells by a log. Readers end when done is closed.
func NewEvents(log event.Log, done <-chan struct{}) *Events {
	return &Events{log: log, done: done, readers: map[*Subscription]bool{}}
}

// Publish tells how a sandbox of a node is, by its record's revision.
func (e *Events) Publish(now time.Time, node string, revision uint64, i Info) {
	e.log.Append(NewEvent(now, node, revision, i))
}

// Waits tells what a sandbox waits for.
func (e *Events) Waits(now time.Time, i Info) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.readers {
		if s.tenant != i.Tenant {
			continue
		}
		select {
		case s.waits <- Event{Time: now, Info: i.Clone()}:
		default:
		}
	}
}

// Subscription reads a tenant's events. It is for one goroutine at a time.
type Subscription struct {
	tenant string
	stored chan Event
	waits  chan Event
	ended  chan error // why no more are read
	done   <-chan struct{}
}

// Subscribe reads the tenant's events until ctx ends, from sequence number from
// on; 0 = from now. Numbers grow over restarts too; a number that is not known
// (any more) gives an Event with Resync first.
func (e *Events) Subscribe(ctx context.Context, tenant string, from uint64) (*Subscription, error) {
	if from == 0 {
		var err error
		if from, err = e.log.Next(ctx); err != nil {
			return nil, err
		}
	}
	s := &Subscription{
		tenant: tenant, stored: make(chan Event), waits: make(chan Event, waitsMax), ended: make(chan error, 1), done: e.done,
	}
	e.mu.Lock()
	e.readers[s] = true
	e.mu.Unlock()
	go func() {
		s.ended <- e.log.Follow(ctx, tenant, event.Query{From: from, Kind: event.Sandbox}, func(ev event.Event) error {
			return s.send(ctx, ev)
		})
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.readers, s)
	}()
	return s, nil
}

func (s *Subscription) send(ctx context.Context, ev event.Event) error {
	out := Event{Seq: ev.Seq, Time: ev.Time, Resync: ev.Resync}
	if !ev.Resync && json.Unmarshal(ev.Data, &out.Info) != nil {
		return nil // of a later version: the next event of it, or a list, says more
	}
	select {
	case s.stored <- out:
		return nil
	case <-s.done:
		return ErrClosing
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next waits for the next event. Unavailable: the server stops.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	select {
	case ev := <-s.stored:
		return ev, nil
	default:
	}
	select {
	case ev := <-s.stored:
		return ev, nil
	case ev := <-s.waits:
		return ev, nil
	case err := <-s.ended:
		s.ended <- err // for the next call
		return Event{}, err
	case <-ctx.Done():
		return Event{}, ctx.Err()
	case <-s.done:
		return Event{}, ErrClosing
	}
}
