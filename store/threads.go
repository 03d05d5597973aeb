package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/blobdir"
	"github.com/skete-dev/skete/thread"
)

// Names of what threads are kept in. A tenant has one stream, so that erasing
// it is removing a stream and a directory.
const (
	streamPrefix   = "TH_"
	subjectPrefix  = "thread." // thread.<tenant>.<root>[.<call>…].=
	storedPrefix   = "stored." // the same, sent out again once stored
	blobsDir       = "blobs"
	tenantMetadata = "skete_tenant"
	tenantBytesMax = 64
	// subjectEnd ends the subject of a thread. No call id is "=", so that
	// "<root>.>" matches a thread and those beneath it, and nothing else.
	subjectEnd = "="
	// recordBytesMax is what a record takes with its headers.
	recordBytesMax = thread.AppendBytesMax + 8<<10
)

// Threads keeps the logs and blobs of all tenants. It is a keeper.Threads.
//
// Logs are streams of the store. Blobs are files in the data directory, also
// with an external NATS: then only this server has them.
type Threads struct {
	s *Store

	mu    sync.Mutex // guards what follows
	logs  map[string]*threadLog
	blobs map[string]*blobs
}

// Threads returns the threads of this store.
func (s *Store) Threads() *Threads { return s.threads }

// Log returns the log of a tenant, making it if need be.
func (t *Threads) Log(ctx context.Context, tenant string) (thread.Log, error) {
	return t.log(ctx, tenant)
}

func (t *Threads) log(ctx context.Context, tenant string) (*threadLog, error) {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.logs[tenant]; l != nil {
		return l, nil
	}
	stream, err := t.s.js.CreateOrUpdateStream(ctx, t.config(tenant, enc))
	if err != nil {
		return nil, classify(err, "open a tenant's threads")
	}
	l := newThreadLog(t.s, tenant, enc, stream)
	t.logs[tenant] = l
	return l, nil
}

func (t *Threads) config(tenant, enc string) jetstream.StreamConfig {
	bytesMax := t.s.c.TenantBytesMax
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
		Replicas:     max(t.s.c.Replicas, 1),
		Discard:      jetstream.DiscardNew, // the other kind eats history in silence
		Duplicates:   duplicatesHorizon,
		AllowDirect:  true, // for reading in bulk; the end of a thread is always asked of the leader
		AllowRollup:  true, // a deletion replaces a thread by its tombstone in one step
		AllowMsgTTL:  true, // of tombstones
		RePublish:    &jetstream.RePublish{Source: subjectPrefix + enc + ".>", Destination: storedPrefix + enc + ".>"},
	}
}

// encodeTenant returns the tenant as a token of a subject and a file's name.
func encodeTenant(tenant string) (string, error) {
	if tenant == "" || len(tenant) > tenantBytesMax {
		return "", errs.New(errs.Invalid, "a tenant's name has 1 to %d bytes, not %d", tenantBytesMax, len(tenant))
	}
	var b strings.Builder
	encodeSegment(&b, tenant)
	return b.String(), nil
}

// Tenants returns the tenants that have threads, in order.
func (t *Threads) Tenants(ctx context.Context) ([]string, error) {
	var tenants []string
	streams := t.s.js.ListStreams(ctx, jetstream.WithStreamListSubject(subjectPrefix+">"))
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

// DeleteThread removes a thread and those beneath it. Its blobs go with a
// later Sweep.
func (t *Threads) DeleteThread(ctx context.Context, tenant string, id thread.ID) error {
	l, err := t.log(ctx, tenant)
	if err != nil {
		return err
	}
	return l.Delete(ctx, id)
}

// Records are the keys of a bucket that belong to a tenant: those with a prefix.
type Records struct {
	KV     *KV
	Prefix string // ends in "/"
}

// EraseTenant removes all that is kept for a tenant: threads, blobs, and the
// records. It may be repeated, and must be if it fails. Files are unlinked, not
// overwritten.
func (t *Threads) EraseTenant(ctx context.Context, tenant string, records ...Records) error {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return err
	}
	b, err := t.openBlobs(tenant)
	if err != nil {
		return err
	}
	t.mu.Lock()
	if l := t.logs[tenant]; l != nil {
		l.erase()
		delete(t.logs, tenant)
	}
	delete(t.blobs, tenant)
	t.mu.Unlock()
	if err := t.s.js.DeleteStream(ctx, streamPrefix+enc); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return classify(err, "erase the threads")
	}
	if err := b.dir.Erase(); err != nil {
		return errs.Wrap(errs.Internal, err, "cannot erase the blobs")
	}
	for _, r := range records {
		if err := r.erase(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r Records) erase(ctx context.Context) error {
	revisions := map[string]uint64{}
	err := r.KV.List(ctx, r.Prefix, func(key string, _ []byte, revision uint64) error {
		revisions[key] = revision
		return nil
	})
	if err != nil {
		return err
	}
	for key, revision := range revisions {
		if err := r.KV.Delete(ctx, key, revision); err != nil {
			return err
		}
	}
	return nil
}

// Blobs returns the blobs of a tenant, making their directory if need be.
func (t *Threads) Blobs(_ context.Context, tenant string) (thread.Blobs, error) {
	return t.openBlobs(tenant)
}

func (t *Threads) openBlobs(tenant string) (*blobs, error) {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.blobs[tenant]; b != nil {
		return b, nil
	}
	dir, err := blobdir.Open(filepath.Join(t.s.c.Dir, blobsDir, enc), blobdir.Config{
		BlobBytesMax: thread.BlobBytesMax, FreeBytesMin: writeFreeMin,
	})
	if err != nil {
		return nil, err
	}
	b := &blobs{dir: dir}
	t.blobs[tenant] = b
	return b, nil
}

// blobs is a thread.Blobs. A blob is always synced, whatever SyncInterval says:
// an event whose blob is gone would stay broken for ever.
type blobs struct{ dir *blobdir.Dir }

// Put implements thread.Blobs.
func (b *blobs) Put(ctx context.Context, content []byte) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return b.dir.Put(content)
}

// Get implements thread.Blobs.
func (b *blobs) Get(ctx context.Context, hash string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.dir.Get(hash)
}

// ReadAt implements thread.Blobs.
func (b *blobs) ReadAt(ctx context.Context, hash string, p []byte, off int64) (int, int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	return b.dir.ReadAt(hash, p, off)
}
