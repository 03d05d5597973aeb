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
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/retain"
)

const (
	bytesMax    = 5 << 30         // of one history on the disk
	openFor     = 5 * time.Minute // an engine that nobody asks is closed
	touchQuiet  = 2 * time.Second // without a change, before what changed becomes a revision
	touchLate   = 20 * time.Second
	touchedBusy = time.Minute // that such a revision may take
	keepFor     = 7 * 24 * time.Hour
	plansMax    = 16
	pathsMax    = 10_000 // of a plan that are remembered; of one with more, the first
)

// Sandboxes is what a Service needs of *manager.Manager.
type Sandboxes interface {
	Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error
}

// Config of a Service.
type Config struct {
	Dir       string
	Sandboxes Sandboxes
	// Remote opens the history of a machine that has its disk to itself: dir
	// is the place of its replica. Without a guest, what is kept of any machine
	// can be read. empty, if not nil, is the label of a first revision of a
	// workspace that was made empty. nil: such machines have none.
	Remote func(dir string, guest *wire.Client, empty *workspace.Label) (workspace.History, error)
	// Applied is told which paths, as the machine names them, an undo has
	// changed in a running sandbox, before its commands go on; nil = nobody
	// wants to know.
	Applied func(ctx context.Context, id sandbox.ID, guest *wire.Client, paths [][]byte)
	// Copy copies what is kept of one sandbox for another; nil = it cannot be.
	Copy func(from, to string) error
	// Keep is how long a history outlives its sandbox; 0 = 7 days.
	Keep time.Duration
	Log  *slog.Logger     // nil = none
	Now  func() time.Time // nil = time.Now
}

// Service keeps the histories of a server.
type Service struct {
	c Config

	checking sync.Mutex

	mu     sync.Mutex // guards all below
	desks  map[sandbox.ID]*desk
	quiet  map[sandbox.ID]*quiet
	closed bool
}

// desk is the open engine of one sandbox.
type desk struct {
	beginning sync.Mutex // held by Begin; taken before mu
	begun     bool       // guarded by beginning

	mu    sync.Mutex // guards all below; an engine is opened by one caller
	host  sandbox.ID
	dir   string // of the files it was opened for
	guest *wire.Client
	h     workspace.History
	uses  int
	idle  *time.Timer

	plans map[string][][]byte // what plans would touch; guarded by Service.mu
}

// New returns a service. The caller closes it, after the sandboxes' manager.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Keep == 0 {
		c.Keep = keepFor
	}
	return &Service{c: c, desks: map[sandbox.ID]*desk{}, quiet: map[sandbox.ID]*quiet{}}
}

// Open returns the history of a sandbox; of one that is gone, what is kept of
// it can be read. NotFound: there is neither. release lets go of it.
func (s *Service) Open(ctx context.Context, tenant string, id sandbox.ID) (h workspace.History, release func(), err error) {
	if _, err := s.c.Sandboxes.Get(ctx, tenant, id); err != nil && (!errs.Is(err, errs.NotFound) || s.owner(id) != tenant) {
		return nil, nil, err
	}
	return &history{s: s, tenant: tenant, id: id}, func() {}, nil
}

// Detaching makes a last revision of a workspace, if it has a history that is
// open, and lets go of it. Nobody works on it any more, the machine neither:
// the manager has seen to that.
func (s *Service) Detaching(host sandbox.ID) {
	d := s.find(host)
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.h != nil && d.dir != "" {
		ctx, cancel := context.WithTimeout(context.Background(), touchedBusy)
		defer cancel()
		if _, _, err := d.h.Snapshot(ctx, workspace.Label{Actor: "outside", Text: "before it stopped"}); err != nil {
			s.c.Log.Warn("the last changes of a sandbox did not become a revision", "host", host, "error", err)
		}
	}
	d.shut(s.c.Log)
}

// find returns the desk that has the workspace of a host name open.
func (s *Service) find(host sandbox.ID) *desk {
	s.mu.Lock()
	desks := slices.Collect(maps.Values(s.desks))
	s.mu.Unlock()
	for _, d := range desks {
		d.mu.Lock()
		found := d.host == host
		d.mu.Unlock()
		if found {
			return d
		}
	}
	return nil
}

// Close closes all engines.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	desks := s.desks
	s.desks = map[sandbox.ID]*desk{}
	for _, q := range s.quiet {
		q.timer.Stop()
	}
	s.mu.Unlock()
	for _, d := range desks {
		d.close(s.c.Log)
	}
	return nil
}

func (d *desk) close(log *slog.Logger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut(log)
}

// shut closes the engine. Preconditions: d.mu is held.
func (d *desk) shut(log *slog.Logger) {
	if d.idle != nil {
		d.idle.Stop()
	}
	if d.h == nil {
		return
	}
	if err := d.h.Close(); err != nil {
		log.Warn("a history did not close well", "error", err)
	}
	d.h = nil
}

func (s *Service) desk(id sandbox.ID) (*desk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sandbox.ErrClosing
	}
	d := s.desks[id]
	if d == nil {
		d = &desk{}
		s.desks[id] = d
	}
	return d, nil
}

// engine returns the open history of a sandbox whose files are at hand, to be
// given back.
func (s *Service) engine(tenant string, id sandbox.ID, files sandbox.Files) (h workspace.History, giveBack func(), err error) {
	d, err := s.desk(id)
	if err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.h != nil && !d.fits(files) { // of a machine that is gone
		if err := d.h.Close(); err != nil {
			s.c.Log.Warn("a history did not close well", "id", id, "error", err)
		}
		d.h = nil
	}
	if d.h == nil {
		if err := s.own(tenant, id); err != nil {
			return nil, nil, err
		}
		opened, err := s.open(id, files)
		if err != nil {
			return nil, nil, err
		}
		d.h = opened
		d.host, d.dir, d.guest = files.Host, files.Volume.Path, files.Guest
	}
	d.uses++
	if d.idle != nil {
		d.idle.Stop()
	}
	return d.h, func() { s.giveBack(d) }, nil
}

func (d *desk) fits(files sandbox.Files) bool {
	return d.host == files.Host && d.dir == files.Volume.Path && (d.dir != "" || d.guest == files.Guest)
}

func (s *Service) giveBack(d *desk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses--; d.uses == 0 && d.h != nil {
		d.idle = time.AfterFunc(openFor, func() { s.rest(d) })
	}
}

// rest closes an engine that nobody has asked for a while.
func (s *Service) rest(d *desk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses == 0 {
		d.shut(s.c.Log)
	}
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
		First: atFirst(), Empty: files.Empty,
	})
}

// atFirst labels the revision that the first change is undone to.
func atFirst() *workspace.Label {
	return &workspace.Label{Actor: workspace.Outside, Text: "what was there at first"}
}

// reader opens what is kept of a sandbox whose files are not at hand.
func (s *Service) reader(id sandbox.ID) (h workspace.History, giveBack func(), err error) {
	if s.c.Remote == nil {
		return nil, nil, errs.New(errs.Unsupported, "histories can only be read where their files are")
	}
	if _, err := os.Stat(s.store(id)); err != nil {
		return nil, nil, errs.New(errs.NotFound, "nothing is kept of sandbox %s", id)
	}
	return s.engine(s.owner(id), id, sandbox.Files{})
}

// quiet is a sandbox in which something has changed.
type quiet struct {
	timer *time.Timer
	since time.Time
}

// Touched says that something may have changed the files of a sandbox from
// outside of an agent's run: a command, an upload. Once it has been quiet for
// a moment, what changed becomes a revision.
func (s *Service) Touched(tenant string, id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	q := s.quiet[id]
	if q == nil {
		q = &quiet{since: time.Now()}
		q.timer = time.AfterFunc(touchQuiet, func() { s.settle(tenant, id, q) })
		s.quiet[id] = q
		return
	}
	if time.Since(q.since) < touchLate {
		q.timer.Reset(touchQuiet)
	}
}

func (s *Service) settle(tenant string, id sandbox.ID, q *quiet) {
	s.mu.Lock()
	if s.quiet[id] == q {
		delete(s.quiet, id)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), touchedBusy)
	defer cancel()
	// A sandbox that was paused meanwhile is not woken for this; what stopped
	// has had its last revision.
	if info, err := s.c.Sandboxes.Get(ctx, tenant, id); err != nil || info.State != sandbox.Running {
		return
	}
	h := &history{s: s, tenant: tenant, id: id}
	_, _, err := h.Snapshot(ctx, workspace.Label{Actor: "outside"})
	switch {
	case err == nil, errors.Is(err, context.Canceled), errs.Is(err, errs.NotFound), errs.Is(err, errs.Conflict), errs.Is(err, errs.Unsupported):
	default:
		s.c.Log.Warn("what changed in a sandbox did not become a revision", "id", id, "error", err)
	}
}
