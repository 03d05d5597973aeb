package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/thread"
)

// Bounds of a log's work.
const (
	threadCallTimeout   = 5 * time.Second
	threadSettleTimeout = 2 * time.Second
	appendTimeout       = 10 * time.Second // all tries of one append
	ackTimeout          = 2 * time.Second  // one try
	appendWaitMin       = 10 * time.Millisecond
	appendWaitMax       = 200 * time.Millisecond
	endsMax             = 4096 // threads whose end is remembered
	unsureMax           = 256  // appends whose fate is unknown that are remembered
	// tombstoneTTL is how long a deleted thread leaves a trace. It must exceed
	// the time that anybody takes to open a thread.
	tombstoneTTL = 24 * time.Hour
)

// ThreadLog is the thread.Log of a tenant.
//
// A thread is the records of one subject; a record is the events of one append.
// Each append states the stream sequence of the record that it follows: the
// server stores it only if that is still the last one. Events are numbered by
// thread, so a log maps the number of a thread's last event to that sequence.
type ThreadLog struct {
	s      threadServer
	name   string // of the stream
	prefix string // of its subjects
	stream jetstream.Stream
	hub    *threadHub
	// publish and request are the connection's, patience is appendTimeout and
	// wait ackTimeout; tests put faults in between.
	publish  func(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error)
	request  func(ctx context.Context, subject string, data []byte) (*nats.Msg, error)
	patience time.Duration
	wait     time.Duration
	erased   atomic.Bool

	mu sync.Mutex // guards what follows
	// ends remembers where threads end. It may be old: the server has the truth.
	ends map[thread.ID]logEnd
	// unsure has the appends whose fate is unknown, so that the same again is
	// sent as the same.
	unsure map[unsureKey]appendAttempt
}

// logEnd is where a thread ends.
type logEnd struct {
	events uint64 // the number of the last event
	at     uint64 // the stream sequence of the last record
}

type unsureKey struct {
	id    thread.ID
	after uint64
	sum   [sha256.Size]byte // of the record
}

// appendAttempt identifies one append, however often it is sent.
type appendAttempt struct {
	id string // of the message
	at uint64 // the stream sequence that it follows
}

// Erased refuses everything from here on: the stream is about to go.
func (l *ThreadLog) Erased() {
	l.erased.Store(true)
	l.hub.gap()
}

func (l *ThreadLog) subject(id thread.ID) (string, error) {
	if _, err := thread.ParseID(string(id)); err != nil {
		return "", err
	}
	if l.erased.Load() {
		return "", errs.New(errs.NotFound, "the tenant was erased")
	}
	enc, err := encodeKey(string(id))
	return l.prefix + enc + "." + subjectEnd, err
}

func errThreadDeleted(id thread.ID) error {
	return errs.New(errs.NotFound, "the thread %s was deleted", id)
}

// Append implements thread.Log.
func (l *ThreadLog) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	subject, err := l.subject(id)
	if err != nil {
		return 0, err
	}
	data, err := thread.Encode(after, events)
	if err != nil {
		return 0, err
	}
	if err := l.s.Room(after == 0); err != nil {
		return 0, err
	}
	try, again := l.recall(id, after, data)
	if !again {
		try.id = rand.Text()
		if try.at, err = l.follow(ctx, id, subject, after); err != nil {
			return 0, err
		}
	}
	last := after + uint64(len(events))
	m := nats.NewMsg(subject)
	m.Header.Set(eventsHeader, fmt.Sprintf("%d-%d", after+1, last))
	m.Data = data
	at, err := l.write(ctx, id, m, try, again)
	if errors.Is(err, errUnsure) {
		l.doubt(unsureKey{id, after, sha256.Sum256(data)}, try)
	}
	if err != nil {
		return 0, err
	}
	if after == 0 {
		if err := l.outlived(ctx, id); err != nil {
			return 0, err
		}
	}
	l.remember(id, logEnd{last, at})
	return last, nil
}

// follow returns the stream sequence of the record that ends with the event
// numbered after, if that is the thread's last.
func (l *ThreadLog) follow(ctx context.Context, id thread.ID, subject string, after uint64) (uint64, error) {
	if after == 0 {
		return 0, nil // the server knows whether the subject is empty
	}
	if e, ok := l.end(id); ok && e.events == after {
		return e.at, nil
	}
	r, err := l.last(ctx, subject)
	switch {
	case errs.Is(err, errs.NotFound):
		return 0, errs.New(errs.NotFound, "no thread %s", id)
	case err != nil:
		return 0, err
	case r.deleted:
		return 0, errThreadDeleted(id)
	}
	l.remember(id, logEnd{r.Last, r.At})
	if r.Last != after {
		return 0, errs.New(errs.Conflict, "the thread %s ends at event %d, not at %d", id, r.Last, after)
	}
	return r.At, nil
}

// errUnsure marks an append whose fate is unknown.
var errUnsure = errors.New("whether it was stored cannot be known")

// write sends a record until it is known what became of it, and returns its
// stream sequence. again: it may have been sent before.
//
// A record can only be stored right behind the one it follows. So whatever
// comes first behind that one tells its fate: the record itself, or another
// that has kept it out for ever.
func (l *ThreadLog) write(ctx context.Context, id thread.ID, m *nats.Msg, try appendAttempt, again bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	for wait := appendWaitMin; ; wait = min(2*wait, appendWaitMax) {
		at, err := l.send(ctx, m, try)
		if err == nil {
			return at, nil
		}
		no := refusedError(err)
		if no && !again {
			return 0, classify(err, "append")
		}
		again = true
		r, serr := l.settle(ctx, m.Subject, try.at)
		switch {
		case serr == nil && r.id == try.id:
			return r.At, nil
		case serr == nil && r.deleted:
			return 0, errThreadDeleted(id)
		case serr == nil:
			l.forget(id)
			return 0, errs.New(errs.Conflict, "the thread %s does not end there any more", id)
		case errs.Is(serr, errs.NotFound) && faultCode(err) == codeWrongLast:
			l.forget(id)
			return 0, errs.New(errs.NotFound, "no thread %s", id)
		case errs.Is(serr, errs.NotFound) && no:
			return 0, classify(err, "append")
		}
		if sleep.For(ctx, wait) != nil || ctx.Err() != nil {
			return 0, errs.Wrap(errs.Unavailable, errors.Join(errUnsure, err), "the store does not answer (append)")
		}
	}
}

func (l *ThreadLog) send(ctx context.Context, m *nats.Msg, try appendAttempt) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	ack, err := l.publish(ctx, m, jetstream.WithMsgID(try.id),
		jetstream.WithExpectLastSequencePerSubject(try.at), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil // also of a duplicate, as a cluster answers: ids are not used twice
}

// settle returns the record that comes first behind a stream sequence. It
// outlives the caller's patience: an answer is worth more than haste.
func (l *ThreadLog) settle(ctx context.Context, subject string, at uint64) (threadRecord, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), threadSettleTimeout)
	defer cancel()
	return l.next(ctx, subject, at+1)
}

// outlived undoes the opening of a sub-agent's thread whose tree was deleted
// meanwhile. A deletion marks first and looks for threads after, so one of the
// two sees the other.
func (l *ThreadLog) outlived(ctx context.Context, id thread.ID) error {
	for above, _ := id.Parent(); above != ""; above, _ = above.Parent() {
		subject, err := l.subject(above)
		if err != nil {
			return err
		}
		r, err := l.last(ctx, subject)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if r.deleted {
			return errors.Join(errThreadDeleted(above), l.Delete(ctx, id))
		}
	}
	return nil
}

func (l *ThreadLog) end(id thread.ID) (logEnd, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.ends[id]
	return e, ok
}

func (l *ThreadLog) remember(id thread.ID, e logEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.ends[id]; ok && old.at > e.at {
		return
	}
	makeRoom(l.ends, endsMax)
	l.ends[id] = e
}

func (l *ThreadLog) forget(id thread.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, id)
}

func (l *ThreadLog) doubt(key unsureKey, try appendAttempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	makeRoom(l.unsure, unsureMax)
	l.unsure[key] = try
}

// recall finds the attempt at the same append whose fate is unknown.
func (l *ThreadLog) recall(id thread.ID, after uint64, record []byte) (appendAttempt, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unsure) == 0 {
		return appendAttempt{}, false
	}
	key := unsureKey{id, after, sha256.Sum256(record)}
	try, ok := l.unsure[key]
	delete(l.unsure, key)
	return try, ok
}

// makeRoom drops any entry of a full map.
func makeRoom[K comparable, V any](m map[K]V, limit int) {
	for k := range m {
		if len(m) < limit {
			return
		}
		delete(m, k)
	}
}

// Delete implements thread.Log. The thread itself goes first: an append that
// opens one beneath it from then on finds the tombstone, see outlived.
func (l *ThreadLog) Delete(ctx context.Context, id thread.ID) error {
	subject, err := l.subject(id)
	if err != nil {
		return err
	}
	if err := l.bury(ctx, id, subject); err != nil {
		return err
	}
	for below, err := range l.List(ctx, id) {
		if err != nil {
			return err
		}
		if subject, err = l.subject(below); err != nil {
			return err
		}
		if err := l.bury(ctx, below, subject); err != nil {
			return err
		}
	}
	return nil
}

// bury replaces the records of a thread by a tombstone, in one step.
func (l *ThreadLog) bury(ctx context.Context, id thread.ID, subject string) error {
	defer l.forget(id)
	r, err := l.last(ctx, subject)
	if errs.Is(err, errs.NotFound) || err == nil && r.deleted {
		return nil
	}
	if err != nil {
		return err
	}
	m := nats.NewMsg(subject)
	m.Header.Set(deletedHeader, "1")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	m.Data = []byte(`{"deleted":true}`)
	_, err = l.s.JS.PublishMsg(ctx, m, jetstream.WithMsgID(rand.Text()), jetstream.WithMsgTTL(tombstoneTTL))
	if err == nil {
		return nil
	}
	if err = classify(err, "delete"); !errs.Is(err, errs.Limit) {
		return err
	}
	// No room for a tombstone, and so none for a late writer either.
	if perr := l.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); perr != nil {
		return classify(perr, "delete")
	}
	return nil
}
