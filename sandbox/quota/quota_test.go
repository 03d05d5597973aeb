package quota

import (
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// What other nodes stored before counts, and what they stored later does not.
func TestConfirm_theStoreDecidesWhoWasFirst(t *testing.T) {
	one := Usage{Sandboxes: 1}
	for _, c := range []struct {
		name   string
		theirs []uint64 // revisions of another node's sandbox, each of the same cost
		grows  uint64   // a revision by which it costs more
		limit  bool
	}{
		{name: "nothing else"},
		{name: "before", theirs: []uint64{4}, limit: true},
		{name: "later", theirs: []uint64{6}},
		{name: "before, and changed later", theirs: []uint64{4, 6}, limit: true},
		{name: "before, and more later", theirs: []uint64{4}, grows: 6, limit: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := New(sandbox.Limits{Sandboxes: 1})
			if err := q.Charge("t", "sbx_ours", one); err != nil {
				t.Fatal(err)
			}
			for _, revision := range c.theirs {
				q.Seen("t", "sbx_theirs", one, revision)
			}
			if c.grows > 0 {
				q.Seen("t", "sbx_theirs", Usage{Sandboxes: 1, CPUs: 1}, c.grows)
			}
			err := q.Confirm("t", one, 5)
			if got := errs.Is(err, errs.Limit); got != c.limit || err != nil && !got {
				t.Errorf("confirm: %v", err)
			}
			if err := q.Confirm("other", one, 5); err != nil {
				t.Errorf("another tenant: %v", err)
			}
			q.Seen("t", "sbx_theirs", Usage{}, 0)
			if err := q.Confirm("t", one, 9); err != nil || q.Used("t") != one || len(q.seen) != 0 {
				t.Errorf("when theirs is gone: %v, %+v, %v", err, q.Used("t"), q.seen)
			}
		})
	}
}
