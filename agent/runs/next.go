package runs

import (
	"slices"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Kind says what is to be done.
type Kind string

// Kinds.
const (
	Idle      Kind = "idle"       // no run is under way
	CallModel Kind = "call_model" // ask the model
	RunTools  Kind = "run_tools"  // some calls of the last step can go on
	Check     Kind = "check"      // the model is done: see whether the run's check holds
	Wait      Kind = "wait"       // only people can bring it on; see Expires
	End       Kind = "end"        // the run is over: State, Reason
)

// Action is what is to be done next.
type Action struct {
	Kind   Kind
	State  thread.RunState // with End
	Reason string          // with End
	// Expires is when the first open approval ends by itself, zero = never.
	Expires time.Time
}

// Reasons of ends.
const (
	ReasonDone      = "done"
	ReasonCancelled = "cancelled"
	ReasonSteps     = "steps"
	ReasonTokens    = "tokens"
	ReasonCost      = "cost"
	ReasonWall      = "wall"
	ReasonLoop      = "loop"
	ReasonModel     = "model"
	ReasonMachine   = "machine"
	ReasonOutput    = "output"
	ReasonFormat    = "format"
	ReasonHook      = "hook"
	ReasonRefusal   = "refusal"
	ReasonCheck     = "check" // it could not be made
	ReasonProgram   = "program"
	ReasonLog       = "log" // what the log names cannot be read
	// ReasonNotStarted is of a record alone: the log has nothing of the run. The same start again begins it.
	ReasonNotStarted = "not_started"
)

// Next says what is to be done. Children of `task` calls that go on elsewhere
// look like calls that can go on: the driver of the thread knows better.
func (s *State) Next(now time.Time) Action {
	if s.Run == nil || s.Run.Ended != nil {
		return Action{Kind: Idle}
	}
	if s.Run.Cancel != nil {
		return Action{Kind: End, State: thread.RunCancelled, Reason: ReasonCancelled}
	}
	if open := s.Open(); len(open) > 0 {
		if left, bounded := s.TimeLeft(now); bounded && left <= 0 {
			return Action{Kind: End, State: thread.RunTimedOut, Reason: ReasonWall}
		}
		return nextOf(open, now)
	}
	done := s.handedIn()
	if done && s.checked() {
		return Action{Kind: End, State: thread.RunSucceeded, Reason: ReasonDone}
	}
	if left, bounded := s.TimeLeft(now); (done || s.Run.Check.Open != nil) && (!bounded || left > 0) {
		return Action{Kind: Check}
	}
	if reason := s.Exceeded(now); reason != "" {
		state := thread.RunFailed
		if reason == ReasonWall {
			state = thread.RunTimedOut
		}
		return Action{Kind: End, State: state, Reason: reason}
	}
	return Action{Kind: CallModel}
}

// handedIn reports whether the model has nothing more to do: it has answered without
// a call, or handed in its result, and there was no message since.
func (s *State) handedIn() bool {
	if s.Final() != nil {
		return !s.Warned(CheckName, s.Last().Seq)
	}
	last := s.Last()
	return len(s.Queue) == 0 && last != nil && last.Seq > s.Run.First && len(last.Calls) == 0 && last.Step.Stop != llm.StopPause
}

// checked reports whether the run's check holds for the last answer.
func (s *State) checked() bool {
	c := s.Run.Check
	return s.Run.Started.Check == nil || c.Last != nil && c.Last.Passed && c.Open == nil && c.LastSeq > s.Last().Seq
}

// CheckName is the name of the input that tells the model that a check did not pass.
const CheckName = "check"

// FinalTool is the name of the tool by which a model hands in a structured
// result: a call of it that succeeded ends the run.
const FinalTool = "final_answer"

// Final returns the call that handed in the result of the run, nil = none.
func (s *State) Final() *Call {
	last := s.Last()
	if s.Run == nil || last == nil || last.Seq < s.Run.First {
		return nil
	}
	for _, c := range last.Calls {
		if c.Name == FinalTool && c.Completed != nil && !c.Completed.Failed {
			return c
		}
	}
	return nil
}

func nextOf(open []*Call, now time.Time) Action {
	a := Action{Kind: Wait}
	for _, c := range open {
		if !c.Waits() {
			return Action{Kind: RunTools}
		}
		expires := c.Asked.Expires
		if expires.IsZero() {
			continue
		}
		if !now.Before(expires) {
			return Action{Kind: RunTools} // the expiry is to be logged
		}
		if a.Expires.IsZero() || expires.Before(a.Expires) {
			a.Expires = expires
		}
	}
	return a
}

// WaitsForPeople reports whether nothing can go on without a person.
func (s *State) WaitsForPeople() bool {
	open := s.Open()
	for _, c := range open {
		if !c.Waits() {
			return false
		}
	}
	return len(open) > 0
}

// Exceeded names the budget that is used up, "" = none.
func (s *State) Exceeded(now time.Time) string {
	if reason := Exceeds(s.Run.Spent(), s.Run.Budget); reason != "" {
		return reason
	}
	if left, bounded := s.TimeLeft(now); bounded && left <= 0 {
		return ReasonWall
	}
	return ""
}

// Exceeds names the part of a budget that is used up, time not among them; "" = none.
func Exceeds(spent thread.Spent, b thread.Budget) string {
	switch {
	case b.Steps > 0 && spent.Steps >= b.Steps:
		return ReasonSteps
	case b.Tokens > 0 && spent.Usage.Total() >= b.Tokens:
		return ReasonTokens
	case b.CostUSD > 0 && spent.CostUSD >= b.CostUSD:
		return ReasonCost
	}
	return ""
}

// TimeLeft is how long the run may still work; false: it has no limit.
func (s *State) TimeLeft(now time.Time) (left time.Duration, bounded bool) {
	return s.Run.Budget.Wall - s.Elapsed(now), s.Run.Budget.Wall > 0
}

// Elapsed is how long the run has worked, waiting for people not counted.
func (s *State) Elapsed(now time.Time) time.Duration {
	d := now.Sub(s.Run.At) - s.Run.Waited
	if s.WaitsForPeople() {
		d -= now.Sub(s.At)
	}
	return max(d, 0)
}

// RunState is the state of the current run as the log knows it; "" = none.
// The log cannot know whether a server drives it right now: if none does, that is
// Running too.
func (s *State) RunState(now time.Time) thread.RunState {
	switch {
	case s.Run == nil:
		return ""
	case s.Run.Ended != nil:
		return s.Run.Ended.State
	case s.Next(now).Kind == Wait:
		return thread.RunInterrupted
	}
	return thread.RunRunning
}

// Warned reports whether the platform spoke by this name since an event.
func (s *State) Warned(name string, since uint64) bool {
	for _, item := range s.Queue {
		if item.Seq > since && item.Input != nil && item.Input.From == "skete" && item.Input.Name == name {
			return true
		}
	}
	return false
}

// Corrections counts the notices of a name since the last step that was well.
func (s *State) Corrections(name string) int {
	n := 0
	is := func(i *Item) bool {
		return i.Input != nil && i.Input.From == "skete" && i.Input.Name == name && i.Seq > s.Run.First
	}
	for _, i := range s.Queue {
		if is(i) {
			n++
		}
	}
	for _, i := range slices.Backward(s.Items) {
		switch {
		case is(i):
			n++
		case i.Step != nil && len(i.Calls) > 0:
			return n
		}
	}
	return n
}
