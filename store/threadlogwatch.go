package store

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// Bounds of what a watched thread keeps in memory for its watchers.
const (
	recentMax      = 32
	recentBytesMax = 256 << 10
	// threadHubCheck is how often a hub asks whether it has missed something.
	threadHubCheck = 5 * time.Second
)

// threadHub tells the watchers of a tenant's threads what was stored.
//
// The stream sends every record out again once it is stored; one subscription
// per tenant, made with the first watcher, hears them all. It costs the server
// nothing per watcher: no consumer, no position. What is heard is news, never
// truth: each record says which one it follows, and a watcher that cannot
// chain it to what it has reads the log. A slow watcher delays no other one and
// keeps nothing in memory: its place is a number, and it reads the log again.
//
// Sequences of the stream have no gaps, so the hub knows when it missed a
// record; the last one, which nothing follows, is found by asking now and then.
type threadHub struct {
	l       *ThreadLog
	subject string

	life     sync.Mutex // held over start and stop; before mu
	watchers int        // guarded by life
	end      func()     // guarded by life; ends what start began

	mu     sync.Mutex // guards what follows
	topics map[string]*threadTopic
	heard  uint64 // the stream sequence of the latest record that was heard
}

// threadTopic is a watched thread.
type threadTopic struct {
	watchers map[*threadWatcher]struct{}
	recent   []heardEvents // the latest records, each following the one before
	bytes    int
}

// heardEvents is a record with the stream sequence of the one it follows.
type heardEvents struct {
	threadRecord
	after uint64
}

// threadWatcher is one who watches.
type threadWatcher struct {
	h       *threadHub
	subject string
	wake    chan struct{} // 1 = there is news
	missed  bool          // guarded by h.mu: read the log
}

func newThreadHub(l *ThreadLog, subject string) *threadHub {
	return &threadHub{l: l, subject: subject, topics: map[string]*threadTopic{}}
}

// join adds a watcher of a thread's subject. What is stored from now on will
// wake it.
func (h *threadHub) join(ctx context.Context, subject string) (*threadWatcher, error) {
	h.life.Lock()
	defer h.life.Unlock()
	if h.watchers == 0 {
		if err := h.start(ctx); err != nil {
			return nil, err
		}
	}
	h.watchers++
	w := &threadWatcher{h: h, subject: subject, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[subject]
	if t == nil {
		t = &threadTopic{watchers: map[*threadWatcher]struct{}{}}
		h.topics[subject] = t
	}
	t.watchers[w] = struct{}{}
	return w, nil
}

func (w *threadWatcher) leave() {
	h := w.h
	h.life.Lock()
	defer h.life.Unlock()
	h.mu.Lock()
	t := h.topics[w.subject]
	if delete(t.watchers, w); len(t.watchers) == 0 {
		delete(h.topics, w.subject)
	}
	h.mu.Unlock()
	if h.watchers--; h.watchers == 0 {
		h.end()
	}
}

// start begins to listen. Preconditions: h.life is held, there are no watchers.
func (h *threadHub) start(ctx context.Context) error {
	select {
	case <-h.l.s.Done:
		return errClosed()
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, threadCallTimeout)
	defer cancel()
	sub, err := h.l.s.NC.Subscribe(h.subject, h.hear)
	if err == nil {
		err = h.l.s.NC.FlushWithContext(ctx)
	}
	var info *jetstream.StreamInfo
	if err == nil {
		info, err = h.l.stream.Info(ctx)
	}
	if err != nil {
		if sub != nil {
			_ = sub.Unsubscribe()
		}
		return classify(err, "watch the threads")
	}
	h.mu.Lock()
	h.heard = max(h.heard, info.State.LastSeq)
	h.mu.Unlock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	h.l.s.Go(func() { defer close(stopped); h.check(stop) })
	h.end = func() {
		_ = sub.Unsubscribe()
		close(stop)
		<-stopped
	}
	return nil
}

func errClosed() error { return errs.New(errs.Unavailable, "the store was closed") }

// hear takes a record that was stored.
func (h *threadHub) hear(m *nats.Msg) {
	at, _ := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	after, _ := strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
	subject := m.Header.Get(jetstream.SubjectHeader)
	h.mu.Lock()
	defer h.mu.Unlock()
	if at > h.heard+1 {
		h.missLocked()
	}
	h.heard = max(h.heard, at)
	t := h.topics[subject]
	if t == nil {
		return
	}
	if r, err := direct(m); err == nil {
		t.push(heardEvents{r, after})
	} else {
		t.recent, t.bytes = nil, 0 // the watchers will read it, and say what is wrong
	}
	for w := range t.watchers {
		w.nudge()
	}
}

func (t *threadTopic) push(r heardEvents) {
	if n := len(t.recent); n > 0 && t.recent[n-1].At != r.after {
		t.recent, t.bytes = nil, 0
	}
	t.recent, t.bytes = append(t.recent, r), t.bytes+len(r.Data)
	for len(t.recent) > recentMax || t.bytes > recentBytesMax {
		t.bytes -= len(t.recent[0].Data)
		t.recent = t.recent[1:]
	}
}

// since returns the records that follow the one at a stream sequence. False:
// they are not known, the log must be read.
func (w *threadWatcher) since(at uint64) ([]heardEvents, bool) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	if w.missed {
		w.missed = false
		return nil, false
	}
	recent := w.h.topics[w.subject].recent
	for i, r := range recent {
		if r.after == at {
			return recent[i:len(recent):len(recent)], true
		}
	}
	// Nothing follows if the newest is the one we have, or older.
	return nil, len(recent) > 0 && recent[len(recent)-1].At <= at
}

func (w *threadWatcher) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// gap makes every watcher read the log.
func (h *threadHub) gap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missLocked()
}

func (h *threadHub) missLocked() {
	for _, t := range h.topics {
		t.recent, t.bytes = nil, 0
		for w := range t.watchers {
			w.missed = true
			w.nudge()
		}
	}
}

// check finds out now and then whether the latest records were missed.
func (h *threadHub) check(stop <-chan struct{}) {
	tick := time.NewTicker(threadHubCheck)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-stop:
			return
		case <-h.l.s.Done:
			return
		case <-tick.C:
		}
		h.mu.Lock()
		missed := h.heard < last // although it had a whole tick to come
		h.heard = max(h.heard, last)
		h.mu.Unlock()
		if missed {
			h.gap()
		}
		ctx, cancel := context.WithTimeout(context.Background(), threadCallTimeout)
		info, err := h.l.stream.Info(ctx)
		cancel()
		switch {
		case err == nil:
			last = info.State.LastSeq
		case errors.Is(err, jetstream.ErrStreamNotFound):
			h.gap()
		}
	}
}

// Watch implements thread.Log.
func (l *ThreadLog) Watch(ctx context.Context, id thread.ID, from uint64) iter.Seq2[thread.Event, error] {
	return func(yield func(thread.Event, error) bool) {
		if err := l.watch(ctx, id, max(from, 1), yield); err != nil && !errors.Is(err, errEnough) {
			yield(thread.Event{}, err)
		}
	}
}

func (l *ThreadLog) watch(ctx context.Context, id thread.ID, next uint64, yield func(thread.Event, error) bool) error {
	subject, err := l.subject(id)
	if err != nil {
		return err
	}
	w, err := l.hub.join(ctx, subject)
	if err != nil {
		return err
	}
	defer w.leave()
	emit := func(e thread.Event, _ error) bool {
		if e.Seq < next {
			return true
		}
		next = e.Seq + 1
		return yield(e, nil)
	}
	var have logEnd // how far the log was read
	for known := false; ; {
		if !known {
			e, err := l.read(ctx, id, next, emit)
			switch {
			case errors.Is(err, errNoRecord) && have.at == 0:
			case errors.Is(err, errNoRecord):
				return errThreadDeleted(id)
			case err != nil:
				return err
			default:
				have = e
			}
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.s.Done:
			return errClosed()
		}
		var news []heardEvents
		if news, known = w.since(have.at); !known {
			continue
		}
		for _, r := range news {
			if r.deleted {
				return errThreadDeleted(id)
			}
			events, err := r.Events(id, have.events+1)
			if err != nil {
				return err
			}
			have = logEnd{r.Last, r.At}
			for _, e := range events {
				if !emit(e, nil) {
					return errEnough
				}
			}
		}
	}
}
