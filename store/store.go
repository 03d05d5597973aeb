package store

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
)

// Config of a Store.
type Config struct {
	// Dir is the data directory of this server; it is locked.
	Dir string
	// URL of an external NATS with JetStream; empty = embedded, in Dir.
	URL string
	// SyncInterval 0 syncs every write before it is acknowledged. Anything
	// else loses up to that much on a power cut, and young buckets whole.
	SyncInterval time.Duration
	// StoreBytesMax bounds the embedded store; 0 = what the disk has free,
	// less a reserve.
	StoreBytesMax int64
	// MemoryBytesMax is the process's soft memory limit in embedded mode; 0 =
	// see memoryLimit. GOMEMLIMIT in the environment wins over both.
	MemoryBytesMax int64
	// Replicas of each bucket on an external cluster; 0 = 1.
	Replicas int
	// TenantBytesMax bounds the thread logs of one tenant; 0 = no bound but the
	// store's.
	TenantBytesMax int64
	Log            *slog.Logger
}

// Bounds of the embedded server.
const (
	messageBytesMax   = 1 << 20
	memoryStoreBytes  = 64 << 20
	readyTimeout      = 30 * time.Second // a store of 10 GB opens in 6 s
	connectTimeout    = 5 * time.Second
	callTimeout       = 5 * time.Second // of a call whose context has no deadline
	healthTimeout     = 3 * time.Second
	duplicatesHorizon = 2 * time.Minute
)

// Store is an open store.
type Store struct {
	c    Config
	lock *os.File       // of Dir
	srv  *server.Server // nil with an external NATS
	// bytesMax bounds the embedded store.
	bytesMax int64
	// plentyUntil is when the disk's free space is looked at again, in Unix ns.
	plentyUntil atomic.Int64
	ballast     *ballast    // of the embedded store
	sick        atomic.Bool // a write of the embedded store met a full disk

	nc *nats.Conn
	js jetstream.JetStream

	mu      sync.Mutex // guards buckets
	buckets map[string]*KV
	threads *Threads
	live    *Live
	events  *Events

	closeOnce sync.Once
	leases    sync.WaitGroup // and whatever else runs until done
	done      chan struct{}
}

// Open opens the store in c.Dir, or connects to c.URL.
//
// Exists: another server uses the directory. Conflict: the directory holds
// the other kind of store. Unavailable: the disk is full, or the external NATS
// does not answer.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot make the data directory").WithHint("check SKETE_HOME and its owner")
	}
	s := &Store{c: c, buckets: map[string]*KV{}, done: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	if s.lock, err = lockDir(s.c.Dir); err != nil {
		return err
	}
	mode := modeSingle
	if s.c.URL != "" {
		mode = modeExternal
	}
	if err := claimMode(s.c.Dir, mode); err != nil {
		return err
	}
	if s.c.URL == "" {
		if err := s.startEmbedded(); err != nil {
			return err
		}
	}
	if err := s.connect(); err != nil {
		return err
	}
	s.makeParts()
	return s.ready(ctx)
}

// makeParts makes what lives on the connection.
func (s *Store) makeParts() {
	others := s.nc
	if !s.External() {
		others = nil
	}
	s.live = newLive(liveConfig{NC: others, Done: s.done, Go: s.leases.Go, Log: s.c.Log})
	s.events = newEvents(s)
	s.threads = newThreads(threadsConfig{
		Server: threadServer{
			NC: s.nc, JS: s.js, Replicas: s.c.Replicas, TenantBytesMax: s.c.TenantBytesMax, Room: s.roomFor, Done: s.done, Go: s.leases.Go,
		},
		Dir: filepath.Join(s.c.Dir, blobsDir), FreeBytesMin: writeFreeMin,
	})
}

// roomFor refuses an append for want of space; a new thread is refused earlier.
func (s *Store) roomFor(fresh bool) error {
	if !fresh {
		return s.room(follow)
	}
	if err := s.room(begin); err != nil {
		return err
	}
	return s.spare()
}

// blobsDir is the part of the data directory where blobs are: with an external
// NATS too, so that only this server has them.
const blobsDir = "blobs"

// Threads returns the logs and blobs of all tenants.
func (s *Store) Threads() *Threads { return s.threads }

// Events returns what happened, of all tenants.
func (s *Store) Events() *Events { return s.events }

// Live returns the live news.
func (s *Store) Live() *Live { return s.live }

func (s *Store) startEmbedded() error {
	s.limitMemory()
	var err error
	if s.bytesMax, err = s.storeBytesMax(filepath.Join(s.c.Dir, jetstreamDir), s.c.StoreBytesMax); err != nil {
		return err
	}
	if s.srv, err = startServer(s.c, s.bytesMax); err != nil {
		return err
	}
	s.leases.Go(s.keepRoom)
	return nil
}

// limitMemory keeps JetStream's block cache, which nothing else bounds, from
// growing with the number of blocks that were ever read.
func (s *Store) limitMemory() {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return // GOMEMLIMIT, or an earlier store of this process
	}
	limit := s.c.MemoryBytesMax
	if limit <= 0 {
		limit = memoryLimit(memoryTotal())
	}
	debug.SetMemoryLimit(limit)
	s.c.Log.Debug("memory limit set", "bytes", limit)
}

func (s *Store) connect() error {
	opts := []nats.Option{
		nats.Name("skete"),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.NoEcho(),
	}
	if s.srv != nil {
		opts = append(opts, nats.InProcessServer(s.srv))
	}
	var err error
	// The URL may hold a password: it stays out of every text.
	if s.nc, err = nats.Connect(s.c.URL, opts...); err != nil {
		return errs.New(errs.Unavailable, "the store's NATS does not answer").WithHint("check the store's URL and that its server runs")
	}
	s.js, err = jetstream.New(s.nc, jetstream.WithDefaultTimeout(callTimeout))
	return err
}

// ready waits until JetStream answers.
func (s *Store) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err := s.js.AccountInfo(ctx); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the store's JetStream does not answer").
			WithHint("the NATS server needs JetStream, and this account the right to use it")
	}
	return nil
}

// External reports whether the store is shared with other servers.
func (s *Store) External() bool { return s.c.URL != "" }

// Healthy writes a canary and reports why the store cannot be written, if it
// cannot. (A check that only asks whether the server is up misses a JetStream
// that was switched off by a full disk, and a cluster that is wedged.)
func (s *Store) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if s.srv != nil && !s.srv.JetStreamEnabled() {
		return errs.New(errs.Unavailable, "the store has switched itself off").
			WithHint("the disk was full; it is opened again by itself when there is room")
	}
	if err := s.room(begin); err != nil {
		return err
	}
	if err := s.spare(); err != nil {
		return err
	}
	kv, err := s.KV(ctx, "health")
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, "canary", []byte(time.Now().UTC().Format(time.RFC3339Nano)))
	return err
}

// Close ends the leases' renewing, the connection and the embedded server.
// It may be repeated.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.done)
		s.leases.Wait()
		if s.nc != nil {
			s.nc.Close()
		}
		if s.srv != nil {
			s.srv.Shutdown()
			s.srv.WaitForShutdown()
		}
		if s.lock != nil {
			_ = s.lock.Close() // which unlocks
		}
	})
	return nil
}
