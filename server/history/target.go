package history

import (
	"context"
	"slices"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// target finds the revision that an undo or a redo goes to.
func target(ctx context.Context, h workspace.History, b api.PlanChange) (uint64, error) {
	revs, unsaved, err := workspace.ToUndo(ctx, h)
	if err != nil {
		return 0, err
	}
	_, undo, redo := workspace.Position(revs)
	if unsaved != 0 {
		undo, redo = unsaved, 0
	}
	named := workspace.Scope{Thread: b.Thread, Run: b.Run, Call: b.Call, Step: b.Step}
	switch {
	case b.Do == api.PlanRedo && redo == 0:
		return 0, errs.New(errs.Conflict, "there is nothing to redo").WithCode(errs.NothingToDo)
	case b.Do == api.PlanRedo:
		return redo, nil
	case undo == 0:
		return 0, errs.New(errs.Conflict, "there is nothing to undo").WithCode(errs.NothingToDo)
	case b.Scope == "" || b.Scope == scopeLast:
		if named == (workspace.Scope{}) {
			return undo, nil
		}
		return workspace.Before(revs, named)
	case b.Scope == scopeTurn:
		return workspace.BeforeTurn(revs, named)
	}
	s, err := scopeOf(revs, b.Scope, named)
	if err != nil {
		return 0, err
	}
	return workspace.Before(revs, s)
}

// Scopes of an undo.
const (
	scopeLast = "last"
	scopeStep = "step"
	scopeTurn = "turn"
	scopeCall = "call"
)

// scopeOf is what a scope means; what is not named is that of the last change
// that a run made and that was not undone.
func scopeOf(revs []workspace.Revision, scope string, named workspace.Scope) (workspace.Scope, error) {
	switch {
	case scope == scopeCall && named.Call != "", scope == scopeStep && named.Run != "" && named.Step != 0, scope == "run" && named.Run != "":
		return named, nil
	}
	last, ok := lastOfRun(revs, named)
	if !ok {
		return named, workspace.NoChange()
	}
	named.Thread, named.Run = last.Thread, last.Run
	if scope == scopeStep || scope == scopeCall {
		named.Step = last.Step
	}
	if scope == scopeCall {
		named.Call = last.Call
	}
	return named, nil
}

// lastOfRun is the last change of a run on the way to what is on disk.
func lastOfRun(revs []workspace.Revision, named workspace.Scope) (workspace.Revision, bool) {
	revs = slices.Clone(revs)
	for range len(revs) {
		current, undo, _ := workspace.Position(revs)
		r, _, err := find(revs, current)
		if err != nil {
			break
		}
		if r.Run != "" && r.Call != "" && r.Actor != workspace.Outside && (named.Run == "" || r.Run == named.Run) && (named.Thread == "" || r.Thread == named.Thread) {
			return r, true
		}
		before, _, err := find(revs, undo)
		if err != nil {
			break
		}
		// One step back, to look from there.
		revs = append(revs, workspace.Revision{N: revs[len(revs)-1].N + 1, Root: before.Root, Undoes: before.N})
	}
	return workspace.Revision{}, false
}
