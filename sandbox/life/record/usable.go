package record

import (
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Usable returns nil if the sandbox's guest can be called, or says why not, and
// what to do. up: there is a machine.
func (r Record) Usable(up bool) error {
	id := r.Info.ID
	switch r.Info.State {
	case sandbox.Running:
		if !up || r.Plan != None {
			return errs.New(errs.Conflict, "sandbox %s is stopping", id)
		}
		return nil
	case sandbox.Creating:
		return errs.New(errs.Conflict, "sandbox %s is still starting", id).WithHint("try again in a moment")
	case sandbox.Paused:
		return errs.New(errs.Conflict, "sandbox %s is paused", id).WithHint("resume it first: `skete vm resume %s`", id)
	case sandbox.Stopped:
		return errs.New(errs.Conflict, "sandbox %s is stopped (%s)", id, r.Info.Reason).WithHint("start it first: `skete vm start %s`", id)
	case sandbox.Failed:
		return errs.New(errs.Conflict, "sandbox %s has failed (%s)", id, r.Info.Reason).
			WithHint("its files are kept; start it again: `skete vm start %s`", id)
	}
	return ErrDestroyed(id)
}

// ErrDestroyed says that a sandbox is no more.
func ErrDestroyed(id sandbox.ID) error {
	return errs.New(errs.NotFound, "sandbox %s was destroyed", id)
}
