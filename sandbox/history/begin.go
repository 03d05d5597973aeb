package history

import (
	"context"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// beginMax bounds how long the first command of a sandbox waits for its history.
const beginMax = 20 * time.Second

// Begin sees to it that a sandbox which goes on from a snapshot, a fork too, has
// a revision of what it began with, before that is changed. A caller that is about to
// let commands or files in calls it; only the first call looks, and all others
// wait for that one. What was made empty needs none: its history begins with the
// empty workspace, whenever that is looked at.
//
// Where it fails or takes too long, the log says so and the sandbox can be used
// all the same: its history then begins with a later look.
func (s *Service) Begin(ctx context.Context, tenant string, id sandbox.ID) {
	if s.recovered(ctx, id) != nil {
		return
	}
	d, err := s.sit(id)
	if err != nil {
		return
	}
	defer s.leave(d)
	if take(ctx, d.beginning) != nil {
		return
	}
	defer func() { <-d.beginning }()
	if s.hasBegun(d) {
		return
	}
	info, err := s.c.Sandboxes.Get(ctx, tenant, id)
	if err != nil {
		return
	}
	s.mu.Lock()
	d.begun = true
	s.mu.Unlock()
	elsewhere := info.Isolation == sandbox.Remote
	if info.From == "" && !elsewhere {
		return
	}
	// Who asked may go away; what was begun serves the next one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginMax)
	defer cancel()
	h := &history{s: s, tenant: tenant, id: id}
	revs, err := h.Revisions(ctx)                    // an engine on the host makes the first one by itself
	if err == nil && (len(revs) == 0) != elsewhere { // a new machine elsewhere gets its files back by the first look
		_, _, err = h.Snapshot(ctx, *atFirst())
	}
	if err != nil && !errs.Is(err, errs.Unsupported) {
		s.c.Log.Warn("the history of a sandbox begins with a later look: its first change cannot be undone", "id", id, "error", err)
	}
}

func (s *Service) hasBegun(d *handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.begun
}
