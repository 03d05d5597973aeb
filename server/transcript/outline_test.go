package transcript_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// from numbers the events of a run that begins with event 2, behind thread.opened.
func from(bodies ...thread.Body) []thread.Event {
	events := log(bodies...)
	for i := range events {
		events[i].Seq++
	}
	return events
}

func begin(task string, rest ...thread.Body) []thread.Body {
	return append([]thread.Body{
		thread.RunStarted{By: "cli", Budget: thread.Budget{Steps: 500}},
		thread.Input{From: "user", Blocks: text(task)},
		thread.Claimed{Node: "n1", Term: 1},
		thread.Bound{Machine: "sbx_aaaaaaaaaaaaaaaaaaaa", Own: true},
		thread.Context{Now: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Note: "a machine"},
	}, rest...)
}

func began(id, tool string) thread.ToolStarted {
	return thread.ToolStarted{Call: id, Tool: tool, Key: "key-" + id}
}

func did(id, tool, output string) thread.ToolCompleted {
	return thread.ToolCompleted{Call: id, Tool: tool, Blocks: text(output), Took: 1500 * time.Millisecond}
}

func failed(id, tool, code, output string) thread.ToolCompleted {
	b := did(id, tool, output)
	b.Failed, b.Code = true, code
	return b
}

func asked(id, tool string, kind thread.AskKind) thread.ApprovalAsked {
	return thread.ApprovalAsked{Call: id, Tool: tool, Ask: kind, Allowed: kind.Decisions(), Expires: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)}
}

func decided(id string, d thread.Decision) thread.ApprovalDecided {
	return thread.ApprovalDecided{Call: id, Decision: d, By: "key_0123456789abcdef", ByName: "ana"}
}

var succeeded = thread.RunEnded{State: thread.RunSucceeded, Reason: "done", Text: "Done."}

// folds are runs whose events and outlines are kept as files, for this package and for
// the web page, which folds events by the same rules.
func folds() map[string][]thread.Event {
	two, zero := 2, 0
	exit := func(b thread.ToolCompleted, code *int) thread.ToolCompleted { b.Exit = code; return b }
	withArgs := func(d thread.ApprovalDecided, args string) thread.ApprovalDecided {
		d.Args = json.RawMessage(args)
		return d
	}
	saying := func(d thread.ApprovalDecided, words string) thread.ApprovalDecided { d.Text = words; return d }
	running := func(b thread.ToolStarted, args string) thread.ToolStarted { b.Args = json.RawMessage(args); return b }
	todos := func(b thread.ToolCompleted, list ...thread.Todo) thread.ToolCompleted { b.Todos = list; return b }
	spent := func(b thread.ToolCompleted, steps int, cost float64) thread.ToolCompleted {
		b.Steps, b.CostUSD, b.Usage = steps, cost, llm.Usage{Input: 1000, Output: 100}
		return b
	}
	late := answer(6, call("e1", "edit_file", `{"file_path":"/w/a.go","old_string":"a","new_string":"b"}`), call("r1", "read_file", `{"file_path":"/w/b.go"}`))
	return map[string][]thread.Event{
		"text": from(begin("Say something long. \u202e<b>\x1b[31m",
			answer(6, llm.Block{Kind: llm.KindReasoning, Text: "what?"}, llm.Text(strings.Repeat("é🙂\n", 40)), llm.Text(" and more")), succeeded)...),
		"tools": from(begin("Fix the test.",
			thread.ModelFailed{Attempt: 1, Trouble: llm.Overloaded, Text: "its server is overloaded", Wait: 2 * time.Second},
			answer(6, llm.Text("I plan."), call("c1", "write_todos", `{"todos":[]}`), call("c2", "execute", `{"command":"go test ./..."}`)),
			thread.Input{From: "user", Name: "ana", Blocks: text("Hurry.")},
			began("c1", "write_todos"), began("c2", "execute"),
			todos(did("c1", "write_todos", "ok"), thread.Todo{Content: "a", Status: "in_progress"}, thread.Todo{Content: "b", Status: "pending"}),
			exit(failed("c2", "execute", "exit", "FAIL\n"), &two),
			todos(failed("c1", "write_todos", "args", "no"), thread.Todo{Content: "wrong", Status: "pending"}),
			answer(9, call("c3", "grep", `{"pattern":"x"}`), call("c4", "mcp_search", `{"q":1}`), call("c5", "execute", `{"command":"true"}`)),
			began("c3", "grep"), began("c4", "mcp_search"), did("c4", "mcp_search", "found"), did("c3", "grep", "a.go:1"),
			began("c5", "execute"), exit(did("c5", "execute", ""), &zero),
			thread.Unknown{Name: "future.kind", V: 9, Data: json.RawMessage(`{"a":1}`)},
			thread.ToolCompleted{Call: "unknown", Blocks: text("x")},
			thread.Compacted{Through: 9, Summary: "s", Usage: llm.Usage{Input: 7}, Cost: 0.5},
			answer(24, llm.Text("Done.")), succeeded)...),
		"many": from(begin("Read everything.", answer(6, manyCalls(40)...))...),
		"approvals": from(begin("Change things.",
			answer(6, call("c1", "execute", `{"command":"make"}`), call("c2", "write_file", `{"file_path":"/a","content":"x"}`), call("c3", "execute", `{"command":"rm -rf /"}`), call("c4", "execute", `{"command":"whoami"}`)),
			asked("c1", "execute", ""), asked("c2", "write_file", ""), asked("c3", "execute", ""), asked("c4", "execute", ""),
			decided("c1", thread.Approve), withArgs(decided("c2", thread.Edit), `{"file_path":"/b","content":"y"}`),
			decided("c2", thread.Reject), // too late
			saying(decided("c3", thread.Reject), "never"), saying(decided("c4", thread.Respond), "ana"),
			failed("c3", "execute", "rejected", "rejected: never"), did("c4", "execute", "ana"),
			began("c1", "execute"), running(began("c2", "write_file"), `{"file_path":"/b","content":"y"}`),
			exit(did("c1", "execute", "made"), &zero), did("c2", "write_file", "written"),
			thread.PolicyChanged{Rules: json.RawMessage(`[]`), By: "ana"},
			answer(20, llm.Text("Done.")), succeeded)...),
		"waiting": from(begin("Wait.",
			answer(6, call("c1", "execute", `{"command":"make"}`), call("c2", "execute", `{"command":"sleep 9"}`), call("c3", "execute", `{"command":"ls"}`)),
			asked("c1", "execute", ""), began("c2", "execute"), exit(did("c2", "execute", ""), &zero),
			asked("c3", "execute", ""), decided("c3", thread.Approve), began("c3", "execute"), exit(did("c3", "execute", "a"), &zero))...),
		"agents": from(begin("Look around.",
			answer(6, call("a1", "task", `{"description":"one","subagent_type":"scout"}`), call("a2", "task", `{"description":"two","subagent_type":"scout"}`),
				call("a3", "task", `{"description":"three","subagent_type":"writer","background":true}`), call("a4", "task", `{"description":"four","subagent_type":"writer","background":true}`),
				call("a5", "task", `{"description":"five","subagent_type":"ghost","background":true}`), call("a6", "task", `{"description":"six","subagent_type":"scout"}`)),
			asked("a2", "task", ""), withArgs(decided("a2", thread.Edit), `{"description":"two","subagent_type":"reviewer"}`),
			began("a1", "task"), running(began("a2", "task"), `{"description":"two","subagent_type":"reviewer"}`), began("a3", "task"), began("a4", "task"), began("a5", "task"), began("a6", "task"), began("a1", "task"), // again, after a crash
			did("a3", "task", "Started writer in the background."), did("a4", "task", "Started writer in the background."), failed("a5", "task", "args", "there is no sub-agent"),
			spent(did("a1", "task", "found"), 3, 0.25), spent(failed("a2", "task", "", "The sub-agent ended as failed"), 2, 0.125),
			thread.Input{ID: "report-run_x", From: "sub-agent", Name: "writer a3", Blocks: text("The task a3 in the background ended as succeeded:\nwritten"), Spent: thread.Spent{Steps: 4, Usage: llm.Usage{Input: 500, Output: 50}, CostUSD: 0.5}})...),
		"rewind": from(begin("Go, and go back.",
			answer(6, llm.Text("one"), call("c1", "write_todos", `{"todos":[]}`)), began("c1", "write_todos"),
			todos(did("c1", "write_todos", "ok"), thread.Todo{Content: "first", Status: "in_progress"}),
			answer(9, llm.Text("two"), call("c2", "write_todos", `{"todos":[]}`)), began("c2", "write_todos"),
			todos(did("c2", "write_todos", "ok"), thread.Todo{Content: "second", Status: "completed"}),
			answer(12, llm.Text("three")), succeeded, thread.Rewound{To: 9, By: "ana"})...),
		"cancelled": from(begin("Sleep.",
			answer(6, llm.Text("I sleep."), call("c1", "execute", `{"command":"sleep 600"}`), call("c2", "execute", `{"command":"ls"}`)), began("c1", "execute"), asked("c2", "execute", ""),
			thread.CancelAsked{By: "key_0123456789abcdef", ByName: "ana", Reason: "too slow"},
			failed("c1", "execute", "cancelled", "The run was ended before this call had a result."), failed("c2", "execute", "cancelled", "The run was ended before this call had a result."),
			thread.RunEnded{State: thread.RunCancelled, Reason: "cancelled", Text: "too slow"})...),
		"budget": from(begin("Work for ever.",
			late, began("r1", "read_file"), began("e1", "edit_file"), did("r1", "read_file", "package b"), did("e1", "edit_file", "edited"),
			thread.BudgetChanged{Budget: thread.Budget{Steps: 2}, By: "ana"},
			thread.Bound{Machine: "sbx_bbbbbbbbbbbbbbbbbbbb", Why: "lost", Own: true},
			thread.CheckStarted{Key: "k"}, thread.CheckEnded{Exit: &two, Usage: llm.Usage{Input: 3}, CostUSD: 0.25},
			answer(15, llm.Text("More.")), thread.RunEnded{State: thread.RunFailed, Reason: "steps", Text: "It used all of its steps."})...),
		"refused": from(begin("Fetch it.",
			answer(6, call("c1", "execute", `{"command":"curl http://example.com/a"}`)), began("c1", "execute"),
			thread.NetworkRefused{Machine: "sbx_aaaaaaaaaaaaaaaaaaaa", Host: "example.com", Port: 80, Method: "GET", Path: "/a", Why: "no rule allows it"},
			exit(did("c1", "execute", ""), &two),
			thread.NetworkRefused{Machine: "sbx_aaaaaaaaaaaaaaaaaaaa", Host: "169.254.169.254", Port: 80, Why: "169.254.169.254 is always refused", Last: true},
			answer(10, llm.Text("It is not allowed.")), succeeded)...),
		"asks": from(begin("Ask me.",
			answer(6, call("c1", "ask_user", `{"question":"Which?","options":["a","b"]}`)), asked("c1", "ask_user", thread.AskQuestion),
			saying(decided("c1", thread.Respond), "b"), did("c1", "ask_user", "b"),
			answer(10, call("c2", "submit_plan", `{"plan":"Do it."}`)), asked("c2", "submit_plan", thread.AskPlan), decided("c2", thread.Approve), began("c2", "submit_plan"),
			thread.ToolCompleted{Call: "c2", Tool: "submit_plan", Blocks: text("accepted"), PlanAccepted: true},
			answer(15, call("c3", "mcp_book", `{"day":1}`)), began("c3", "mcp_book"),
			form("c3", "How many?"), saying(decided("c3", thread.Respond), `{"n":2}`),
			form("c3", "Sure?"), decided("c3", thread.Dismiss), did("c3", "mcp_book", "booked"),
			answer(22, call("c4", "mcp_book", `{"day":2}`)), began("c4", "mcp_book"), form("c4", "How many?"),
			thread.Input{From: "user", Blocks: text("One.")})...),
	}
}

func form(id, message string) thread.ApprovalAsked {
	a := asked(id, "mcp_book", thread.AskForm)
	a.Form = &thread.Form{From: "books", Message: message, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
	return a
}

func manyCalls(n int) (calls []llm.Block) {
	for i := range n {
		calls = append(calls, call(fmt.Sprintf("c%d", i+1), "read_file", fmt.Sprintf(`{"file_path":"/w/%d.go"}`, i+1)))
	}
	return calls
}

// golden compares what is with what a file has.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join("testdata", "fold", name)
	if *update {
		if err := os.WriteFile(name, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSuffix(string(want), "\n"), string(got)); diff != "" {
		t.Errorf("%s: run with -update and read the difference:\n%s", name, diff)
	}
}

// The files are what the API sends, and the outlines are made of the files alone: so
// another program that folds them comes to the same.
func TestOutline_golden(t *testing.T) {
	for name, events := range folds() {
		t.Run(name, func(t *testing.T) {
			var sent []*api.RunEvent
			for _, e := range events {
				v, err := transcript.Event(e)
				if err != nil {
					t.Fatal(err)
				}
				sent = append(sent, v)
			}
			golden(t, name+".events.json", sent)
			data, err := os.ReadFile(filepath.Join("testdata", "fold", name+".events.json"))
			if err != nil {
				t.Fatal(err)
			}
			var read []thread.Event
			if err := json.Unmarshal(data, &read); err != nil {
				t.Fatal(err)
			}
			brief, whole := transcript.NewBrief(thr, run), transcript.New(thr, run)
			for _, e := range read {
				brief.Add(e)
				whole.Add(e)
			}
			o := brief.Outline(0, 0)
			golden(t, name+".outline.json", o)
			if diff := cmp.Diff(o, whole.Outline(0, 0)); diff != "" {
				t.Errorf("a brief fold (-) and a whole one (+) differ:\n%s", diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "fold", "*"))
	if err != nil || len(files) != 2*len(folds()) {
		t.Errorf("%d files of %d runs, %v", len(files), len(folds()), err)
	}
}

// The transcript and the outline of a run count the same.
func TestOutline_agreesWithTheTranscript(t *testing.T) {
	for name, events := range folds() {
		f := transcript.New(thr, run)
		for i, e := range events {
			f.Add(e)
			o, tr := f.Outline(0, 0), f.Transcript()
			if o.CostUSD != tr.CostUSD || o.Usage != tr.Usage || o.LastSeq != tr.Seq || o.Reason != tr.Reason || tr.State != "" && o.State != tr.State ||
				!cmp.Equal(o.Waiting, tr.Waiting) || !cmp.Equal(o.Todos, tr.Todos) {
				t.Errorf("%s, after event %d:\n%+v\n%+v", name, i+2, o, tr)
			}
		}
	}
}

// At every moment of a run there is an outline, and no earlier one changes by what
// comes later.
func TestOutline_isKeptAsItWas(t *testing.T) {
	for name, events := range folds() {
		f := transcript.NewBrief(thr, run)
		var before []api.RunOutline
		var texts []string
		for _, e := range events {
			f.Add(e)
			o := f.Outline(0, 0)
			b, _ := json.Marshal(o)
			before, texts = append(before, o), append(texts, string(b))
		}
		for i, o := range before {
			if b, _ := json.Marshal(o); string(b) != texts[i] {
				t.Errorf("%s: the outline after event %d became\n%s, was\n%s", name, i+2, b, texts[i])
			}
		}
	}
}

func TestOutline_states(t *testing.T) {
	f := transcript.NewBrief(thr, run)
	if o := f.Outline(0, 0); o.State != "pending" || o.Steps == nil || o.StartedAt != nil {
		t.Errorf("without events: %+v", o)
	}
	var states []string
	for _, e := range folds()["waiting"] {
		f.Add(e)
		if s := f.Outline(0, 0).State; len(states) == 0 || states[len(states)-1] != s {
			states = append(states, s)
		}
	}
	// All of a step waits only when nothing else of it goes on.
	if diff := cmp.Diff([]string{"running", "interrupted", "running", "interrupted"}, states); diff != "" {
		t.Error(diff)
	}
}

// A later run of the thread may take back what this one did.
func TestOutline_takenBackByALaterRun(t *testing.T) {
	f := transcript.NewBrief(thr, run)
	events := folds()["rewind"]
	last := events[len(events)-1]
	last.Run = other
	for _, e := range append(events[:len(events)-1], last) {
		f.Add(e)
	}
	o := f.Outline(0, 0)
	if o.Steps[0].Rewound || !o.Steps[1].Rewound || !o.Steps[2].Rewound || len(o.Todos) != 1 || o.Todos[0].Content != "first" || o.LastSeq == last.Seq || len(o.Marks) > 0 {
		t.Errorf("%+v", o)
	}
}

func TestOutline_pages(t *testing.T) {
	f := transcript.NewBrief(thr, run)
	for _, e := range from(begin("go", answer(6), answer(7), answer(8), answer(9), answer(10))...) {
		f.Add(e)
	}
	for _, tt := range []struct{ n, before, first, last, more int }{
		{0, 0, 1, 5, 0}, {2, 0, 4, 5, 4}, {2, 4, 2, 3, 2}, {2, 2, 1, 1, 0}, {9, 0, 1, 5, 0}, {2, 99, 4, 5, 4}, {2, 1, 0, 0, 0}, {transcript.OutlineStepsMax + 1, 0, 1, 5, 0},
	} {
		o := f.Outline(tt.n, tt.before)
		first, last := 0, 0
		if len(o.Steps) > 0 {
			first, last = o.Steps[0].Step, o.Steps[len(o.Steps)-1].Step
		}
		if first != tt.first || last != tt.last || o.Before != tt.more || o.Total != 5 {
			t.Errorf("Outline(%d, %d) = %d..%d of %d, before %d", tt.n, tt.before, first, last, o.Total, o.Before)
		}
	}
}

// longRun has n events: answers with two calls each, one of which fails at times.
func longRun(n int) []thread.Body {
	bodies := begin("go on")
	for i := 0; len(bodies) < n-5; i++ {
		a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
		bodies = append(bodies,
			answer(uint64(len(bodies)+1), llm.Text("Next I look at the parser, then at what calls it, and change both."), call(a, "execute", `{"command":"go test ./parser/..."}`), call(b, "edit_file", `{"file_path":"/w/parser/parser.go","old_string":"return nil","new_string":"return err"}`)),
			began(a, "execute"), began(b, "edit_file"), did(b, "edit_file", "edited"))
		out := did(a, "execute", strings.Repeat("ok  \tparser\t0.012s\n", 20))
		if i%7 == 0 {
			out = failed(a, "execute", "exit", "FAIL\n")
		}
		bodies = append(bodies, out)
	}
	return bodies
}

// However long a run is, its outline is bounded.
func TestOutline_isBounded(t *testing.T) {
	f := transcript.NewBrief(thr, run)
	bodies := begin("go")
	for i := range transcript.OutlineStepsMax + 5 {
		bodies = append(bodies, answer(uint64(i)), thread.BudgetChanged{})
	}
	for i := range 300 {
		id := fmt.Sprintf("t%d", i)
		bodies = append(bodies, answer(uint64(i), call(id, "task", `{"description":"x","subagent_type":"s"}`)), began(id, "task"))
	}
	for _, e := range from(bodies...) {
		f.Add(e)
	}
	o := f.Outline(0, 0)
	if len(o.Steps) != transcript.OutlineStepsMax || o.Before != 306 || len(o.Agents) != 256 || o.Agents[255].Call != "t299" || len(o.Marks) != 1000 || o.Marks[999].Seq <= o.Marks[0].Seq {
		t.Errorf("%d steps before %d, %d agents, %d marks", len(o.Steps), o.Before, len(o.Agents), len(o.Marks))
	}
}

// BenchmarkOutline100kEvents is what GET /v1/runs/{id}/outline does for a run of
// 100,000 events whose log is in memory, as JSON: read, folded, and written as JSON.
func BenchmarkOutline100kEvents(b *testing.B) {
	const n = 100_000
	ctx := b.Context()
	log := thread.NewMemory()
	events := []thread.Event{{At: time.Now().UTC(), Body: thread.Opened{Agent: json.RawMessage(`{}`), Name: "a"}}}
	for _, body := range longRun(n) {
		events = append(events, thread.New(run, body))
	}
	for head := uint64(0); len(events) > 0; {
		some := events[:min(len(events), 50)]
		var err error
		if head, err = log.Append(ctx, thr, head, some...); err != nil {
			b.Fatal(err)
		}
		events = events[len(some):]
	}
	b.Run("whole", func(b *testing.B) {
		size := 0
		for b.Loop() {
			f := transcript.NewBrief(thr, run)
			for e, err := range log.Load(ctx, thr, 2) {
				if err != nil {
					b.Fatal(err)
				}
				f.Add(e)
			}
			out, err := json.Marshal(f.Outline(0, 0))
			if err != nil {
				b.Fatal(err)
			}
			size = len(out)
		}
		b.ReportMetric(float64(size), "json-bytes")
	})
	var read []thread.Event
	for e, err := range log.Load(ctx, thr, 2) {
		if err != nil {
			b.Fatal(err)
		}
		read = append(read, e)
	}
	b.Run("fold", func(b *testing.B) {
		for b.Loop() {
			f := transcript.NewBrief(thr, run)
			for _, e := range read {
				f.Add(e)
			}
			f.Outline(0, 0)
		}
	})
}
