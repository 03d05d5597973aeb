package cowork

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// State is a run of a workflow as its log tells it. It is made of nothing else: the same
// events are the same State, before a crash and after it.
//
//	s := cowork.NewState(workflow)
//	err := s.Apply(event) // each in turn
//	todo := s.Next(now)   // what is to be done
//
// Results and inputs that an event names as blobs have to stand in the event when it is
// applied. A State belongs to one goroutine.
type State struct {
	Workflow  Workflow
	Started   *thread.WorkflowStarted // nil = not yet
	StartedAt time.Time
	Machine   string // that nodes share, "" = none yet
	Cancel    *thread.WorkflowCancelled
	Ended     *thread.WorkflowEnded
	EndedAt   time.Time
	Seq       uint64
	At        time.Time    // of the last event
	Spent     thread.Spent // by the attempts that have ended
	Attempts  []*Attempt   // all of them, in the order of their beginning

	input    any
	index    map[string]int // places of vertices
	nodes    []*node
	edges    []edgeState
	loops    []int // how often each has gone back
	broken   *thread.WorkflowEnded
	waited   time.Duration      // for people, while nothing else was under way
	versions map[string]version // of files of the shared machine
}

// Attempt is one attempt of a node, as the log tells it.
type Attempt struct {
	thread.NodeStarted
	Seq uint64 // of its beginning
	At  time.Time
	// Ended is nil while it is under way. Of a person it is made of the answer.
	Ended    *thread.NodeEnded
	EndedAt  time.Time
	Answered *thread.NodeAnswered
}

// node is a vertex as it is now.
type node struct {
	*Vertex
	at        int
	in, out   []int  // places of the edges that lead to it, and from it
	iteration int    // how often it was begun
	status    string // "" = not decided
	begun     bool
	left      bool // the edges behind it are decided
	items     []*item
	result    any // of the last time that it ended
	thread    thread.ID
	last      []*Attempt // those that ended its items last
}

// item is an element that a node works on; a node without a list has one.
type item struct {
	value  any
	all    []*Attempt
	status string
	result any
}

func (i *item) running() *Attempt {
	if n := len(i.all); n > 0 && i.all[n-1].Ended == nil {
		return i.all[n-1]
	}
	return nil
}

type edgeState int8

const (
	undecided edgeState = iota
	taken
	notTaken
)

// version is a file of the shared machine as an attempt left it.
type version struct {
	hash string
	by   thread.Attempt
	seq  uint64 // of its end
}

// Codes of ends that are not of a node's run.
const (
	ReasonExhausted = "exhausted" // a loop, or a supervisor's rounds
	ReasonNode      = "node"      // a node failed
	ReasonInput     = "input"     // a node's list or values cannot be had
	ReasonSteps     = "steps"
	ReasonTokens    = "tokens"
	ReasonCost      = "cost"
	ReasonWall      = "wall"
	ReasonCancelled = "cancelled"
	ReasonTimeout   = "timeout"
	ReasonArtifact  = "artifact" // a file that was to be left is not there
	ReasonStart     = "start"    // it could not be started
	ReasonMachine   = "machine"
	ReasonResult    = "result" // it is too large, or has not the form
)

// NewState returns the State of a run that has no events yet.
func NewState(w Workflow) *State {
	s := &State{Workflow: w, index: map[string]int{}, versions: map[string]version{}}
	for i := range w.Graph.Vertices {
		v := &w.Graph.Vertices[i]
		s.index[v.Name] = i
		s.nodes = append(s.nodes, &node{Vertex: v, at: i})
	}
	for i, e := range w.Graph.Edges {
		from, to := s.nodes[s.index[e.From]], s.nodes[s.index[e.To]]
		from.out, to.in = append(from.out, i), append(to.in, i)
	}
	s.edges = make([]edgeState, len(w.Graph.Edges))
	s.loops = make([]int, len(w.Graph.Loops))
	return s
}

// Apply takes in the next event. Corrupt: it cannot follow those before it.
func (s *State) Apply(e thread.Event) error {
	if e.Seq != s.Seq+1 {
		return errs.New(errs.Corrupt, "event %d of a workflow follows event %d", e.Seq, s.Seq)
	}
	if s.waits() {
		s.waited += max(e.At.Sub(s.At), 0)
	}
	s.Seq, s.At = e.Seq, e.At
	if s.Ended != nil {
		return nil // what came too late changes nothing
	}
	var err error
	switch b := e.Body.(type) {
	case thread.WorkflowStarted:
		err = s.start(b, e.At)
	case thread.Bound:
		s.Machine = b.Machine
	case thread.WorkflowCancelled:
		if s.Cancel == nil {
			s.Cancel = &b
		}
	case thread.WorkflowEnded:
		s.Ended, s.EndedAt = &b, e.At
	case thread.NodeStarted:
		err = s.nodeStarted(b, e)
	case thread.NodeEnded:
		err = s.nodeEnded(b, e.At)
	case thread.NodeAnswered:
		err = s.nodeAnswered(b, e.At)
	}
	if err != nil {
		return errs.Wrap(errs.Corrupt, err, "event %d of a workflow (%s)", e.Seq, e.Body.Kind())
	}
	s.decide()
	return nil
}

func (s *State) start(b thread.WorkflowStarted, at time.Time) error {
	if s.Started != nil {
		return fmt.Errorf("it began already")
	}
	s.Started, s.StartedAt = &b, at
	if len(b.Input) > 0 {
		return json.Unmarshal(b.Input, &s.input)
	}
	return nil
}

// attempt finds one that is under way; nil: it has ended, or never began.
func (s *State) attempt(a thread.Attempt) (*node, *item, *Attempt) {
	at, is := s.index[a.Node]
	if !is {
		return nil, nil, nil
	}
	n := s.nodes[at]
	if n.iteration != a.Iteration || a.Item < 0 || a.Item >= len(n.items) {
		return nil, nil, nil
	}
	i := n.items[a.Item]
	if r := i.running(); r != nil && r.Number == a.Number {
		return n, i, r
	}
	return nil, nil, nil
}

// UnderWay reports whether an attempt has begun and not ended.
func (s *State) UnderWay(a thread.Attempt) bool {
	_, _, running := s.attempt(a)
	return running != nil
}

func (s *State) nodeStarted(b thread.NodeStarted, e thread.Event) error {
	at, is := s.index[b.Node]
	if !is || s.Started == nil {
		return fmt.Errorf("there is no node %.64q", b.Node)
	}
	n := s.nodes[at]
	if !n.begun || n.status != "" || n.iteration != b.Iteration || b.Item < 0 || b.Item >= len(n.items) {
		return fmt.Errorf("%s is not to begin", b.Node)
	}
	i := n.items[b.Item]
	if i.status != "" || i.running() != nil || b.Number != len(i.all)+1 {
		return fmt.Errorf("attempt %d of %s is not to begin", b.Number, b.Node)
	}
	a := &Attempt{NodeStarted: b, Seq: e.Seq, At: e.At}
	i.all = append(i.all, a)
	s.Attempts = append(s.Attempts, a)
	return nil
}

func (s *State) nodeEnded(b thread.NodeEnded, at time.Time) error {
	n, i, a := s.attempt(b.Attempt)
	if a == nil {
		return fmt.Errorf("attempt %d of %s is not under way", b.Number, b.Node)
	}
	a.Ended, a.EndedAt = &b, at
	s.Spent = s.Spent.Add(b.Spent)
	s.overrun(b, at)
	if b.Thread != "" {
		n.thread = b.Thread
	}
	for _, f := range b.Artifacts {
		lost := n.Sandbox == SandboxFork && slices.ContainsFunc(b.Conflicts, func(c thread.ArtifactConflict) bool { return c.Path == f.Path })
		if n.merges() && !lost {
			s.versions[f.Path] = version{f.Blob, b.Attempt, s.Seq}
		}
	}
	if b.State == thread.RunSucceeded {
		i.status = Succeeded
		if len(b.Result) == 0 {
			return nil
		}
		return json.Unmarshal(b.Result, &i.result)
	}
	if b.Number > n.retries() || s.stopping() {
		i.status = Failed
	}
	return nil
}

// overrun finds out whether the attempt ended because the workflow's limits were reached: then
// the workflow ends by those, and not by a node that failed.
func (s *State) overrun(b thread.NodeEnded, at time.Time) {
	if s.stopping() {
		return
	}
	if wall := s.wall(at); wall != nil {
		s.broken = wall
	} else if b.State == thread.RunCancelled && b.Reason == ReasonCancelled {
		s.broken = s.used()
	}
}

func (s *State) nodeAnswered(b thread.NodeAnswered, at time.Time) error {
	a := s.Asked(b.Node)
	if a == nil || a.Iteration != b.Iteration {
		return fmt.Errorf("%s asks nothing", b.Node)
	}
	i := s.nodes[s.index[b.Node]].items[0]
	a.Answered, a.EndedAt = &b, at
	a.Ended = &thread.NodeEnded{Attempt: a.Attempt, State: thread.RunSucceeded}
	i.status, i.result = Succeeded, map[string]any{"choice": b.Choice, "text": b.Text}
	return nil
}

// Asked returns what a person is being asked by a node; nil: nothing.
func (s *State) Asked(name string) *Attempt {
	at, is := s.index[name]
	if !is || s.nodes[at].Human == nil || len(s.nodes[at].items) == 0 {
		return nil
	}
	return s.nodes[at].items[0].running()
}

// Answer checks what a person says, and returns the event of it. NotFound: the node asks
// nothing. Invalid: that cannot be chosen.
func (s *State) Answer(name, choice, text, by string) (thread.NodeAnswered, error) {
	a := s.Asked(name)
	if a == nil || s.Ended != nil {
		return thread.NodeAnswered{}, errs.New(errs.NotFound, "no node %.64q waits for an answer", name)
	}
	if choices := s.nodes[s.index[name]].Human.All(); !slices.Contains(choices, choice) {
		return thread.NodeAnswered{}, errs.New(errs.Invalid, "%.64q cannot be chosen; one of %s can", choice, strings.Join(choices, ", "))
	}
	if len(text) > thread.InlineBytesMax {
		return thread.NodeAnswered{}, errs.New(errs.Limit, "a text has at most %d bytes", thread.InlineBytesMax)
	}
	return thread.NodeAnswered{Node: name, Iteration: a.Iteration, Choice: choice, Text: text, By: by}, nil
}

// merges reports whether what a node leaves is put into the machine that nodes share.
func (n *node) merges() bool { return n.Sandbox != SandboxOwn && n.Human == nil }

func (n *node) retries() int {
	if n.Retries == nil {
		return 0
	}
	return n.Retries.Max
}

// decide does all that follows from what is known, until nothing more does.
func (s *State) decide() {
	if s.Started == nil {
		return
	}
	for again := true; again && s.broken == nil; {
		again = false
		for _, n := range s.nodes {
			again = s.settle(n) || again
		}
	}
}

// settle brings one vertex on. It reports whether anything changed.
func (s *State) settle(n *node) bool {
	if n.status == "" && !n.begun && !s.reach(n) {
		return false
	}
	if n.status == "" && n.begun && !s.finish(n) {
		return false
	}
	return s.leave(n)
}

// reach begins a vertex, or skips it, when all edges that lead to it are decided. It
// reports whether they are.
func (s *State) reach(n *node) bool {
	works := len(n.in) == 0
	for _, i := range n.in {
		if s.edges[i] == undecided {
			return false
		}
		works = works || s.edges[i] == taken
	}
	n.iteration++
	if !works {
		n.status, n.result, n.items, n.last = Skipped, nil, nil, nil
		return true
	}
	s.begin(n)
	return true
}

// begin finds out what a vertex works on.
func (s *State) begin(n *node) {
	n.begun, n.items = true, nil
	switch {
	case n.Meeting:
	case n.Each == nil:
		n.items = []*item{{}}
	default:
		list, is := s.value(n.Each.Reference, nil).([]any)
		most := cmp.Or(n.Each.Max, eachDefault)
		if !is {
			s.fail(n, ReasonInput, "what it is to work on is no list")
		} else if len(list) > most {
			s.fail(n, ReasonInput, fmt.Sprintf("its list has %d elements, at most %d", len(list), most))
		}
		if n.status != "" || s.broken != nil {
			return
		}
		for _, v := range list {
			n.items = append(n.items, &item{value: v})
		}
	}
}

// finish ends a vertex when all that it works on is done. It reports whether it is.
func (s *State) finish(n *node) bool {
	if s.broken != nil {
		return false
	}
	var failed *item
	for _, i := range n.items {
		switch {
		case i.status == "":
			return false
		case i.status == Failed && n.OnFailure != Continue:
			failed = i
		}
	}
	if failed != nil {
		last := failed.all[len(failed.all)-1].Ended
		s.abort(ReasonNode, fmt.Sprintf("%s failed (%s): %s", Label(last.Attempt), cmp.Or(last.Reason, string(last.State)), last.Text))
		return false
	}
	n.status, n.last = Succeeded, nil
	results := make([]any, len(n.items))
	for j, i := range n.items {
		if results[j] = i.result; i.status == Failed {
			n.status = Failed
		}
		n.last = append(n.last, i.all[len(i.all)-1])
	}
	switch {
	case n.Each != nil:
		n.result = results
	case len(results) == 1:
		n.result = results[0]
	}
	return true
}

// fail ends a vertex that could not begin.
func (s *State) fail(n *node, reason, text string) {
	if n.OnFailure != Continue {
		s.abort(reason, n.Name+": "+text)
		return
	}
	n.status, n.result, n.last = Failed, nil, nil
}

func (s *State) abort(reason, text string) {
	if s.broken == nil {
		s.broken = &thread.WorkflowEnded{State: thread.RunFailed, Reason: reason, Text: text}
	}
}

// leave goes back from a vertex that is settled, or decides the edges behind it. It reports
// whether there was anything to do.
func (s *State) leave(n *node) bool {
	if n.left {
		return false
	}
	if n.status != Skipped {
		loop := slices.IndexFunc(s.Workflow.Graph.Loops, func(l Loop) bool { return l.From == n.Name })
		if loop >= 0 && s.goBack(loop) {
			return true
		}
	}
	n.left = true
	for _, i := range n.out {
		s.edges[i] = notTaken
		if n.status != Skipped && s.holds(s.Workflow.Graph.Edges[i].When) {
			s.edges[i] = taken
		}
	}
	return true
}

// goBack begins a loop's body anew if its condition holds. It reports whether it does, or the
// workflow ends by it.
func (s *State) goBack(i int) bool {
	l := &s.Workflow.Graph.Loops[i]
	if !s.holds(l.When) {
		return false
	}
	if s.loops[i] < l.Max {
		s.loops[i]++
		s.again(l, i)
		return true
	}
	if l.Exhausted == Continue {
		return false
	}
	s.abort(ReasonExhausted, fmt.Sprintf("%s was done %d times, and still it holds: %s", l.To, l.Max+1, l.When))
	return true
}

// again makes the body of a loop undecided, and the loops within it as they were at first.
func (s *State) again(l *Loop, self int) {
	for _, name := range l.Body {
		n := s.nodes[s.index[name]]
		n.status, n.begun, n.left, n.items = "", false, false, nil
		for _, i := range n.out {
			s.edges[i] = undecided
		}
	}
	for i, within := range s.Workflow.Graph.Loops {
		if i != self && slices.Contains(l.Body, within.From) && slices.Contains(l.Body, within.To) {
			s.loops[i] = 0
		}
	}
}

// waits reports whether only people can bring the workflow on.
func (s *State) waits() bool {
	asked := false
	for _, n := range s.nodes {
		for _, i := range n.items {
			if i.running() == nil {
				continue
			}
			if n.Human == nil {
				return false
			}
			asked = true
		}
	}
	return asked
}

// stopping reports whether nothing new is begun.
func (s *State) stopping() bool { return s.Cancel != nil || s.broken != nil }

// Elapsed is how long the run took so far, without the time in which only people were
// waited for.
func (s *State) Elapsed(now time.Time) time.Duration {
	if s.Ended != nil {
		now = s.EndedAt
	}
	waited := s.waited
	if s.waits() {
		waited += max(now.Sub(s.At), 0)
	}
	return max(now.Sub(s.StartedAt)-waited, 0)
}

// Label names an attempt for people: "write", "write#2" for the second time, "fetch[3]" for
// the element, "write#2!3" for the third attempt.
func Label(a thread.Attempt) string {
	text := a.Node
	if a.Iteration > 1 {
		text += fmt.Sprintf("#%d", a.Iteration)
	}
	if a.Item > 0 {
		text += fmt.Sprintf("[%d]", a.Item)
	}
	if a.Number > 1 {
		text += fmt.Sprintf("!%d", a.Number)
	}
	return text
}
