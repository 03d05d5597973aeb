package eventtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/event"
)

// Memory is an event.Log for tests. It outlives what is opened on it, as a disk
// would.
type Memory struct {
	mu     sync.Mutex
	events []event.Event
	last   uint64
	more   chan struct{} // closed with the next event
}

// NewMemory returns an empty one.
func NewMemory() *Memory { return &Memory{more: make(chan struct{})} }

// Append implements event.Log.
func (m *Memory) Append(e event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	e.Seq = m.last
	m.events = append(m.events, e)
	close(m.more)
	m.more = make(chan struct{})
}

// Newest implements event.Log.
func (m *Memory) Newest(_ context.Context, kind string, visit func(event.Event) error) error {
	m.mu.Lock()
	type thing struct{ tenant, id string }
	seen := map[thing]bool{}
	var list []event.Event
	for _, e := range slices.Backward(m.events) {
		if t := (thing{e.Tenant, e.ID}); e.Kind == kind && !seen[t] {
			seen[t] = true
			list = append(list, e)
		}
	}
	m.mu.Unlock()
	for _, e := range slices.Backward(list) {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// Next implements event.Log.
func (m *Memory) Next(ctx context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last + 1, ctx.Err()
}

// Follow implements event.Log.
func (m *Memory) Follow(ctx context.Context, tenant string, q event.Query, visit func(event.Event) error) error {
	m.mu.Lock()
	next, lost := q.From, q.From > m.last+1
	if next == 0 || lost {
		next = m.last + 1
	}
	m.mu.Unlock()
	if lost {
		if err := visit(event.Event{Seq: next - 1, Time: time.Now().UTC(), Resync: true}); err != nil {
			return err
		}
	}
	for {
		m.mu.Lock()
		at, _ := slices.BinarySearchFunc(m.events, next, func(e event.Event, seq uint64) int { return int(e.Seq) - int(seq) })
		news, more := slices.Clone(m.events[at:]), m.more
		m.mu.Unlock()
		for _, e := range news {
			next = e.Seq + 1
			if e.Tenant != tenant || q.Kind != "" && e.Kind != q.Kind {
				continue
			}
			if err := visit(e); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Forget implements event.Log.
func (m *Memory) Forget(_ context.Context, tenant, kind, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = slices.DeleteFunc(m.events, func(e event.Event) bool {
		return e.Tenant == tenant && (kind == "" || e.Kind == kind) && (id == "" || e.ID == id)
	})
	return nil
}
