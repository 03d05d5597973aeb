package history

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/revlog"
)

const (
	tellMost  = 8 // revisions that are told late; of more, the newest
	tellRetry = 5 * time.Second
)

// States of a workspace, as an event says them.
const (
	changed  = "changed"  // its files were
	restored = "restored" // by an undo, a redo, a restore or a revert
)

// told knows up to which revision each history was told. Nothing is told before
// it was read from the log of events: what is missed until then is told by retell.
type told struct {
	mu     sync.Mutex            // held for a moment only
	newest map[sandbox.ID]uint64 // nil = not read yet
}

// tell tells of the revisions of a history that were not told yet. It is called
// by what may have made one, and waits for nothing.
func (s *Service) tell(tenant string, id sandbox.ID, e workspace.History) {
	revs, err := e.Revisions(s.ctx) // from memory
	if err != nil {
		return
	}
	upTo, err := durable(s.ctx, e)
	if err != nil {
		return
	}
	s.tellAll(tenant, id, revs, upTo)
}

// tellAll tells of those that were not told, each once and in their order. Those
// up to durable survive the loss of the sandbox.
func (s *Service) tellAll(tenant string, id sandbox.ID, revs []workspace.Revision, durable uint64) {
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	if s.told.newest == nil {
		return
	}
	last := s.told.newest[id]
	for _, r := range revs[max(0, len(revs)-tellMost):] {
		if r.N > last {
			s.c.Events.Append(s.event(tenant, id, workspace.Stored{Revision: r, Durable: r.N <= durable}))
			s.told.newest[id] = r.N
		}
	}
}

// event tells of a revision. What an undo left as it was stays out: it may be long.
func (s *Service) event(tenant string, id sandbox.ID, r workspace.Stored) event.Event {
	state := changed
	if r.Plan != "" || r.Undoes != 0 {
		state = restored
	}
	r.Kept = nil
	data, _ := json.Marshal(r) // plain data
	return event.Event{
		Time: s.c.Now().UTC(), Tenant: tenant, Node: s.c.Node, Kind: event.Workspace, ID: string(id), State: state, Revision: r.N, Data: data,
	}
}

// forget removes what was told of a history that goes.
func (s *Service) forget(tenant string, id sandbox.ID) error {
	s.told.mu.Lock()
	delete(s.told.newest, id)
	s.told.mu.Unlock()
	return s.c.Events.Forget(s.ctx, tenant, event.Workspace, string(id))
}

// retell begins to tell, and tells what a crash kept from being told, with the
// histories that were written to while events are kept. It tries until Close.
func (s *Service) retell() {
	for {
		err := s.readTold(s.ctx)
		if err == nil {
			break
		}
		s.c.Log.Warn("what was told of the histories cannot be read yet", "error", err)
		if sleep.For(s.ctx, s.retellAfter) != nil {
			return
		}
	}
	entries, err := s.entries()
	if err != nil {
		s.c.Log.Warn("the histories cannot be listed", "error", err)
	}
	for _, e := range entries {
		if s.ctx.Err() != nil {
			return
		}
		if id := sandbox.ID(e.Name()); !strings.HasSuffix(e.Name(), goneSuffix) {
			if err := s.retellOne(id); err != nil {
				s.c.Log.Warn("the revisions of a history cannot be told", "id", id, "error", err)
			}
		}
	}
}

func (s *Service) readTold(ctx context.Context) error {
	newest := map[sandbox.ID]uint64{}
	err := s.c.Events.Newest(ctx, event.Workspace, func(e event.Event) error {
		newest[sandbox.ID(e.ID)] = e.Revision
		return nil
	})
	if err != nil {
		return err
	}
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	s.told.newest = newest
	return nil
}

// retellOne reads the list of revisions beside an engine that may write to it.
func (s *Service) retellOne(id sandbox.ID) error {
	defer s.checking.Lock(id)() // what is removed is not told
	tenant, list := s.owner(id), filepath.Join(s.store(id), revlog.Name)
	info, err := os.Stat(list)
	if errors.Is(err, fs.ErrNotExist) || tenant == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if s.c.Now().Sub(info.ModTime()) > event.Kept {
		return nil // its events have gone by themselves
	}
	revs, _, err := revlog.Read(list)
	if err != nil && !errs.Is(err, errs.Corrupt) { // a check of the history says that
		return err
	}
	if len(revs) > 0 {
		s.tellAll(tenant, id, revs, revs[len(revs)-1].N)
	}
	return nil
}
