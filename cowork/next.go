package cowork

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/skete-dev/skete/thread"
)

// parallelDefault is how many nodes work at once unless stated; retryWait is before the
// first further attempt.
const (
	parallelDefault = 8
	retryWait       = time.Second
)

// Todo is what is to be done for a run of a workflow.
type Todo struct {
	// Begin are attempts that can begin: their events are to be written, then they are to
	// be started.
	Begin []thread.NodeStarted
	// Running are attempts of agents that are under way, to be started if they were not,
	// and watched.
	Running []*Attempt
	// Stop are those among Running that are to end. Their state and reason are StopAs.
	Stop bool
	// Late are attempts whose time is over: those of Running are to be stopped, and those of
	// people end.
	Late []*Attempt
	// Wake is when there is something to do by the clock, zero = never.
	Wake time.Time
	// End is the event that ends the workflow, when nothing is under way any more.
	End *thread.WorkflowEnded
}

// Next says what is to be done. It changes nothing.
func (s *State) Next(now time.Time) Todo {
	var t Todo
	if s.Started == nil || s.Ended != nil {
		return t
	}
	asking := s.underWay(&t, now)
	end := s.ending(now)
	if end == nil && len(t.Running) == 0 && !asking && s.settled() {
		end = &thread.WorkflowEnded{State: thread.RunSucceeded, Reason: "done"}
	}
	if end != nil {
		t.Wake = time.Time{}
		if t.Stop = len(t.Running) > 0; !t.Stop {
			t.End = s.withResult(end)
		}
		return t
	}
	if why := s.used(); why != nil && s.more(now) {
		if t.Stop = len(t.Running) > 0; !t.Stop {
			t.End = why
		}
		return t
	}
	s.beginnings(&t, now)
	if wall := s.Workflow.Limits.Wall; wall > 0 && !s.waits() {
		t.wake(now.Add(wall - s.Elapsed(now)))
	}
	return t
}

func (t *Todo) wake(at time.Time) {
	if t.Wake.IsZero() || at.Before(t.Wake) {
		t.Wake = at
	}
}

// underWay collects what is under way. It reports whether a person is asked.
func (s *State) underWay(t *Todo, now time.Time) (asking bool) {
	for _, n := range s.nodes {
		for _, i := range n.items {
			a := i.running()
			if a == nil {
				continue
			}
			if n.Human == nil {
				t.Running = append(t.Running, a)
			} else {
				asking = true
			}
			switch {
			case a.Deadline.IsZero():
			case a.Deadline.After(now):
				t.wake(a.Deadline)
			default:
				t.Late = append(t.Late, a)
			}
		}
	}
	return asking
}

// ending is how the workflow ends by what happened to it as a whole; nil: it goes on.
func (s *State) ending(now time.Time) *thread.WorkflowEnded {
	switch {
	case s.Cancel != nil:
		return &thread.WorkflowEnded{State: thread.RunCancelled, Reason: ReasonCancelled, Text: s.Cancel.Reason}
	case s.broken != nil:
		return s.broken
	}
	return s.wall(now)
}

// wall is how the workflow ends because its time is over; nil: it is not.
func (s *State) wall(now time.Time) *thread.WorkflowEnded {
	if wall := s.Workflow.Limits.Wall; wall > 0 && s.Elapsed(now) >= wall {
		return &thread.WorkflowEnded{State: thread.RunTimedOut, Reason: ReasonWall, Text: "the workflow took longer than " + wall.String()}
	}
	return nil
}

// used is how the workflow ends because it has used all that it may; nil: it has not.
func (s *State) used() *thread.WorkflowEnded {
	spent := s.spent()
	for i, most := range s.limits() {
		if most > 0 && spent[i] >= most {
			return &thread.WorkflowEnded{State: thread.RunFailed, Reason: amountReasons[i], Text: "the workflow has used all that its limits allow"}
		}
	}
	return nil
}

// more reports whether an agent would have to be started.
func (s *State) more(now time.Time) bool {
	var t Todo
	for _, b := range s.due(&t, now) {
		if b.n.Human == nil {
			return true
		}
	}
	return !t.Wake.IsZero()
}

// settled reports whether all vertices are decided.
func (s *State) settled() bool {
	for _, n := range s.nodes {
		if !n.left {
			return false
		}
	}
	return true
}

func (s *State) withResult(end *thread.WorkflowEnded) *thread.WorkflowEnded {
	if end.State != thread.RunSucceeded {
		return end
	}
	out := *end
	out.Result, _ = json.Marshal(s.Output()) // values of JSON
	return &out
}

// beginning is an attempt that can begin now.
type beginning struct {
	n     *node
	place int // of i
	i     *item
}

// beginnings are the events of the attempts that begin now.
func (s *State) beginnings(t *Todo, now time.Time) {
	list := s.due(t, now)
	shares, agents := s.shares(list), 0
	for _, b := range list {
		var share amount
		if b.n.Human == nil {
			if agents == len(shares) {
				continue // it waits for what those under way leave
			}
			share = shares[agents]
			agents++
		}
		t.Begin = append(t.Begin, s.begins(b, share, now))
	}
}

// due collects the attempts that can begin now, as many as may work at once.
func (s *State) due(t *Todo, now time.Time) (list []beginning) {
	free := cmp.Or(s.Workflow.ParallelMax, parallelDefault) - s.running()
	for _, n := range s.nodes {
		side := 1 << 20
		if n.Each != nil {
			side = cmp.Or(n.Each.ParallelMax, sideDefault) - n.running()
		}
		for place, i := range n.items {
			if i.status != "" || i.running() != nil {
				continue
			}
			if at := n.due(i); at.After(now) {
				t.wake(at)
				continue
			}
			if n.Human == nil {
				if free <= 0 || side <= 0 {
					continue
				}
				free--
				side--
			}
			list = append(list, beginning{n, place, i})
		}
	}
	return list
}

func (n *node) running() (count int) {
	for _, i := range n.items {
		if i.running() != nil {
			count++
		}
	}
	return count
}

// running counts the agents that work.
func (s *State) running() (count int) {
	for _, n := range s.nodes {
		if n.Human == nil {
			count += n.running()
		}
	}
	return count
}

// due is when an item's next attempt may begin.
func (n *node) due(i *item) time.Time {
	tried := len(i.all)
	if tried == 0 || n.Retries == nil {
		return time.Time{}
	}
	return i.all[tried-1].EndedAt.Add(cmp.Or(n.Retries.Wait, retryWait) << (tried - 1))
}

// begins is the event of an attempt that begins now.
func (s *State) begins(of beginning, share amount, now time.Time) thread.NodeStarted {
	n := of.n
	values, files := s.given(n, of.i)
	input, _ := json.Marshal(values) // values of JSON
	b := thread.NodeStarted{
		Attempt: thread.Attempt{Node: n.Name, Iteration: n.iteration, Item: of.place, Number: len(of.i.all) + 1},
		Input:   input, Files: files,
	}
	if n.Continues {
		b.Thread = n.thread
	}
	if n.Timeout > 0 {
		b.Deadline = now.Add(n.Timeout).UTC()
	}
	if n.Human == nil {
		b.Budget = s.budget(n, share, now)
	}
	return b
}

// Key is what an attempt's run is started with: the same attempt is the same run.
func Key(id thread.ID, a thread.Attempt) string {
	return "workflow " + string(id) + " " + a.Node + " " + strconv.Itoa(a.Iteration) + " " + strconv.Itoa(a.Item) + " " + strconv.Itoa(a.Number)
}

// Conflicts are the files that an attempt which has ended wrote, and another that ended
// since it began wrote differently, in the machine that they share.
func (s *State) Conflicts(a *Attempt, files []thread.Artifact) []thread.ArtifactConflict {
	n := s.nodes[s.index[a.Node]]
	if !n.merges() {
		return nil
	}
	var list []thread.ArtifactConflict
	for _, f := range files {
		if v, is := s.versions[f.Path]; is && v.seq > a.Seq && v.hash != f.Blob {
			list = append(list, thread.ArtifactConflict{Path: f.Path, With: v.by, Ours: f.Blob, Other: v.hash})
		}
	}
	return list
}

// Vertex returns what an attempt is of.
func (s *State) Vertex(a thread.Attempt) *Vertex { return s.nodes[s.index[a.Node]].Vertex }
