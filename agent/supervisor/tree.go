package supervisor

import (
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
)

// This file counts what a run and its sub-agents spend: one budget holds for all.
//
// What is over is in the log of its parent: with the result of the call, or with the
// news of its end. What goes on is counted as it is now, before each step of each of
// them. So the whole may be exceeded by what is under way at that moment: a step of
// each, as with one agent by a step.

// treeEnd is a sub-agent's run that is over, until its parent has counted it and it is
// forgotten.
type treeEnd struct {
	run     thread.RunID
	spent   thread.Spent
	counted bool
}

// tree returns the budget of the root run of a thread, and what all in the tree but the
// thread itself have spent. Of a root that is at rest it knows what it was when it ended;
// after a restart it does not, and the budget that each sub-agent was given holds alone.
func (k *Supervisor) tree(t threadKey) (thread.Budget, thread.Spent) {
	root := threadKey{t.tenant, t.id.Root()}
	k.mu.Lock()
	var others []*entry
	var spent thread.Spent
	for key, e := range k.byID {
		if end := k.ends[key]; in(root, key) && key != t && (end == nil || end.run != e.id) {
			others = append(others, e)
		}
	}
	for key, end := range k.ends {
		if in(root, key) && key != t && !end.counted {
			spent = spent.Add(end.spent)
		}
	}
	top, resting := k.byID[root], k.resting[root]
	k.mu.Unlock()
	for _, e := range others { // whose locks are held over writes
		spent = spent.Add(spentBy(e.snapshot()))
	}
	switch {
	case top != nil:
		return top.snapshot().Budget, spent
	case resting != nil:
		return resting.Budget, spent.Add(spentBy(*resting))
	}
	return thread.Budget{}, spent
}

// in reports whether a thread is one of a tree.
func in(root, t threadKey) bool { return t.tenant == root.tenant && t.id.Root() == root.id }

func spentBy(r runs.Run) thread.Spent {
	return thread.Spent{Steps: r.Steps + r.Below, Usage: r.Usage, CostUSD: r.CostUSD}
}

// ended notes that a sub-agent's run is over, before its parent can know.
func (k *Supervisor) ended(t threadKey, s *runs.State) {
	if t.id.Depth() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if end := k.ends[t]; end == nil || end.run != s.Run.ID {
		k.ends[t] = &treeEnd{run: s.Run.ID, spent: s.Run.Spent()}
	}
}

// counted notes which of its sub-agents a thread that is driven has counted: their
// results, or the news of their ends, are in its state and in its record.
func (k *Supervisor) counted(parent threadKey, s *runs.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.countLocked(parent, s)
}

func (k *Supervisor) countLocked(parent threadKey, s *runs.State) {
	for child, end := range k.ends {
		up, call := child.id.Parent()
		if child.tenant != parent.tenant || up != parent.id {
			continue
		}
		c := s.Call(call) // its result, not that it was started
		if !s.HasInput(reportPrefix+string(end.run)) && (c == nil || c.Completed == nil || c.Completed.Steps == 0) {
			continue
		}
		end.counted = true
		if e := k.byID[child]; e == nil || e.id != end.run {
			delete(k.ends, child)
		}
	}
}

// rests is called when a run that is over is forgotten; s is its thread's state. It
// remembers what a root had, as long as anything goes on beneath it.
func (k *Supervisor) rests(e *entry, s *runs.State) {
	run := e.snapshot()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(e)
	t := threadKey{e.tenant, e.thread}
	root := threadKey{e.tenant, e.thread.Root()}
	if t == root {
		k.resting[root] = &run
		k.countLocked(root, s)
	}
	if end := k.ends[t]; end != nil && end.counted {
		delete(k.ends, t)
	}
	for key := range k.byID {
		if in(root, key) {
			return
		}
	}
	delete(k.resting, root)
	for key := range k.ends {
		if in(root, key) {
			delete(k.ends, key)
		}
	}
}

// top returns the run that a caller started in which a thread works, and who that was. s is
// the thread's state.
func (k *Supervisor) top(t threadKey, s *runs.State) (thread.RunID, string) {
	root := threadKey{t.tenant, t.id.Root()}
	k.mu.Lock()
	e, resting := k.byID[root], k.resting[root]
	k.mu.Unlock()
	switch {
	case t == root:
		return s.Run.ID, s.Run.Started.By
	case e != nil:
		r := e.snapshot()
		return r.ID, r.By
	case resting != nil:
		return resting.ID, resting.By
	}
	return s.Run.ID, s.Run.Started.By
}
