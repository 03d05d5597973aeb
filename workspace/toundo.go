package workspace

import (
	"context"

	"github.com/skete-dev/skete/errs"
)

// ToUndo makes a revision of what is in none yet, since that is a change too and the
// first to be undone, and returns all revisions. Where there is no room for another
// one an undo must be possible all the same: unsaved is then the revision that takes
// back what is in none. 0: all is in one.
func ToUndo(ctx context.Context, h History) (revs []Revision, unsaved uint64, err error) {
	_, _, refused := h.Snapshot(ctx, Label{Actor: Outside})
	if refused != nil && !errs.Is(refused, errs.Limit) && !errs.Is(refused, errs.Unavailable) {
		return nil, 0, refused
	}
	if refused != nil {
		u, err := h.Unsaved(ctx)
		if err != nil {
			return nil, 0, refused
		}
		if u.Any && !u.Aside {
			unsaved = u.Since
		}
	}
	revs, err = h.Revisions(ctx)
	return revs, unsaved, err
}
