package history

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// line is the revisions that lead to what is on disk, oldest first, and those
// that were undone, the last undone at the end.
func line(revs []workspace.Revision) (chain, undone []workspace.Revision) {
	for _, r := range revs {
		i := indexOf(chain, r.Undoes)
		switch {
		case i >= 0 && chain[i].Root == r.Root:
			for len(chain) > i+1 {
				undone = append(undone, chain[len(chain)-1])
				chain = chain[:len(chain)-1]
			}
			continue
		}
		if i = indexOf(undone, r.Undoes); i >= 0 && undone[i].Root == r.Root {
			for len(undone) > i {
				chain = append(chain, undone[len(undone)-1])
				undone = undone[:len(undone)-1]
			}
			continue
		}
		chain, undone = append(chain, r), nil
	}
	return chain, undone
}

func indexOf(revs []workspace.Revision, n uint64) int {
	for i, r := range revs {
		if n != 0 && r.N == n {
			return i
		}
	}
	return -1
}

// position says which revision is on disk, and where undo and redo go; 0 = nowhere.
func position(revs []workspace.Revision) (current, undo, redo uint64) {
	chain, undone := line(revs)
	if n := len(chain); n > 0 {
		current = chain[n-1].N
		if n > 1 {
			undo = chain[n-2].N
		}
	}
	if n := len(undone); n > 0 {
		redo = undone[n-1].N
	}
	return current, undo, redo
}

// s0 finds the revision that an undo or a redo goes to.
func s0(ctx context.Context, h workspace.History, b api.PlanChange) (uint64, error) {
	// What nobody made a revision of is a change too, and the first to be undone.
	if _, _, err := h.Snapshot(ctx, workspace.Label{Actor: "outside"}); err != nil {
		return 0, err
	}
	revs, err := h.Revisions(ctx)
	if err != nil {
		return 0, err
	}
	_, undo, redo := position(revs)
	if b.Do == api.PlanRedo {
		if redo == 0 {
			return 0, errs.New(errs.Conflict, "there is nothing to redo")
		}
		return redo, nil
	}
	if undo == 0 {
		return 0, errs.New(errs.Conflict, "there is nothing to undo")
	}
	return undo, nil
}
