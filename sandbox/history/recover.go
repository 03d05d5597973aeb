package history

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// recoverTimeout bounds the work on one history.
const recoverTimeout = 30 * time.Second

// Recover finishes the undos that a server before this one has left half done
// on the host, and lets the commands go on that it had stopped for them. What
// cannot be finished now is when the history is asked next.
func (s *Service) Recover(ctx context.Context) {
	entries, err := os.ReadDir(s.c.Dir)
	if err != nil {
		return // there is none yet
	}
	for _, e := range entries {
		id := sandbox.ID(e.Name())
		if s.owner(id) == "" || strings.HasSuffix(e.Name(), goneSuffix) {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.store(id), "journal")); err != nil {
			continue
		}
		if err := s.recover(ctx, id); err != nil {
			s.c.Log.Warn("an undo that was interrupted is not finished yet", "id", id, "error", err)
			continue
		}
		s.c.Log.Info("an undo that was interrupted is finished", "id", id)
	}
}

func (s *Service) recover(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	h := &history{s: s, tenant: s.owner(id), id: id}
	return h.with(ctx, func(ctx context.Context, _ workspace.History, files sandbox.Files) error {
		// Its opening has done it. Whoever stopped the commands is dead.
		thaw, err := files.Freeze(ctx)
		if err == nil {
			thaw()
		}
		return err
	})
}
