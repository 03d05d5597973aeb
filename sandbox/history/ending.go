package history

import (
	"context"
	"errors"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// answerMax is what a machine that is about to end gets to answer at all. One that
// does not is ended without a last look.
const answerMax = 10 * time.Second

// Ending sees to it that what was written to a sandbox is in its history before its
// machine or its files go. A history begins for that, if a call may have written.
//
// Where the host has the files, the revision is made by Detaching, when nothing
// writes any more: here the engine opens. A machine that has its disk to itself
// makes it now, as long as ctx lasts.
func (s *Service) Ending(ctx context.Context, tenant string, id sandbox.ID, files sandbox.Files, written bool) {
	if !written && s.owner(id) != tenant {
		return
	}
	h := &history{s: s, tenant: tenant, id: id}
	err := h.lastRevision(ctx, files)
	switch {
	case err == nil, errs.Is(err, errs.Unsupported), errors.Is(err, sandbox.ErrClosing):
	default:
		s.c.Log.Warn("the last changes of a sandbox did not become a revision", "id", id, "error", err)
	}
}

func (h *history) lastRevision(ctx context.Context, files sandbox.Files) error {
	inside := files.Volume.Path == ""
	if inside {
		if err := answers(ctx, files); err != nil {
			return err
		}
	}
	engine, release, err := h.s.engine(ctx, h.tenant, h.id, files)
	if err != nil {
		return err
	}
	defer release()
	if !inside {
		return nil
	}
	done, err := h.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, fresh, err := engine.Snapshot(ctx, h.s.lastLabel(h.tenant, h.id))
	if fresh {
		h.s.tell(h.tenant, h.id, engine) // it is measured when it closes
	}
	return err
}

// answers returns nil if a machine's guest does.
func answers(ctx context.Context, files sandbox.Files) error {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	_, err := files.Guest.Hello(ctx)
	return err
}
