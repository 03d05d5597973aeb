package history

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// recoverTimeout bounds the work on one history.
const recoverTimeout = 30 * time.Second

// Recover begins to finish the undos that a server before this one has left half
// done on the host, and to let the commands go on that it had stopped for them.
// Calls that need such a sandbox wait for that (see Begin, Open), and for no other.
// What cannot be finished now is when the history is asked next. wait returns when
// all are looked at. From here on revisions are told, also those that a server
// before this one has made and not told.
func (s *Service) Recover() (wait func()) {
	s.spawn(s.retell)
	var all sync.WaitGroup
	entries, _ := os.ReadDir(s.c.Dir) // there may be none yet
	for _, e := range entries {
		id := sandbox.ID(e.Name())
		if s.owner(id) == "" || strings.HasSuffix(e.Name(), goneSuffix) {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.store(id), "journal")); err != nil {
			continue
		}
		s.mu.Lock()
		if !s.closed {
			over := make(chan struct{})
			s.recovering[id] = over
			all.Add(1)
			s.work.Go(func() {
				defer all.Done()
				s.finishUndo(id)
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.recovering, id)
				close(over)
			})
		}
		s.mu.Unlock()
	}
	return all.Wait
}

func (s *Service) finishUndo(id sandbox.ID) {
	if err := s.recover(s.ctx, id); err != nil {
		s.c.Log.Warn("an undo that was interrupted is not finished yet", "id", id, "error", err)
		return
	}
	s.c.Log.Info("an undo that was interrupted is finished", "id", id)
}

// recovered waits until Recover is done with a sandbox.
func (s *Service) recovered(ctx context.Context, id sandbox.ID) error {
	s.mu.Lock()
	over := s.recovering[id]
	s.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) recover(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	h := &history{s: s, tenant: s.owner(id), id: id}
	return h.with(ctx, func(ctx context.Context, e workspace.History, files sandbox.Files) error {
		// Its opening has done it. The server that stopped the commands is dead.
		thaw, err := files.Freeze(ctx)
		if err != nil {
			return err
		}
		thaw()
		if err := h.applied(ctx, e, files); err != nil { // the files are right all the same
			s.c.Log.Warn("what holds files that an undo replaced was not restarted", "id", id, "error", err)
		}
		return nil
	})
}

// applied tells of the paths that the newest revision changed, if an undo made it:
// what was begun by a server before this one has told of nothing.
func (h *history) applied(ctx context.Context, e workspace.History, files sandbox.Files) error {
	if files.Guest == nil || h.s.c.Applied == nil {
		return nil
	}
	revs, err := e.Revisions(ctx)
	if err != nil || len(revs) < 2 {
		return err
	}
	before, now := revs[len(revs)-2], revs[len(revs)-1]
	if now.Plan == "" {
		return nil
	}
	d, err := e.Diff(ctx, before.N, now.N, workspace.DiffOptions{})
	if err != nil {
		return err
	}
	var paths [][]byte
	for _, f := range d.Files {
		paths = append(paths, []byte(f.Path))
	}
	if len(paths) > 0 {
		h.s.c.Applied(ctx, h.id, files.Guest, paths)
	}
	return nil
}
