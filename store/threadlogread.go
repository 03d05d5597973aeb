package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/thread"
)

// Headers of a record, beside those of NATS.
const (
	eventsHeader  = "Skete-Events"  // "first-last": the numbers of its events
	deletedHeader = "Skete-Deleted" // it is a tombstone
)

// Bounds of one request for many records: what is in memory at a time.
const (
	batchRecords   = 1000
	batchBytes     = 1 << 20
	codeNoMessage  = 10037
	codeNoStream   = 10059
	glanceMin      = 100 // events that are worth a glance before a closer look
	seekStep       = 64  // so many stream sequences are rather read than searched
	laggardWait    = 20 * time.Millisecond
	laggardTimeout = 5 * time.Second
)

// threadRecord is a stored append, or a tombstone.
type threadRecord struct {
	At    uint64 // its stream sequence
	First uint64 // the number of its first event
	Last  uint64
	Data  []byte // see thread.Decode
	Time  time.Time

	id      string // of the append
	deleted bool
}

func toRecord(at uint64, h nats.Header, data []byte, t time.Time) (threadRecord, error) {
	r := threadRecord{At: at, id: h.Get(jetstream.MsgIDHeader), Data: data, Time: t}
	if h.Get(deletedHeader) != "" || h.Get(jetstream.MarkerReasonHeader) != "" {
		r.deleted = true
		return r, nil
	}
	first, last, _ := strings.Cut(h.Get(eventsHeader), "-")
	var err1, err2 error
	r.First, err1 = strconv.ParseUint(first, 10, 64)
	r.Last, err2 = strconv.ParseUint(last, 10, 64)
	if err1 != nil || err2 != nil || r.First == 0 || r.Last < r.First {
		return r, errs.New(errs.Corrupt, "the record at stream sequence %d does not say which events it has", at)
	}
	return r, nil
}

// Events decodes a record whose first event must have the number.
func (r threadRecord) Events(id thread.ID, first uint64) ([]thread.Event, error) {
	if r.First != first {
		return nil, errMissing(id, first, r)
	}
	events, err := thread.Decode(r.Data, first)
	if err == nil && events[len(events)-1].Seq != r.Last {
		err = errs.New(errs.Corrupt, "event %d: the record ends before it", r.Last)
	}
	if err != nil {
		return nil, errs.Wrap(errs.Of(err), err, "thread %s, stream sequence %d: %s", id, r.At, errs.Public(err)).WithHint("%s", errs.Hint(err))
	}
	return events, nil
}

// errNoRecord: there is none where it was looked for.
var errNoRecord = errs.New(errs.NotFound, "no record")

// last asks the stream's leader for the last record of a subject. NotFound:
// there is none.
func (l *ThreadLog) last(ctx context.Context, subject string) (threadRecord, error) {
	return l.ask(ctx, map[string]any{"last_by_subj": subject})
}

// next asks the stream's leader for the first record of a subject from a
// stream sequence on. NotFound: there is none.
func (l *ThreadLog) next(ctx context.Context, subject string, from uint64) (threadRecord, error) {
	return l.ask(ctx, map[string]any{"next_by_subj": subject, "seq": max(from, 1)})
}

// ask reads one message from the leader. The client's own call would ask any
// replica, because the stream allows that; a replica may lag behind.
func (l *ThreadLog) ask(ctx context.Context, request map[string]any) (threadRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, threadCallTimeout)
	defer cancel()
	req, err := json.Marshal(request)
	if err != nil {
		return threadRecord{}, err
	}
	answer, err := l.request(ctx, "$JS.API.STREAM.MSG.GET."+l.name, req)
	if err != nil {
		return threadRecord{}, classify(err, "read")
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq  uint64    `json:"seq"`
			Hdrs []byte    `json:"hdrs"`
			Data []byte    `json:"data"`
			Time time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return threadRecord{}, errs.Wrap(errs.Internal, err, "the store's answer cannot be read")
	}
	switch {
	case got.Error != nil && (got.Error.ErrorCode == codeNoMessage || got.Error.ErrorCode == codeNoStream):
		return threadRecord{}, errNoRecord
	case got.Error != nil:
		return threadRecord{}, classify(got.Error, "read")
	case got.Message == nil:
		return threadRecord{}, errs.New(errs.Internal, "the store's answer has no message")
	}
	var h nats.Header
	if len(got.Message.Hdrs) > 0 {
		if h, err = nats.DecodeHeadersMsg(got.Message.Hdrs); err != nil {
			return threadRecord{}, errs.Wrap(errs.Corrupt, err, "the record at stream sequence %d has broken headers", got.Message.Seq)
		}
	}
	return toRecord(got.Message.Seq, h, got.Message.Data, got.Message.Time)
}

// fetch visits what is stored on a subject from a stream sequence on, in order,
// as much as fits, and says how much and where that ended: nothing if there is
// nothing, as far as the server that answers knows. bare: the messages come
// without their headers.
//
// It is one request with many answers, not a consumer: nothing has to be made
// or removed, and there is no position that could be reset.
func (l *ThreadLog) fetch(ctx context.Context, subject string, from uint64, bare bool, visit func(*nats.Msg) error) (n int, through uint64, err error) {
	inbox, answers := l.s.NC.NewInbox(), make(chan *nats.Msg, batchRecords+1)
	sub, err := l.s.NC.ChanSubscribe(inbox, answers)
	if err != nil {
		return 0, 0, classify(err, "read")
	}
	defer func() { _ = sub.Unsubscribe() }()
	req := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d,"no_hdr":%t}`, max(from, 1), subject, batchRecords, batchBytes, bare)
	if err := l.s.NC.PublishRequest("$JS.API.DIRECT.GET."+l.name, inbox, req); err != nil {
		return 0, 0, classify(err, "read")
	}
	silence := time.NewTimer(threadCallTimeout)
	defer silence.Stop()
	for {
		select {
		case m := <-answers:
			switch status := m.Header.Get("Status"); status {
			case "":
			case "204", "404":
				through, _ = strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
				return n, through, nil
			case "503":
				return n, 0, errs.New(errs.Unavailable, "the store does not answer (read)")
			default:
				return n, 0, errs.New(errs.Internal, "the store refuses to read (%.20q)", status)
			}
			if err := visit(m); err != nil {
				return n, 0, err
			}
			n++
			silence.Reset(threadCallTimeout)
		case <-ctx.Done():
			return n, 0, ctx.Err()
		case <-l.s.Done:
			return n, 0, errClosed()
		case <-silence.C:
			return n, 0, errs.New(errs.Unavailable, "the store does not answer (read)")
		}
	}
}

// direct reads a message that was sent with its origin in its headers.
func direct(m *nats.Msg) (threadRecord, error) {
	at, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return threadRecord{}, errs.Wrap(errs.Internal, err, "the store sent a record without its sequence")
	}
	t, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return toRecord(at, m.Header, m.Data, t)
}

// scan visits the records of a subject from one stream sequence through
// another one, which is known to be stored. NotFound: it was deleted meanwhile.
func (l *ThreadLog) scan(ctx context.Context, id thread.ID, subject string, from, through uint64, visit func(threadRecord) error) error {
	for started := time.Now(); from <= through; {
		before := from
		_, _, err := l.fetch(ctx, subject, from, false, func(m *nats.Msg) error {
			r, err := direct(m)
			if err != nil {
				return err
			}
			if r.At > through {
				return errBeyond
			}
			if r.deleted {
				return errThreadDeleted(id)
			}
			from = r.At + 1
			return visit(r)
		})
		if err != nil && !errors.Is(err, errBeyond) {
			return err
		}
		if from > before {
			started = time.Now()
			continue
		}
		// Deleted, or a replica that lags behind has answered.
		if r, err := l.last(ctx, subject); errs.Is(err, errs.NotFound) || err == nil && r.deleted {
			return errThreadDeleted(id)
		} else if err != nil {
			return err
		}
		if time.Since(started) > laggardTimeout || sleep.For(ctx, laggardWait) != nil {
			return errs.New(errs.Unavailable, "the store cannot show what it has (thread %s)", id)
		}
	}
	return nil
}

// errEnough ends a scan because its visitor has left, errBeyond a fetch because
// it went further than was asked, errOdd a glance because it met something that
// needs a closer look.
var (
	errEnough = errors.New("enough")
	errBeyond = errors.New("beyond")
	errOdd    = errors.New("odd")
)

// eventPlace is a place in a thread: a stream sequence, and the number of the first
// event from there on.
type eventPlace struct{ at, first uint64 }

// glance yields the events from number from on, beginning at a place, through a
// record. It reads no headers: they cost more than what they belong to. Each
// event still must be the next one. It returns where it came to: the end, or
// a place before anything that is not as it should be, where scan finds out
// what that is; and the next event to yield.
func (l *ThreadLog) glance(ctx context.Context, subject string, p eventPlace, from uint64, last threadRecord, yield func(thread.Event, error) bool) (eventPlace, uint64, error) {
	for next := p.first; ; {
		n, through, err := l.fetch(ctx, subject, p.at, true, func(m *nats.Msg) error {
			if next > last.Last {
				return errBeyond
			}
			events, err := thread.Decode(m.Data, next)
			if err != nil {
				return errOdd
			}
			next += uint64(len(events))
			for _, e := range events {
				if e.Seq < from {
					continue
				}
				if from = e.Seq + 1; !yield(e, nil) {
					return errEnough
				}
			}
			return nil
		})
		switch {
		case next > last.Last && (err == nil || errors.Is(err, errBeyond)):
			return eventPlace{last.At + 1, next}, from, nil
		case errors.Is(err, errOdd) || err == nil && (n == 0 || through < p.at):
			return p, from, nil
		case err != nil:
			return p, from, err
		}
		p = eventPlace{through + 1, next}
	}
}

// read yields the events from number from to the end, and returns that end.
// errEnough: the loop has ended. NotFound: there is no such thread.
func (l *ThreadLog) read(ctx context.Context, id thread.ID, from uint64, yield func(thread.Event, error) bool) (logEnd, error) {
	subject, err := l.subject(id)
	if err != nil {
		return logEnd{}, err
	}
	last, err := l.last(ctx, subject)
	if err != nil {
		return logEnd{}, err
	}
	if last.deleted {
		return logEnd{}, errThreadDeleted(id)
	}
	e := logEnd{last.Last, last.At}
	if from > last.Last {
		return e, nil
	}
	from = max(from, 1)
	p, err := l.seek(ctx, id, subject, from, last)
	if err == nil && last.Last-from > glanceMin {
		p, from, err = l.glance(ctx, subject, p, from, last, yield)
	}
	if err != nil {
		return logEnd{}, err
	}
	err = l.scan(ctx, id, subject, p.at, last.At, func(r threadRecord) error {
		if r.Last < from && r.First == p.first { // on the way there
			p.first = r.Last + 1
			return nil
		}
		events, err := r.Events(id, p.first)
		if err != nil {
			return err
		}
		p.first = r.Last + 1
		for _, ev := range events {
			if ev.Seq >= from && !yield(ev, nil) {
				return errEnough
			}
		}
		return ctx.Err()
	})
	if err == nil {
		l.remember(id, e)
	}
	return e, err
}

// seek finds a place at or a little before the record with an event. last is
// the thread's last record.
func (l *ThreadLog) seek(ctx context.Context, id thread.ID, subject string, from uint64, last threadRecord) (eventPlace, error) {
	low := eventPlace{1, 1}
	if from == 1 {
		return low, nil
	}
	if from >= last.First {
		return eventPlace{last.At, last.First}, nil
	}
	if e, ok := l.end(id); ok && e.events+1 == from && e.at < last.At {
		return eventPlace{e.at + 1, from}, nil
	}
	// Records lie in the stream in the order of their events. Most readers want
	// the newest: look there first, then halve.
	high := last.At
	for step, near := uint64(seekStep), true; high-low.at > seekStep; {
		at := low.at + (high-low.at)/2
		if near && step < last.At {
			at = max(last.At-step, low.at)
			step *= 8
		}
		r, err := l.next(ctx, subject, at)
		switch {
		case err != nil:
			return low, err
		case r.deleted:
			return low, errThreadDeleted(id)
		case r.First > from:
			if high = at; at == low.at {
				return low, nil
			}
		case r.Last >= from:
			return eventPlace{r.At, r.First}, nil
		default:
			low, near = eventPlace{r.At, r.First}, false
		}
	}
	return low, nil
}

// Load implements thread.Log.
func (l *ThreadLog) Load(ctx context.Context, id thread.ID, from uint64) iter.Seq2[thread.Event, error] {
	return func(yield func(thread.Event, error) bool) {
		begun := false
		_, err := l.read(ctx, id, from, func(e thread.Event, err error) bool {
			begun = true
			return yield(e, err)
		})
		if err == nil || errors.Is(err, errEnough) || errs.Is(err, errs.NotFound) && !begun {
			return
		}
		yield(thread.Event{}, err)
	}
}

// Head implements thread.Log.
func (l *ThreadLog) Head(ctx context.Context, id thread.ID) (uint64, error) {
	subject, err := l.subject(id)
	if err != nil {
		return 0, err
	}
	r, err := l.last(ctx, subject)
	if errs.Is(err, errs.NotFound) || err == nil && r.deleted {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	l.remember(id, logEnd{r.Last, r.At})
	return r.Last, nil
}

// List implements thread.Log.
func (l *ThreadLog) List(ctx context.Context, root thread.ID) iter.Seq2[thread.ID, error] {
	return func(yield func(thread.ID, error) bool) {
		threads, err := l.list(ctx, root)
		if err != nil {
			yield("", err)
			return
		}
		for _, t := range threads {
			// A subject with one record may be a tombstone.
			if t.records == 1 {
				r, err := l.last(ctx, t.subject)
				if errs.Is(err, errs.NotFound) || err == nil && r.deleted {
					continue
				}
				if err != nil {
					yield("", err)
					return
				}
			}
			if !yield(t.id, nil) {
				return
			}
		}
	}
}

type listedThread struct {
	id      thread.ID
	subject string
	records uint64
}

// list returns all subjects of a tree of threads ("" = all), in the order of
// their threads' ids. Tombstones are among them.
func (l *ThreadLog) list(ctx context.Context, root thread.ID) ([]listedThread, error) {
	if l.erased.Load() {
		return nil, nil
	}
	filter := l.prefix + ">"
	if root != "" {
		subject, err := l.subject(root)
		if err != nil {
			return nil, err
		}
		filter = strings.TrimSuffix(subject, subjectEnd) + ">"
	}
	info, err := l.stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err, "list the threads")
	}
	threads := make([]listedThread, 0, len(info.State.Subjects))
	for subject, n := range info.State.Subjects {
		key, err := l.id(subject)
		if err != nil {
			return nil, err
		}
		threads = append(threads, listedThread{key, subject, n})
	}
	slices.SortFunc(threads, func(a, b listedThread) int { return cmp.Compare(a.id, b.id) })
	return threads, nil
}
