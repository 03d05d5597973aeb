package supervisor

import (
	"context"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// rewindFiles takes back what the calls of a thread changed that began after an
// event, and those of the sub-agents that they started, and says what that
// changed. s is the thread's state.
func rewindFiles(ctx context.Context, machines Machines, tenant string, log thread.Log, id thread.ID, s *runs.State, to uint64, by string) ([]runs.Change, error) {
	if err := runs.MayRewind(s, to); err != nil {
		return nil, err
	}
	if machines == nil || s.Machine == "" {
		return nil, errs.New(errs.Unsupported, "the thread has no sandbox whose files could be taken back")
	}
	when, err := calls(ctx, log, id, to)
	if err != nil {
		return nil, err
	}
	return machines.Restore(ctx, tenant, s.Machine, when, by)
}

// calls tells where the calls of a thread, those of the sub-agents that they
// started, and what others did to its files lie, seen from an event.
// Unsupported: the event is of the thread that this one was forked from, and so
// are the files that were there then.
func calls(ctx context.Context, log thread.Log, id thread.ID, at uint64) (func(agent.Mark) When, error) {
	began := map[string]When{}
	var then, later time.Time // when the event was made, and when the first call after it began
	for event, err := range log.Load(ctx, id, 1) {
		if err != nil {
			return nil, err
		}
		if event.Seq <= at {
			then = event.At
		}
		switch b := event.Body.(type) {
		case thread.Opened:
			if b.Fork != nil && at < b.Fork.Seq {
				return nil, errs.New(errs.Unsupported, "event %d is from before the thread was forked; its files are in the history of %s", at, b.Fork.Thread)
			}
		case thread.ToolStarted:
			if began[b.Call] = Earlier; event.Seq > at {
				began[b.Call] = Later
				if later.IsZero() {
					later = event.At
				}
			}
		}
	}
	return func(m agent.Mark) When {
		if w, ok := began[threadCallOf(id, m)]; ok {
			return w
		}
		switch {
		case m.Time.IsZero():
			return Elsewhere
		case !m.Time.After(then):
			return Earlier
		case later.IsZero() || m.Time.Before(later):
			return Between
		}
		return Elsewhere
	}, nil
}

// threadCallOf returns the call of a thread that a revision is of, or beneath which a
// sub-agent made it; "" = none.
func threadCallOf(id thread.ID, m agent.Mark) string {
	if m.Call == "" || m.Actor == "outside" {
		return ""
	}
	if m.Thread == id {
		return m.Call
	}
	beneath, ok := strings.CutPrefix(string(m.Thread), string(id)+"/")
	if !ok {
		return ""
	}
	call, _, _ := strings.Cut(beneath, "/")
	return call
}
