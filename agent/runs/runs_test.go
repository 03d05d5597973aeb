package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

var began = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// history makes the events of a thread, one second apart.
type history struct{ events []thread.Event }

func (h *history) add(bodies ...thread.Body) *history {
	for _, b := range bodies {
		seq := uint64(len(h.events) + 1)
		h.events = append(h.events, thread.Event{Seq: seq, At: began.Add(time.Duration(seq) * time.Second), Run: "run_a", Body: b})
	}
	return h
}

func (h *history) state(t testing.TB) *State {
	t.Helper()
	s, err := FoldState(h.events)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// opened is a thread on which a run has a task.
func opened(b thread.Budget) *history {
	return new(history).add(thread.Opened{Agent: json.RawMessage(`{"name":"a"}`), Name: "a"},
		thread.RunStarted{Budget: b}, thread.Input{ID: "in_1", From: "user", Blocks: []llm.Block{llm.Text("go")}})
}

// asks is a step that asks for calls by their ids, each of the tool "shell" unless
// it says another: "id=tool".
func asks(through uint64, calls ...string) thread.ModelCompleted {
	m := llm.Message{Role: llm.RoleAssistant, Blocks: []llm.Block{llm.Text("I work.")}}
	for _, c := range calls {
		id, tool, ok := strings.Cut(c, "=")
		if !ok {
			tool = "shell"
		}
		m.Blocks = append(m.Blocks, llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: tool, Args: json.RawMessage(`{}`)}})
	}
	return thread.ModelCompleted{Message: m, Through: through, Usage: llm.Usage{Input: 100, Output: 10}, CostUSD: 0.25}
}

func asked(call string, expires time.Time) thread.ApprovalAsked {
	return thread.ApprovalAsked{Call: call, Tool: "shell", Allowed: []thread.Decision{thread.Approve, thread.Edit, thread.Reject, thread.Respond}, Expires: expires}
}

func TestNext(t *testing.T) {
	soon, later := began.Add(time.Minute), began.Add(time.Hour)
	for _, c := range []struct {
		name string
		h    *history
		now  time.Time // zero = right after the last event
		want Action
	}{
		{"no run", new(history).add(thread.Opened{Agent: json.RawMessage(`{}`)}), time.Time{}, Action{Kind: Idle}},
		{"a task", opened(thread.Budget{}), time.Time{}, Action{Kind: CallModel}},
		{"calls that can go on", opened(thread.Budget{}).add(asks(3, "c1")), time.Time{}, Action{Kind: RunTools}},
		{"all results are there", opened(thread.Budget{}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1"}), time.Time{}, Action{Kind: CallModel}},
		{"one of two is open", opened(thread.Budget{}).add(asks(3, "c1", "c2"), thread.ToolCompleted{Call: "c1"}), time.Time{}, Action{Kind: RunTools}},
		{"an answer", opened(thread.Budget{}).add(asks(3)), time.Time{}, Action{Kind: End, State: thread.RunSucceeded, Reason: ReasonDone}},
		{"an answer, but the user said more", opened(thread.Budget{}).add(asks(3), thread.Input{ID: "in_2", From: "user"}), time.Time{}, Action{Kind: CallModel}},
		{"a vendor's pause is no answer", opened(thread.Budget{}).add(func() thread.Body {
			b := asks(3)
			b.Stop = llm.StopPause
			return b
		}()), time.Time{}, Action{Kind: CallModel}},
		{"a structured result", opened(thread.Budget{}).add(asks(3, "c1="+FinalTool), thread.ToolCompleted{Call: "c1"}), time.Time{}, Action{Kind: End, State: thread.RunSucceeded, Reason: ReasonDone}},
		{"one that was refused", opened(thread.Budget{}).add(asks(3, "c1="+FinalTool), thread.ToolCompleted{Call: "c1", Failed: true}), time.Time{}, Action{Kind: CallModel}},
		{"a person is asked", opened(thread.Budget{}).add(asks(3, "c1"), asked("c1", time.Time{})), time.Time{}, Action{Kind: Wait}},
		{"two are, the first expiry counts", opened(thread.Budget{}).add(asks(3, "c1", "c2"), asked("c1", later), asked("c2", soon)), time.Time{}, Action{Kind: Wait, Expires: soon}},
		{"it expires", opened(thread.Budget{}).add(asks(3, "c1"), asked("c1", soon)), soon, Action{Kind: RunTools}},
		{"one of two can go on", opened(thread.Budget{}).add(asks(3, "c1", "c2"), asked("c1", soon)), time.Time{}, Action{Kind: RunTools}},
		{"a person has decided", opened(thread.Budget{}).add(asks(3, "c1"), asked("c1", soon), thread.ApprovalDecided{Call: "c1", Decision: thread.Approve}), time.Time{}, Action{Kind: RunTools}},
		{"a cancel comes before all", opened(thread.Budget{Steps: 1}).add(asks(3, "c1"), asked("c1", soon), thread.CancelAsked{}), time.Time{}, Action{Kind: End, State: thread.RunCancelled, Reason: ReasonCancelled}},
		{"it is over", opened(thread.Budget{}).add(asks(3), thread.RunEnded{State: thread.RunSucceeded}), time.Time{}, Action{Kind: Idle}},
		{"an answer within the last step", opened(thread.Budget{Steps: 1}).add(asks(3)), time.Time{}, Action{Kind: End, State: thread.RunSucceeded, Reason: ReasonDone}},
		{"calls of the last step still run", opened(thread.Budget{Steps: 1}).add(asks(3, "c1")), time.Time{}, Action{Kind: RunTools}},
		{"no step is left", opened(thread.Budget{Steps: 1}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1"}), time.Time{}, Action{Kind: End, State: thread.RunFailed, Reason: ReasonSteps}},
		{"no token is", opened(thread.Budget{Tokens: 110}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1"}), time.Time{}, Action{Kind: End, State: thread.RunFailed, Reason: ReasonTokens}},
		{"what sub-agents spent counts", opened(thread.Budget{Tokens: 111}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1", Usage: llm.Usage{Input: 1}}), time.Time{}, Action{Kind: End, State: thread.RunFailed, Reason: ReasonTokens}},
		{"no money is", opened(thread.Budget{CostUSD: 0.25}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1"}), time.Time{}, Action{Kind: End, State: thread.RunFailed, Reason: ReasonCost}},
		{"no time is", opened(thread.Budget{Wall: time.Minute}), began.Add(2*time.Second + time.Minute), Action{Kind: End, State: thread.RunTimedOut, Reason: ReasonWall}},
		{"a moment before", opened(thread.Budget{Wall: time.Minute}), began.Add(2*time.Second + time.Minute - 1), Action{Kind: CallModel}},
		{"a changed budget holds", opened(thread.Budget{Steps: 1}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1"}, thread.BudgetChanged{Budget: thread.Budget{Steps: 2}}), time.Time{}, Action{Kind: CallModel}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.h.state(t)
			if c.now.IsZero() {
				c.now = s.At
			}
			if d := cmp.Diff(c.want, s.Next(c.now)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Waiting for a person takes nothing of a run's time, while it lasts and after it.
func TestElapsed_withoutWaitingForPeople(t *testing.T) {
	h := opened(thread.Budget{}).add(asks(3, "c1"), asked("c1", time.Time{})) // the run began at 2 s, the question came at 5 s
	if got := h.state(t).Elapsed(began.Add(time.Hour)); got != 3*time.Second {
		t.Errorf("while a person is asked: %s", got)
	}
	h.add(thread.ApprovalDecided{Call: "c1", Decision: thread.Approve})
	h.events[5].At = began.Add(time.Hour)
	s := h.state(t)
	if got := s.Elapsed(began.Add(time.Hour + time.Second)); got != 4*time.Second {
		t.Errorf("after that: %s", got)
	}
	if got := s.Elapsed(began); got != 0 {
		t.Errorf("a clock that went back: %s", got)
	}
}

func TestApply_refusesWhatMakesNoSense(t *testing.T) {
	for name, h := range map[string]*history{
		"nothing opened it":         new(history).add(thread.RunStarted{}),
		"opened twice":              new(history).add(thread.Opened{Agent: json.RawMessage(`{}`)}, thread.Opened{Agent: json.RawMessage(`{}`)}),
		"a definition that is none": new(history).add(thread.Opened{Agent: json.RawMessage(`[]`)}),
		"a step outside of a run":   new(history).add(thread.Opened{Agent: json.RawMessage(`{}`)}, asks(0)),
		"two runs at once":          opened(thread.Budget{}).add(thread.RunStarted{}),
		"a call twice":              opened(thread.Budget{}).add(asks(3, "c1"), thread.ToolCompleted{Call: "c1"}, asks(3, "c1")),
		"a start of no call":        opened(thread.Budget{}).add(thread.ToolStarted{Call: "c9"}),
		"a question about no call":  opened(thread.Budget{}).add(thread.ApprovalAsked{Call: "c9"}),
		"a result of no call":       opened(thread.Budget{}).add(thread.ToolCompleted{Call: "c9"}),
		"a decision of no call":     opened(thread.Budget{}).add(thread.ApprovalDecided{Call: "c9"}),
		"rules that are none":       opened(thread.Budget{}).add(thread.PolicyChanged{Rules: json.RawMessage(`{`)}),
	} {
		if _, err := FoldState(h.events); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := opened(thread.Budget{})
	h.events[2].Seq = 4
	if _, err := FoldState(h.events); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a gap: %v", err)
	}
}

// seqs are the events of a conversation.
func seqs(items []*Item) (out []uint64) {
	for _, i := range items {
		out = append(out, i.Seq)
	}
	return out
}

func TestState_conversation(t *testing.T) {
	h := opened(thread.Budget{}).add( // 1 to 3
		thread.Input{ID: "in_1", From: "user"}, // 4, sent again
		thread.Input{ID: "in_2", From: "user"}, // 5
		asks(3, "c1"),                          // 6, which had seen 3 only
		thread.ToolCompleted{Call: "c1", Todos: []thread.Todo{{Content: "a"}}}, // 7
		asks(7, "c2"), // 8
		thread.ToolCompleted{Call: "c2", Failed: true, Todos: []thread.Todo{{Content: "b"}}}, // 9
	)
	s := h.state(t)
	if d := cmp.Diff([]uint64{3, 6, 5, 8}, seqs(s.Items)); d != "" || len(s.Queue) != 0 {
		t.Errorf("%s, queue %v", d, seqs(s.Queue))
	}
	if len(s.Todos) != 1 || s.Todos[0].Content != "a" {
		t.Errorf("a plan of a call that failed: %+v", s.Todos)
	}
	epoch := s.Epoch

	h.add(thread.Cleared{Calls: []string{"c1", "c9"}}) // 10
	s = h.state(t)
	if c := s.Call("c1"); c.ClearedAt != 10 || s.Epoch != epoch+1 || s.EpochSeq != 10 {
		t.Errorf("cleared: %+v, epoch %d of %d", c, s.Epoch, s.EpochSeq)
	}
	h.add(thread.Compacted{Through: 6, Keep: []uint64{3}, Summary: "s", File: "/f.md", Blob: "sha", Bytes: 7, Usage: llm.Usage{Input: 5}, Cost: 1}) // 11
	s = h.state(t)
	if d := cmp.Diff([]uint64{11, 3, 8}, seqs(s.Items)); d != "" {
		t.Error(d)
	}
	if s.Run.Usage.Input != 205 || s.Run.CostUSD != 1.5 || s.Run.Steps != 2 {
		t.Errorf("spent: %+v", s.Run)
	}
	if f := s.Archive()["/f.md"]; f != (Archived{Blob: "sha", Bytes: 7}) {
		t.Errorf("the file of the summary: %+v", f)
	}

	for to, want := range map[uint64][]uint64{ // what was replaced after it is back
		11: {11, 3, 8}, 10: {3, 6, 5, 8}, 7: {3, 6, 5}, 5: {3, 5}, 3: {3},
	} {
		again := &history{slices.Clone(h.events)}
		s := again.add(thread.Rewound{To: to}).state(t)
		got := append(seqs(s.Items), seqs(s.Queue)...)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("rewound to %d: %s", to, d)
		}
		if spent := s.Run.Usage.Input; spent != 205 {
			t.Errorf("rewound to %d: spent %d", to, spent)
		}
		if planned := len(s.Todos) == 1; planned != (to >= 7) {
			t.Errorf("rewound to %d: the plan is %+v", to, s.Todos)
		}
		if cleared := s.Call("c1").ClearedAt != 0; cleared != (to >= 10) && to >= 7 {
			t.Errorf("rewound to %d: the result is cleared: %v", to, cleared)
		}
		if _, there := s.Archive()["/f.md"]; there != (to >= 11) {
			t.Errorf("rewound to %d: the file is there: %v", to, there)
		}
		if !s.HasInput("in_2") || s.Call("c2") == nil {
			t.Errorf("rewound to %d: ids are free again", to)
		}
	}
}

func TestState_filesAndResults(t *testing.T) {
	h := opened(thread.Budget{}).add(asks(3, "c1", "c2", "c3"),
		thread.ToolCompleted{Call: "c1", Blocks: []llm.Block{llm.Text("text")}, Files: []thread.FileChange{{Path: "/a", Blob: "1"}, {Path: "/b", Blob: "2"}}},
		thread.ToolCompleted{Call: "c2", Shown: "shown", Bytes: 9, Files: []thread.FileChange{{Path: "/a", Blob: ""}, {Path: "/b", Blob: "3"}}},
		thread.ToolCompleted{Call: "c3", Blob: "whole", File: ResultFile("c3"), Bytes: 11},
		thread.Cleared{Calls: []string{"c1", "c2", "c3"}})
	s := h.state(t)
	if files := s.Files(); len(files) != 1 || files["/b"].Blob != "3" {
		t.Errorf("files: %+v", files)
	}
	want := map[string]Archived{
		ResultFile("c1"): {Text: "text", Bytes: 4}, ResultFile("c2"): {Blob: "shown", Bytes: 9}, ResultFile("c3"): {Blob: "whole", Bytes: 11},
	}
	if d := cmp.Diff(want, s.Archive()); d != "" {
		t.Error(d)
	}
}

// What counts is what a person or a hook made of the arguments.
func TestEffectiveArgs(t *testing.T) {
	args := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct {
		call Call
		want string
	}{
		{Call{Call: llm.Call{Args: args(`1`)}}, `1`},
		{Call{Call: llm.Call{Args: args(`1`)}, Asked: &thread.ApprovalAsked{}}, `1`},
		{Call{Call: llm.Call{Args: args(`1`)}, Asked: &thread.ApprovalAsked{Args: args(`2`)}}, `2`},
		{Call{Call: llm.Call{Args: args(`1`)}, Asked: &thread.ApprovalAsked{Args: args(`2`)}, Decided: &thread.ApprovalDecided{Decision: thread.Approve, Args: args(`3`)}}, `2`},
		{Call{Call: llm.Call{Args: args(`1`)}, Asked: &thread.ApprovalAsked{Args: args(`2`)}, Decided: &thread.ApprovalDecided{Decision: thread.Edit, Args: args(`3`)}}, `3`},
		{Call{Call: llm.Call{Args: args(`1`)}, Decided: &thread.ApprovalDecided{Decision: thread.Edit, Args: args(`3`)}, Started: &thread.ToolStarted{Args: args(`4`)}}, `4`},
	} {
		if got := string(c.call.EffectiveArgs()); got != c.want {
			t.Errorf("%+v: %s", c.call, got)
		}
	}
}

func TestCorrections_sinceTheLastStepThatWasWell(t *testing.T) {
	notice := func(id, name string) thread.Input { return thread.Input{ID: id, From: "skete", Name: name} }
	h := opened(thread.Budget{}).add(asks(3), notice("n1", "format"), asks(5), notice("n2", "format"), notice("n3", "loop"))
	s := h.state(t)
	if got := s.Corrections("format"); got != 2 {
		t.Errorf("two of format: %d", got)
	}
	if !s.Warned("loop", 6) || s.Warned("loop", 8) || s.Warned("wall", 0) {
		t.Error("what was said since an event")
	}
	h.add(asks(8, "c1"), thread.ToolCompleted{Call: "c1"}, notice("n4", "format"))
	if got := h.state(t).Corrections("format"); got != 1 {
		t.Errorf("after a step that was well: %d", got)
	}
}

func TestBudgets(t *testing.T) {
	file := thread.Budget{Steps: 10, Tokens: 1000, Wall: time.Hour}
	for _, c := range []struct{ asked, file, want thread.Budget }{
		{thread.Budget{}, thread.Budget{}, thread.Budget{Steps: stepsMax}},
		{thread.Budget{}, file, file},
		{thread.Budget{Steps: 99, CostUSD: 1}, file, thread.Budget{Steps: 99, Tokens: 1000, CostUSD: 1, Wall: time.Hour}},
	} {
		if d := cmp.Diff(c.want, BudgetOf(c.asked, c.file)); d != "" {
			t.Errorf("%+v of %+v: %s", c.asked, c.file, d)
		}
	}
	left := thread.Budget{Steps: 5, Tokens: 500, CostUSD: 0.5, Wall: time.Minute}
	for _, c := range []struct{ b, left, want thread.Budget }{
		{thread.Budget{}, left, left},
		{thread.Budget{Steps: 9, Tokens: 900, CostUSD: 1, Wall: time.Hour}, left, left},
		{thread.Budget{Steps: 1, Tokens: 1, CostUSD: 0.1, Wall: time.Second}, left, thread.Budget{Steps: 1, Tokens: 1, CostUSD: 0.1, Wall: time.Second}},
		{thread.Budget{Steps: 1, Wall: time.Second}, thread.Budget{}, thread.Budget{Steps: 1, Wall: time.Second}},
	} {
		if d := cmp.Diff(c.want, Within(c.b, c.left)); d != "" {
			t.Errorf("%+v within %+v: %s", c.b, c.left, d)
		}
	}
	s := opened(thread.Budget{Steps: 3, Tokens: 100, CostUSD: 0.2, Wall: 10 * time.Second}).add(asks(3, "c1")).state(t)
	want := thread.Budget{Steps: 2, Tokens: 1, CostUSD: 1e-9, Wall: 8 * time.Second} // what is used up is not "no bound"
	if d := cmp.Diff(want, Left(s, s.At)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(thread.Budget{}, Left(opened(thread.Budget{}).state(t), began)); d != "" {
		t.Error(d)
	}
}

func TestStart_check(t *testing.T) {
	text := []llm.Block{llm.Text("go")}
	for name, c := range map[string]struct {
		s    Start
		want errs.Class // "" = it is taken
	}{
		"a task":                    {s: Start{Input: text}},
		"an image":                  {s: Start{Input: []llm.Block{{Kind: llm.KindMedia, Media: &llm.Media{Data: []byte("x")}}}}},
		"none on a thread":          {s: Start{Thread: "thr_a"}},
		"none":                      {Start{}, errs.Invalid},
		"a form of the result":      {s: Start{Input: text, Schema: json.RawMessage(`{"type":"object"}`)}},
		"a form that is none":       {Start{Input: text, Schema: json.RawMessage(`{"type":"objekt"}`)}, errs.Invalid},
		"a form that is no JSON":    {Start{Input: text, Schema: json.RawMessage(`{`)}, errs.Invalid},
		"the largest":               {s: Start{Input: []llm.Block{llm.Text(strings.Repeat("x", InputBytesMax))}}},
		"too large":                 {Start{Input: []llm.Block{llm.Text(strings.Repeat("x", InputBytesMax)), llm.Text("y")}}, errs.Limit},
		"images count":              {Start{Input: []llm.Block{{Kind: llm.KindMedia, Media: &llm.Media{Data: make([]byte, MediaBytesMax+1)}}}}, errs.Limit},
		"many images":               {s: Start{Input: []llm.Block{{Kind: llm.KindMedia, Media: &llm.Media{Data: make([]byte, MediaBytesMax)}}, llm.Text("x")}}},
		"an image without one":      {Start{Input: []llm.Block{{Kind: llm.KindMedia}}}, errs.Invalid},
		"a check":                   {s: Start{Input: text, EndCheck: &thread.RunCheck{Command: "true", Rubric: "x"}}},
		"a check of nothing":        {Start{Input: text, EndCheck: &thread.RunCheck{Command: " ", Rubric: "\n"}}, errs.Invalid},
		"a check with a NUL":        {Start{Input: text, EndCheck: &thread.RunCheck{Command: "a\x00"}}, errs.Invalid},
		"a long check":              {Start{Input: text, EndCheck: &thread.RunCheck{Command: strings.Repeat("x", checkMax+1)}}, errs.Limit},
		"a long rubric":             {Start{Input: text, EndCheck: &thread.RunCheck{Rubric: strings.Repeat("x", checkMax+1)}}, errs.Limit},
		"a call":                    {Start{Input: []llm.Block{{Kind: llm.KindCall, Call: &llm.Call{}}}}, errs.Invalid},
		"an agent for a thread":     {Start{Thread: "thr_a", Agent: "b", Input: text}, errs.Invalid},
		"another for a thread":      {Start{Thread: "thr_a", Inline: &definition.Definition{}, Input: text}, errs.Invalid},
		"a sub-agent's thread":      {Start{Thread: "thr_a/1", Input: text}, errs.Invalid},
		"a label without a key":     {Start{Input: text, Labels: map[string]string{"": "x"}}, errs.Invalid},
		"a long label":              {Start{Input: text, Labels: map[string]string{"a": strings.Repeat("x", labelBytesMax)}}, errs.Invalid},
		"a label as long as may be": {s: Start{Input: text, Labels: map[string]string{"a": strings.Repeat("x", labelBytesMax-1)}}},
		"many labels":               {Start{Input: text, Labels: numbered(labelsMax + 1)}, errs.Limit},
		"as many as may be":         {s: Start{Input: text, Labels: numbered(labelsMax)}},
		"negative steps":            {Start{Input: text, Budget: thread.Budget{Steps: -1}}, errs.Invalid},
		"negative tokens":           {Start{Input: text, Budget: thread.Budget{Tokens: -1}}, errs.Invalid},
		"negative cost":             {Start{Input: text, Budget: thread.Budget{CostUSD: -1}}, errs.Invalid},
		"negative time":             {Start{Input: text, Budget: thread.Budget{Wall: -1}}, errs.Invalid},
	} {
		if err := c.s.Check(); (err == nil) != (c.want == zeroClass) || err != nil && !errs.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var zeroClass errs.Class

func numbered(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint(i)] = "x"
	}
	return m
}

// Files of the host are for the operator to name, wherever in a request they stand.
func TestMayName(t *testing.T) {
	const script = "script/etc/passwd"
	inline := &definition.Definition{}
	sub := definition.Definition{Subagents: map[string]definition.Definition{"s": {Model: script}}}
	for name, c := range map[string]struct {
		s    Start
		d    definition.Definition
		want bool
	}{
		"a model":                       {Start{Model: "big"}, definition.Definition{}, true},
		"a script":                      {Start{Model: script}, definition.Definition{}, false},
		"the operator's":                {Start{Model: script, Operator: true}, definition.Definition{}, true},
		"a replay's":                    {Start{Model: script, Replay: "run_a"}, definition.Definition{}, true},
		"of a definition on the server": {Start{}, definition.Definition{Model: script}, true},
		"of one in the request":         {Start{Inline: inline}, definition.Definition{Model: script}, false},
		"of a sub-agent in the request": {Start{Inline: inline}, sub, false},
	} {
		err := c.s.MayName(c.d)
		if (err == nil) != c.want || err != nil && !errs.Is(err, errs.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecide_check(t *testing.T) {
	call := &Call{Asked: &thread.ApprovalAsked{Allowed: []thread.Decision{thread.Approve, thread.Edit, thread.Respond}}}
	long := strings.Repeat("x", thread.InlineBytesMax+1)
	for name, c := range map[string]struct {
		d    Decide
		want errs.Class
	}{
		"approve":              {d: Decide{Decision: thread.Approve, Always: true}},
		"not allowed here":     {Decide{Decision: thread.Reject}, errs.Invalid},
		"no decision":          {Decide{}, errs.Invalid},
		"a long text":          {Decide{Decision: thread.Respond, Text: long}, errs.Limit},
		"respond":              {d: Decide{Decision: thread.Respond, Text: "no"}},
		"respond with nothing": {Decide{Decision: thread.Respond}, errs.Invalid},
		"edit":                 {d: Decide{Decision: thread.Edit, Args: json.RawMessage(`{"a":1}`)}},
		"edit to a list":       {Decide{Decision: thread.Edit, Args: json.RawMessage(`[]`)}, errs.Invalid},
		"edit to nothing":      {Decide{Decision: thread.Edit}, errs.Invalid},
		"edit to much":         {Decide{Decision: thread.Edit, Args: json.RawMessage(`{"a":"` + long + `"}`)}, errs.Invalid},
		"always edit":          {Decide{Decision: thread.Edit, Args: json.RawMessage(`{}`), Always: true}, errs.Invalid},
	} {
		got, err := c.d.Check(call)
		if (err == nil) != (c.want == zeroClass) || err != nil && !errs.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (got.Decision != c.d.Decision || got.Text != c.d.Text || string(got.Args) != string(c.d.Args)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMayRewind(t *testing.T) {
	over := opened(thread.Budget{}).add(asks(3), thread.RunEnded{State: thread.RunSucceeded}) // 5 events
	for _, c := range []struct {
		name string
		h    *history
		to   uint64
		want errs.Class
	}{
		{"no run", new(history).add(thread.Opened{Agent: json.RawMessage(`{}`)}), 1, errs.Invalid},
		{"under way", opened(thread.Budget{}), 1, errs.Conflict},
		{"to nothing", over, 0, errs.Invalid},
		{"to the last", over, 5, errs.Invalid},
		{"to one before", over, 4, zeroClass},
		{"to the first", over, 1, zeroClass},
	} {
		err := MayRewind(c.h.state(t), c.to)
		if (err == nil) != (c.want == zeroClass) || err != nil && !errs.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// MayWant passes over no run that Wants chooses, whatever becomes of it meanwhile.
func TestFilter_mayWantWhatItWants(t *testing.T) {
	states := []thread.RunState{thread.RunRunning, thread.RunInterrupted, thread.RunSucceeded, thread.RunFailed}
	state := rapid.SampledFrom(states)
	ids := rapid.SampledFrom([]thread.ID{"thr_a", "thr_b", "thr_a/1"})
	rapid.Check(t, func(t *rapid.T) {
		f := Filter{
			States: rapid.SliceOfN(state, 0, 2).Draw(t, "states"), Subagents: rapid.Bool().Draw(t, "subagents"),
			Thread: rapid.OneOf(ids, rapid.Just(thread.ID(""))).Draw(t, "thread"), Agent: rapid.SampledFrom([]string{"", "x"}).Draw(t, "agent"),
		}
		r := Run{Thread: ids.Draw(t, "of"), State: state.Draw(t, "is"), Agent: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "its")}
		known := r.State
		if !r.State.Final() || rapid.Bool().Draw(t, "late") {
			known = rapid.SampledFrom(states[:2]).Draw(t, "known")
		}
		if f.Wants(r) && !f.MayWant(r.Thread, known) {
			t.Errorf("%+v wants %+v, known as %s", f, r, known)
		}
	})
}

func TestFilter_wants(t *testing.T) {
	r := Run{Thread: "thr_a", Agent: "x", State: thread.RunRunning, Labels: map[string]string{"k": "v", "l": ""}}
	sub := Run{Thread: "thr_a/1"}
	for name, c := range map[string]struct {
		f    Filter
		r    Run
		want bool
	}{
		"all":                    {Filter{}, r, true},
		"its agent":              {Filter{Agent: "x"}, r, true},
		"another agent":          {Filter{Agent: "y"}, r, false},
		"its label":              {Filter{Labels: map[string]string{"k": "v", "l": ""}}, r, true},
		"another value":          {Filter{Labels: map[string]string{"k": "w"}}, r, false},
		"a sub-agent's":          {Filter{}, sub, false},
		"asked for":              {Filter{Subagents: true}, sub, true},
		"by its thread":          {Filter{Thread: "thr_a/1"}, sub, true},
		"of another thread":      {Filter{Thread: "thr_a"}, sub, false},
		"one of several states":  {Filter{States: []thread.RunState{thread.RunFailed, thread.RunRunning}}, r, true},
		"none of several states": {Filter{States: []thread.RunState{thread.RunFailed}}, r, false},
	} {
		if got := c.f.Wants(c.r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Pages follow each other without a gap, whatever their size.
func TestFilter_pages(t *testing.T) {
	var all []Run
	for i := range 7 {
		all = append(all, Run{ID: thread.RunID(fmt.Sprint("run_", i)), Created: began.Add(-time.Duration(i) * time.Nanosecond)})
	}
	for size, want := range map[int]int{1: 7, 3: 3, 6: 2, 7: 1, 8: 1, 0: 1, -1: 1, pageMax + 1: 1} {
		f := Filter{PageSize: size}
		var got []Run
		pages := 0
		for {
			pages++
			rest := all[len(got):]
			p := f.Page(rest)
			got = append(got, p.Runs...)
			if f.PageToken = p.Next; p.Next == "" {
				break
			}
			last, err := f.Last()
			if err != nil || last.ID != got[len(got)-1].ID || !last.Created.Equal(got[len(got)-1].Created) {
				t.Fatalf("size %d: the token names %+v: %v", size, last, err)
			}
		}
		if pages != want || len(got) != len(all) {
			t.Errorf("size %d: %d runs on %d pages", size, len(got), pages)
		}
	}
	if (Filter{PageSize: pageMax + 1}).Size() != pageMax || (Filter{}).Size() != pageSize {
		t.Error("the bounds of a page")
	}
}

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"", "x", "MjAyNi0xMS0wMVQxMjowMDowMFogcnVuX2E", "IA", "!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseToken(s)
		if err != nil && !errs.Is(err, errs.Invalid) || err == nil && r == nil {
			t.Errorf("%q: %v, %v", s, r, err)
		}
	})
}

func TestKeepInput(t *testing.T) {
	blobs := thread.NewMemory()
	small, err := KeepInput(t.Context(), blobs, thread.Input{Blocks: []llm.Block{llm.Text("go"), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("png")}}}})
	if err != nil || small.Shown != "" || small.Blocks[1].Media.Data != nil {
		t.Errorf("a small one: %+v, %v", small, err)
	}
	if image, err := blobs.Get(t.Context(), small.Blocks[1].Media.Hash); err != nil || string(image) != "png" {
		t.Errorf("its image: %q, %v", image, err)
	}
	again, err := KeepInput(t.Context(), blobs, thread.Input{Blocks: small.Blocks})
	if d := cmp.Diff(small, again); d != "" || err != nil {
		t.Errorf("an image that is stored already: %v %s", err, d)
	}
	for _, hash := range []string{"", "x", strings.Repeat("0", 64)} {
		in := thread.Input{Blocks: []llm.Block{{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: hash}}}}
		if _, err := KeepInput(t.Context(), blobs, in); !errs.Is(err, errs.Invalid) {
			t.Errorf("the hash %q of nothing: %v", hash, err)
		}
	}
	text := strings.Repeat("word", thread.InlineBytesMax)
	large, err := KeepInput(t.Context(), blobs, thread.Input{Blocks: []llm.Block{llm.Text(text)}})
	if err != nil || len(large.Blocks[0].Text) > TextMax+10 || large.ShownTokens < thread.InlineBytesMax {
		t.Errorf("a large one: %d bytes, %d tokens, %v", len(large.Blocks[0].Text), large.ShownTokens, err)
	}
	var whole []llm.Block
	content, err := blobs.Get(t.Context(), large.Shown)
	if err != nil || json.Unmarshal(content, &whole) != nil || whole[0].Text != text {
		t.Errorf("it is not whole: %v", err)
	}
}

func TestProject(t *testing.T) {
	h := opened(thread.Budget{Steps: 5}).add(thread.Bound{Machine: "sbx_a", Own: true}, asks(3, "c1", "c2"), asked("c1", time.Time{}), asked("c2", time.Time{}))
	r := Run{ID: "run_a", Model: "first"}
	s := h.state(t)
	Project(&r, s, s.At)
	want := Run{
		ID: "run_a", Model: "first", State: thread.RunInterrupted, Steps: 1, Usage: llm.Usage{Input: 100, Output: 10}, CostUSD: 0.25, Budget: thread.Budget{Steps: 5},
		First: 2, Last: 7, Sandbox: "sbx_a", OwnSandbox: true, Waiting: 2,
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
	h.add(thread.RunEnded{State: thread.RunFailed, Reason: ReasonLoop, Text: strings.Repeat("x", 2*TextMax), Result: json.RawMessage(`"` + strings.Repeat("x", jsonMax) + `"`)})
	s = h.state(t)
	Project(&r, s, s.At)
	if r.State != thread.RunFailed || r.Reason != ReasonLoop || r.Waiting != 0 || len(r.Text) > TextMax+10 || r.Result != nil || !r.Ended.Equal(s.At) {
		t.Errorf("when it is over: %.300v", r)
	}
	other := Run{ID: "run_b"}
	if Project(&other, s, s.At); other.State != "" {
		t.Errorf("another run: %+v", other)
	}
}

func TestAfterRun(t *testing.T) {
	wait := definition.AfterWait
	for name, c := range map[string]struct {
		r    Run
		said definition.AfterRun
		want definition.AfterRun
	}{
		"nothing is said":   {want: definition.AfterRun{Sandbox: definition.AfterStop, Wait: wait}},
		"the definition":    {said: definition.AfterRun{Sandbox: definition.AfterRemove, Wait: 1}, want: definition.AfterRun{Sandbox: definition.AfterRemove, Wait: 1}},
		"keep comes first":  {r: Run{Keep: true}, said: definition.AfterRun{Sandbox: definition.AfterRemove}, want: definition.AfterRun{Sandbox: definition.AfterKeep, Wait: wait}},
		"a replay goes":     {r: Run{Replay: "run_b"}, said: definition.AfterRun{Sandbox: definition.AfterStop}, want: definition.AfterRun{Sandbox: definition.AfterRemove, Wait: wait}},
		"unless it is kept": {r: Run{Replay: "run_b", Keep: true}, want: definition.AfterRun{Sandbox: definition.AfterKeep, Wait: wait}},
	} {
		if got := c.r.AfterRun(c.said); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		s    Start
		want string
	}{
		{Start{Title: "t", Input: []llm.Block{llm.Text("x")}}, "t"},
		{Start{Input: []llm.Block{llm.Text("\n  first line \nsecond")}}, "first line "},
		{Start{Input: []llm.Block{{Kind: llm.KindMedia}, llm.Text("look")}}, "look"},
		{Start{}, ""},
	} {
		if got := c.s.Headline(); got != c.want {
			t.Errorf("%+v: %q", c.s, got)
		}
	}
	if got := (Start{Title: strings.Repeat("x", 2*TitleMax)}).Headline(); len(got) > TitleMax+10 {
		t.Errorf("a long one has %d bytes", len(got))
	}
}

func TestDerivedID_isAnID(t *testing.T) {
	a, b := DerivedID("a", "b"), DerivedID("ab")
	if a == b || a != DerivedID("a", "b") {
		t.Errorf("%s, %s", a, b)
	}
	if _, err := thread.ParseRunID(string(a)); err != nil {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	err := errs.Wrap(errs.Limit, errors.New("secret"), "too much").WithHint("ask for less")
	if got := Explain(err); got != "too much (ask for less)" {
		t.Errorf("%q", got)
	}
}

// One key stands for one request, with all that it asks for.
func TestFingerprint(t *testing.T) {
	image := func(data string) []llm.Block {
		return []llm.Block{llm.Text("x"), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte(data)}}}
	}
	seen := map[string]string{}
	for name, s := range map[string]Start{
		"text": {Input: []llm.Block{llm.Text("x")}}, "another": {Input: []llm.Block{llm.Text("y")}}, "an image": {Input: image("a")}, "another image": {Input: image("b")},
		"a plan": {Input: []llm.Block{llm.Text("x")}, Planning: true}, "a check": {Input: []llm.Block{llm.Text("x")}, EndCheck: &thread.RunCheck{Command: "true"}},
		"another check": {Input: []llm.Block{llm.Text("x")}, EndCheck: &thread.RunCheck{Command: "false"}},
	} {
		f := s.Fingerprint()
		if seen[f] != "" || f != s.Fingerprint() {
			t.Errorf("%s and %s are the same", name, seen[f])
		}
		seen[f] = name
	}
}

// The first event of a thread has the agent as the start wants it, and is not too large.
func TestStart_opened(t *testing.T) {
	d := definition.Definition{Name: "a", Sandbox: map[string]any{"memory_mb": 512}}
	for name, c := range map[string]struct {
		start Start
		want  map[string]any
	}{
		"as the file says":  {Start{}, map[string]any{"memory_mb": 512.0}},
		"as the start says": {Start{Spec: map[string]any{"cpus": 2}}, map[string]any{"cpus": 2.0}},
	} {
		o, err := c.start.Opened(d)
		var got definition.Definition
		if err == nil {
			err = json.Unmarshal(o.Agent, &got)
		}
		if diff := cmp.Diff(c.want, got.Sandbox); diff != "" || err != nil || o.Name != "a" {
			t.Errorf("%s: %s %v", name, diff, err)
		}
	}
	d.Instructions = strings.Repeat("x", definition.ResolvedBytesMax)
	if _, err := (Start{}).Opened(d); !errs.Is(err, errs.Limit) {
		t.Errorf("one that is too large: %v", err)
	}
	d.Instructions = ""
	d.Sandbox = map[string]any{"x": func() {}}
	if _, err := (Start{}).Opened(d); !errs.Is(err, errs.Invalid) {
		t.Errorf("one that cannot be written down: %v", err)
	}
}

// The steps of sub-agents that are over count too.
func TestLeft_below(t *testing.T) {
	s := opened(thread.Budget{Steps: 10}).state(t)
	s.Run.Steps, s.Run.Below = 3, 4
	if got := Left(s, s.At).Steps; got != 3 {
		t.Errorf("%d steps are left", got)
	}
}
