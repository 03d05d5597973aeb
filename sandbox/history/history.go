// Package history keeps the histories of a server's sandboxes: it opens the
// engine where the files are, on the host or in the machine, stops what writes
// to them while they are taken back, and lets go of a workspace before it is
// taken away.
//
//	s := history.New(history.Config{Dir: dir, Sandboxes: manager, Remote: …})
//	h, release, err := s.Open(ctx, tenant, id)
//	rev, fresh, err := h.Snapshot(ctx, workspace.Label{Actor: "user"})
//
// What a history holds lies in Dir, in a directory by the sandbox's ID, and
// stays when the sandbox is destroyed, for Config.Keep.
//
// All methods are safe for concurrent use.
package history

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/retain"
)

const (
	bytesMax      = 5 << 30         // of one history on the disk
	openFor       = 5 * time.Minute // an engine that is not asked is closed
	keepFor       = 7 * 24 * time.Hour
	plansMax      = 16
	looksMax      = 4      // of one tenant at the same time, whatever they are for
	backgroundMax = 2      // of them, that no caller waits for
	pathsMax      = 10_000 // of a plan that are remembered; of one with more, the first
)

// Sandboxes is what a Service needs of *manager.Manager.
type Sandboxes interface {
	Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error
}

// Config of a Service.
type Config struct {
	Dir       string
	Node      string    // that the histories belong to
	Events    event.Log // that revisions are told by; nil = they are not
	Sandboxes Sandboxes
	// Remote opens the history of a machine that has its disk to itself: dir
	// is the place of its replica. Without a guest, what is kept of any machine
	// can be read. empty, if not nil, is the label of a first revision of a
	// workspace that was made empty. nil: such machines have none.
	Remote func(dir string, guest *wire.Client, empty *workspace.Label) (workspace.History, error)
	// Applied is told which paths, as the machine names them, an undo has
	// changed in a running sandbox, before its commands go on; nil = it is
	// not reported.
	Applied func(ctx context.Context, id sandbox.ID, guest *wire.Client, paths [][]byte)
	// Copy copies what is kept of one sandbox for another; nil = it cannot be.
	Copy func(from, to string) error
	// Room refuses to keep more while a disk of the server is nearly full. An undo,
	// and the last look at a sandbox that goes, are let through. nil: there is room.
	Room func() error
	// Quota refuses to keep more of a tenant that holds as much as it may: see Held.
	// Only an undo is let through. nil: no tenant has a quota.
	Quota func(tenant string) error
	// Keep is how long a history outlives its sandbox; 0 = 7 days.
	Keep time.Duration
	Log  *slog.Logger     // nil = none
	Now  func() time.Time // nil = time.Now
}

// Service keeps the histories of a server.
type Service struct {
	c Config

	checking  keylock.Locks[sandbox.ID] // held while a history is checked, or removed
	measuring keylock.Locks[sandbox.ID] // held while a history is measured
	counted   sync.Once                 // all histories were measured; see Held
	told      told

	ctx context.Context // ends with Close
	end context.CancelFunc

	each       looks // of one sandbox: its engine does one at a time
	looks      looks // of one tenant
	background looks // those of them that no caller waits for
	openFor    time.Duration
	// retellAfter is how long a log of events that cannot be read is left alone.
	retellAfter time.Duration
	stage       func(id sandbox.ID, name string) // for tests: see workspace.Config.Stage; nil = not asked

	mu      sync.Mutex          // guards all below and the handles; held for a moment only
	sizes   map[sandbox.ID]size // of the histories that were measured
	held    map[string]int64    // their sums, by tenant
	handles map[sandbox.ID]*handle
	hosts   map[sandbox.ID]*handle // those with an open engine, by the name of what the host holds
	closed  bool

	ledgers    map[holding]*ledger
	recovering map[sandbox.ID]chan struct{} // closed when the undo that a server died in is looked at
	work       sync.WaitGroup               // of looks and waits for the end of steps; none begins once closed
}

// New returns a service. The caller closes it, after the sandboxes' manager.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = event.Discard{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Keep == 0 {
		c.Keep = keepFor
	}
	s := &Service{
		c: c, each: looks{most: 1}, looks: looks{most: looksMax, took: map[string]time.Duration{}}, background: looks{most: backgroundMax}, openFor: openFor, retellAfter: tellRetry,
		sizes: map[sandbox.ID]size{}, held: map[string]int64{},
		handles: map[sandbox.ID]*handle{}, hosts: map[sandbox.ID]*handle{}, ledgers: map[holding]*ledger{}, recovering: map[sandbox.ID]chan struct{}{},
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Open returns the history of a sandbox; of one that is gone, what is kept of
// it can be read. NotFound: there is neither. release lets go of it.
func (s *Service) Open(ctx context.Context, tenant string, id sandbox.ID) (h workspace.History, release func(), err error) {
	if _, err := s.c.Sandboxes.Get(ctx, tenant, id); err != nil && (!errs.Is(err, errs.NotFound) || s.owner(id) != tenant) {
		return nil, nil, err
	}
	if err := s.recovered(ctx, id); err != nil {
		return nil, nil, err
	}
	return &history{s: s, tenant: tenant, id: id}, func() {}, nil
}

// Close closes all engines.
func (s *Service) Close() error {
	s.end()
	s.mu.Lock()
	s.closed = true
	desks := slices.Collect(maps.Values(s.handles))
	for _, d := range desks {
		s.join(d) // no timer any more
	}
	s.mu.Unlock()
	s.work.Wait()
	var wg sync.WaitGroup // one that is slow to close keeps no other open
	for _, d := range desks {
		wg.Go(func() {
			defer s.leave(d)
			d.turn <- struct{}{}
			defer func() { <-d.turn }()
			s.shut(d)
		})
	}
	wg.Wait()
	return nil
}

func (s *Service) dir(id sandbox.ID) string { return filepath.Join(s.c.Dir, string(id)) }

// store is where the engine keeps it; beside it is whose it is.
func (s *Service) store(id sandbox.ID) string { return filepath.Join(s.dir(id), "store") }

func (s *Service) open(id sandbox.ID, files sandbox.Files) (workspace.History, error) {
	if files.Volume.Path == "" {
		if s.c.Remote == nil {
			return nil, errs.New(errs.Unsupported, "machines with a kernel of their own keep no history here")
		}
		if !files.Empty {
			return s.c.Remote(s.store(id), files.Guest, nil)
		}
		return s.c.Remote(s.store(id), files.Guest, atFirst())
	}
	return workspace.Open(workspace.Config{
		Dir: files.Volume.Path, Staging: filepath.Join(files.Volume.Disk, layout.Staging), Store: s.store(id),
		BytesMax: bytesMax, Now: s.c.Now, Policy: &retain.Policy{}, Capture: capture.Config{Watch: true},
		First: atFirst(), Empty: files.Empty, Stage: s.stageOf(id),
		Pruned: func(workspace.Pruned, error) { s.measure(id) },
	})
}

func (s *Service) stageOf(id sandbox.ID) func(string) {
	if s.stage == nil {
		return nil
	}
	return func(name string) { s.stage(id, name) }
}

// atFirst labels the revision that the first change is undone to.
func atFirst() *workspace.Label {
	return &workspace.Label{Actor: workspace.Outside, Text: "what was there at first"}
}

// reader opens what is kept of a sandbox whose files are not at hand.
func (s *Service) reader(ctx context.Context, id sandbox.ID) (h workspace.History, release func(), err error) {
	if s.c.Remote == nil {
		return nil, nil, errs.New(errs.Unsupported, "histories can only be read where their files are")
	}
	if _, err := os.Stat(s.store(id)); err != nil {
		return nil, nil, errs.New(errs.NotFound, "nothing is kept of sandbox %s", id)
	}
	return s.engine(ctx, s.owner(id), id, sandbox.Files{})
}
