package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// revisionsOf makes a history of a text like "1E 3L": the number of each revision
// that is kept, and where it lies, by the first letter. X is Elsewhere.
func revisionsOf(t *testing.T, text string) (all []workspace.Revision, when func(agent.Mark) supervisor.When) {
	t.Helper()
	whens := map[byte]supervisor.When{'X': supervisor.Elsewhere, 'E': supervisor.Earlier, 'B': supervisor.Between, 'L': supervisor.Later}
	for word := range strings.FieldsSeq(text) {
		var n uint64
		var letter byte
		if _, err := fmt.Sscanf(word, "%d%c", &n, &letter); err != nil {
			t.Fatal(err)
		}
		all = append(all, workspace.Revision{N: n, Call: string(letter)})
	}
	return all, func(m agent.Mark) supervisor.When { return whens[m.Call[0]] }
}

// Files that are not surely those of an event are refused, never passed off as
// them: a revision that retention has dropped may have been the one.
func TestMoment(t *testing.T) {
	const pruned = ^uint64(0)
	for _, tt := range []struct {
		kept            string
		moment, restore uint64 // 0: there is none
	}{
		{"", 0, 0},
		{"1X", 0, 0}, // a history without a call of the thread
		{"1X 2X", 0, 0},
		{"1X 2E", 2, 0},
		{"1X 2E 3E 4X", 3, 0},
		{"1X 2E 3L 4X 5L", 2, 2},
		{"1X 2E 3X 4L", 3, 3}, // what people did before the later call stays
		{"1X 2L", 1, 1},
		{"1L", pruned, pruned}, // nothing is known from before it
		{"1X 2E 3B 4B", 2, 0},  // what people did after the event is not in it
		{"1X 2E 3E 4B 5L", 4, 4},

		// Pruned at the beginning.
		{"2X 3X", pruned, pruned}, // the earlier calls, or later ones, may have been in 1
		{"2X 3L", pruned, pruned}, // 2 may have what a later call did
		{"2E 3L", 2, 2},
		{"5E 6X", 5, 0},
		{"5B 6X", pruned, 0}, // 4 has the files; no later call was before 5
		{"5B 6L", 5, 5},
		{"5L 6X", pruned, pruned},

		// Pruned in the middle.
		{"1X 2E 4X", pruned, pruned},    // 3 may be the last earlier call
		{"1X 2E 4L", pruned, pruned},    // and here the files before the later one
		{"1X 2E 4X 5L", pruned, pruned}, // 3 may be the first later call
		{"1X 2E 4B", pruned, 0},
		{"1X 2E 4B 5L", 4, 4},
		{"1X 3E 4X", 3, 0},
		{"1X 3E 4L", 3, 3},
		{"1X 2E 3B 5B", 2, 0}, // 4 was made after the event
		{"1X 2E 3L 5L", 2, 2},
		{"1X 9X", pruned, pruned},
	} {
		all, when := revisionsOf(t, tt.kept)
		for name, find := range map[string]struct {
			f    func([]workspace.Revision, func(agent.Mark) supervisor.When) (uint64, error)
			want uint64
		}{"moment": {moment, tt.moment}, "before": {before, tt.restore}} {
			n, err := find.f(all, when)
			if errs.Is(err, errs.NotFound) && n == 0 {
				n, err = pruned, nil
			}
			if err != nil || n != find.want {
				t.Errorf("%q: %s is %d, %v; want %d", tt.kept, name, n, err, find.want)
			}
		}
	}
}
