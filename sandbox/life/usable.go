package life

import (
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Usable returns nil if the sandbox's guest can be called, or says why not, and
// what to do. up: there is a machine.
func (r registryRecord) Usable(up bool) error {
	id := r.Info.ID
	switch state := r.Info.State; state {
	case sandbox.Running:
		if !up || r.Plan != planNone {
			if sandbox.Died(r.PlanReason) {
				return ErrDied(id, r.PlanReason)
			}
			// Not a conflict: soon it is stopped, and then the error says what to do.
			return errs.New(errs.Unavailable, "sandbox %s is stopping", id)
		}
		return nil
	case sandbox.Creating:
		return errs.New(errs.Conflict, "sandbox %s is still starting", id).WithHint("try again in a moment")
	case sandbox.Paused:
		return errs.New(errs.Conflict, "sandbox %s is paused", id).WithHint("resume it first: `skete vm resume %s`", id)
	case sandbox.Stopped, sandbox.Failed:
		if sandbox.Died(r.Info.Reason) {
			return ErrDied(id, r.Info.Reason)
		}
		if state == sandbox.Failed {
			return errs.New(errs.Conflict, "sandbox %s has failed (%s)", id, r.Info.Reason).
				WithHint("its files are kept; start it again: `skete vm start %s`", id)
		}
		return errs.New(errs.Conflict, "sandbox %s is stopped (%s)", id, r.Info.Reason).WithHint("start it first: `skete vm start %s`", id)
	}
	return ErrDestroyed(id)
}

// ErrDestroyed says that a sandbox is no more.
func ErrDestroyed(id sandbox.ID) error {
	return errs.New(errs.NotFound, "sandbox %s was destroyed", id)
}

// ErrDied says that a sandbox's machine has ended and was not asked to.
func ErrDied(id sandbox.ID, reason string) error {
	how := "has ended although it was not stopped" // not every kernel tells how
	switch reason {
	case sandbox.ReasonKilled:
		how = "was killed"
	case sandbox.ReasonOutOfMemory:
		how = "died: it ran out of memory"
	case sandbox.ReasonLost:
		how = "is gone: the host or the server went down"
	}
	return errs.New(errs.Conflict, "the machine of sandbox %s %s, and all that ran in it has ended", id, how).
		WithHint("its files are kept; start it again: `skete vm start %s`", id)
}
