package thread

import (
	"fmt"
	"slices"

	"github.com/skete-dev/skete/errs"
)

// Check proves that the events of a thread, from the first one on, are
// well-formed. The error (Corrupt) says which event breaks which rule. A log
// that is not over (a run under way, a copy of a fork that is half done) is
// well-formed as far as it goes. Kinds that are not known break nothing.
func Check(events []Event) error {
	var c Checker
	for _, e := range events {
		if err := c.Add(e); err != nil {
			return err
		}
	}
	return nil
}

// Checker is Check for events that come one after the other. The zero value is
// ready; after an error it is of no use any more. Not for concurrent use.
//
// The life of a thread is a line: numbers, runs, claims, and which calls were
// started and answered are never taken back. The conversation is not: what a
// Rewound dropped is not referred to any more.
type Checker struct {
	seq     uint64
	fork    uint64 // the last event that was copied, 0 = no fork
	run     RunID  // the run that is open, "" = none
	runAt   uint64 // its RunStarted
	runs    map[RunID]bool
	term    uint64
	claimed uint64 // the last Claimed
	calls   map[string]*checkedCall
	steps   []checkedStep // of the conversation
	inputs  []uint64      // of the conversation
	dropped []span        // what rewinds took out, in order
	// floor is the last event that the next prompt must know.
	floor uint64
	check uint64 // the CheckStarted that has not ended, 0 = none
}

type checkedStep struct {
	seq   uint64
	calls []string
}

type checkedCall struct {
	step                               uint64
	started, completed, asked, decided uint64 // events; 0 = none
	allowed                            []Decision
	decision                           Decision
	form                               bool // what was asked last
}

// span is the events from … to.
type span struct{ from, to uint64 }

// Add checks the next event.
func (c *Checker) Add(e Event) error {
	if e.Seq != c.seq+1 {
		return errs.New(errs.Corrupt, "event %d follows event %d: numbers have no gaps", e.Seq, c.seq)
	}
	if e.Body == nil {
		return errs.New(errs.Corrupt, "event %d: it has no body", e.Seq)
	}
	c.seq = e.Seq
	if rule := c.add(e); rule != "" {
		return errs.New(errs.Corrupt, "event %d (%s): %s", e.Seq, e.Body.Kind(), rule)
	}
	return nil
}

// add returns the rule that the event breaks, "" = none.
func (c *Checker) add(e Event) string {
	opened, is := e.Body.(Opened)
	switch {
	case is && e.Seq > 1:
		return "a thread is opened once"
	case is:
		return c.open(opened)
	case e.Seq == 1:
		return "a thread begins with thread.opened"
	}
	switch b := e.Body.(type) {
	case RunStarted:
		return c.runStarted(e)
	case RunEnded:
		return c.runEnded(e, b)
	case Claimed:
		return c.claim(e, b)
	case CancelAsked, BudgetChanged:
		if len(c.runs) == 0 {
			return "there was no run yet"
		}
	case Rewound:
		return c.rewound(e, b)
	case ModelCompleted, ModelFailed, ToolStarted, ApprovalAsked, CheckStarted, CheckEnded:
		if c.run == "" {
			return "no run is open"
		}
		if e.Run != c.run {
			return fmt.Sprintf("it is of run %q, open is %q", e.Run, c.run)
		}
	}
	return c.addTalk(e)
}

// addTalk checks what belongs to the conversation.
func (c *Checker) addTalk(e Event) string {
	switch b := e.Body.(type) {
	case Input:
		c.inputs = append(c.inputs, e.Seq)
	case Context:
		c.floor = e.Seq
	case ModelCompleted:
		return c.modelCompleted(e, b)
	case ToolStarted:
		return c.toolStarted(e, b)
	case ToolCompleted:
		return c.toolCompleted(e, b)
	case ApprovalAsked:
		return c.approvalAsked(e, b)
	case ApprovalDecided:
		return c.approvalDecided(e, b)
	case Cleared:
		return c.cleared(e, b)
	case Compacted:
		return c.compacted(e, b)
	case CheckStarted:
		return c.checkStarted(e, b)
	case CheckEnded:
		return c.checkEnded()
	}
	return ""
}

func (c *Checker) checkStarted(e Event, b CheckStarted) string {
	switch {
	case b.Key == "":
		return "an effect has a key"
	case len(c.steps) == 0:
		return "there is no answer to check"
	case c.check != 0:
		return fmt.Sprintf("the check of event %d has not ended", c.check)
	}
	if open := c.unanswered(c.steps[len(c.steps)-1]); open != "" {
		return fmt.Sprintf("call %q has no result yet", open)
	}
	c.check = e.Seq
	return ""
}

func (c *Checker) checkEnded() string {
	if c.check == 0 {
		return "no check is under way"
	}
	c.check = 0
	return ""
}

func (c *Checker) open(b Opened) string {
	c.runs, c.calls = map[RunID]bool{}, map[string]*checkedCall{}
	if b.Fork == nil {
		return ""
	}
	if _, err := ParseID(string(b.Fork.Thread)); err != nil || b.Fork.Seq == 0 {
		return "a fork names the thread and the event that it came from"
	}
	c.fork = b.Fork.Seq
	return ""
}

func (c *Checker) runStarted(e Event) string {
	switch {
	case e.Run == "":
		return "a run has an id"
	case c.run != "":
		return fmt.Sprintf("run %s is still open", c.run)
	case c.runs[e.Run]:
		return fmt.Sprintf("run %s was there before", e.Run)
	}
	c.run, c.runAt, c.runs[e.Run] = e.Run, e.Seq, true
	c.floor = e.Seq
	return ""
}

func (c *Checker) runEnded(e Event, b RunEnded) string {
	switch {
	case c.run == "":
		return "no run is open"
	case !b.State.Final():
		return fmt.Sprintf("%q is not how a run ends", b.State)
	case e.Run != c.run && c.runAt > c.fork: // a fork ends the run that was copied in the name of its own
		return fmt.Sprintf("it is of run %q, open is %q", e.Run, c.run)
	}
	c.run, c.check = "", 0
	return ""
}

func (c *Checker) claim(e Event, b Claimed) string {
	switch {
	case b.Node == "":
		return "a claim says whose it is"
	case b.Term <= c.term:
		return fmt.Sprintf("term %d does not follow term %d", b.Term, c.term)
	}
	c.term, c.claimed = b.Term, e.Seq
	return ""
}

func (c *Checker) rewound(e Event, b Rewound) string {
	if b.To == 0 || b.To >= e.Seq {
		return fmt.Sprintf("there is no event %d to go back to", b.To)
	}
	for n := len(c.dropped); n > 0 && c.dropped[n-1].from > b.To; n-- {
		c.dropped = c.dropped[:n-1]
	}
	if b.To+1 < e.Seq {
		c.dropped = append(c.dropped, span{b.To + 1, e.Seq - 1})
	}
	c.steps = slices.DeleteFunc(c.steps, func(s checkedStep) bool { return s.seq > b.To })
	c.inputs = slices.DeleteFunc(c.inputs, func(seq uint64) bool { return seq > b.To })
	c.floor = e.Seq
	return ""
}

// live reports whether an event is part of the conversation.
func (c *Checker) live(seq uint64) bool {
	at, _ := slices.BinarySearchFunc(c.dropped, seq, func(s span, seq uint64) int {
		if s.to < seq {
			return -1
		}
		return 1
	})
	return seq > 0 && seq <= c.seq && (at == len(c.dropped) || seq < c.dropped[at].from)
}

func (c *Checker) modelCompleted(e Event, b ModelCompleted) string {
	if n := len(c.steps); n > 0 {
		if open := c.unanswered(c.steps[n-1]); open != "" {
			return fmt.Sprintf("call %q of the step before has no result", open)
		}
	}
	if b.Through >= e.Seq || b.Through < c.floor {
		return fmt.Sprintf("its prompt went through event %d, which is not in %d … %d", b.Through, c.floor, e.Seq-1)
	}
	step := checkedStep{seq: e.Seq}
	for _, call := range b.Message.Calls() {
		switch {
		case !IsCallID(call.ID):
			return fmt.Sprintf("%.80q is not the id of a call", call.ID)
		case c.calls[call.ID] != nil:
			return fmt.Sprintf("call %q was there before", call.ID)
		}
		c.calls[call.ID] = &checkedCall{step: e.Seq}
		step.calls = append(step.calls, call.ID)
	}
	c.steps = append(c.steps, step)
	c.floor = e.Seq
	return ""
}

func (c *Checker) unanswered(s checkedStep) string {
	for _, id := range s.calls {
		if c.calls[id].completed == 0 {
			return id
		}
	}
	return ""
}

// openCall returns a call of the last step that has no result yet.
func (c *Checker) openCall(id string) (*checkedCall, string) {
	call := c.calls[id]
	switch {
	case call == nil:
		return nil, fmt.Sprintf("there is no call %q", id)
	case !c.live(call.step):
		return nil, fmt.Sprintf("call %q was rewound", id)
	case call.completed != 0:
		return nil, fmt.Sprintf("call %q has a result, event %d", id, call.completed)
	case len(c.steps) == 0 || call.step != c.steps[len(c.steps)-1].seq:
		return nil, fmt.Sprintf("call %q is not of the last step", id)
	}
	return call, ""
}

func (c *Checker) toolStarted(e Event, b ToolStarted) string {
	call, rule := c.openCall(b.Call)
	switch {
	case rule != "":
		return rule
	case b.Key == "":
		return "an effect has a key"
	case call.started != 0 && call.started > c.claimed:
		return fmt.Sprintf("call %q was started by event %d, and the thread was not claimed since", b.Call, call.started)
	case call.asked != 0 && call.decided == 0:
		return fmt.Sprintf("call %q waits for a person", b.Call)
	case call.decision == Reject || call.decision == Respond:
		return fmt.Sprintf("call %q was not approved", b.Call)
	}
	call.started = e.Seq
	return ""
}

func (c *Checker) toolCompleted(e Event, b ToolCompleted) string {
	call, rule := c.openCall(b.Call)
	switch {
	case rule != "":
		return rule
	case call.started == 0 && (len(b.Files) > 0 || b.Exit != nil):
		return fmt.Sprintf("call %q had an effect and was never started", b.Call)
	case call.asked != 0 && call.decided == 0 && !b.Failed:
		return fmt.Sprintf("call %q succeeded while it waited for a person", b.Call)
	case call.decision == Reject && !b.Failed:
		return fmt.Sprintf("call %q succeeded although it was rejected", b.Call)
	}
	call.completed = e.Seq
	c.floor = e.Seq
	return ""
}

func (c *Checker) approvalAsked(e Event, b ApprovalAsked) string {
	call, rule := c.openCall(b.Call)
	switch {
	case rule != "":
		return rule
	case len(b.Allowed) == 0:
		return "nothing is allowed as an answer"
	case b.Ask == AskForm:
		return call.formAsked(e, b)
	case call.started != 0:
		return fmt.Sprintf("call %q was started by event %d", b.Call, call.started)
	case call.asked != 0:
		return fmt.Sprintf("call %q was asked about by event %d", b.Call, call.asked)
	}
	call.asked, call.allowed = e.Seq, b.Allowed
	return ""
}

// formAsked checks a question of a call that runs; it may have several, one after the other.
func (c *checkedCall) formAsked(e Event, b ApprovalAsked) string {
	switch {
	case c.started == 0:
		return fmt.Sprintf("call %q asks and was never started", b.Call)
	case c.asked != 0 && c.decided == 0:
		return fmt.Sprintf("call %q waits for a person", b.Call)
	case b.Form == nil:
		return "there is no form"
	}
	c.asked, c.decided, c.allowed, c.form = e.Seq, 0, b.Allowed, true
	return ""
}

func (c *Checker) approvalDecided(e Event, b ApprovalDecided) string {
	call, rule := c.openCall(b.Call)
	switch {
	case rule != "":
		return rule
	case call.asked == 0:
		return fmt.Sprintf("there was no question about call %q", b.Call)
	case call.decided != 0:
		return fmt.Sprintf("call %q was decided by event %d", b.Call, call.decided)
	case !slices.Contains(call.allowed, b.Decision) && (b.By != "expiry" || b.Decision != Reject):
		return fmt.Sprintf("%q is not allowed as an answer", b.Decision)
	}
	if call.decided = e.Seq; !call.form { // the call runs, whatever was said to its form
		call.decision = b.Decision
	}
	return ""
}

func (c *Checker) cleared(e Event, b Cleared) string {
	for _, id := range b.Calls {
		switch call := c.calls[id]; {
		case call == nil:
			return fmt.Sprintf("there is no call %q", id)
		case !c.live(call.step):
			return fmt.Sprintf("call %q was rewound", id)
		case call.completed == 0:
			return fmt.Sprintf("call %q has no result to clear", id)
		}
	}
	c.floor = e.Seq
	return ""
}

func (c *Checker) compacted(e Event, b Compacted) string {
	if b.Through >= e.Seq || !c.live(b.Through) {
		return fmt.Sprintf("there is no event %d in the conversation", b.Through)
	}
	if n := len(c.steps); n > 0 && c.steps[n-1].seq <= b.Through { // those before were answered
		if open := c.unanswered(c.steps[n-1]); open != "" {
			return fmt.Sprintf("call %q, which the summary covers, has no result", open)
		}
	}
	for _, seq := range b.Keep {
		if _, is := slices.BinarySearch(c.inputs, seq); !is || seq > b.Through {
			return fmt.Sprintf("event %d is not an input that the summary covers", seq)
		}
	}
	c.floor = e.Seq
	return ""
}
