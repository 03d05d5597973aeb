package workspace_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
)

// revisions makes a list of roots, each with the number that it goes back to.
func revisions(steps ...[2]int) (revs []workspace.Revision) {
	for i, s := range steps {
		revs = append(revs, workspace.Revision{N: uint64(i + 1), Root: object.Hash{byte(s[0])}, Undoes: uint64(s[1])})
	}
	return revs
}

func TestPosition(t *testing.T) {
	for name, c := range map[string]struct {
		revs                [][2]int // root, undoes
		current, undo, redo uint64
	}{
		"nothing":                     {nil, 0, 0, 0},
		"the first":                   {[][2]int{{1, 0}}, 1, 0, 0},
		"three":                       {[][2]int{{1, 0}, {2, 0}, {3, 0}}, 3, 2, 0},
		"undone":                      {[][2]int{{1, 0}, {2, 0}, {1, 1}}, 1, 0, 2},
		"undone twice":                {[][2]int{{1, 0}, {2, 0}, {3, 0}, {2, 2}, {1, 1}}, 1, 0, 2},
		"undone twice, redone":        {[][2]int{{1, 0}, {2, 0}, {3, 0}, {2, 2}, {1, 1}, {2, 2}}, 2, 1, 3},
		"two back at once":            {[][2]int{{1, 0}, {2, 0}, {3, 0}, {1, 1}}, 1, 0, 2},
		"two back, two forward":       {[][2]int{{1, 0}, {2, 0}, {3, 0}, {1, 1}, {3, 3}}, 3, 2, 0},
		"a change after an undo":      {[][2]int{{1, 0}, {2, 0}, {1, 1}, {4, 0}}, 4, 1, 0},
		"undo of that":                {[][2]int{{1, 0}, {2, 0}, {1, 1}, {4, 0}, {1, 1}}, 1, 0, 4},
		"back to what was undone":     {[][2]int{{1, 0}, {2, 0}, {1, 1}, {4, 0}, {2, 2}}, 5, 4, 0},
		"by the number of the undo":   {[][2]int{{1, 0}, {2, 0}, {1, 1}, {2, 2}, {1, 3}}, 1, 0, 2},
		"only one path":               {[][2]int{{1, 0}, {2, 0}, {9, 1}}, 3, 2, 0},
		"a step reverted":             {[][2]int{{1, 0}, {2, 0}, {3, 0}, {9, 2}}, 4, 3, 0},
		"the same again":              {[][2]int{{1, 0}, {2, 0}, {2, 2}}, 2, 1, 0},
		"target not kept":             {[][2]int{{1, 0}, {2, 0}, {7, 99}}, 3, 2, 0},
		"equal content, other number": {[][2]int{{1, 0}, {2, 0}, {1, 0}, {2, 2}}, 2, 1, 3},
	} {
		current, undo, redo := workspace.Position(revisions(c.revs...))
		if current != c.current || undo != c.undo || redo != c.redo {
			t.Errorf("%s: %d, %d, %d; want %d, %d, %d", name, current, undo, redo, c.current, c.undo, c.redo)
		}
	}
}

// A jump back to a revision that the caller named is a change: undo takes it
// back as a whole, and redo does it again.
func TestPosition_jump(t *testing.T) {
	revs := revisions([2]int{1, 0}, [2]int{2, 0}, [2]int{3, 0}, [2]int{1, 1})
	revs[3].Jump = true
	if current, undo, redo := workspace.Position(revs); current != 4 || undo != 3 || redo != 0 {
		t.Errorf("after a jump: %d, %d, %d", current, undo, redo)
	}
	revs = append(revs, workspace.Revision{N: 5, Root: revs[2].Root, Undoes: 3})
	if current, undo, redo := workspace.Position(revs); current != 3 || undo != 2 || redo != 4 {
		t.Errorf("undone: %d, %d, %d", current, undo, redo)
	}
}

// What only git changed, and what only has a name, is no step; but after the
// revision that it is like was dropped, it is.
func TestPosition_aside(t *testing.T) {
	revs := revisions([2]int{1, 0}, [2]int{2, 0}, [2]int{3, 0}, [2]int{9, 1}, [2]int{8, 0}, [2]int{7, 5})
	revs[2].Aside, revs[3].Whole, revs[4].Aside, revs[5].Whole = true, true, true, true
	for n, want := range [][3]uint64{{}, {1, 0, 0}, {2, 1, 0}, {2, 1, 0}, {1, 0, 2}, {1, 0, 2}, {1, 0, 2}} {
		current, undo, redo := workspace.Position(revs[:n])
		if got := [3]uint64{current, undo, redo}; got != want {
			t.Errorf("after %d: %v, want %v", n, got, want)
		}
	}
	dropped := append(revs[:1:1], revs[2])
	if current, undo, _ := workspace.Position(dropped); current != 3 || undo != 1 {
		t.Errorf("without what it is like: at %d, undo to %d", current, undo)
	}
}

// Undo and redo are what they are in an editor, whatever was done before.
func TestPosition_isAnEditor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts, at := []byte{1}, 0 // of the editor: all it can show, and what it shows
		revs := revisions([2]int{1, 0})
		add := func(root byte, undoes uint64) {
			revs = append(revs, workspace.Revision{N: uint64(len(revs) + 1), Root: object.Hash{root}, Undoes: undoes})
		}
		root := func(n uint64) byte {
			if n == 0 {
				return 0
			}
			return revs[n-1].Root[0]
		}
		t.Repeat(map[string]func(*rapid.T){
			"edit": func(t *rapid.T) {
				text := byte(rapid.IntRange(1, 5).Draw(t, "text"))
				if text == texts[at] {
					return // no change is no revision
				}
				texts, at = append(texts[:at+1:at+1], text), at+1
				add(text, 0)
			},
			"undo": func(*rapid.T) {
				if _, undo, _ := workspace.Position(revs); undo != 0 {
					add(root(undo), undo)
					at--
				}
			},
			"redo": func(*rapid.T) {
				if _, _, redo := workspace.Position(revs); redo != 0 {
					add(root(redo), redo)
					at++
				}
			},
			"": func(t *rapid.T) {
				current, undo, redo := workspace.Position(revs)
				var want [3]byte
				want[0] = texts[at]
				if at > 0 {
					want[1] = texts[at-1]
				}
				if at+1 < len(texts) {
					want[2] = texts[at+1]
				}
				if got := [3]byte{root(current), root(undo), root(redo)}; got != want {
					t.Fatalf("%v, an editor shows %v\n%+v", got, want, revs)
				}
			},
		})
	})
}

func TestBefore(t *testing.T) {
	revs := []workspace.Revision{
		{N: 4, Actor: "agent", Thread: "t0", Run: "r0", Step: 1, Call: "c0"},
		{N: 5, Actor: workspace.Outside},
		{N: 6, Actor: "agent", Thread: "t1", Run: "r1", Step: 1, Call: "c1"},
		{N: 7, Actor: workspace.Outside, Thread: "t1", Run: "r1", Step: 2, Call: "c2"},
		{N: 8, Actor: "agent", Thread: "t1", Run: "r1", Step: 2, Call: "c2"},
		{N: 9, Actor: "agent", Thread: "t1", Run: "r1", Step: 2, Call: "c3"},
		{N: 10, Actor: "user:anna", Undoes: 7},
		{N: 12, Actor: "agent", Thread: "t1", Run: "r2", Step: 2, Call: "c4"},
		{N: 13, Actor: "agent", Thread: "t1", Run: "r2", Step: 3, Call: "c5"},
	}
	for name, c := range map[string]struct {
		s    workspace.Scope
		want uint64
	}{
		"call":              {workspace.Scope{Call: "c3"}, 8},
		"what was before":   {workspace.Scope{Call: "c2"}, 7},
		"step":              {workspace.Scope{Run: "r1", Step: 2}, 7},
		"run":               {workspace.Scope{Run: "r1"}, 5},
		"thread":            {workspace.Scope{Thread: "t1"}, 5},
		"later run":         {workspace.Scope{Run: "r2", Step: 3}, 12},
		"the first of all":  {workspace.Scope{Run: "r0"}, 0},
		"dropped before it": {workspace.Scope{Run: "r2"}, 0},
		"unknown":           {workspace.Scope{Run: "r9"}, 0},
		"nothing":           {workspace.Scope{}, 0},
		"both must fit":     {workspace.Scope{Run: "r1", Call: "c4"}, 0},
	} {
		got, err := workspace.Before(revs, c.s)
		if got != c.want || errs.Is(err, errs.NotFound) != (c.want == 0) {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
}
