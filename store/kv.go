package store

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/kv"
)

// Bounds of a bucket.
const (
	valueBytesMax = 64 << 10
	// markerTTL is how long a deleted key leaves a trace, so that a late
	// writer who believes that it never existed is refused.
	markerTTL = 10 * time.Minute
	// busyTries bounds how often a write that met another one in flight (a
	// replicated bucket says so, without a revision) is sent again.
	busyTries = 10
	busyWait  = 20 * time.Millisecond
	// settleTimeout bounds the question whether a write landed after all.
	settleTimeout = 2 * time.Second
	bucketNameMax = 64
)

// KV is a bucket of keys with revisions. Keys are paths ("a/b/c") of any
// bytes; values have at most 64 KB. It is a kv.Store.
type KV struct {
	s      *Store
	prefix string // of its subjects
	stream jetstream.Stream
	watch  jetstream.KeyValue
}

// KV opens a bucket, making it if need be. The name has 1..64 of A-Za-z0-9_-.
func (s *Store) KV(ctx context.Context, bucket string) (*KV, error) {
	if bucket == "" || len(bucket) > bucketNameMax || strings.ContainsFunc(bucket, func(r rune) bool { return r > 0x7f || !plainKey(byte(r)) }) {
		return nil, errs.New(errs.Invalid, "bucket name %.64q is not 1 to %d of A-Za-z0-9_-", bucket, bucketNameMax)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kv := s.buckets[bucket]; kv != nil {
		return kv, nil
	}
	kv, err := s.openKV(ctx, bucket)
	if err != nil {
		return nil, err
	}
	s.buckets[bucket] = kv
	return kv, nil
}

// openKV makes the stream by hand instead of through the client's bucket
// call, because that allows direct reads, which a lagging replica may answer.
func (s *Store) openKV(ctx context.Context, bucket string) (*KV, error) {
	kv := &KV{s: s, prefix: "$KV." + bucket + "."}
	var err error
	kv.stream, err = s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:                   "KV_" + bucket,
		Subjects:               []string{kv.prefix + ">"},
		MaxMsgsPerSubject:      1,
		MaxMsgSize:             valueBytesMax + 4<<10, // headers and subject
		MaxBytes:               -1,
		MaxMsgs:                -1,
		MaxConsumers:           -1,
		Storage:                jetstream.FileStorage,
		Replicas:               max(s.c.Replicas, 1),
		Discard:                jetstream.DiscardNew,
		Duplicates:             duplicatesHorizon,
		AllowRollup:            true,
		DenyDelete:             true,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: time.Minute,
	})
	if err == nil {
		kv.watch, err = s.js.KeyValue(ctx, bucket)
	}
	if err != nil {
		return nil, classify(err, "open the bucket")
	}
	return kv, nil
}

// Create stores a new key and returns its revision. Exists: it is there.
func (k *KV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.create(ctx, key, value, 0)
}

func (k *KV) create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	if err := k.s.room(begin); err != nil {
		return 0, err
	}
	if err := k.s.spare(); err != nil {
		return 0, err
	}
	w := write{key: key, value: value, ttl: ttl, fenced: true}
	rev, err := k.put(ctx, w)
	if !errs.Is(err, errs.Conflict) {
		return rev, err
	}
	// Something is there: the key, or the trace of a deleted one.
	last, gerr := k.last(ctx, key)
	switch {
	case errs.Is(gerr, errs.NotFound):
		last = nil // the trace has just gone
	case gerr != nil:
		return 0, gerr
	case !deleted(last):
		return 0, errs.New(errs.Exists, "%.64q exists already", key)
	}
	if last != nil {
		w.revision = last.Sequence
	}
	rev, err = k.put(ctx, w)
	if errs.Is(err, errs.Conflict) {
		return 0, errs.New(errs.Exists, "%.64q exists already", key) // another writer was faster
	}
	return rev, err
}

// Get reads a key as it is now, not as a replica remembers it.
func (k *KV) Get(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	m, err := k.last(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	if deleted(m) {
		return nil, 0, errs.New(errs.NotFound, "no key %.64q", key)
	}
	return m.Data, m.Sequence, nil
}

// Update replaces the value if the revision is still the given one. Conflict:
// it moved, or the key is gone.
func (k *KV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return 0, errs.New(errs.Invalid, "an update needs the revision that it replaces")
	}
	return k.put(ctx, write{key: key, value: value, fenced: true, revision: revision})
}

// Put sets the value whatever is there.
func (k *KV) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.put(ctx, write{key: key, value: value})
}

// Delete removes the key if the revision is still the given one. It is no
// error if the key is gone.
func (k *KV) Delete(ctx context.Context, key string, revision uint64) error {
	if revision == 0 {
		return errs.New(errs.Invalid, "a delete needs the revision that it removes")
	}
	_, err := k.put(ctx, write{key: key, purge: true, ttl: markerTTL, fenced: true, revision: revision})
	if !errs.Is(err, errs.Conflict) {
		return err
	}
	if _, _, gerr := k.Get(ctx, key); errs.Is(gerr, errs.NotFound) {
		return nil
	}
	return err
}

// List visits every key with the prefix ("" or ending in "/"), in no order.
func (k *KV) List(ctx context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error {
	err := k.Watch(ctx, prefix, func(c kv.Change) error {
		switch {
		case c.Synced:
			return errEnough
		case c.Deleted:
			return nil
		}
		return visit(c.Key, c.Value, c.Revision)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Watch implements kv.Store. It costs the embedded server a consumer.
func (k *KV) Watch(ctx context.Context, prefix string, visit func(kv.Change) error) error {
	filter, err := keyFilter(prefix)
	if err != nil {
		return err
	}
	w, err := k.watch.Watch(ctx, filter)
	if err != nil {
		return classify(err, "watch the bucket")
	}
	defer func() { _ = w.Stop() }()
	stalled := time.NewTimer(callTimeout) // of what was there at the start: later nothing may come for long
	defer stalled.Stop()
	for synced := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.s.done:
			return errClosed()
		case <-stalled.C:
			return errs.New(errs.Unavailable, "the store does not say what the bucket holds")
		case e, ok := <-w.Updates():
			if !ok {
				return k.watchEnded(ctx)
			}
			if synced = synced || e == nil; synced {
				stalled.Stop()
			} else {
				stalled.Reset(callTimeout)
			}
			c, err := changeOf(e)
			if err == nil {
				err = visit(c)
			}
			if err != nil {
				return err
			}
		}
	}
}

// watchEnded says why. What ends the caller or the store ends the client's watch
// too, and which of the two is seen first is luck.
func (k *KV) watchEnded(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-k.s.done:
		return errClosed()
	default:
		return errs.New(errs.Unavailable, "the watch of the bucket has ended")
	}
}

func changeOf(e jetstream.KeyValueEntry) (kv.Change, error) {
	if e == nil {
		return kv.Change{Synced: true}, nil
	}
	key, err := decodeKey(e.Key())
	return kv.Change{Key: key, Value: e.Value(), Revision: e.Revision(), Deleted: e.Operation() != jetstream.KeyValuePut}, err
}

// write is one append to a key's subject.
type write struct {
	key      string
	value    []byte
	purge    bool
	ttl      time.Duration // 0 = none; note that a later write without it lives for ever
	fenced   bool
	revision uint64 // that must be the last, if fenced; 0 = none at all
}

const operationHeader = "KV-Operation"

func (w write) message(subject, id string) (*nats.Msg, []jetstream.PublishOpt) {
	m := nats.NewMsg(subject)
	m.Data = w.value
	opts := []jetstream.PublishOpt{jetstream.WithMsgID(id)}
	if w.purge {
		m.Header.Set(operationHeader, "PURGE")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	}
	if w.ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(w.ttl))
	}
	if w.fenced {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(w.revision))
	}
	return m, opts
}

func (k *KV) put(ctx context.Context, w write) (uint64, error) {
	if len(w.value) > valueBytesMax {
		return 0, errs.New(errs.Limit, "a value of %d bytes is over %d", len(w.value), valueBytesMax)
	}
	subject, err := k.subject(w.key)
	if err != nil {
		return 0, err
	}
	if err := k.s.room(settle); err != nil {
		return 0, err
	}
	id := rand.Text()
	for try := 1; ; try++ {
		m, opts := w.message(subject, id)
		ack, err := k.s.js.PublishMsg(ctx, m, opts...)
		if err == nil {
			return ack.Sequence, nil
		}
		k.s.wrote(err)
		if refusedError(err) {
			return 0, classify(err, "write")
		}
		if rev, ok := k.landed(ctx, subject, id); ok {
			return rev, nil
		}
		if !busyError(err) || try == busyTries || sleep.For(ctx, busyWait) != nil {
			return 0, classify(err, "write")
		}
	}
}

// landed looks whether the write with this id is the last of its subject: an
// error of a publish may mean that only its acknowledgement was lost.
func (k *KV) landed(ctx context.Context, subject, id string) (uint64, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	m, err := k.stream.GetLastMsgForSubject(ctx, subject)
	if err != nil || m.Header.Get(jetstream.MsgIDHeader) != id {
		return 0, false
	}
	return m.Sequence, true
}

func (k *KV) last(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	subject, err := k.subject(key)
	if err != nil {
		return nil, err
	}
	m, err := k.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, errs.New(errs.NotFound, "no key %.64q", key)
	}
	if err != nil {
		return nil, classify(err, "read")
	}
	return m, nil
}

func (k *KV) subject(key string) (string, error) {
	enc, err := encodeKey(key)
	return k.prefix + enc, err
}

// deleted reports whether the message is the trace of a key that was removed
// or has expired.
func deleted(m *jetstream.RawStreamMsg) bool {
	return m.Header.Get(operationHeader) != "" || m.Header.Get(jetstream.MarkerReasonHeader) != ""
}
