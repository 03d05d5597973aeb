package transcript_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	run   = thread.RunID("run_aaaaaaaaaaaaaaaaaaaa")
	other = thread.RunID("run_bbbbbbbbbbbbbbbbbbbb")
	thr   = thread.ID("thr_aaaaaaaaaaaaaaaaaaaa")
)

func text(s string) []llm.Block { return []llm.Block{llm.Text(s)} }

func call(id, tool, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: tool, Args: json.RawMessage(args)}}
}

func answer(through uint64, blocks ...llm.Block) thread.ModelCompleted {
	return thread.ModelCompleted{
		Message: llm.Message{Role: llm.RoleAssistant, Blocks: blocks}, Usage: llm.Usage{Input: 100, Output: 10, CacheRead: 50},
		CostUSD: 0.01, Model: "m", Stop: llm.StopTools, Through: through, Took: 2 * time.Second,
		Ledger: thread.Ledger{System: 10, Memory: 2, Tools: 20, Inputs: int(through), Assistant: 3, Results: 4, Total: 150, Window: 1000},
	}
}

// log numbers bodies; a body of another run is wrapped in theirs.
type theirs struct{ thread.Body }

func log(bodies ...thread.Body) []thread.Event {
	var events []thread.Event
	for i, b := range bodies {
		e := thread.Event{Seq: uint64(i + 1), At: time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC), Run: run, Body: b}
		if t, is := b.(theirs); is {
			e.Run, e.Body = other, t.Body
		}
		events = append(events, e)
	}
	return events
}

// story has a bit of everything.
func story() []thread.Event {
	two := 2
	return log(
		thread.RunStarted{By: "cli"},
		thread.Input{From: "user", Blocks: text("Fix the test.")},
		thread.ModelFailed{Attempt: 1, Trouble: llm.Overloaded, Text: "its server is overloaded", Wait: 2 * time.Second},
		answer(2, llm.Block{Kind: llm.KindReasoning, Text: "hmm"}, llm.Text("I plan."),
			call("c1", "write_todos", `{"todos":[{"content":"a","status":"pending"},{"content":"b","status":"pending"}]}`),
			call("c2", "execute", `{"command":"go test ./...\n"}`)),
		thread.Input{From: "user", Name: "ann", Blocks: text("Hurry.")},
		thread.ToolStarted{Call: "c1", Tool: "write_todos"},
		thread.ToolCompleted{Call: "c1", Blocks: text("ok"), Todos: []thread.Todo{{Content: "a", Status: "in_progress"}, {Content: "b", Status: "pending"}}},
		thread.ToolStarted{Call: "c2", Tool: "execute", Machine: "sbx_1"},
		thread.ToolCompleted{Call: "c2", Blocks: text("FAIL\n"), Failed: true, Code: "exit", Exit: &two, Bytes: 5000, Blob: "ab", File: "/large/c2", Took: time.Second},
		answer(9, call("c3", "write_file", `{"file_path":"/a.go","content":"package a"}`), call("c4", "execute", `{"command":"rm -rf /"}`), call("c5", "task", `{"description":"look","subagent_type":"scout"}`)),
		thread.ApprovalAsked{Call: "c3", Tool: "write_file", Reason: "writes", Allowed: []thread.Decision{thread.Approve, thread.Edit}, Expires: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)},
		thread.ApprovalAsked{Call: "c4", Tool: "execute", Allowed: []thread.Decision{thread.Approve, thread.Reject}},
		thread.ToolStarted{Call: "c5", Tool: "task"},
		thread.ApprovalDecided{Call: "c3", Decision: thread.Edit, Args: json.RawMessage(`{"file_path":"/b.go","content":""}`), By: "ann"},
		thread.ApprovalDecided{Call: "c3", Decision: thread.Reject, By: "bob"}, // too late
		thread.ToolStarted{Call: "c3", Tool: "write_file", Args: json.RawMessage(`{"file_path":"/b.go","content":""}`)},
		thread.ApprovalDecided{Call: "c4", Decision: thread.Reject, Text: "never", By: "ann"},
		thread.ToolCompleted{Call: "c4", Blocks: text("rejected: never"), Failed: true, Code: "rejected"},
		thread.ToolCompleted{Call: "c3", Blocks: text("written")},
		theirs{answer(1, llm.Text("not ours"))},
		thread.Compacted{Through: 9, Summary: "s", Usage: llm.Usage{Input: 7}, Cost: 0.5},
		thread.Unknown{Name: "future.kind", V: 9, Data: json.RawMessage(`{}`)},
		thread.ToolCompleted{Call: "c5", Blocks: text("found"), Usage: llm.Usage{Input: 1000}, CostUSD: 0.1},
		answer(23, llm.Text("Done.")),
		thread.Rewound{To: 10, By: "ann"},
		thread.ToolCompleted{Call: "nobody asked", Blocks: text("x")},
		thread.RunEnded{State: thread.RunSucceeded, Reason: "done", Text: "Done."},
	)
}

func TestTranscript_tellsTheStory(t *testing.T) {
	got, err := json.MarshalIndent(transcript.Of(thr, run, story()), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("testdata", "story.json")
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
		t.Errorf("run with -update and read the difference:\n%s", diff)
	}
}

// At every moment of a run there is a transcript, and no earlier one changes by
// what comes later.
func TestTranscript_isKeptAsItWas(t *testing.T) {
	f := transcript.New(thr, run)
	var before []api.Transcript
	var texts []string
	for _, e := range story() {
		f.Add(e)
		o := f.Transcript()
		b, _ := json.Marshal(o)
		before, texts = append(before, o), append(texts, string(b))
	}
	for i, o := range before {
		if b, _ := json.Marshal(o); string(b) != texts[i] {
			t.Errorf("the transcript after event %d became\n%s, was\n%s", i+1, b, texts[i])
		}
	}
}

func TestTranscript_waiting(t *testing.T) {
	o := transcript.Of(thr, run, story()[:13])
	if diff := cmp.Diff([]string{"c3", "c4"}, o.Waiting); diff != "" {
		t.Error(diff)
	}
	if o.Steps[1].Calls[2].Status != "running" || o.Steps[1].Calls[2].Thread != string(thr)+"/c5" {
		t.Errorf("%+v", o.Steps[1].Calls[2])
	}
}

func TestCall(t *testing.T) {
	f := transcript.New(thr, run)
	for _, e := range story() {
		f.Add(e)
	}
	d, ok := f.Call("c3")
	if !ok || string(d.Arguments) != `{"file_path":"/a.go","content":"package a"}` || string(d.Ran) != `{"file_path":"/b.go","content":""}` ||
		d.StartedSeq != 16 || d.EndedSeq != 19 || d.Approval.By != "ann" || d.Step != 2 {
		t.Errorf("%+v", d)
	}
	if _, ok := f.Call("nothing"); ok {
		t.Error("a call that nobody made")
	}
}

func TestPage(t *testing.T) {
	o := api.Transcript{Total: 5}
	for i := range 5 {
		o.Steps = append(o.Steps, api.TranscriptStep{Step: i + 1})
	}
	for _, tt := range []struct{ n, before, first, last, more int }{
		{0, 0, 1, 5, 0}, {2, 0, 4, 5, 4}, {2, 4, 2, 3, 2}, {2, 2, 1, 1, 0}, {9, 0, 1, 5, 0}, {2, 99, 4, 5, 4}, {2, 1, 0, 0, 0},
	} {
		p := transcript.Page(o, tt.n, tt.before)
		first, last := 0, 0
		if len(p.Steps) > 0 {
			first, last = p.Steps[0].Step, p.Steps[len(p.Steps)-1].Step
		}
		if first != tt.first || last != tt.last || p.Before != tt.more || p.Total != 5 {
			t.Errorf("Page(%d, %d) = %d..%d, before %d", tt.n, tt.before, first, last, p.Before)
		}
	}
}

func TestSummary(t *testing.T) {
	for _, tt := range []struct{ tool, args, want string }{
		{"execute", `{"command":"make\n  test"}`, "make test"},
		{"write_file", `{"file_path":"/x","content":"12345"}`, "/x (5 bytes)"},
		{"read_file", `{"file_path":"/x","offset":3}`, "/x"},
		{"grep", `{"pattern":"a.b","path":"/src"}`, "a.b in /src"},
		{"glob", `{"pattern":"*.go"}`, "*.go"},
		{"task", `{"description":"look around","subagent_type":"scout"}`, "scout: look around"},
		{"write_todos", `{"todos":[1,2,3]}`, "3 todos"},
		{"mine", `{ "a": 1,  "b": [2] }`, `{"a":1,"b":[2]}`},
		{"mine", `{}`, ""},
		{"mine", `"not an object"`, `"not an object"`},
		{"mine", `{"broken`, `{"broken`},
		{"execute", `{"command":"\u001b[31mred\u0007\u202e"}`, "\uFFFD[31mred\uFFFD\uFFFD"},
		{"execute", `{"command":"` + strings.Repeat("é", 300) + `"}`, strings.Repeat("é", 98) + "…"},
	} {
		if got := transcript.Summary(tt.tool, json.RawMessage(tt.args)); got != tt.want {
			t.Errorf("%s %.40s: %q, want %q", tt.tool, tt.args, got, tt.want)
		}
	}
}

func FuzzSummary(f *testing.F) {
	f.Add("execute", []byte(`{"command":"ls"}`))
	f.Add("x", []byte("\x1b]0;title\a{\xff"))
	f.Fuzz(func(t *testing.T, tool string, args []byte) {
		s := transcript.Summary(tool, args)
		if len(s) > 700 || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", s)
		}
	})
}

func BenchmarkFold1000Steps(b *testing.B) {
	var bodies []thread.Body
	bodies = append(bodies, thread.RunStarted{}, thread.Input{From: "user", Blocks: text("go")})
	for range 1000 {
		n := uint64(len(bodies))
		id := "c" + string(rune('a'+n%26)) + time.Duration(n).String()
		bodies = append(bodies, answer(n, llm.Text("next"), call(id, "execute", `{"command":"ls"}`)), thread.ToolStarted{Call: id}, thread.ToolCompleted{Call: id, Blocks: text("out")})
	}
	events := log(bodies...)
	for b.Loop() {
		transcript.Of(thr, run, events)
	}
}

// A call that a person answered did not run, and was not rejected either.
func TestTranscript_answered(t *testing.T) {
	for decision, want := range map[thread.Decision]string{thread.Respond: "answered", thread.Reject: "rejected", thread.Approve: "done"} {
		o := transcript.Of(thr, run, log(
			thread.RunStarted{}, thread.Input{From: "user", Blocks: text("go")}, answer(2, call("c1", "execute", `{"command":"ls"}`)),
			thread.ApprovalAsked{Call: "c1", Tool: "execute", Allowed: []thread.Decision{decision}},
			thread.ApprovalDecided{Call: "c1", Decision: decision, Text: "42", By: "ann"},
			thread.ToolCompleted{Call: "c1", Tool: "execute", Blocks: text("42")},
		))
		if got := o.Steps[len(o.Steps)-1].Calls[0].Status; got != want {
			t.Errorf("%s: %s", decision, got)
		}
	}
}
