package history

import (
	"context"
	"time"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
)

// handle is what a Service knows of one sandbox's history while it is used, and
// for openFor afterwards: the open engine, the plans it made. Then it is
// removed.
//
// Lock order: beginning, turn, Service.mu. Only beginning and turn are held over
// slow work, and no other handle waits for them.
type handle struct {
	id        sandbox.ID    // never changes
	beginning chan struct{} // as turn; held by Begin
	turn      chan struct{} // held, by filling it, over the opening, the last look and the closing of the engine

	// Guarded by Service.mu.
	begun  bool
	users  int               // who has the handle: with the engine, or on the way to it
	uses   int               // of the engine, by users
	h      workspace.History // nil = not open
	host   sandbox.ID
	dir    string // of the files it was opened for
	tenant string
	guest  *wire.Client
	idle   *time.Timer
	plans  map[string]planned
}

// planned is what is known of a plan beyond its engine.
type planned struct {
	paths [][]byte    // that it would touch
	now   object.Hash // what the files were
	// again makes it anew: the engine that made it is closed with a workspace that
	// is lent for one call only, as a stopped sandbox's is.
	again func(context.Context, workspace.History) (workspace.Plan, error)
}

// sit returns the handle of a sandbox, to be given back by leave.
func (s *Service) sit(id sandbox.ID) (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sandbox.ErrClosing
	}
	d := s.handles[id]
	if d == nil {
		d = &handle{id: id, beginning: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
		s.handles[id] = d
	}
	s.join(d)
	return d, nil
}

// join counts a user of a handle. Preconditions: s.mu is held.
func (s *Service) join(d *handle) {
	d.users++
	if d.idle != nil {
		d.idle.Stop()
		d.idle = nil
	}
}

// leave gives a handle back. One that has something to keep stays for a while.
func (s *Service) leave(d *handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users > 0 || s.handles[d.id] != d {
		return
	}
	if s.closed || d.h == nil && !d.begun && len(d.plans) == 0 {
		delete(s.handles, d.id)
		return
	}
	d.idle = time.AfterFunc(s.openFor, func() { s.rest(d) })
}

// rest closes an engine that has not been used for a while, and removes the handle.
func (s *Service) rest(d *handle) {
	s.mu.Lock()
	if d.users > 0 || s.handles[d.id] != d {
		s.mu.Unlock()
		return
	}
	d.users++
	s.mu.Unlock()
	d.turn <- struct{}{}
	s.mu.Lock()
	alone := d.users == 1
	d.begun = d.begun && !alone
	if alone {
		d.plans = nil
	}
	s.mu.Unlock()
	if alone {
		s.shut(d)
	}
	<-d.turn
	s.leave(d)
}

// take waits for a turn at the handle.
func take(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shut closes the engine, if it is open. Preconditions: the turn is held.
func (s *Service) shut(d *handle) {
	s.mu.Lock()
	h := d.h
	d.h = nil
	if s.hosts[d.host] == d {
		delete(s.hosts, d.host)
	}
	s.mu.Unlock()
	if h == nil {
		return
	}
	if err := h.Close(); err != nil {
		s.c.Log.Warn("a history did not close well", "host", d.host, "error", err)
	}
	s.measure(d.id)
}

// engine returns the open history of a sandbox whose files are at hand, to be
// given back.
func (s *Service) engine(ctx context.Context, tenant string, id sandbox.ID, files sandbox.Files) (h workspace.History, release func(), err error) {
	d, err := s.sit(id)
	if err != nil {
		return nil, nil, err
	}
	if h = s.use(d, files); h == nil {
		if err := take(ctx, d.turn); err != nil {
			s.leave(d)
			return nil, nil, err
		}
		defer func() { <-d.turn }()
		if h = s.use(d, files); h == nil {
			h, err = s.begin(ctx, d, tenant, id, files)
		}
	}
	if err != nil {
		s.leave(d)
		return nil, nil, err
	}
	return h, func() { s.release(d) }, nil
}

func (s *Service) release(d *handle) {
	s.mu.Lock()
	d.uses--
	s.mu.Unlock()
	s.leave(d)
}

// use counts a use of the engine; nil: it is not open, or for other files.
func (s *Service) use(d *handle, files sandbox.Files) workspace.History {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.h == nil || !d.fits(files) {
		return nil
	}
	d.uses++
	return d.h
}

func (d *handle) fits(files sandbox.Files) bool {
	return d.host == files.Host && d.dir == files.Volume.Path && (d.dir != "" || d.guest == files.Guest)
}

// begin opens the engine for files and counts a use of it. Preconditions: the
// turn is held.
func (s *Service) begin(ctx context.Context, d *handle, tenant string, id sandbox.ID, files sandbox.Files) (workspace.History, error) {
	s.shut(d) // of a machine that is gone
	done, err := s.looks.begin(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.own(tenant, id); err != nil {
		return nil, err
	}
	h, err := s.open(id, files)
	if err != nil {
		s.measure(id)
		return nil, err
	}
	s.wrote(tenant, id, h) // it may have made a first revision, or finished an undo
	s.mu.Lock()
	defer s.mu.Unlock()
	d.h, d.tenant, d.uses = h, tenant, d.uses+1
	d.host, d.dir, d.guest = files.Host, files.Volume.Path, files.Guest
	if d.host != "" {
		s.hosts[d.host] = d
	}
	return h, nil
}

// Detaching makes a last revision of a workspace, if it has a history that is
// open, and lets go of it. No call works on it any more, nor does the machine:
// the manager has seen to that. No other sandbox waits for it.
func (s *Service) Detaching(host sandbox.ID) {
	s.mu.Lock()
	d := s.hosts[host]
	if d == nil {
		s.mu.Unlock()
		return
	}
	s.join(d)
	s.mu.Unlock()
	defer s.leave(d)
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	s.mu.Lock()
	h, dir, tenant, found := d.h, d.dir, d.tenant, d.host == host
	s.mu.Unlock()
	if h == nil || !found {
		return
	}
	if dir != "" {
		s.lastLook(tenant, d.id, h)
	}
	s.shut(d)
}

// lastLook makes the revision of what the files are at the end. A tenant that
// has much to look at waits for itself only, and not for ever. One that has used up
// its quota gets none: starts and stops would be a way around it.
func (s *Service) lastLook(tenant string, id sandbox.ID, h workspace.History) {
	if err := s.within(tenant, id); err != nil {
		s.c.Log.Warn("the last changes of a sandbox did not become a revision", "id", id, "error", err)
		return
	}
	wait, cancel := context.WithTimeout(context.Background(), touchedBusy)
	defer cancel()
	if done, err := s.looks.begin(wait, tenant); err == nil {
		defer done()
	}
	ctx, cancel := context.WithTimeout(context.Background(), touchedBusy)
	defer cancel()
	_, fresh, err := h.Snapshot(ctx, s.lastLabel(tenant, id))
	if err != nil {
		s.c.Log.Warn("the last changes of a sandbox did not become a revision", "id", id, "error", err)
	}
	if fresh {
		s.tell(tenant, id, h) // it is measured when it closes
	}
}
