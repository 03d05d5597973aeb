package script_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/llm/script"
)

func load(t testing.TB, text string) *script.Model {
	t.Helper()
	m, err := script.New("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// show writes a response on one line.
func show(r *llm.Response) string {
	var parts []string
	for _, b := range r.Message.Blocks {
		switch b.Kind {
		case llm.KindCall:
			parts = append(parts, fmt.Sprintf("%s#%s%s", b.Call.Name, b.Call.ID, b.Call.Args))
		case llm.KindReasoning:
			parts = append(parts, "("+b.Text+")")
		default:
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, " ")
}

func ask(t testing.TB, m llm.Model, req *llm.Request) string {
	t.Helper()
	resp, _, err := llmtest.Ask(t.Context(), m, req)
	if err != nil {
		return string(llm.TroubleOf(err)) + ": " + err.Error()
	}
	return show(resp)
}

func result(tool, text string) llm.Message {
	return llm.Results(llm.Result{CallID: "c", Name: tool, Blocks: []llm.Block{llm.Text(text)}})
}

// step is the n-th call of a run whose last message is m.
func step(n int, m llm.Message) *llm.Request {
	req := &llm.Request{Step: n, Messages: []llm.Message{llm.User("do it")}, Tools: []llm.ToolSpec{{Name: "read"}}}
	if len(m.Blocks) > 0 {
		req.Messages = append(req.Messages, llm.Assistant(llm.Text("…")), m)
	}
	return req
}

// The example of the documentation does what the text beside it says.
func TestDocumentation_itsExampleWorks(t *testing.T) {
	page, err := os.ReadFile("../../docs/script.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example in docs/script.md")
	}
	m := load(t, text)
	red := result("execute", "--- FAIL: TestSum\n    sum.go:4: 1 != 3\nFAIL")
	fast := llm.RetryPolicy{Wait: time.Microsecond, RetryAfterMax: time.Microsecond}
	var story []string
	for i, last := range []llm.Message{{}, red, result("read_file", "x"), result("edit_file", "done"), result("execute", "ok  \tsum 0.1s"), red, red} {
		for d, err := range llm.Retry(t.Context(), m, step(i+1, last), fast, func(f llm.RetryFailure) { story = append(story, string(f.Trouble)) }) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Response != nil {
				story = append(story, show(d.Response))
			}
		}
	}
	review := step(1, llm.Message{})
	review.System = []llm.Block{llm.Text("You are careful. You review code.")}
	story = append(story, ask(t, m, review))
	want := []string{
		`I run the tests first. execute#call_1_1{"command":"go test ./..."}`,
		`(The output names the file.) read_file#call_2_1{"file_path":"/workspace/sum.go"} write_todos#call_2_2{"todos":[{"content":"Mend the sum","status":"in_progress"}]}`,
		`rate_limited`,
		`edit_file#call_3_1{"file_path":"/workspace/sum.go","new_string":"a + b","old_string":"a - b"}`,
		`execute#call_4_1{"command":"go test ./..."}`,
		`The tests pass now.`,
		`I am done.`,
		`I am done.`,
		`Looks good: do it`,
	}
	if diff := cmp.Diff(want, story); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}

// A model made anew for each call says the same as one that lives on: this is
// what a resume after kill -9 is.
func TestModel_keepsNothingInMemory(t *testing.T) {
	text := "replies: [{text: one}, {text: 'two {{n}}', repeat: 2}, {text: four}]\nelse: {text: over}"
	living := load(t, text)
	for range 2 {
		for i, want := range []string{"one", "two 1", "two 2", "four", "over", "over"} {
			req := step(i+1, result("read", "x"))
			if got := ask(t, load(t, text), req); got != want {
				t.Errorf("call %d: %q, want %q", i+1, got, want)
			}
			if got := ask(t, living, req); got != want {
				t.Errorf("call %d of one that lives: %q, want %q", i+1, got, want)
			}
		}
	}
}

func TestModel_picksByWhatItSees(t *testing.T) {
	m := load(t, `
replies:
  - text: first
  - when: {result: broken, failed: true}
    text: it failed
  - when: {tool: read, result: "42"}
    text: found it
  - when: {history: ancient}
    step: 3
    text: old
  - {step: 4, text: by number}
  - text: second
scenes:
  - {system: reviewer, replies: [{text: reviewing}]}
  - {user: again, replies: [{text: once more}], else: {text: enough}}
summary: {text: short}
`)
	failed := result("exec", "all broken")
	failed.Blocks[0].Result.Failed = true
	old := step(3, result("exec", "x"))
	old.Messages = append([]llm.Message{llm.User("an ancient word")}, old.Messages...)
	again := step(2, llm.Message{})
	again.Messages[0] = llm.User("and again")
	reviewer := step(1, llm.Message{})
	reviewer.System = []llm.Block{llm.Text("You are a reviewer")}
	counted := step(0, result("exec", "x"))
	summary := &llm.Request{System: []llm.Block{llm.Text("Summarise this")}, Messages: []llm.Message{llm.User("…")}}
	for _, c := range []struct {
		name string
		req  *llm.Request
		want string
	}{
		{"in order", step(1, llm.Message{}), "first"},
		{"in order, conditions count for nothing", step(2, result("exec", "x")), "second"},
		{"by a failure", step(1, failed), "it failed"},
		{"the same text, no failure", step(1, result("exec", "all broken")), "first"},
		{"by tool and text", step(2, result("read", "is 42")), "found it"},
		{"text of another tool", step(2, result("exec", "is 42")), "second"},
		{"by history and step", old, "old"},
		{"by step", step(4, result("exec", "x")), "by number"},
		{"by instructions", reviewer, "reviewing"},
		{"by the user", again, "enough"},
		{"without a number answers are counted", counted, "second"},
		{"a summary", summary, "short"},
		{"nothing left", step(9, llm.Message{}), `bad_request: model script:test.yaml: bad_request: the script has no reply for model call 9 of the run`},
	} {
		if got := ask(t, m, c.req); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := ask(t, load(t, "replies: [{text: a}]"), summary); !strings.HasPrefix(got, "The conversation so far") {
		t.Errorf("a summary that nobody scripted: %q", got)
	}
}

func TestModel_fillsIn(t *testing.T) {
	req := step(2, llm.Results(
		llm.Result{CallID: "c1", Name: "read", Blocks: []llm.Block{llm.Text("first \"quoted\"\n")}},
		llm.Result{CallID: "c2", Name: "exec", Blocks: []llm.Block{llm.Text("port 8080 open, port 9090 shut")}},
	))
	for text, want := range map[string]string{
		`{text: 'a {{result "exec"}} b'}`:                                                                   "a port 8080 open, port 9090 shut b",
		`{text: '{{result "1"}}|{{ result "2" }}'}`:                                                         "first \"quoted\"\n|port 8080 open, port 9090 shut",
		`{text: '{{match "exec" "port (\d+) shut"}} {{match "2" "p.rt"}}'}`:                                 "9090 port",
		`{text: '{{user}} {{step}}'}`:                                                                       "do it 2",
		`{text: '{{ .Name }} {{unknown "x"}} {{'}`:                                                          `{{ .Name }} {{unknown "x"}} {{`,
		`{calls: [{name: w, args: {a: '{{result "read"}}', l: ['{{step}}', 'x{{step}}'], n: 7, b: true}}]}`: `w#call_2_1{"a":"first \"quoted\"\n","b":true,"l":[2,"x2"],"n":7}`,
		`{calls: [{name: w, raw: '{"a": {{step}'}]}`:                                                        `w#call_2_1"{\"a\": {{step}"`,
		`{calls: [{name: w, raw: '{"a": {{step}}}', id: x}]}`:                                               `w#x{"a": 2}`,
		`{calls: [{name: w, no_id: true}, {name: v}]}`:                                                      `w#{} v#call_2_2{}`,
		`{text: '{{result "none"}}'}`:                                                                       `bad_request: model script:test.yaml: bad_request: test.yaml:1:1: there is no result of "none"`,
		`{text: '{{result "3"}}'}`:                                                                          `bad_request: model script:test.yaml: bad_request: test.yaml:1:1: there is no result of "3"`,
		`{text: '{{match "exec" "nix"}}'}`:                                                                  `bad_request: model script:test.yaml: bad_request: test.yaml:1:1: the result of "exec" does not match nix`,
	} {
		if got := ask(t, load(t, "else: "+text), req); got != want {
			t.Errorf("%s\nis   %s\nwant %s", text, got, want)
		}
	}
}

func TestModel_streamsInPieces(t *testing.T) {
	m := load(t, `{piece: 8, replies: [{reasoning: "thinking about it", text: "Grüße an alle 世界 im Text", calls: [{name: read, args: {path: /a/long/path}}]}]}`)
	resp, deltas, err := llmtest.Ask(t.Context(), m, step(1, llm.Message{}))
	if err != nil {
		t.Fatal(err)
	}
	if len(deltas) < 10 || resp.Stop != llm.StopTools || !resp.Usage.Estimated || resp.Usage.Input == 0 || resp.Usage.Output == 0 {
		t.Errorf("%d deltas, %+v", len(deltas), resp)
	}
	for _, d := range deltas {
		if strings.ContainsRune(d.Text, '\uFFFD') || !strings.HasPrefix(strings.ToValidUTF8(d.Text, "!"), d.Text) {
			t.Errorf("a delta cuts a character: %q", d.Text)
		}
	}
	m = load(t, "else: {text: a, stop: length, usage: {input: 5, output: 6, reasoning: 1, cache_read: 7, cache_write: 8}}")
	resp, _, err = llmtest.Ask(t.Context(), m, step(1, llm.Message{}))
	if want := (llm.Usage{Input: 5, Output: 6, Reasoning: 1, CacheRead: 7, CacheWrite: 8}); err != nil || resp.Usage != want || resp.Stop != llm.StopLength {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestModel_keepsToItsWindow(t *testing.T) {
	m := load(t, "{model: {window_tokens: 100}, else: {text: ok}}")
	if got := ask(t, m, step(1, result("read", strings.Repeat("x", 300)))); got != "ok" {
		t.Errorf("within its window: %q", got)
	}
	if got := ask(t, m, step(1, result("read", strings.Repeat("x", 500)))); !strings.HasPrefix(got, "context_overflow") {
		t.Errorf("beyond its window: %q", got)
	}
	if got := m.WithInfo(llm.Info{Name: "mine", WindowTokens: 7}).Info(); got.WindowTokens != 100 || got.Name != "mine" || got.Vendor != "script" {
		t.Errorf("info %+v", got)
	}
}

func TestModel_failsAsToldAndThenGoesOn(t *testing.T) {
	for _, with := range []string{"rate_limited", "overloaded", "transport", "malformed", "context_overflow", "auth", "bad_request", "drop", "hang"} {
		synctest.Test(t, func(t *testing.T) {
			m := load(t, "else: {text: at last a long answer that can be cut, fail: {with: "+with+", times: 2, retry_after: 3s}}")
			for i := range 2 {
				_, deltas, err := llmtest.Ask(t.Context(), m, step(1, llm.Message{}))
				want := llm.Trouble(with)
				if with == "drop" || with == "hang" {
					if want = llm.Transport; len(deltas) == 0 {
						t.Errorf("%s: nothing was said before", with)
					}
				}
				if e, ok := errors.AsType[*llm.Error](err); !ok || e.Trouble != want || len(deltas) == 0 && e.RetryAfter != 3*time.Second {
					t.Errorf("%s, attempt %d: %v", with, i+1, err)
				}
			}
			if got := ask(t, m, step(1, llm.Message{})); !strings.HasPrefix(got, "at last") {
				t.Errorf("%s, third attempt: %q", with, got)
			}
			if got := ask(t, m, step(2, llm.Message{})); !strings.Contains(got, "model script") {
				t.Errorf("%s, another call: %q, want its own failures", with, got)
			}
		})
	}
	m := load(t, "else: {text: never, fail: {with: overloaded, always: true}}")
	for range 20 {
		if got := ask(t, m, step(1, llm.Message{})); !strings.HasPrefix(got, "overloaded") {
			t.Errorf("always means %q", got)
		}
	}
}

func TestModel_takesItsTimeAndEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := load(t, "{piece: 4, pace: 10ms, else: {text: 'four four four', delay: 2s}}")
		began := time.Now()
		if got := ask(t, m, step(1, llm.Message{})); got != "four four four" {
			t.Error(got)
		}
		if took := time.Since(began); took < 2030*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		for _, text := range []string{"else: {text: x, delay: 9m}", "else: {text: x, fail: {with: hang}}", "{pace: 9m, else: {text: x}}"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _, err := llmtest.Ask(ctx, load(t, text), step(1, llm.Message{}))
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

func TestNew_refusesWhatIsWrongAndSaysWhere(t *testing.T) {
	long := strings.Repeat("- {text: a}\n", 5000)
	for text, want := range map[string]string{
		"":                     "a script needs `replies`",
		"- a":                  "list of keys",
		"replies: [{txet: a}]": `bad.yaml:1:12: "txet" is not a key here; did you mean "text"?`,
		"replies:\n  - text: a\n    calls:\n      - nama: x":             `bad.yaml:4:9: "nama" is not a key here; did you mean "name"?`,
		"else: {calls: [{name: 'a b'}]}":                                 "bad.yaml:1:16: a call needs a `name`",
		"else: {calls: [{name: a, args: {x: 1}, raw: y}]}":               "not together with `args`",
		"else: {calls: [{name: a, id: x, no_id: true}]}":                 "not together with `id`",
		"else: {text: '{{result}}'}":                                     "1 texts in quotes are wanted",
		"else: {text: '{{match \"a\" \"(\"}}'}":                          "no regular expression",
		"else: {calls: [{name: a, args: {l: [{m: '{{user \"x\"}}'}]}}]}": "0 texts in quotes are wanted",
		"else: {fail: {with: rate_limit}}":                               `did you mean "rate_limited"?`,
		"else: {fail: {with: drop, times: -1}}":                          "at least 1",
		"else: {fail: {with: drop, after: 1s}}":                          "only with `hang`",
		"else: {stop: ends}":                                             `did you mean "end"?`,
		"else: {text: a, delay: 11m}":                                    "between 0 and 10m0s",
		"else: {text: a, delay: -1s}":                                    "between 0 and 10m0s",
		"else: {text: a, step: 3}":                                       "no `when`, `step` or `repeat` here",
		"replies: [{text: a, when: {user: x}, repeat: 2}]":               "only for replies whose turn comes in order",
		"replies: [{text: a, repeat: 1000001}]":                          "between 1 and 1000000",
		"replies: [{text: a, step: -1}]":                                 "between 1 and",
		"replies: [null]":                                                "",
		"else: {text: a, usage: {input: -1}}":                            "not below 0",
		"{model: {calling: xml}, else: {text: a}}":                       `"native" or "json"`,
		"{model: {window_tokens: -1}, else: {text: a}}":                  "not below 0",
		"{piece: -1, else: {text: a}}":                                   "between 1 and",
		"scenes: [{replies: [{text: a}]}]":                               "a scene needs `system` or `user`",
		"scenes: [{user: x}]":                                            "a scene needs `replies` or `else`",
		"replies:\n" + long:                                              "",
		"else: {text: " + strings.Repeat("x", 70<<10) + "}":              "",
		"a: &a [*a]": "",
		"\x00":       "",
	} {
		_, err := script.New("bad.yaml", []byte(text))
		if err == nil || !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestLoad_readsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("else: {text: hi}"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := script.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, m, step(1, llm.Message{})); got != "hi" {
		t.Error(got)
	}
	if _, err := script.Load(path + "x"); !errs.Is(err, errs.NotFound) || strings.Contains(errs.Public(err), path) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := script.Load(filepath.Dir(path)); err == nil {
		t.Error("a directory is no script")
	}
}

// FuzzNew: any text is a script that answers in good form, or is refused.
func FuzzNew(f *testing.F) {
	for _, s := range []string{
		"replies: [{text: one}, {calls: [{name: a, args: {x: '{{result \"a\"}}'}}], repeat: 2}]\nelse: {text: '{{user}} {{n}}'}",
		"scenes: [{user: do, replies: [{when: {tool: read}, raw: x}]}]", "else: {fail: {with: drop}}", "replies: [{calls: [{name: x, raw: '{'}]}]",
		"else: {text: '{{match \"read\" \"(.)\"}}'}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := script.New("f", []byte(text))
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Errorf("class %s: %v", errs.Of(err), err)
			}
			return
		}
		if strings.Contains(text, "delay") || strings.Contains(text, "pace") || strings.Contains(text, "hang") {
			return // they wait, as told
		}
		_, _, err = llmtest.Ask(t.Context(), m, step(1, result("read", "some \"text\" \xff")))
		if err != nil && llm.TroubleOf(err) == "" {
			t.Error(err)
		}
	})
}
