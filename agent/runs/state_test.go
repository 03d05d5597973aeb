package runs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// at is when the event of a number was.
func at(seq int) time.Time { return began.Add(time.Duration(seq) * time.Second) }

// spending is what something used, as it is in events of several kinds.
var spending = thread.Spent{Steps: 2, Usage: llm.Usage{Input: 5}, CostUSD: 0.5}

// Each event changes what it says, and nothing else that is looked at. The first three are
// those of opened.
func TestApply(t *testing.T) {
	todos := []thread.Todo{{Content: "a"}}
	done := func(b thread.ToolCompleted) thread.ToolCompleted { b.Call = "c1"; return b }
	run := func(of func(*CurrentRun) any) func(*State) any { return func(s *State) any { return of(s.Run) } }
	spent := run(func(r *CurrentRun) any { return r.Spent() })
	compactAsked := func(s *State) any { return s.CompactAsked }
	planning := run(func(r *CurrentRun) any { return r.Planning })
	archive := func(s *State) any { return s.Archive() }
	queue := func(s *State) any { return seqs(s.Queue) }
	opens := thread.Opened{Agent: json.RawMessage(`{"name":"a"}`)}
	for name, c := range map[string]struct {
		h    *history
		of   func(*State) any
		want any
	}{
		"the first cancel holds":        {opened(thread.Budget{}).add(thread.CancelAsked{By: "a"}, thread.CancelAsked{By: "b"}), run(func(r *CurrentRun) any { return r.Cancel }), &thread.CancelAsked{By: "a"}},
		"a cancel that is late":         {opened(thread.Budget{}).add(thread.RunEnded{}, thread.CancelAsked{By: "a"}), run(func(r *CurrentRun) any { return r.Cancel }), (*thread.CancelAsked)(nil)},
		"a check":                       {opened(thread.Budget{}).add(thread.CheckStarted{Key: "k"}), run(func(r *CurrentRun) any { return r.Check }), CheckState{Open: &thread.CheckStarted{Key: "k"}, OpenAt: at(4)}},
		"a check that ended":            {opened(thread.Budget{}).add(thread.CheckStarted{Key: "k"}, thread.CheckEnded{Text: "t"}), run(func(r *CurrentRun) any { return r.Check }), CheckState{Count: 1, OpenAt: at(4), Last: &thread.CheckEnded{Text: "t"}, LastSeq: 5}},
		"two of them":                   {opened(thread.Budget{}).add(thread.CheckStarted{}, thread.CheckEnded{}, thread.CheckStarted{}, thread.CheckEnded{}), run(func(r *CurrentRun) any { return r.Check.Count }), 2},
		"what a check costs":            {opened(thread.Budget{}).add(thread.CheckStarted{}, thread.CheckEnded{Usage: spending.Usage, CostUSD: spending.CostUSD}), spent, thread.Spent{Usage: spending.Usage, CostUSD: spending.CostUSD}},
		"failures":                      {opened(thread.Budget{}).add(thread.ModelFailed{Attempt: 1}, thread.ModelFailed{Attempt: 2}), run(func(r *CurrentRun) any { return r.Failures }), []thread.ModelFailed{{Attempt: 1}, {Attempt: 2}}},
		"an answer ends them":           {opened(thread.Budget{}).add(thread.ModelFailed{Attempt: 1}, asks(3)), run(func(r *CurrentRun) any { return len(r.Failures) }), 0},
		"the model that answered":       {opened(thread.Budget{}).add(thread.ModelCompleted{Model: "m"}), run(func(r *CurrentRun) any { return r.Model }), "m"},
		"a prompt that was too long":    {opened(thread.Budget{}).add(thread.ModelFailed{Trouble: llm.Overflow, Model: "m", Estimated: 10}), func(s *State) any { return s.Overflow }, Overflow{Model: "m", WindowTokens: 6}},
		"a run after another":           {opened(thread.Budget{}).add(thread.RunEnded{}, thread.RunStarted{}), run(func(r *CurrentRun) any { return r.First }), uint64(5)},
		"a call that began":             {opened(thread.Budget{}).add(asks(3, "c1"), thread.ToolStarted{Call: "c1", Key: "k"}), func(s *State) any { c := s.Call("c1"); return []any{c.Started, c.StartedAt} }, []any{&thread.ToolStarted{Call: "c1", Key: "k"}, at(5)}},
		"the first decision holds":      {opened(thread.Budget{}).add(asks(3, "c1"), asked("c1", time.Time{}), thread.ApprovalDecided{Call: "c1", By: "a"}, thread.ApprovalDecided{Call: "c1", By: "b"}), func(s *State) any { return s.Call("c1").Decided.By }, "a"},
		"inputs without an id":          {opened(thread.Budget{}).add(thread.Input{}, thread.Input{}), queue, []uint64{3, 4, 5}},
		"an input before any run":       {new(history).add(opens, thread.Input{ID: "i", Spent: spending}), queue, []uint64{2}},
		"what sub-agents spent":         {opened(thread.Budget{}).add(thread.Input{ID: "i", Spent: spending}, thread.Input{ID: "i", Spent: spending}), spent, spending},
		"what a call spent":             {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{Steps: 2, Usage: spending.Usage, CostUSD: 0.5})), spent, thread.Spent{Steps: 3, Usage: llm.Usage{Input: 105, Output: 10}, CostUSD: 0.75}},
		"shorter, please":               {opened(thread.Budget{}).add(thread.CompactAsked{By: "a"}), compactAsked, &thread.CompactAsked{By: "a"}},
		"there was nothing to shorten":  {opened(thread.Budget{}).add(thread.CompactAsked{By: "a"}, asks(4)), compactAsked, (*thread.CompactAsked)(nil)},
		"the prompt did not know":       {opened(thread.Budget{}).add(thread.CompactAsked{By: "a"}, asks(3)), compactAsked, &thread.CompactAsked{By: "a"}},
		"it was shortened":              {opened(thread.Budget{}).add(thread.CompactAsked{By: "a"}, thread.Compacted{Through: 3}), compactAsked, (*thread.CompactAsked)(nil)},
		"a call asks for it":            {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{Compact: &thread.CompactAsked{By: "c"}})), compactAsked, &thread.CompactAsked{By: "c"}},
		"a call does not":               {opened(thread.Budget{}).add(asks(3, "c1"), thread.CompactAsked{By: "a"}, done(thread.ToolCompleted{})), compactAsked, &thread.CompactAsked{By: "a"}},
		"no plan yet":                   {new(history).add(opens, thread.RunStarted{Planning: true}, thread.Input{}, asks(3, "c1"), done(thread.ToolCompleted{})), planning, true},
		"a plan that is accepted":       {new(history).add(opens, thread.RunStarted{Planning: true}, thread.Input{}, asks(3, "c1"), done(thread.ToolCompleted{PlanAccepted: true})), planning, false},
		"todos that are not said":       {opened(thread.Budget{}).add(asks(3, "c1", "c2"), done(thread.ToolCompleted{Todos: todos}), thread.ToolCompleted{Call: "c2"}), func(s *State) any { return s.Todos }, todos},
		"todos of the step":             {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{Todos: todos})), func(s *State) any { return s.Last().Todos }, todos},
		"a result of what was rewound":  {opened(thread.Budget{}).add(asks(3, "c1"), thread.Rewound{To: 3}, done(thread.ToolCompleted{Todos: todos})), func(s *State) any { return []any{s.Last(), s.Open()} }, []any{(*Item)(nil), []*Call(nil)}},
		"a file without a blob":         {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{File: "/f"})), archive, map[string]Archived{}},
		"a blob without a file":         {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{Blob: "b"})), archive, map[string]Archived{}},
		"a summary with neither":        {opened(thread.Budget{}).add(thread.Compacted{Through: 3}), archive, map[string]Archived{}},
		"a summary without a blob":      {opened(thread.Budget{}).add(thread.Compacted{Through: 3, File: "/f"}), archive, map[string]Archived{}},
		"a summary without a file":      {opened(thread.Budget{}).add(thread.Compacted{Through: 3, Blob: "b"}), archive, map[string]Archived{}},
		"a summary before any run":      {new(history).add(opens, thread.Compacted{Through: 1, Usage: spending.Usage}), func(s *State) any { return seqs(s.Items) }, []uint64{2}},
		"one summary covers another":    {opened(thread.Budget{}).add(asks(3), thread.Compacted{Through: 3}, thread.Compacted{Through: 3, Keep: []uint64{5}}), func(s *State) any { return seqs(s.Items) }, []uint64{6, 4}},
		"no step is the last":           {opened(thread.Budget{}).add(thread.Compacted{Through: 3}), func(s *State) any { return s.Last() }, (*Item)(nil)},
		"epochs":                        {opened(thread.Budget{}).add(thread.Compacted{Through: 3}, thread.Rewound{To: 3}), func(s *State) any { return []any{s.Epoch, s.EpochSeq} }, []any{2, uint64(5)}},
		"the newest rule is the first":  {opened(thread.Budget{}).add(thread.PolicyChanged{Rules: json.RawMessage(`[{"action":"ask"}]`)}, thread.PolicyChanged{Rules: json.RawMessage(`[{"action":"allow"},{"action":"deny"}]`)}), func(s *State) any { return s.Rules }, []definition.Rule{{Action: "allow"}, {Action: "deny"}, {Action: "ask"}}},
		"what was cleared first":        {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{}), thread.Cleared{Calls: []string{"c1"}}, thread.Cleared{Calls: []string{"c1"}}), func(s *State) any { return s.Call("c1").ClearedAt }, uint64(6)},
		"an input that is rewound":      {opened(thread.Budget{}).add(thread.Input{ID: "x"}, thread.Input{ID: "y"}, thread.Rewound{To: 4}), queue, []uint64{3, 4}},
		"files that are rewound":        {opened(thread.Budget{}).add(asks(3, "c1", "c2"), done(thread.ToolCompleted{Files: []thread.FileChange{{Path: "/a", Blob: "1"}}}), thread.ToolCompleted{Call: "c2", Files: []thread.FileChange{{Path: "/a", Blob: "2"}}}, thread.Rewound{To: 5}), func(s *State) any { return s.Files() }, map[string]thread.FileChange{"/a": {Path: "/a", Blob: "1"}}},
		"todos of a step that stays":    {opened(thread.Budget{}).add(asks(3, "c1"), done(thread.ToolCompleted{Todos: todos}), thread.Rewound{To: 4}), func(s *State) any { return s.Todos }, todos},
		"what is archived is what left": {opened(thread.Budget{}).add(asks(3, "c1", "c2", "c3"), done(thread.ToolCompleted{Shown: "s"}), thread.ToolCompleted{Call: "c2", Blob: "b"}, thread.Cleared{Calls: []string{"c2", "c3"}}), archive, map[string]Archived{}},
		"nor is what is unknown":        {opened(thread.Budget{}), func(s *State) any { _, ok := s.Cleared("c1"); return ok }, false},
	} {
		if d := cmp.Diff(c.want, c.of(c.h.state(t))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A budget that says nothing bounds nothing.
func TestWithin_noBound(t *testing.T) {
	if d := cmp.Diff(thread.Budget{CostUSD: 1}, Within(thread.Budget{CostUSD: 1}, thread.Budget{})); d != "" {
		t.Error(d)
	}
}

// Texts and arguments may be as long as is said, and always is about calls.
func TestDecide_bounds(t *testing.T) {
	allowed := []thread.Decision{thread.Approve, thread.Edit, thread.Respond}
	call, question := &Call{Asked: &thread.ApprovalAsked{Allowed: allowed}}, &Call{Asked: &thread.ApprovalAsked{Allowed: allowed, Ask: thread.AskQuestion}}
	for name, c := range map[string]struct {
		of   *Call
		d    Decide
		want bool
	}{
		"a text":                {call, Decide{Decision: thread.Respond, Text: strings.Repeat("x", thread.InlineBytesMax)}, true},
		"arguments":             {call, Decide{Decision: thread.Edit, Args: json.RawMessage(`{"a":"` + strings.Repeat("x", thread.InlineBytesMax-8) + `"}`)}, true},
		"more arguments":        {call, Decide{Decision: thread.Edit, Args: json.RawMessage(`{"a":"` + strings.Repeat("x", thread.InlineBytesMax-7) + `"}`)}, false},
		"a question":            {question, Decide{Decision: thread.Approve}, true},
		"always, of a question": {question, Decide{Decision: thread.Approve, Always: true}, false},
	} {
		if _, err := c.d.Check(c.of); (err == nil) != c.want || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A start that asks for words alone has the key that it had in earlier versions.
func TestFingerprint_ofWords(t *testing.T) {
	for name, s := range map[string]Start{
		"words": {Thread: "thr_a", Agent: "a", Model: "m", Input: []llm.Block{llm.Text("x")}}, "an image that is stored": {Input: []llm.Block{{Kind: llm.KindMedia, Media: &llm.Media{Hash: "h"}}}},
	} {
		input, err := json.Marshal(s.Input)
		if err != nil {
			t.Fatal(err)
		}
		if want := HashName(`{"Thread":"` + string(s.Thread) + `","Agent":"` + s.Agent + `","Input":` + string(input) + `,"Model":"` + s.Model + `"}`); s.Fingerprint() != want {
			t.Errorf("%s: %s, not %s", name, s.Fingerprint(), want)
		}
	}
}

// A run that cannot be chosen is not read.
func TestFilter_mayWant(t *testing.T) {
	for name, c := range map[string]struct {
		f     Filter
		id    thread.ID
		state thread.RunState
		want  bool
	}{
		"all":                      {Filter{}, "thr_a", thread.RunFailed, true},
		"another thread":           {Filter{Thread: "thr_b"}, "thr_a", thread.RunFailed, false},
		"a sub-agent's":            {Filter{}, "thr_a/1", thread.RunFailed, false},
		"a sub-agent's, asked for": {Filter{Subagents: true}, "thr_a/1", thread.RunFailed, true},
		"a sub-agent's, by thread": {Filter{Thread: "thr_a/1"}, "thr_a/1", thread.RunFailed, true},
		"its state":                {Filter{States: []thread.RunState{thread.RunFailed}}, "thr_a", thread.RunFailed, true},
		"another state":            {Filter{States: []thread.RunState{thread.RunFailed}}, "thr_a", thread.RunSucceeded, false},
		"another state, not over":  {Filter{States: []thread.RunState{thread.RunFailed}}, "thr_a", thread.RunRunning, true},
	} {
		if got := c.f.MayWant(c.id, c.state); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The first page has no token, and what is no token is refused.
func TestFilter_last(t *testing.T) {
	if last, err := (Filter{}).Last(); last != nil || err != nil {
		t.Errorf("%+v, %v", last, err)
	}
	token := Filter{PageSize: 1}.Page([]Run{{ID: "run_a", Created: began}, {}}).Next
	if last, err := (Filter{PageToken: token}).Last(); err != nil || last.ID != "run_a" {
		t.Errorf("%+v, %v", last, err)
	}
	for name, bad := range map[string]string{
		"more behind it": token + "!", "no id": "MjAyNi0xMS0wMVQxMjowMDowMFo", "no time": "eCBydW5fYQ", // 2026-11-01T12:00:00Z; x run_a
	} {
		if last, err := (Filter{PageToken: bad}).Last(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %+v, %v", name, last, err)
		}
	}
}

// A record says what the log does, and keeps what the log does not say.
func TestProject_whole(t *testing.T) {
	check := &thread.RunCheck{Command: "true"}
	h := new(history).add(thread.Opened{Agent: json.RawMessage(`{}`)}, thread.RunStarted{Planning: true, Check: check}, thread.Input{},
		thread.CheckStarted{}, thread.CheckEnded{}, thread.ModelCompleted{Message: asks(3, "c1", "c2").Message, Model: "m"}, asked("c1", time.Time{}))
	r := Run{ID: "run_a", Model: "first", Waiting: 7}
	s := h.state(t)
	Project(&r, s, s.At)
	if r.Model != "m" || !r.Planning || r.Check != check || r.Checks != 1 || r.Waiting != 1 {
		t.Errorf("%+v", r)
	}
	result := json.RawMessage(`"` + strings.Repeat("x", jsonMax-2) + `"`)
	s = h.add(thread.RunEnded{State: thread.RunSucceeded, Result: result}).state(t)
	if Project(&r, s, s.At); string(r.Result) != string(result) || r.Waiting != 0 {
		t.Errorf("when it is over: %.200v", r)
	}
	none := Run{}
	Project(&none, NewState(), began)
	if d := cmp.Diff(Run{}, none); d != "" {
		t.Errorf("before any run: %s", d)
	}
	if got := Explain(errs.New(errs.Limit, "too much")); got != "too much" {
		t.Errorf("without a hint: %q", got)
	}
}

// The log tells of a target once between two answers of the model, of few targets there, and
// of not too many in all; the last one says so.
func TestRefused(t *testing.T) {
	h := opened(thread.Budget{})
	told, step := 0, 0
	for ; ; step++ {
		h.add(asks(3))
		was := told
		for i := range 50 {
			r := thread.NetworkRefused{Machine: "m", Host: fmt.Sprintf("h%d", i/2), Port: 80}
			tell, last := h.state(t).Run.Refused.MayTell(r)
			if !tell {
				continue
			}
			if told++; last != (told == 100) {
				t.Fatalf("refusal %d: last is %v", told, last)
			}
			h.add(r)
		}
		if told == was {
			break
		}
		if told-was > 16 {
			t.Fatalf("step %d tells of %d", step, told-was)
		}
	}
	if told != 100 || step != 7 {
		t.Errorf("%d steps tell of %d", step, told)
	}
}
