// Package guard sees that a run goes in circles.
//
//	v := guard.Look(steps) // the last ones of the run, the oldest first
//	switch v.Action { case guard.Nudge: tell(v.Text); case guard.Stop: end(v.Text) }
//
// It looks for four things: the same call with the same result again and
// again, two calls in turn, the same failure whatever is tried, and steps that
// only talk. It speaks up on the step that makes the pattern and not before;
// the model gets a chance to change its mind, and a run that goes on the same
// way after that is stopped. A step that brought something new ends every
// pattern that needs an unbroken row.
//
// It is pure: the same steps give the same verdict with the same text.
package guard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// When it speaks up.
const (
	Window    = 10 // calls that are looked at for repetition
	SameNudge = 3  // the same call with the same result, within Window
	SameStop  = 5
	// Turns calls in a row that are A B A B …, whatever they return; it is said
	// again every half of that. With the same results they are repetition too.
	Turns = 12
	// FailNudge failures in a row that say the same.
	FailNudge = 3
	FailStop  = 6
	// TalkNudge steps in a row without a call, when calls are expected.
	TalkNudge = 3
	TalkStop  = 5
)

// Step is one answer of the model.
type Step struct {
	Text  string
	Calls []Call
}

// Call is a tool call that has its result.
type Call struct {
	Name   string
	Args   json.RawMessage // as the model wrote them: spaces and order do not matter
	Result string          // a hash, or the text
	Failed bool
	// Waits: repeating the call is what it is for (looking after a process or a
	// sub-agent). Such calls are not counted.
	Waits bool

	what string // name and arguments, made comparable; "" = not yet, see Seen
}

// Seen returns the call with what Look compares made ready, for those who show
// it the same calls again and again.
func (c Call) Seen() Call {
	if c.what == "" {
		c.what = c.Name + "\x00" + canonical(c.Args)
	}
	return c
}

// Action is what to do.
type Action string

// Actions.
const (
	Go    Action = "" // nothing is wrong
	Nudge Action = "nudge"
	Stop  Action = "stop"
)

// Verdict is what Look says.
type Verdict struct {
	Action Action
	Text   string // with Nudge for the model, with Stop for people
}

// Look judges the end of a row of steps: it speaks up only about a pattern
// that the last step takes part in.
func Look(steps []Step) Verdict {
	if len(steps) == 0 {
		return Verdict{}
	}
	if len(steps[len(steps)-1].Calls) == 0 {
		return talk(steps)
	}
	calls, fresh := flatten(steps)
	worst := Verdict{}
	for n := range fresh {
		until := calls[:len(calls)-n]
		for _, look := range []func([]call) Verdict{same, turns, failures} {
			if v := look(until); v.Action == Stop || worst.Action == Go {
				worst = v
			}
			if worst.Action == Stop {
				return worst
			}
		}
	}
	return worst
}

// call is a Call reduced to what is compared.
type call struct {
	name, what, result string
	failed             bool
}

// flatten lists the calls of all steps; fresh of them are the last step's.
func flatten(steps []Step) (calls []call, fresh int) {
	calls = make([]call, 0, 2*Window)
	for _, s := range steps {
		fresh = 0
		for _, c := range s.Calls {
			if c.Waits {
				continue
			}
			calls = append(calls, call{name: c.Name, what: c.Seen().what, result: c.Result, failed: c.Failed})
			fresh++
		}
	}
	return calls, fresh
}

// canonical makes arguments comparable: the order of keys and spaces go.
func canonical(args json.RawMessage) string {
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

func level(n, nudge, stop int, text string) Verdict {
	switch {
	case n >= stop:
		return Verdict{Stop, text}
	case n >= nudge:
		return Verdict{Nudge, text}
	}
	return Verdict{}
}

// same counts the last call with its result among the last ones.
func same(calls []call) Verdict {
	last, n := calls[len(calls)-1], 0
	for _, c := range calls[max(0, len(calls)-Window):] {
		if c.what == last.what && c.result == last.result {
			n++
		}
	}
	v := level(n, SameNudge, SameStop, fmt.Sprintf("You called %s %d times with the same arguments and got the same result each time.", last.name, n))
	return advise(v, "It will not change. Use what you have, try something else, or say what stands in the way.")
}

// turns looks for A B A B … at the end.
func turns(calls []call) Verdict {
	n := 0
	for at := range slices.Backward(calls) {
		if n >= 2 && calls[at].what != calls[at+2].what || n == 1 && calls[at].what == calls[at+1].what {
			break
		}
		n++
	}
	if n < Turns || (n-Turns)%(Turns/2) != 0 {
		return Verdict{}
	}
	a, b := calls[len(calls)-2], calls[len(calls)-1]
	return advise(Verdict{Nudge, fmt.Sprintf("You called %s and %s in turn for the last %d calls, with the same arguments.", a.name, b.name, n)},
		"Going back and forth does not bring you on. Step back and choose another way.")
}

// failures counts how often in a row the same failure came.
func failures(calls []call) Verdict {
	last, n := calls[len(calls)-1], 0
	for at := len(calls) - 1; at >= 0 && calls[at].failed && last.failed && calls[at].name == last.name && calls[at].result == last.result; at-- {
		n++
	}
	v := level(n, FailNudge, FailStop, fmt.Sprintf("%s failed %d times in a row with the same message.", last.name, n))
	return advise(v, "Read the message again: what it says has to change before the call can work.")
}

// talk counts steps without a call.
func talk(steps []Step) Verdict {
	n := 0
	for at := len(steps) - 1; at >= 0 && len(steps[at].Calls) == 0; at-- {
		n++
	}
	v := level(n, TalkNudge, TalkStop, fmt.Sprintf("Your last %d replies called no tool.", n))
	return advise(v, "If the task is done, say so with its result. If not, do the next thing.")
}

// advise adds what only the model needs.
func advise(v Verdict, advice string) Verdict {
	if v.Action == Nudge {
		v.Text += " " + advice
	}
	return v
}
