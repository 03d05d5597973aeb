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
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/tree"
)

const (
	bytesMax    = 5 << 30         // of one history on the disk
	openFor     = 5 * time.Minute // an engine that nobody asks is closed
	touchQuiet  = 2 * time.Second // without a change, before what changed becomes a revision
	touchLate   = 20 * time.Second
	touchedBusy = time.Minute // that such a revision may take
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
	// is the place of its replica. nil: such machines have none.
	Remote func(dir string, guest *wire.Client) (workspace.History, error)
	// Applied is told which paths an undo has changed in a running sandbox,
	// before its commands go on; nil = nobody wants to know.
	Applied func(ctx context.Context, guest *wire.Client, paths []string)
	Log     *slog.Logger // nil = none
	Now     func() time.Time
}

// Service keeps the histories of a server.
type Service struct {
	c Config

	mu     sync.Mutex // guards all below
	desks  map[sandbox.ID]*desk
	quiet  map[sandbox.ID]*quiet
	closed bool
}

// desk is the open engine of one sandbox.
type desk struct {
	mu    sync.Mutex // guards all below; an engine is opened by one caller
	host  sandbox.ID
	dir   string // of the files it was opened for
	guest *wire.Client
	h     workspace.History
	uses  int
	idle  *time.Timer
}

// New returns a service. The caller closes it, after the sandboxes' manager.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{c: c, desks: map[sandbox.ID]*desk{}, quiet: map[sandbox.ID]*quiet{}}
}

// Open returns the history of a sandbox. NotFound: there is no such sandbox.
// release lets go of it.
func (s *Service) Open(ctx context.Context, tenant string, id sandbox.ID) (h workspace.History, release func(), err error) {
	if _, err := s.c.Sandboxes.Get(ctx, tenant, id); err != nil {
		return nil, nil, err
	}
	return &history{s: s, tenant: tenant, id: id}, func() {}, nil
}

// Detaching closes what is open in the workspace of a host name. Nobody works
// on it any more: the manager has seen to that.
func (s *Service) Detaching(host sandbox.ID) {
	s.mu.Lock()
	var found *desk
	for _, d := range s.desks {
		d.mu.Lock()
		if d.host == host {
			found = d
		}
		d.mu.Unlock()
	}
	s.mu.Unlock()
	if found != nil {
		found.close(s.c.Log)
	}
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
func (s *Service) engine(id sandbox.ID, files sandbox.Files) (h workspace.History, giveBack func(), err error) {
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
		if d.h, err = s.open(id, files); err != nil {
			return nil, nil, err
		}
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

func (s *Service) open(id sandbox.ID, files sandbox.Files) (workspace.History, error) {
	if files.Volume.Path == "" {
		if s.c.Remote == nil {
			return nil, errs.New(errs.Unsupported, "machines with a kernel of their own keep no history here")
		}
		return s.c.Remote(s.dir(id), files.Guest)
	}
	return workspace.Open(workspace.Config{
		Dir: files.Volume.Path, Staging: filepath.Join(files.Volume.Disk, layout.Staging), Store: s.dir(id),
		BytesMax: bytesMax, Now: s.c.Now,
	})
}

// history is the history of one sandbox. Each call finds out anew where its
// files are: between two of them it may have been stopped, started, moved.
type history struct {
	s      *Service
	tenant string
	id     sandbox.ID
}

func (h *history) with(ctx context.Context, f func(context.Context, workspace.History, sandbox.Files) error) error {
	return h.s.c.Sandboxes.Files(ctx, h.tenant, h.id, func(ctx context.Context, files sandbox.Files) error {
		engine, giveBack, err := h.s.engine(h.id, files)
		if err != nil {
			return err
		}
		defer giveBack()
		return f(ctx, engine, files)
	})
}

// ask is with for calls that return something.
func ask[T any](ctx context.Context, h *history, f func(context.Context, workspace.History) (T, error)) (out T, err error) {
	err = h.with(ctx, func(ctx context.Context, engine workspace.History, _ sandbox.Files) error {
		out, err = f(ctx, engine)
		return err
	})
	return out, err
}

func (h *history) Snapshot(ctx context.Context, l workspace.Label) (rev workspace.Revision, fresh bool, err error) {
	rev, err = ask(ctx, h, func(ctx context.Context, e workspace.History) (workspace.Revision, error) {
		rev, made, err := e.Snapshot(ctx, l)
		fresh = made
		return rev, err
	})
	return rev, fresh, err
}

func (h *history) Revisions(ctx context.Context) ([]workspace.Revision, error) {
	return ask(ctx, h, func(ctx context.Context, e workspace.History) ([]workspace.Revision, error) { return e.Revisions(ctx) })
}

func (h *history) PlanRestore(ctx context.Context, n uint64, path string) (workspace.Plan, error) {
	return ask(ctx, h, func(ctx context.Context, e workspace.History) (workspace.Plan, error) {
		return e.PlanRestore(ctx, n, path)
	})
}

func (h *history) PlanRevert(ctx context.Context, n uint64, choices map[string]workspace.Choice) (workspace.Plan, error) {
	return ask(ctx, h, func(ctx context.Context, e workspace.History) (workspace.Plan, error) {
		return e.PlanRevert(ctx, n, choices)
	})
}

// Apply stops what writes to the files meanwhile.
func (h *history) Apply(ctx context.Context, plan string, l workspace.Label) (rev workspace.Revision, result apply.Result, err error) {
	err = h.with(ctx, func(ctx context.Context, e workspace.History, files sandbox.Files) error {
		if files.Freeze == nil { // the machine does all that by itself
			rev, result, err = e.Apply(ctx, plan, l)
			return err
		}
		thaw, err := files.Freeze(ctx)
		if err != nil {
			return err
		}
		defer thaw()
		rev, result, err = e.Apply(ctx, plan, l)
		return err
	})
	return rev, result, err
}

func (h *history) Diff(ctx context.Context, from, to uint64, o workspace.DiffOptions) (workspace.Diff, error) {
	return ask(ctx, h, func(ctx context.Context, e workspace.History) (workspace.Diff, error) {
		return e.Diff(ctx, from, to, o)
	})
}

func (h *history) Entry(ctx context.Context, n uint64, path string) (tree.Entry, error) {
	return ask(ctx, h, func(ctx context.Context, e workspace.History) (tree.Entry, error) { return e.Entry(ctx, n, path) })
}

func (h *history) Content(ctx context.Context, n uint64, path string, w io.Writer) error {
	return h.with(ctx, func(ctx context.Context, e workspace.History, _ sandbox.Files) error {
		return e.Content(ctx, n, path, w)
	})
}

// Close does nothing: engines belong to the Service.
func (h *history) Close() error { return nil }

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
	h := &history{s: s, tenant: tenant, id: id}
	_, _, err := h.Snapshot(ctx, workspace.Label{Actor: "outside"})
	switch {
	case err == nil, errors.Is(err, context.Canceled), errs.Is(err, errs.NotFound), errs.Is(err, errs.Conflict), errs.Is(err, errs.Unsupported):
	default:
		s.c.Log.Warn("what changed in a sandbox did not become a revision", "id", id, "error", err)
	}
}
