package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Bounds of a report.
const (
	diffLines = 5   // of each side
	lineMax   = 200 // characters
	stepsMax  = 10_000
)

// Report says where two runs differ.
type Report struct {
	Same  bool   `json:"same"`
	Steps []Step `json:"steps"`
	// Old and New are how the runs ended.
	Old Ending `json:"old"`
	New Ending `json:"new"`
}

// Ending is how a run ended; empty if it did not.
type Ending struct {
	State  thread.RunState `json:"state,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Step compares one answer of the model with the calls that it asked for.
type Step struct {
	Step int  `json:"step"` // from 1
	Same bool `json:"same"`
	// Why is set when a step is in one run only, or the model spoke otherwise.
	Why   string `json:"why,omitempty"`
	Calls []Call `json:"calls,omitempty"`
}

// Call compares one tool call.
type Call struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"` // of the old run, else of the new
	Same bool            `json:"same"`
	// Why names what differs: arguments, exit code, failure, code, output; or
	// that only one run has it.
	Why []string `json:"why,omitempty"`
	Old *Result  `json:"old,omitempty"`
	New *Result  `json:"new,omitempty"`
	// Diff are the first lines that differ: "-" old, "+" new.
	Diff []string `json:"diff,omitempty"`
}

// Result is what came of a call.
type Result struct {
	Failed bool   `json:"failed,omitempty"`
	Code   string `json:"code,omitempty"`
	Exit   *int   `json:"exit,omitempty"`
	Bytes  int64  `json:"bytes"`
}

// Compare goes through the events of two runs step by step. Output is compared
// byte by byte: what is normal to differ (times, ids) is for the reader to say.
func Compare(before, after []thread.Event) Report {
	old, now := stepsOf(before), stepsOf(after)
	r := Report{Same: true, Old: old.ending, New: now.ending}
	for i := range min(max(len(old.steps), len(now.steps)), stepsMax) {
		s := Step{Step: i + 1}
		switch {
		case i >= len(old.steps):
			s.Why = "only the new run has this step"
			s.Calls = onlyIn(now.steps[i], "only in the new run", false)
		case i >= len(now.steps):
			s.Why = "only the old run has this step"
			s.Calls = onlyIn(old.steps[i], "only in the old run", true)
		default:
			s = compareStep(i+1, old.steps[i], now.steps[i])
		}
		r.Same = r.Same && s.Same
		r.Steps = append(r.Steps, s)
	}
	r.Same = r.Same && r.Old.State == r.New.State && r.Old.Reason == r.New.Reason && bytes.Equal(r.Old.Result, r.New.Result)
	return r
}

// record is what a run consists of, for this purpose.
type record struct {
	steps  []*step
	ending Ending
}

type step struct {
	text  string
	calls []*call
}

type call struct {
	id, tool string
	args     json.RawMessage
	done     *thread.ToolCompleted
}

func stepsOf(events []thread.Event) record {
	var r record
	open := map[string]*call{}
	for _, e := range events {
		switch b := e.Body.(type) {
		case thread.ModelCompleted:
			s := &step{text: b.Message.String()}
			for _, c := range b.Message.Calls() {
				x := &call{id: c.ID, tool: c.Name, args: c.Args}
				open[c.ID] = x
				s.calls = append(s.calls, x)
			}
			r.steps = append(r.steps, s)
		case thread.ToolStarted:
			if c := open[b.Call]; c != nil && b.Args != nil {
				c.args = b.Args
			}
		case thread.ToolCompleted:
			if c := open[b.Call]; c != nil && c.done == nil {
				c.done = &b
			}
		case thread.RunEnded:
			r.ending = Ending{State: b.State, Reason: b.Reason, Result: b.Result}
		}
	}
	return r
}

func onlyIn(s *step, why string, old bool) []Call {
	var calls []Call
	for _, c := range s.calls {
		x := Call{Tool: c.tool, Args: c.args, Why: []string{why}}
		if old {
			x.Old = resultOf(c)
		} else {
			x.New = resultOf(c)
		}
		calls = append(calls, x)
	}
	return calls
}

func compareStep(n int, old, now *step) Step {
	s := Step{Step: n, Same: true}
	if old.text != now.text {
		s.Same, s.Why = false, "the model said something else"
	}
	for i := range max(len(old.calls), len(now.calls)) {
		var c Call
		switch {
		case i >= len(old.calls):
			c = onlyIn(&step{calls: now.calls[i : i+1]}, "only in the new run", false)[0]
		case i >= len(now.calls):
			c = onlyIn(&step{calls: old.calls[i : i+1]}, "only in the old run", true)[0]
		default:
			c = compareCall(old.calls[i], now.calls[i])
		}
		s.Same = s.Same && c.Same
		s.Calls = append(s.Calls, c)
	}
	return s
}

func compareCall(old, now *call) Call {
	c := Call{Tool: old.tool, Args: old.args, Old: resultOf(old), New: resultOf(now)}
	note := func(differs bool, what string) {
		if differs {
			c.Why = append(c.Why, what)
		}
	}
	note(old.tool != now.tool, "another tool: "+now.tool)
	note(!sameJSON(old.args, now.args), "arguments")
	note((old.done == nil) != (now.done == nil), "one has no result")
	if old.done != nil && now.done != nil {
		a, b := old.done, now.done
		note(!sameInt(a.Exit, b.Exit), "exit code")
		note(a.Failed != b.Failed, "failure")
		note(a.Code != b.Code, "code")
		if differs, diff := outputs(a, b); differs {
			note(true, "output")
			c.Diff = diff
		}
	}
	c.Same = len(c.Why) == 0
	return c
}

func resultOf(c *call) *Result {
	if c.done == nil {
		return nil
	}
	size := max(c.done.Bytes, int64(len((llm.Message{Blocks: c.done.Blocks}).String())))
	return &Result{Failed: c.done.Failed, Code: c.done.Code, Exit: c.done.Exit, Bytes: size}
}

// outputs compares what two calls returned. Whole texts that are blobs are
// compared by their hash; a preview with a whole text only by their sizes,
// since a view of the same text may be cut elsewhere.
func outputs(a, b *thread.ToolCompleted) (differs bool, diff []string) {
	wholeA, wholeB := blobOf(a), blobOf(b)
	x, y := (llm.Message{Blocks: a.Blocks}).String(), (llm.Message{Blocks: b.Blocks}).String()
	switch {
	case wholeA != "" && wholeA == wholeB:
		return false, nil
	case wholeA == "" && wholeB == "":
		differs = x != y || !sameMedia(a.Blocks, b.Blocks)
	case wholeA != "" && wholeB != "":
		differs = true
	default:
		differs = max(a.Bytes, int64(len(x))) != max(b.Bytes, int64(len(y)))
	}
	if differs {
		diff = diffOf(x, y)
	}
	return differs, diff
}

func blobOf(c *thread.ToolCompleted) string {
	if c.Blob != "" {
		return c.Blob
	}
	return c.Shown
}

func sameMedia(a, b []llm.Block) bool {
	hashes := func(blocks []llm.Block) string {
		var s strings.Builder
		for _, x := range blocks {
			if x.Media != nil {
				s.WriteString(x.Media.Type + " " + x.Media.Hash + "\n")
			}
		}
		return s.String()
	}
	return hashes(a) == hashes(b)
}

func sameJSON(a, b json.RawMessage) bool {
	return bytes.Equal(compact(a), compact(b))
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func sameInt(a, b *int) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// diffOf shows the first lines that differ, behind what both begin with and
// before what both end with.
func diffOf(old, now string) []string {
	a, b := strings.Split(old, "\n"), strings.Split(now, "\n")
	line := 0
	for line < len(a) && line < len(b) && a[line] == b[line] {
		line++
	}
	a, b = a[line:], b[line:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	out := []string{fmt.Sprintf("line %d:", line+1)}
	return append(append(out, side("-", a)...), side("+", b)...)
}

func side(mark string, lines []string) []string {
	var out []string
	for i, l := range lines {
		if i == diffLines {
			return append(out, fmt.Sprintf("%s … %d more lines", mark, len(lines)-diffLines))
		}
		out = append(out, mark+clip.Text(l, lineMax))
	}
	return out
}

// String is the report for people.
func (r Report) String() string {
	var b strings.Builder
	differ := 0
	for _, s := range r.Steps {
		if !s.Same {
			differ++
		}
		for i, c := range s.Calls {
			if i == 0 && s.Why != "" {
				fmt.Fprintf(&b, "step %-3d %s\n", s.Step, s.Why)
			}
			c.write(&b, s.Step)
		}
		if len(s.Calls) == 0 {
			fmt.Fprintf(&b, "step %-3d %s\n", s.Step, orSame(s.Why))
		}
	}
	fmt.Fprintf(&b, "old run: %s, new run: %s\n", r.Old, r.New)
	if r.Same {
		fmt.Fprintf(&b, "same in all of %d steps\n", len(r.Steps))
	} else {
		fmt.Fprintf(&b, "%d of %d steps differ\n", differ, len(r.Steps))
	}
	return b.String()
}

func (c Call) write(b *strings.Builder, step int) {
	fmt.Fprintf(b, "step %-3d %s %s  %s\n", step, c.Tool, clip.Text(string(compact(c.Args)), lineMax), orSame(strings.Join(c.Why, ", ")))
	if c.Old != nil && c.New != nil && !sameInt(c.Old.Exit, c.New.Exit) {
		fmt.Fprintf(b, "         exit %s, now %s\n", number(c.Old.Exit), number(c.New.Exit))
	}
	for _, d := range c.Diff {
		fmt.Fprintf(b, "         %s\n", d)
	}
}

func orSame(why string) string {
	if why == "" {
		return "same"
	}
	return why
}

func number(n *int) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}

// String is "succeeded", or "failed (steps)".
func (e Ending) String() string {
	switch {
	case e.State == "":
		return "not ended"
	case e.Reason == "" || e.State == thread.RunSucceeded:
		return string(e.State)
	}
	return fmt.Sprintf("%s (%s)", e.State, e.Reason)
}
