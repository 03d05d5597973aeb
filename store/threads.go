package store

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// This file keeps the logs and blobs of all tenants, and removes them:
// what nothing names any more, what is too old, what a tenant leaves behind.
//
// All methods are safe for concurrent use.

// Threads keeps the logs and blobs of all tenants. It is a supervisor.Threads.
//
// Logs are streams of the store. Blobs are files in the data directory, also
// with an external NATS: then only this server has them.
type Threads struct {
	c threadsConfig

	mu    sync.Mutex // guards what follows
	logs  map[string]*ThreadLog
	blobs map[string]*blobs
}

// threadsConfig of Threads.
type threadsConfig struct {
	Server threadServer
	Dir    string // of the blobs
	// FreeBytesMin of the disk are left alone by blobs.
	FreeBytesMin int64
}

// newThreads returns the threads of a server.
func newThreads(c threadsConfig) *Threads {
	return &Threads{c: c, logs: map[string]*ThreadLog{}, blobs: map[string]*blobs{}}
}

// Log returns the log of a tenant, making it if need be.
func (t *Threads) Log(ctx context.Context, tenant string) (thread.Log, error) {
	return t.log(ctx, tenant)
}

func (t *Threads) log(ctx context.Context, tenant string) (*ThreadLog, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.logs[tenant]; l != nil {
		return l, nil
	}
	l, err := openThreadLog(ctx, t.c.Server, tenant)
	if err != nil {
		return nil, err
	}
	t.logs[tenant] = l
	return l, nil
}

// Tenants returns the tenants that have threads, in order.
func (t *Threads) Tenants(ctx context.Context) ([]string, error) {
	return threadTenants(ctx, t.c.Server)
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

// ThreadKeys are a bucket of records. store.KV is one.
type ThreadKeys interface {
	List(ctx context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error
	Delete(ctx context.Context, key string, revision uint64) error
}

// ThreadRecords are the keys of a bucket that belong to a tenant: those with a prefix.
type ThreadRecords struct {
	Keys   ThreadKeys
	Prefix string // ends in "/"
}

// EraseTenant removes all that is kept for a tenant: threads, blobs, and the
// records. It may be repeated, and must be if it fails. Files are unlinked, not
// overwritten.
func (t *Threads) EraseTenant(ctx context.Context, tenant string, records ...ThreadRecords) error {
	b, err := t.openBlobs(tenant)
	if err != nil {
		return err
	}
	t.mu.Lock()
	if l := t.logs[tenant]; l != nil {
		l.Erased()
		delete(t.logs, tenant)
	}
	delete(t.blobs, tenant)
	t.mu.Unlock()
	if err := eraseThreadLog(ctx, t.c.Server, tenant); err != nil {
		return err
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

func (r ThreadRecords) erase(ctx context.Context) error {
	revisions := map[string]uint64{}
	err := r.Keys.List(ctx, r.Prefix, func(key string, _ []byte, revision uint64) error {
		revisions[key] = revision
		return nil
	})
	if err != nil {
		return err
	}
	for key, revision := range revisions {
		if err := r.Keys.Delete(ctx, key, revision); err != nil {
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
	dir, err := openBlobDir(filepath.Join(t.c.Dir, enc), blobDirConfig{
		BlobBytesMax: thread.BlobBytesMax, FreeBytesMin: t.c.FreeBytesMin,
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
type blobs struct{ dir *blobDir }

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
