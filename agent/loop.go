package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// This file sees that a run goes in circles.
//
// It looks for four things: the same call with the same result again and
// again, two calls in turn, the same failure whatever is tried, and steps that
// only talk. It speaks up on the step that makes the pattern and not before;
// the model gets a chance to change its mind, and a run that goes on the same
// way after that is stopped. A step that brought something new ends every
// pattern that needs an unbroken row. Calls that wait for something (loopCall.Waits)
// are there to be repeated and do not count.
//
// It is pure: the same steps give the same verdict with the same text.

// When it speaks up.
const (
	repeatsDefault = 5 // see loopLimits
	// turnsInRow calls in a row that are A B A B …, whatever they return; it is said
	// again every half of that. With the same results they are repetition too.
	turnsInRow = 12
	// talkNudge steps in a row without a call, when calls are expected.
	talkNudge = 3
	talkStop  = 5
)

// loopLimits say how often is too often.
type loopLimits struct {
	// Repeats of a call with the same result end the run, three fifths of that are
	// spoken of; so does one more of the same failure in a row, and half of that.
	Repeats int
}

func limitsOf(repeats int) loopLimits {
	if repeats <= 0 {
		repeats = repeatsDefault
	}
	return loopLimits{repeats}
}

// window is how many calls are looked at for repetition, and reach how many for
// anything.
func (l loopLimits) window() int { return 2 * l.Repeats }
func (l loopLimits) reach() int  { return max(l.window(), turnsInRow) + 2 }

// loopStep is one answer of the model.
type loopStep struct {
	Text  string
	Calls []loopCall
}

// loopCall is a tool call that has its result.
type loopCall struct {
	Name   string
	Args   json.RawMessage // as the model wrote them: spaces and order do not matter
	Result string          // a hash, or the text
	Failed bool
	// Waits: repeating the call is what it is for (looking after a process or a
	// sub-agent, a command that sleeps). Such calls are not counted.
	Waits bool

	what string // name and arguments, made comparable; "" = not yet, see Seen
}

// Seen returns the call with what Look compares made ready, for those who show
// it the same calls again and again.
func (c loopCall) Seen() loopCall {
	if c.what == "" {
		c.what = c.Name + "\x00" + canonicalArgs(c.Args)
	}
	return c
}

// loopAction is what to do.
type loopAction string

// Actions.
const (
	loopGo    loopAction = "" // nothing is wrong
	loopNudge loopAction = "nudge"
	loopStop  loopAction = "stop"
)

// loopVerdict is what Look says.
type loopVerdict struct {
	Action loopAction
	Text   string // with loopNudge for the model, with loopStop for people
}

// detectLoop judges the end of a row of steps: it speaks up only about a pattern
// that the last step takes part in.
func detectLoop(steps []loopStep, limits loopLimits) loopVerdict {
	if len(steps) == 0 {
		return loopVerdict{}
	}
	if len(steps[len(steps)-1].Calls) == 0 {
		return onlyTalk(steps)
	}
	calls, fresh := flattenCalls(steps)
	worst := loopVerdict{}
	for n := range fresh {
		until := calls[:len(calls)-n]
		for _, look := range []func([]comparedCall, loopLimits) loopVerdict{sameCalls, alternatingCalls, sameFailures} {
			if v := look(until, limits); v.Action == loopStop || worst.Action == loopGo {
				worst = v
			}
			if worst.Action == loopStop {
				return worst
			}
		}
	}
	return worst
}

// comparedCall is a Call reduced to what is compared.
type comparedCall struct {
	name, what, result string
	failed             bool
}

// flattenCalls lists the calls of all steps; fresh of them are the last step's.
func flattenCalls(steps []loopStep) (calls []comparedCall, fresh int) {
	calls = make([]comparedCall, 0, 4*repeatsDefault)
	for _, s := range steps {
		fresh = 0
		for _, c := range s.Calls {
			if c.Waits {
				continue
			}
			calls = append(calls, comparedCall{name: c.Name, what: c.Seen().what, result: c.Result, failed: c.Failed})
			fresh++
		}
	}
	return calls, fresh
}

// canonicalArgs makes arguments comparable: the order of keys and spaces go.
func canonicalArgs(args json.RawMessage) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(args)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return string(args)
	}
	if len(b) > 1024 {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	return string(b)
}

// loopLevel is what happens at the n-th time. What is told is about the agent: to the
// model "You …", to people "The agent …".
func loopLevel(n, nudge, stop int, told, advice string) loopVerdict {
	switch {
	case n >= stop:
		return loopVerdict{loopStop, "The agent " + told}
	case n >= nudge:
		return loopVerdict{loopNudge, "You " + told + " " + advice}
	}
	return loopVerdict{}
}

// sameCalls counts the last call with its result among the last ones.
func sameCalls(calls []comparedCall, l loopLimits) loopVerdict {
	last, n := calls[len(calls)-1], 0
	for _, c := range calls[max(0, len(calls)-l.window()):] {
		if c.what == last.what && c.result == last.result {
			n++
		}
	}
	told := fmt.Sprintf("called %s %d times with the same arguments and got the same result each time.", last.name, n)
	return loopLevel(n, max(2, l.Repeats*3/5), l.Repeats, told,
		"If you wait for something, let the command sleep before it looks. Otherwise use what you have, try something else, or say what stands in the way.")
}

// alternatingCalls looks for A B A B … at the end.
func alternatingCalls(calls []comparedCall, _ loopLimits) loopVerdict {
	n := 0
	for at := range slices.Backward(calls) {
		if n >= 2 && calls[at].what != calls[at+2].what || n == 1 && calls[at].what == calls[at+1].what {
			break
		}
		n++
	}
	if n < turnsInRow || (n-turnsInRow)%(turnsInRow/2) != 0 {
		return loopVerdict{}
	}
	a, b := calls[len(calls)-2], calls[len(calls)-1]
	return loopVerdict{loopNudge, fmt.Sprintf("You called %s and %s in turn for the last %d calls, with the same arguments. "+
		"If that does not bring you on, step back and choose another way.", a.name, b.name, n)}
}

// sameFailures counts how often in a row the same failure came.
func sameFailures(calls []comparedCall, l loopLimits) loopVerdict {
	last, n := calls[len(calls)-1], 0
	for at := len(calls) - 1; at >= 0 && calls[at].failed && last.failed && calls[at].name == last.name && calls[at].result == last.result; at-- {
		n++
	}
	told := fmt.Sprintf("called %s %d times in a row, and it failed with the same message each time.", last.name, n)
	return loopLevel(n, (l.Repeats+1)/2, l.Repeats+1, told, "Read the message again: what it says has to change before the call can work.")
}

// onlyTalk counts steps without a call.
func onlyTalk(steps []loopStep) loopVerdict {
	n := 0
	for at := len(steps) - 1; at >= 0 && len(steps[at].Calls) == 0; at-- {
		n++
	}
	told := fmt.Sprintf("called no tool in the last %d replies.", n)
	return loopLevel(n, talkNudge, talkStop, told, "If the task is done, say so with its result. If not, do the next thing.")
}
