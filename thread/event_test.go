package thread_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

const at = `"at":"2026-01-02T03:04:05.006Z"`

func TestEvent_refusesWhatIsNone(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for name, c := range map[string]struct {
		json string
		want errs.Class
	}{
		"nothing":               {``, errs.Corrupt},
		"no JSON":               {`{"seq":1,"v":1`, errs.Corrupt},
		"an array":              {`[]`, errs.Corrupt},
		"null":                  {`null`, errs.Corrupt},
		"a string":              {`"x"`, errs.Corrupt},
		"two":                   {`{"v":1,"kind":"x"}{"v":1,"kind":"x"}`, errs.Corrupt},
		"no kind":               {`{"seq":1,"v":1,` + at + `,"data":{}}`, errs.Corrupt},
		"no version":            {`{"seq":1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"a negative version":    {`{"seq":1,"v":-1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"kind is a number":      {`{"seq":1,"v":1,"kind":5,` + at + `,"data":{}}`, errs.Corrupt},
		"seq is text":           {`{"seq":"1","v":1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"seq is negative":       {`{"seq":-1,"v":1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"seq is a fraction":     {`{"seq":1.5,"v":1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"seq is huge":           {`{"seq":1e400,"v":1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"seq is over 64 bits":   {`{"seq":18446744073709551616,"v":1,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"version is huge":       {`{"seq":1,"v":1e99,"kind":"input",` + at + `,"data":{}}`, errs.Corrupt},
		"a bad time":            {`{"seq":1,"v":1,"kind":"input","at":"yesterday","data":{}}`, errs.Corrupt},
		"no data":               {`{"seq":1,"v":1,"kind":"input",` + at + `}`, errs.Corrupt},
		"data is null":          {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":null}`, errs.Corrupt},
		"data is an array":      {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":[]}`, errs.Corrupt},
		"data is text":          {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":"x"}`, errs.Corrupt},
		"data is cut":           {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":{"from":}}`, errs.Corrupt},
		"data goes on":          {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":{}},{}}`, errs.Corrupt},
		"a field of wrong type": {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":{"from":5}}`, errs.Corrupt},
		"a huge number inside":  {`{"seq":1,"v":1,"kind":"run.started",` + at + `,"data":{"budget":{"steps":1e400}}}`, errs.Corrupt},
		"a block is no object":  {`{"seq":1,"v":1,"kind":"input",` + at + `,"data":{"blocks":[7]}}`, errs.Corrupt},
		"deep nesting":          {`{"seq":1,"v":1,"kind":"tool.started",` + at + `,"data":{"args":` + deep + `}}`, errs.Corrupt},
		"deep and unknown":      {`{"seq":1,"v":1,"kind":"x",` + at + `,"data":` + deep + `}`, errs.Corrupt},
		"enormous":              {`{"seq":1,"v":1,"kind":"x",` + at + `,"data":"` + strings.Repeat("x", 2<<20) + `"}`, errs.Limit},
		"a newer known kind":    {`{"seq":1,"v":2,"kind":"input",` + at + `,"data":{"else":[]}}`, errs.Unsupported},
		"a much newer one":      {`{"v":2147483647,"kind":"tool.started","data":7}`, errs.Unsupported},
	} {
		var e thread.Event
		err := e.UnmarshalJSON([]byte(c.json))
		if errs.Of(err) != c.want {
			t.Errorf("%s: %v (class %q), want class %q", name, err, errs.Of(err), c.want)
		}
		if c.want == errs.Unsupported && errs.Hint(err) == "" {
			t.Errorf("%s: no hint what to do", name)
		}
	}
}

func TestEvent_unknownKindsStayByteForByte(t *testing.T) {
	for _, s := range []string{
		`{"seq":7,"v":3,"kind":"of.the.future",` + at + `,"run":"run_x","data":{"a": 1e400 , "b":"<&>\u2028` + "\u2028" + `","a":[ ]}}`,
		`{"v":1,"kind":"bare",` + at + `}`,
		`{"seq":1,"v":1,"kind":"x",` + at + `,"data":null}`,
		`{"seq":18446744073709551615,"v":1,"kind":"with \"quotes\"",` + at + `,"data":-0.0}`,
	} {
		var e thread.Event
		if err := json.Unmarshal([]byte(s), &e); err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if _, is := e.Body.(thread.Unknown); !is {
			t.Errorf("%s was read as %T", s, e.Body)
		}
		if got, err := e.AppendJSON(nil); err != nil || string(got) != s {
			t.Errorf("wrote %s, %v\nread  %s", got, err, s)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// bodies has every kind, with something in each field that has a trap.
func bodies() []thread.Body {
	exit := 3
	when := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	raw := json.RawMessage(`{"<":"&"}`)
	return []thread.Body{
		thread.Opened{Agent: raw, Name: "n", Title: "t<", Fork: &thread.Fork{Thread: "thr_x", Seq: 1 << 60}, Labels: map[string]string{"a": "b"}},
		thread.RunStarted{By: "me", Budget: thread.Budget{Steps: 1, CostUSD: 0.1, Wall: time.Hour}, Schema: raw, Model: "m", Planning: true, Check: &thread.RunCheck{Command: "c", Rubric: "r"}},
		thread.RunEnded{State: thread.RunFailed, Reason: "r", Text: "\x00\u2028", Result: raw},
		thread.Claimed{Node: "n", Term: 1<<64 - 1},
		thread.Input{ID: "i", From: "user", Blocks: []llm.Block{llm.Text("é<&>"), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: "00"}}}},
		thread.Context{Now: when, Memory: []thread.ContextFile{{Path: "/a", Text: "b"}}, Note: "n"},
		answer(4, "a"),
		thread.ModelFailed{Attempt: 2, Trouble: "overloaded", Text: "t", Wait: time.Second},
		thread.ToolStarted{Call: "a", Tool: "t", Key: "k", Args: raw, Plan: raw, Machine: "m"},
		thread.ToolCompleted{Call: "a", Blocks: []llm.Block{llm.Text("x")}, Exit: &exit, Files: []thread.FileChange{{Path: "p"}}, Todos: []thread.Todo{{Content: "c"}}, PlanAccepted: true, Compact: &thread.CompactAsked{Focus: "f"}},
		thread.ApprovalAsked{Ask: thread.AskPlan, Call: "a", Allowed: []thread.Decision{thread.Approve}, Expires: when},
		thread.ApprovalDecided{Call: "a", Decision: thread.Edit, Args: raw, By: "me"},
		thread.Cleared{Calls: []string{"a"}},
		thread.Compacted{Through: 3, Keep: []uint64{1}, Summary: "s"},
		thread.CompactAsked{By: "me", Focus: "f"},
		thread.CheckStarted{Key: "k", Plan: raw, Machine: "m"},
		thread.CheckEnded{Text: "t", Exit: &exit, Code: "exit", CostUSD: 0.5, Took: time.Second},
		thread.Rewound{To: 3, By: "me"},
		thread.CancelAsked{Reason: "r"},
		thread.BudgetChanged{Budget: thread.Budget{Tokens: 5}},
		thread.PolicyChanged{Rules: raw},
		thread.Bound{Machine: "m", Why: "lost"},
		thread.NetworkRefused{Machine: "m", Host: "h", Port: 80, Method: "GET", Path: "/p", Why: "w", Last: true},
		thread.WorkflowStarted{Name: "w", File: "w.yaml", Definition: "d", Input: raw, By: "me", Operator: true},
		thread.WorkflowCancelled{By: "me", Reason: "r"},
		thread.WorkflowEnded{State: thread.RunSucceeded, Result: raw},
		thread.NodeStarted{Attempt: thread.Attempt{Node: "n", Iteration: 2, Item: 1, Number: 3}, Input: raw, Files: []thread.Artifact{{Path: "p", Blob: "b"}}, Deadline: when},
		thread.NodeEnded{Attempt: thread.Attempt{Node: "n", Iteration: 1, Number: 1}, Run: "run_x", State: thread.RunFailed, Result: raw, Spent: thread.Spent{Steps: 1}, Conflicts: []thread.ArtifactConflict{{Path: "p"}}},
		thread.NodeAnswered{Node: "n", Iteration: 1, Choice: "c", Text: "t", By: "me"},
	}
}

func TestEvent_everyKindComesBackAsItWas(t *testing.T) {
	for i, b := range bodies() {
		want := thread.Event{Seq: uint64(i) + 1, At: time.Date(2026, 1, 2, 3, 4, 5, 120_000_000, time.UTC), Run: thread.NewRunID(), Body: b}
		s, err := want.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got thread.Event
		if err := got.UnmarshalJSON(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s:\n%s", b.Kind(), d)
		}
		// The short way and the parser agree.
		var slow thread.Event
		if err := json.Unmarshal([]byte(" "+strings.Replace(string(s), `"v":1`, `"v": 1`, 1)), &slow); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(got, slow); d != "" {
			t.Errorf("%s, parsed in two ways:\n%s", b.Kind(), d)
		}
	}
}

func TestEvent_namesItsBlobs(t *testing.T) {
	media := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Hash: "m"}}
	for _, c := range []struct {
		body thread.Body
		want []string
	}{
		{thread.Unknown{Name: "x", Data: json.RawMessage(`{"blob":"x"}`)}, nil},
		{thread.RunEnded{Blob: "a", Result: json.RawMessage(`{"blob":"x"}`)}, []string{"a"}},
		{thread.Input{Blocks: []llm.Block{llm.Text("x"), media}, Shown: "a"}, []string{"m", "a"}},
		{thread.Context{Memory: []thread.ContextFile{{Text: "x"}, {Blob: "a"}}, Skills: []thread.ContextFile{{Blob: "b"}}}, []string{"a", "b"}},
		{thread.ModelCompleted{Message: llm.Assistant(media), Blob: "a", Prompt: "no blob"}, []string{"m", "a"}},
		{thread.ToolStarted{Args: json.RawMessage(`{"hash":"x"}`), Plan: json.RawMessage(`{"blob":"x"}`)}, nil},
		{thread.ToolCompleted{Blob: "a", Shown: "b", Files: []thread.FileChange{{Blob: "c"}}, Blocks: []llm.Block{{Kind: llm.KindResult, Result: &llm.Result{Blocks: []llm.Block{media}}}}}, []string{"m", "b", "a", "c"}},
		{thread.Compacted{Blob: "a"}, []string{"a"}},
		{thread.WorkflowStarted{Definition: "a", InputBlob: "b"}, []string{"a", "b"}},
		{thread.NodeStarted{InputBlob: "a", Files: []thread.Artifact{{Blob: "b"}}}, []string{"a", "b"}},
		{thread.NodeEnded{ResultBlob: "a", Artifacts: []thread.Artifact{{Blob: "b"}}, Conflicts: []thread.ArtifactConflict{{Ours: "c", Other: "d"}}}, []string{"a", "b", "c"}},
	} {
		if d := cmp.Diff(c.want, thread.Event{Body: c.body}.Blobs()); d != "" {
			t.Errorf("%s:\n%s", c.body.Kind(), d)
		}
	}
}

func TestDecode_refusesWhatIsNotTheNext(t *testing.T) {
	record, err := thread.Encode(4, []thread.Event{thread.New("", thread.Input{}), thread.New("", thread.Input{})})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(record), "\n")
	for name, c := range map[string]struct {
		record string
		first  uint64
		want   string
	}{
		"another number":  {string(record), 4, "event 4: the record there has number 5"},
		"empty":           {"", 5, "event 5: an empty record"},
		"torn":            {string(record[:len(record)-1]), 5, "event 6: its record is torn"},
		"the same twice":  {lines[0] + lines[0], 5, "event 6: the record there has number 5"},
		"out of order":    {lines[1] + lines[0], 5, "event 5: the record there has number 6"},
		"an empty line":   {lines[0] + "\n" + lines[1], 5, "event 6: an event is no JSON"},
		"rubbish between": {lines[0] + "rubbish\n" + lines[1], 5, "event 6: an event is no JSON"},
	} {
		_, err := thread.Decode([]byte(c.record), c.first)
		if errs.Public(err) != c.want || !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if events, err := thread.Decode(record, 5); err != nil || len(events) != 2 {
		t.Errorf("the whole: %d, %v", len(events), err)
	}
}

func FuzzEvent(f *testing.F) {
	for i, b := range bodies() {
		s, err := thread.Event{Seq: uint64(i), Body: b}.AppendJSON(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s)
	}
	f.Add([]byte(`{"seq":7,"v":3,"kind":"x",` + at + `,"data":{"a": 1e400}}`))
	f.Add([]byte(`{"seq":01,"v":1,"kind":"input",` + at + `,"data":{}}`))
	f.Fuzz(func(t *testing.T, s []byte) {
		var e thread.Event
		err := e.UnmarshalJSON(s)
		if err != nil {
			if c := errs.Of(err); c != errs.Corrupt && c != errs.Unsupported && c != errs.Limit {
				t.Errorf("%q: class %q of %v", s, c, err)
			}
			return
		}
		// Whatever is accepted is JSON to encoding/json, too.
		var any map[string]json.RawMessage
		if err := json.Unmarshal(s, &any); err != nil {
			t.Fatalf("accepted %q: %v", s, err)
		}
		once, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatalf("cannot write what was read from %q: %v", s, err)
		}
		if u, is := e.Body.(thread.Unknown); is && !strings.Contains(string(once), string(u.Data)) {
			t.Errorf("the data of %q became %q", s, once)
		}
		var again thread.Event
		if err := again.UnmarshalJSON(once); err != nil {
			t.Fatalf("cannot read %q, which was written for %q: %v", once, s, err)
		}
		if twice, err := again.AppendJSON(nil); err != nil || string(twice) != string(once) {
			t.Errorf("%q is written as %q, then as %q, %v", s, once, twice, err)
		}
		if reflect.TypeOf(e.Body) != reflect.TypeOf(again.Body) {
			t.Errorf("%T became %T", e.Body, again.Body)
		}
		if len(once) < thread.EventBytesMax && fmt.Sprint(e.Seq) != "0" {
			if _, err := thread.Encode(0, []thread.Event{e}); err != nil {
				t.Errorf("cannot encode %q: %v", once, err)
			}
		}
	})
}
