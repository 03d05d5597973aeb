package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/sleep"
)

// Bounds of the events.
const (
	eventStream    = "EVENTS"
	eventPrefix    = "event." // event.<kind>.<tenant>.<id>
	eventVersion   = 1
	eventsMax      = 50_000
	eventsOfOneMax = 64 // of one thing
	eventBytesMax  = 128 << 10
	// eventQueueMax is from where on only the newest event of each thing waits to
	// be stored.
	eventQueueMax   = 1024
	eventRetryFirst = 50 * time.Millisecond
	eventRetryMax   = 5 * time.Second
	eventFlush      = 2 * time.Second // for what waits when the store closes
	eventScan       = time.Minute     // for the newest of all
	// eventIdle is how long the server keeps the place of a reader that is gone.
	eventIdle = time.Minute
)

// Events is an event.Log. One goroutine stores what is appended, in the order of
// the calls: a change of state does not wait for the disk twice.
type Events struct {
	js       jetstream.JetStream
	replicas int
	done     <-chan struct{} // ends everything that waits
	spawn    func(func())
	log      *slog.Logger

	mu      sync.Mutex
	stream  jetstream.Stream // nil = not opened yet
	running bool
	queue   []queuedEvent // the first is being stored
	more    chan struct{} // closed when the queue changes
}

// queuedEvent is an event that is to be stored.
type queuedEvent struct {
	subject string
	id      string // that tells a repeated write
	body    []byte
}

// storedEvent is how an event is written.
type storedEvent struct {
	V        int             `json:"v"`
	Time     time.Time       `json:"time"`
	Tenant   string          `json:"tenant"`
	Node     string          `json:"node"`
	Kind     string          `json:"kind"`
	ID       string          `json:"id"`
	State    string          `json:"state"`
	Revision uint64          `json:"revision"`
	Data     json.RawMessage `json:"data,omitempty"`
}

func newEvents(s *Store) *Events {
	return &Events{
		js: s.js, replicas: max(s.c.Replicas, 1), done: s.done, spawn: s.leases.Go, log: s.c.Log, more: make(chan struct{}),
	}
}

// open opens the stream, making it if need be.
func (l *Events) open(ctx context.Context) (jetstream.Stream, error) {
	l.mu.Lock()
	stream := l.stream
	l.mu.Unlock()
	if stream != nil {
		return stream, nil
	}
	stream, err := l.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:              eventStream,
		Subjects:          []string{eventPrefix + "*.*.*"},
		MaxMsgs:           eventsMax,
		MaxMsgsPerSubject: eventsOfOneMax,
		MaxBytes:          -1,
		MaxMsgSize:        eventBytesMax,
		MaxAge:            event.Kept,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Replicas:          l.replicas,
		Discard:           jetstream.DiscardOld,
		Duplicates:        duplicatesHorizon,
	})
	if err != nil {
		return nil, classify(err, "open the events")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = stream
	return stream, nil
}

// eventSubject is that of a thing's events; "*" stands for any.
func eventSubject(tenant, kind, id string) (string, error) {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(eventPrefix)
	token := func(s string) {
		if s == "" {
			b.WriteByte('*')
		} else {
			encodeSegment(&b, s)
		}
	}
	token(kind)
	b.WriteString("." + enc + ".")
	token(id)
	return b.String(), nil
}

// Append implements event.Log.
func (l *Events) Append(e event.Event) {
	subject, err := eventSubject(e.Tenant, e.Kind, e.ID)
	var body []byte
	if err == nil {
		body, err = encodeEvent(e)
	}
	if err == nil && len(body) > eventBytesMax/2 { // it is told all the same, without what it looks like
		e.Data = nil
		body, err = encodeEvent(e)
	}
	if err != nil {
		l.log.Error("an event cannot be written", "kind", e.Kind, "id", e.ID, "err", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= eventQueueMax {
		older := func(q queuedEvent) bool { return q.subject == subject }
		if i := slices.IndexFunc(l.queue[1:], older); i >= 0 {
			l.queue = slices.Delete(l.queue, i+1, i+2)
		}
	}
	l.queue = append(l.queue, queuedEvent{subject, rand.Text(), body})
	l.changed()
	if !l.running {
		l.running = true
		l.spawn(l.run)
	}
}

// changed wakes who waits for the queue. Precondition: l.mu is held.
func (l *Events) changed() {
	close(l.more)
	l.more = make(chan struct{})
}

// run stores what is queued until the store closes; then what it can in a moment.
func (l *Events) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-l.done
		time.AfterFunc(eventFlush, cancel)
	}()
	for wait := time.Duration(0); ; {
		q, more, ok := l.head()
		if !ok {
			select {
			case <-more:
				continue
			case <-l.done:
				return
			}
		}
		switch err := l.publish(ctx, q); {
		case err == nil:
			wait = 0
			l.drop()
		case ctx.Err() != nil:
			return
		default:
			if wait == 0 {
				l.log.Warn("an event cannot be stored; it is tried again", "err", err)
			}
			wait = min(max(2*wait, eventRetryFirst), eventRetryMax)
			if sleep.For(ctx, wait) != nil {
				return
			}
		}
	}
}

func (l *Events) head() (q queuedEvent, more <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return queuedEvent{}, l.more, false
	}
	return l.queue[0], nil, true
}

// drop removes the first, which was stored.
func (l *Events) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.Delete(l.queue, 0, 1)
	l.changed()
}

func (l *Events) publish(ctx context.Context, q queuedEvent) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.open(ctx); err != nil {
		return err
	}
	_, err := l.js.Publish(ctx, q.subject, q.body, jetstream.WithMsgID(q.id), jetstream.WithExpectStream(eventStream))
	return err
}

// flushed waits until what was appended before the call is stored, for a while.
func (l *Events) flushed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.mu.Lock()
	last := ""
	if n := len(l.queue); n > 0 {
		last = l.queue[n-1].id
	}
	for slices.ContainsFunc(l.queue, func(q queuedEvent) bool { return q.id == last }) {
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-l.done:
			return errClosed()
		case <-ctx.Done():
			return errs.Wrap(errs.Unavailable, ctx.Err(), "the events are not stored yet")
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
	return nil
}

// Newest implements event.Log.
func (l *Events) Newest(ctx context.Context, kind string, visit func(event.Event) error) error {
	stream, err := l.open(ctx)
	if err == nil {
		err = l.flushed(ctx)
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	encodeSegment(&b, kind)
	filter := eventPrefix + b.String() + ".*.*"
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return classify(err, "look at the events")
	}
	if len(info.State.Subjects) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventScan) // the last of them may be forgotten meanwhile
	defer cancel()
	err = l.consume(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, InactiveThreshold: eventIdle,
	}, func(m jetstream.Msg) error {
		if e, ok := l.decode(m); ok {
			if err := visit(e); err != nil {
				return err
			}
		}
		at, err := m.Metadata()
		if err == nil && at.NumPending == 0 {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func encodeEvent(e event.Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the data stay as they are
	err := enc.Encode(storedEvent{eventVersion, e.Time, e.Tenant, e.Node, e.Kind, e.ID, e.State, e.Revision, e.Data})
	return b.Bytes(), err
}

func decodeEvent(body []byte) (event.Event, error) {
	var s storedEvent
	if err := json.Unmarshal(body, &s); err != nil {
		return event.Event{}, errs.Wrap(errs.Corrupt, err, "an event cannot be read")
	}
	if s.V != eventVersion {
		return event.Event{}, errs.New(errs.Corrupt, "an event is of version %d", s.V).WithHint("a newer skete may have written it")
	}
	return event.Event{Time: s.Time, Tenant: s.Tenant, Node: s.Node, Kind: s.Kind, ID: s.ID, State: s.State, Revision: s.Revision, Data: s.Data}, nil
}

// Next implements event.Log.
func (l *Events) Next(ctx context.Context) (uint64, error) {
	first, _, err := l.start(ctx, 0)
	return first, err
}

// Follow implements event.Log. It costs the embedded server a consumer.
func (l *Events) Follow(ctx context.Context, tenant string, q event.Query, visit func(event.Event) error) error {
	filter, err := eventSubject(tenant, q.Kind, "")
	if err != nil {
		return err
	}
	from, lost, err := l.start(ctx, q.From)
	if err != nil {
		return err
	}
	if lost {
		if err := visit(event.Event{Seq: from - 1, Time: time.Now().UTC(), Resync: true}); err != nil {
			return err
		}
	}
	return l.consume(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, InactiveThreshold: eventIdle,
	}, func(m jetstream.Msg) error {
		if e, ok := l.decode(m); ok {
			return visit(e)
		}
		return nil
	})
}

// consume visits messages until ctx ends, the store closes or visit fails.
func (l *Events) consume(ctx context.Context, c jetstream.OrderedConsumerConfig, visit func(jetstream.Msg) error) error {
	consumer, err := l.js.OrderedConsumer(ctx, eventStream, c)
	if err != nil {
		return classify(err, "follow the events")
	}
	news, ended := make(chan jetstream.Msg), make(chan struct{})
	reading, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case news <- m:
		case <-ended:
		}
	})
	if err != nil {
		return classify(err, "follow the events")
	}
	defer func() {
		close(ended)
		reading.Stop()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.done:
			return errClosed()
		case <-reading.Closed():
			return errs.New(errs.Unavailable, "the events have ended")
		case m := <-news:
			if err := visit(m); err != nil {
				return err
			}
		}
	}
}

// decode reads an event; one that cannot be read is left out.
func (l *Events) decode(m jetstream.Msg) (event.Event, bool) {
	e, err := decodeEvent(m.Data())
	if err == nil {
		var at *jetstream.MsgMetadata
		if at, err = m.Metadata(); err == nil {
			e.Seq = at.Sequence.Stream
		}
	}
	if err != nil {
		l.log.Error("an event is left out", "err", err)
	}
	return e, err == nil
}

// start says where to begin; lost: what is between is not there.
func (l *Events) start(ctx context.Context, from uint64) (first uint64, lost bool, err error) {
	stream, err := l.open(ctx)
	if err != nil {
		return 0, false, err
	}
	if err := l.flushed(ctx); err != nil {
		return 0, false, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, false, classify(err, "look at the events")
	}
	switch next := info.State.LastSeq + 1; {
	case from == 0:
		return next, false, nil
	case from > next:
		return next, true, nil
	case from < info.State.FirstSeq:
		return info.State.FirstSeq, true, nil
	}
	return from, false, nil
}

// Forget implements event.Log.
func (l *Events) Forget(ctx context.Context, tenant, kind, id string) error {
	stream, err := l.open(ctx)
	if err != nil {
		return err
	}
	subject, err := eventSubject(tenant, kind, id)
	if err != nil {
		return err
	}
	l.unqueue(subjectMatcher(subject))
	if err := l.flushed(ctx); err != nil { // the one that is being stored
		return err
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
		return classify(err, "forget events")
	}
	return nil
}

// unqueue drops what waits to be stored, but for the first.
func (l *Events) unqueue(gone func(subject string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 1 {
		rest := slices.DeleteFunc(l.queue[1:], func(q queuedEvent) bool { return gone(q.subject) })
		l.queue = l.queue[:1+len(rest)]
		l.changed()
	}
}

// subjectMatcher reports whether a subject is one that a filter with "*" means.
func subjectMatcher(filter string) func(string) bool {
	want := strings.Split(filter, ".")
	return func(subject string) bool {
		got := strings.Split(subject, ".")
		return slices.EqualFunc(want, got, func(w, g string) bool { return w == "*" || w == g })
	}
}
