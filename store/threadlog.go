package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// This file keeps threads in JetStream: a stream per tenant, a subject
// per thread, a record per append.
//
// What it promises is what thread.Log promises. It never repairs: a record that
// is not the next one stops the reader with an error that names its place.
// Threads puts tenants and blobs around it.
//
// All methods are safe for concurrent use.

// Names of what threads are kept in. A tenant has one stream, so that erasing
// it is removing a stream.
const (
	streamPrefix   = "TH_"
	subjectPrefix  = "thread." // thread.<tenant>.<root>[.<call>…].=
	storedPrefix   = "stored." // the same, sent out again once stored
	tenantMetadata = "skete_tenant"
	// subjectEnd ends the subject of a thread. No call id is "=", so that
	// "<root>.>" matches a thread and those beneath it, and nothing else.
	subjectEnd = "="
	// recordBytesMax is what a record takes with its headers.
	recordBytesMax          = thread.AppendBytesMax + 8<<10
	threadDuplicatesHorizon = 2 * time.Minute
)

// threadServer is where logs are kept.
type threadServer struct {
	NC             *nats.Conn
	JS             jetstream.JetStream
	Replicas       int   // 0 = 1
	TenantBytesMax int64 // 0 = no bound
	// Room refuses an append for want of space; fresh: of a new thread.
	Room func(fresh bool) error
	// Done ends everything that waits.
	Done <-chan struct{}
	// Go runs what must have ended before NC is closed.
	Go func(func())
}

// openThreadLog opens the log of a tenant, making it if need be.
func openThreadLog(ctx context.Context, s threadServer, tenant string) (*ThreadLog, error) {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return nil, err
	}
	stream, err := s.JS.CreateOrUpdateStream(ctx, s.stream(tenant, enc))
	if err != nil {
		return nil, classify(err, "open a tenant's threads")
	}
	l := &ThreadLog{
		s: s, name: streamPrefix + enc, prefix: subjectPrefix + enc + ".", stream: stream,
		publish: s.JS.PublishMsg, request: s.NC.RequestWithContext, patience: appendTimeout, wait: ackTimeout,
		ends: map[thread.ID]logEnd{}, unsure: map[unsureKey]appendAttempt{},
	}
	l.hub = newThreadHub(l, storedPrefix+enc+".>")
	return l, nil
}

func (s threadServer) stream(tenant, enc string) jetstream.StreamConfig {
	bytesMax := s.TenantBytesMax
	if bytesMax <= 0 {
		bytesMax = -1
	}
	return jetstream.StreamConfig{
		Name:         streamPrefix + enc,
		Metadata:     map[string]string{tenantMetadata: tenant},
		Subjects:     []string{subjectPrefix + enc + ".>"},
		MaxBytes:     bytesMax,
		MaxMsgs:      -1,
		MaxConsumers: -1,
		MaxMsgSize:   recordBytesMax,
		Storage:      jetstream.FileStorage,
		Replicas:     max(s.Replicas, 1),
		Discard:      jetstream.DiscardNew, // the other kind eats history in silence
		Duplicates:   threadDuplicatesHorizon,
		AllowDirect:  true, // for reading in bulk; the end of a thread is always asked of the leader
		AllowRollup:  true, // a deletion replaces a thread by its tombstone in one step
		AllowMsgTTL:  true, // of tombstones
		RePublish:    &jetstream.RePublish{Source: subjectPrefix + enc + ".>", Destination: storedPrefix + enc + ".>"},
	}
}

// threadTenants returns the tenants that have logs, in order.
func threadTenants(ctx context.Context, s threadServer) ([]string, error) {
	var tenants []string
	streams := s.JS.ListStreams(ctx, jetstream.WithStreamListSubject(subjectPrefix+">"))
	for info := range streams.Info() {
		if tenant, ok := info.Config.Metadata[tenantMetadata]; ok {
			tenants = append(tenants, tenant)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, classify(err, "list the tenants")
	}
	slices.Sort(tenants)
	return tenants, nil
}

// eraseThreadLog removes the log of a tenant. It may be repeated.
func eraseThreadLog(ctx context.Context, s threadServer, tenant string) error {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return err
	}
	if err := s.JS.DeleteStream(ctx, streamPrefix+enc); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return classify(err, "erase the threads")
	}
	return nil
}

// id is the thread of a subject.
func (l *ThreadLog) id(name string) (thread.ID, error) {
	key, err := decodeKey(strings.TrimSuffix(strings.TrimPrefix(name, l.prefix), "."+subjectEnd))
	return thread.ID(key), err
}

// Newest returns the last record of a thread. NotFound: there is no thread.
func (l *ThreadLog) Newest(ctx context.Context, id thread.ID) (threadRecord, error) {
	name, err := l.subject(id)
	if err != nil {
		return threadRecord{}, err
	}
	r, err := l.last(ctx, name)
	if err == nil && r.deleted {
		err = errThreadDeleted(id)
	}
	return r, err
}

// Oldest returns the first record of a thread. NotFound: there is no thread.
func (l *ThreadLog) Oldest(ctx context.Context, id thread.ID) (threadRecord, error) {
	name, err := l.subject(id)
	if err != nil {
		return threadRecord{}, err
	}
	r, err := l.next(ctx, name, 1)
	if err == nil && r.deleted {
		err = errThreadDeleted(id)
	}
	return r, err
}

// Records visits the records of a thread, from the first to the last one that
// there is now, and checks that none is missing; what they hold is not taken
// apart. NotFound: there is no thread, or it was deleted meanwhile.
func (l *ThreadLog) Records(ctx context.Context, id thread.ID, visit func(threadRecord) error) error {
	newest, err := l.Newest(ctx, id)
	if err != nil {
		return err
	}
	name, err := l.subject(id)
	if err != nil {
		return err
	}
	next := uint64(1)
	return l.scan(ctx, id, name, 1, newest.At, func(r threadRecord) error {
		if r.First != next {
			return errMissing(id, next, r)
		}
		next = r.Last + 1
		return visit(r)
	})
}

func errMissing(id thread.ID, event uint64, r threadRecord) error {
	return errs.New(errs.Corrupt, "thread %s: event %d is missing: the record at stream sequence %d begins with %d", id, event, r.At, r.First)
}
