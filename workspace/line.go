package workspace

import (
	"slices"

	"github.com/skete-dev/skete/errs"
)

// Position says which revision is on disk, and to which ones undo and redo go
// from there, as in an editor; 0 = nowhere. A revision that is a going back to
// one on the way here, or forward to one that was undone, moves along that
// way; any other one, a jump to a named revision too, is a change, and ends what
// could be redone. One that differs only in what going back leaves alone, a
// commit of git for one, is no step of the way: current is the one before.
//
// The first revision cannot be undone: what was before it is not known.
func Position(revs []Revision) (current, undo, redo uint64) {
	past, future, _ := walk(revs)
	if n := len(past); n > 0 {
		current = past[n-1].N
		if n > 1 {
			undo = past[n-2].N
		}
	}
	if n := len(future); n > 0 {
		redo = future[n-1].N
	}
	return current, undo, redo
}

// walk returns the way to what is on disk, and what was undone of it, the next
// to be redone at the end; and for revisions that are no steps, which one they
// show.
func walk(revs []Revision) (past, future []Revision, stands map[uint64]uint64) {
	stands = map[uint64]uint64{} // for a revision that is no step of its own: the one it shows
	for i, r := range revs {
		target := r.Undoes
		if t, ok := stands[target]; ok {
			target = t
		}
		// A part of the way back, or one step reverted, is a change.
		is := func(x Revision) bool { return !r.Jump && x.N == target && (r.Whole || x.Root == r.Root) }
		if i := slices.IndexFunc(past, is); i >= 0 {
			for n := len(past) - 1; n > i; n-- {
				future = append(future, past[n])
			}
			past = past[:i+1]
			stands[r.N] = target
			continue
		}
		if i := slices.IndexFunc(future, is); i >= 0 {
			for n := len(future) - 1; n >= i; n-- {
				past = append(past, future[n])
			}
			future = future[:i]
			stands[r.N] = target
			continue
		}
		// If the revision before was dropped, what it held is not known.
		if n := len(past); n > 0 && r.Aside && revs[i-1].N == r.N-1 {
			stands[r.N] = past[n-1].N
			continue
		}
		past, future = append(past, r), nil
	}
	return past, future, stands
}

// BeforeTurn returns the revision that shows what was on disk when a person last
// spoke to an agent, on the way to what is there now; one behind which nothing
// changed does not count, so that the next call goes to the turn before. s may
// name the thread or the run. If the last run that changed something has no such
// moment, its beginning counts. NotFound: no run changed anything, or what was
// before it is not known (any more).
func BeforeTurn(revs []Revision, s Scope) (uint64, error) {
	past, _, stands := walk(revs)
	index := map[uint64]int{}
	for i, r := range past {
		index[r.N] = i
	}
	within := func(r Revision) bool {
		return (s.Thread == "" || s.Thread == r.Thread) && (s.Run == "" || s.Run == r.Run)
	}
	last, begin := "", 0 // the last run that changed something; where it began to
	for i, r := range past {
		if r.Run != "" && r.Call != "" && r.Actor != Outside && within(r) && r.Run != last {
			last, begin = r.Run, i
		}
	}
	turn, of := -1, "" // the last turn; whose it is
	for _, r := range revs {
		n := r.N
		if shown, ok := stands[n]; ok {
			n = shown
		}
		if i, on := index[n]; on && isTurn(r) && within(r) && i < len(past)-1 && i >= turn {
			turn, of = i, r.Run
		}
	}
	switch {
	case turn >= 0 && (last == "" || of == last || turn+1 >= begin):
		return past[turn].N, nil
	case last == "":
		return 0, NoChange()
	}
	return Before(revs, Scope{Thread: s.Thread, Run: last})
}

// NoChange says that no run has changed what is there now.
func NoChange() error {
	return errs.New(errs.NotFound, "there is nothing to undo: no run changed what is there now").WithCode(errs.NothingToDo).
		WithHint("`skete undo` without a flag takes back the last change, of any actor")
}

// isTurn reports whether a revision shows what was there when a person spoke.
func isTurn(r Revision) bool { return r.Run != "" && r.Call == "" && r.Undoes == 0 }

// Scope names what an undo takes back: a thread, a run, a step of a run, a
// tool call. What is empty does not count.
type Scope struct {
	Thread, Run, Call string
	Step              int
}

// Outside is the Actor of changes whose author is not known. They are no part
// of a scope, whatever else their labels say: a change that was made before a
// step began is found when the step begins.
const Outside = "outside"

func (s Scope) covers(r Revision) bool {
	return r.Actor != Outside && s != Scope{} &&
		(s.Thread == "" || s.Thread == r.Thread) && (s.Run == "" || s.Run == r.Run) &&
		(s.Call == "" || s.Call == r.Call) && (s.Step == 0 || s.Step == r.Step)
}

// Before returns the revision that was on disk before the first one of a
// scope. NotFound: the scope made no revision, or what was before it is not
// known (any more).
func Before(revs []Revision, s Scope) (uint64, error) {
	i := slices.IndexFunc(revs, s.covers)
	switch {
	case i < 0:
		return 0, errs.New(errs.NotFound, "there is nothing to undo: it changed no file that the history knows of").WithCode(errs.NothingToDo)
	case i == 0 || revs[i-1].N != revs[i].N-1:
		return 0, errs.New(errs.NotFound, "what was before revision %d is not kept", revs[i].N)
	}
	return revs[i-1].N, nil
}
