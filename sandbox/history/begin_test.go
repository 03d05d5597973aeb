package history

import (
	"sync"
	"testing"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// The very first change can be undone, whether a sandbox began empty or with
// what was in a snapshot.
func TestBegin_theFirstChangeCanBeUndone(t *testing.T) {
	for _, from := range []sandbox.SnapshotID{"", "snap_a"} {
		t.Run("from "+string(from), func(t *testing.T) {
			h, s := newHouse(t)
			h.from, h.empty = from, from == ""
			if from != "" {
				h.write(t, "a", "of the snapshot")
			}
			var wg sync.WaitGroup // all who come first wait for one look
			for range 8 {
				wg.Go(func() { s.Begin(t.Context(), tenant, id) })
			}
			wg.Wait()
			if n := h.asked.Load(); n != 1 {
				t.Errorf("it was looked at %d times", n)
			}
			h.write(t, "a", "changed")
			his, _, err := s.Open(t.Context(), tenant, id)
			must(t, err)
			_, _, err = his.Snapshot(t.Context(), workspace.Label{})
			must(t, err)
			revs, err := his.Revisions(t.Context())
			must(t, err)
			_, undo, _ := workspace.Position(revs)
			if len(revs) != 2 || undo != 1 {
				t.Fatalf("%d revisions, undo to %d", len(revs), undo)
			}
			plan, err := his.PlanRestore(t.Context(), undo, "")
			must(t, err)
			_, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{})
			must(t, err)
			switch {
			case from == "" && revs[0].Files != 0, from != "" && revs[0].Files != 1:
				t.Errorf("%d files at first", revs[0].Files)
			case from != "" && h.read(t, "a") != "of the snapshot":
				t.Errorf("%q", h.read(t, "a"))
			}
		})
	}
}
