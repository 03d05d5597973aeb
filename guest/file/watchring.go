package file

import "sync"

// Bounds of the events that one watch keeps for a reader that is behind.
const (
	ringEventsMax = 4096
	ringBytesMax  = 1 << 20 // of paths
)

// eventRing keeps the newest events and numbers them from 1.
type eventRing struct {
	mu     sync.Mutex
	events []watchEvent // numbers are consecutive
	next   uint64
	bytes  int
	read   uint64        // the highest number that any reader was given
	grown  chan struct{} // closed when an event comes
	closed bool
}

func newEventRing() *eventRing { return &eventRing{next: 1, grown: make(chan struct{})} }

// add numbers an event and keeps it. A WRITE or CHMOD that repeats the newest
// event, which no reader was given yet, adds nothing: programs write in
// many small pieces.
func (r *eventRing) add(e watchEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.repeats(e) {
		return
	}
	e.Seq = r.next
	r.next++
	r.events = append(r.events, e)
	r.bytes += len(e.Path)
	drop := 0
	for len(r.events)-drop > ringEventsMax || r.bytes > ringBytesMax {
		r.bytes -= len(r.events[drop].Path)
		drop++
	}
	if drop > 0 {
		clear(r.events[:drop])
		r.events = r.events[drop:]
	}
	close(r.grown)
	r.grown = make(chan struct{})
}

func (r *eventRing) repeats(e watchEvent) bool {
	if (e.Kind != watchWrite && e.Kind != watchChmod) || len(r.events) == 0 {
		return false
	}
	last := r.events[len(r.events)-1]
	return last.Kind == e.Kind && last.Path == e.Path && r.read < last.Seq
}

// batchMax bounds what one read of the ring returns.
const batchMax = 256

// from returns events with numbers from seq on, oldest first, and a channel
// that closes when there are more. Events that are no longer kept are
// answered by one Overflow in their place. alive is false after the end.
func (r *eventRing) from(seq uint64) (events []watchEvent, grown <-chan struct{}, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.next - uint64(len(r.events))
	if seq < oldest {
		events = append(events, watchEvent{Kind: watchOverflow, Seq: oldest - 1, LostFrom: seq, LostTo: oldest - 1})
		seq = oldest
	}
	for i := seq - oldest; i < uint64(len(r.events)) && len(events) < batchMax; i++ {
		events = append(events, r.events[i])
		r.read = max(r.read, r.events[i].Seq)
	}
	return events, r.grown, !r.closed
}

func (r *eventRing) nextSeq() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

func (r *eventRing) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		close(r.grown)
		r.grown = make(chan struct{})
	}
}
