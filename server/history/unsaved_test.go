package history_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// What no revision has yet is shown as such, and undone first.
func TestUnsaved(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	one := w.Step(t, "a", "2", workspace.Label{})
	if p := w.page(); p.Unsaved != nil || p.Unseen != "" || p.Current != one.N {
		t.Errorf("all is saved: %+v", p)
	}
	w.Write(t, "a", "3")
	w.Write(t, "d/b", "new")
	w.Write(t, "d/c", "new")
	p := w.page()
	if d := cmp.Diff(&api.Unsaved{Files: 3}, p.Unsaved); d != "" || p.Current != 0 || p.Undo != one.N || p.Redo != 0 || len(p.Items) != 2 {
		t.Errorf("%s%+v", d, p)
	}
	diff := ask[api.Diff](w, http.StatusOK, "GET", fmt.Sprintf("/diff?from=%d", one.N), nil)
	if got := lines(diff.Files); got != "change a\nadd d\nadd d/b\nadd d/c\n" || diff.To != 0 {
		t.Errorf("%+v: %s", diff, got)
	}
	w.apply(w.plan(api.PlanChange{Do: api.PlanUndo}))
	w.want("a", "2")
	if p := w.page(); p.Unsaved != nil || p.Current != one.N || p.Redo == 0 {
		t.Errorf("after the undo: %+v", p)
	}
	diff = ask[api.Diff](w, http.StatusOK, "GET", fmt.Sprintf("/diff?from=%d", one.N), nil)
	if len(diff.Files) != 0 || diff.To == 0 {
		t.Errorf("%+v", diff)
	}
}

// full is a history that has no room for another revision.
type full struct{ workspace.History }

func (full) Snapshot(context.Context, workspace.Label) (workspace.Revision, bool, error) {
	return workspace.Revision{}, false, errs.New(errs.Limit, "quota of 1 MB of disk is used up")
}

// Where no revision can be made an undo is possible all the same, of what no
// revision has first.
func TestUndo_withoutRoomForRevisions(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	w.Step(t, "a", "2", workspace.Label{})
	w.Write(t, "a", "3")
	w.History = full{w.History}
	w.apply(w.plan(api.PlanChange{Do: api.PlanUndo}))
	w.want("a", "2")
	w.apply(w.plan(api.PlanChange{Do: api.PlanUndo}))
	w.want("a", "1")
	w.apply(w.plan(api.PlanChange{Do: api.PlanRedo}))
	w.want("a", "2")
}
