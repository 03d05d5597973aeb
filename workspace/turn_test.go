package workspace_test

import (
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// story makes revisions as runs do: at each message of a person, and around
// each call.
type story struct {
	*place
	step int
}

func (s *story) mark(l workspace.Label) {
	s.t.Helper()
	_, _, err := s.w.Snapshot(s.t.Context(), l)
	must(s.t, err)
}

// says is a message of a person to a run.
func (s *story) says(run string) {
	s.t.Helper()
	s.mark(workspace.Label{Thread: "t", Run: run, Actor: workspace.Outside, Text: "please"})
}

// call writes a file by a tool; "" changes nothing.
func (s *story) call(run, text string) {
	s.t.Helper()
	s.begins(run, text)
	s.mark(workspace.Label{Thread: "t", Run: run, Step: s.step, Call: "call" + string(rune('a'+s.step)), Actor: "agent"})
}

// begins is a call that does not come to its end: the process that runs it dies.
func (s *story) begins(_, text string) {
	s.t.Helper()
	s.step++
	s.mark(workspace.Label{Actor: workspace.Outside, Text: "before write"})
	if text != "" {
		s.write("f", text)
	}
}

// undoTurn is `skete undo --turn`, as the server does it.
func (s *story) undoTurn(scope workspace.Scope) error {
	s.t.Helper()
	s.mark(workspace.Label{Actor: workspace.Outside})
	revs, err := s.w.Revisions(s.t.Context())
	must(s.t, err)
	n, err := workspace.BeforeTurn(revs, scope)
	if err == nil {
		s.restore(n, "")
	}
	return err
}

func TestUndoTurn(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*story)
		want []string // what f has after each undo; "" = there was nothing to undo
	}{
		"one turn": {func(s *story) { s.says("r1"); s.call("r1", "1"); s.call("r1", "2") }, []string{"0", ""}},
		"two runs, one after the other": {func(s *story) {
			s.says("r1")
			s.call("r1", "1")
			s.says("r2")
			s.call("r2", "2")
		}, []string{"1", "0", ""}},
		"two messages to one run": {func(s *story) {
			s.says("r1")
			s.call("r1", "1")
			s.says("r1")
			s.call("r1", "2")
			s.call("r1", "3")
		}, []string{"1", "0", ""}},
		"a turn without changes":           {func(s *story) { s.says("r1"); s.call("r1", "") }, []string{""}},
		"the second turn changed nothing":  {func(s *story) { s.says("r1"); s.call("r1", "1"); s.says("r2"); s.call("r2", "") }, []string{"0", ""}},
		"the same in one run":              {func(s *story) { s.says("r1"); s.call("r1", "1"); s.says("r1"); s.call("r1", "") }, []string{"0", ""}},
		"then a person changes something":  {func(s *story) { s.says("r1"); s.call("r1", "1"); s.says("r2"); s.write("f", "mine") }, []string{"1", "0", ""}},
		"a person changes before the turn": {func(s *story) { s.write("f", "mine"); s.says("r1"); s.call("r1", "1") }, []string{"mine", ""}},
		"a crash in the first call":        {func(s *story) { s.says("r1"); s.begins("r1", "1") }, []string{"0", ""}},
		"a crash in the second turn":       {func(s *story) { s.says("r1"); s.call("r1", "1"); s.says("r2"); s.begins("r2", "2") }, []string{"1", "0", ""}},
		"a crash, and it goes on": {func(s *story) {
			s.says("r1")
			s.call("r1", "1")
			s.begins("r1", "2")
			must(s.t, s.w.Close())
			s.open()
			s.call("r1", "3")
		}, []string{"0", ""}},
		"the message was not kept": {func(s *story) { s.says("r1"); s.call("r1", "1"); s.call("r2", "2") }, []string{"1", "0", ""}},
		"a person undid a part":    {func(s *story) { s.says("r1"); s.call("r1", "1"); s.call("r1", "2"); s.undo(false) }, []string{"0", ""}},
		"all of it was undone":     {func(s *story) { s.says("r1"); s.call("r1", "1"); s.undo(false) }, []string{""}},
		"undone, and done again":   {func(s *story) { s.says("r1"); s.call("r1", "1"); s.undo(false); s.undo(true) }, []string{"0", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{place: newPlace(t)}
			s.write("f", "0")
			s.mark(workspace.Label{Actor: workspace.Outside})
			c.tell(s)
			for i, want := range c.want {
				err := s.undoTurn(workspace.Scope{})
				if want == "" {
					if !errs.Is(err, errs.NotFound) {
						t.Errorf("undo %d: %v, want NotFound", i+1, err)
					}
					continue
				}
				if got := texts(t, s.dir); err != nil || got[0] != "f="+want {
					t.Fatalf("undo %d: %q, %v; want %q", i+1, got, err, want)
				}
			}
		})
	}
}

func TestUndoTurn_named(t *testing.T) {
	s := &story{place: newPlace(t)}
	s.write("f", "0")
	s.mark(workspace.Label{Actor: workspace.Outside})
	s.says("r1")
	s.call("r1", "1")
	s.says("r2")
	s.call("r2", "2")
	if err := s.undoTurn(workspace.Scope{Run: "r9"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
	must(t, s.undoTurn(workspace.Scope{Run: "r1"}))
	if got := texts(t, s.dir); got[0] != "f=0" {
		t.Errorf("%q", got)
	}
}

// What was there when a turn began is one of the last to be dropped; if it is
// gone all the same, that is said, and nothing of an earlier turn is taken back.
func TestUndoTurn_pruned(t *testing.T) {
	for name, c := range map[string]struct {
		gone func(workspace.Revision) bool
		want string // "" = NotFound
	}{
		"the calls":        {func(r workspace.Revision) bool { return r.Run == "r2" && r.Call != "" && r.N < 6 }, "1"},
		"its beginning":    {func(r workspace.Revision) bool { return r.Run == "r2" && r.Call == "" }, ""},
		"all before":       {func(r workspace.Revision) bool { return r.N < 5 }, ""},
		"the turn before":  {func(r workspace.Revision) bool { return r.Run == "r1" }, "1"},
		"nothing of these": {func(workspace.Revision) bool { return false }, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{place: newPlace(t)}
			s.write("f", "0")
			s.mark(workspace.Label{Actor: workspace.Outside}) // 1
			s.says("r1")                                      // 2
			s.call("r1", "1")                                 // 3
			s.says("r2")                                      // 4
			s.call("r2", "2")                                 // 5
			s.call("r2", "3")                                 // 6
			revs, err := s.w.Revisions(t.Context())
			must(t, err)
			if len(revs) != 6 {
				t.Fatalf("%+v", revs)
			}
			var kept []workspace.Revision
			for _, r := range revs {
				if !c.gone(r) {
					kept = append(kept, r)
				}
			}
			n, err := workspace.BeforeTurn(kept, workspace.Scope{})
			if c.want == "" {
				if !errs.Is(err, errs.NotFound) {
					t.Fatalf("%d, %v; want NotFound", n, err)
				}
				return
			}
			must(t, err)
			s.restore(n, "")
			if got := texts(t, s.dir); got[0] != "f="+c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
