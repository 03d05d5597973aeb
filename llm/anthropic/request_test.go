package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
)

func model(t testing.TB, id string) *Model {
	t.Helper()
	m, err := New(Config{Info: llm.Info{ID: id}, Key: llm.NewKey("sk-test")})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// body encodes a request and reads it back.
func body(t *testing.T, id string, req *llm.Request) map[string]any {
	t.Helper()
	var out map[string]any
	text := model(t, id).encode(req)
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return out
}

func compact(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(text))
}

func call(id string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, "f", `{"a":1}`)}
}

func result(id, text string) llm.Block {
	return llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: id, Name: "f", Blocks: []llm.Block{llm.Text(text)}}}
}

func user(blocks ...llm.Block) llm.Message { return llm.Message{Role: llm.RoleUser, Blocks: blocks} }

func thought(text string) llm.Block {
	return llm.Block{Kind: llm.KindReasoning, Text: text, Vendor: &llm.Vendor{
		Dialect: dialect, Data: json.RawMessage(`{"type":"thinking","thinking":"` + text + `","signature":"c2ln"}`),
	}}
}

// shape shows the roles and blocks of a request: u(text) a(call:1) u(result:1).
func shape(t *testing.T, messages []llm.Message) string {
	t.Helper()
	var turns []string
	for _, m := range body(t, "claude-sonnet-5", &llm.Request{Messages: messages})["messages"].([]any) {
		var blocks []string
		for _, b := range m.(map[string]any)["content"].([]any) {
			b := b.(map[string]any)
			s := b["type"].(string)
			switch s {
			case "tool_use":
				s = "call:" + b["id"].(string)
			case "tool_result":
				s = "result:" + b["tool_use_id"].(string)
				if b["is_error"] == true {
					s += "!"
				}
			case "text":
				s = b["text"].(string)
			}
			if b["cache_control"] != nil {
				s += "*"
			}
			blocks = append(blocks, s)
		}
		turns = append(turns, m.(map[string]any)["role"].(string)[:1]+"("+strings.Join(blocks, " ")+")")
	}
	return strings.Join(turns, " ")
}

func TestMessages_becomeTurnsThatTheVendorTakes(t *testing.T) {
	image := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("x")}}
	cached := llm.Message{Role: llm.RoleAssistant, Blocks: []llm.Block{llm.Text("t"), thought("x")}, Cache: true}
	empty := llm.Message{Role: llm.RoleAssistant, Cache: true}
	cases := []struct {
		name     string
		messages []llm.Message
		want     string
	}{
		{"roles alternate", []llm.Message{llm.User("a"), llm.User("b"), llm.Assistant(llm.Text("c")), llm.Assistant(llm.Text("d")), llm.User("e")}, "u(a b) a(c d) u(e)"},
		{
			"results come first, in the order of the calls",
			[]llm.Message{llm.User("a"), llm.Assistant(call("1"), call("2")), user(llm.Text("x"), result("2", "r")), user(result("1", "r"))},
			"u(a) a(call:1 call:2) u(result:1 result:2 x)",
		},
		{"calls without results get one", []llm.Message{llm.User("a"), llm.Assistant(call("1"), call("2")), user(result("2", "r"))}, "u(a) a(call:1 call:2) u(result:1! result:2)"},
		{"also at the end", []llm.Message{llm.User("a"), llm.Assistant(call("1"))}, "u(a) a(call:1) u(result:1!)"},
		{"also before the user's words", []llm.Message{llm.User("a"), llm.Assistant(call("1")), llm.User("stop")}, "u(a) a(call:1) u(result:1! stop)"},
		{"results without calls become text", []llm.Message{user(result("9", "r"), llm.Text("go on"))}, "u(Result of an earlier call of f: r go on)"},
		{
			"a result that comes too late is text",
			[]llm.Message{llm.User("a"), llm.Assistant(call("1")), llm.User("b"), llm.Assistant(llm.Text("c")), user(result("1", "r"))},
			"u(a) a(call:1) u(result:1! b) a(c) u(Result of an earlier call of f: r)",
		},
		{"blank text is left out", []llm.Message{llm.User("a"), llm.Assistant(llm.Text(" \n"), call("1")), user(result("1", ""))}, "u(a) a(call:1) u(result:1)"},
		{"empty messages are left out", []llm.Message{llm.User("a"), llm.Assistant(), llm.User("b")}, "u(a b)"},
		{"images", []llm.Message{user(llm.Text("a"), image)}, "u(a image)"},
		{"a hint stands on the last block that can bear it", []llm.Message{llm.User("a"), cached, llm.User("b")}, "u(a) a(t* thinking) u(b)"},
		{"a hint on nothing moves up", []llm.Message{llm.User("a"), empty, llm.User("b")}, "u(a b*)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := shape(t, c.messages); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

func TestReasoning_ofOthersStaysHome(t *testing.T) {
	other := thought("x")
	other.Vendor = &llm.Vendor{Dialect: "openai", Data: json.RawMessage(`{"secret":1}`)}
	plain := llm.Block{Kind: llm.KindReasoning, Text: "of a local model"}
	got := shape(t, []llm.Message{llm.User("a"), llm.Assistant(other, plain, thought("mine"), llm.Text("b")), llm.User("c")})
	if want := "u(a) a(thinking b) u(c)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestForm_followsTheModelsVersion(t *testing.T) {
	bound := `{"block_binding":{"prefix_mismatch_behavior":"drop_block"},"display":"summarized","type":"adaptive"}`
	adaptive := `{"display":"summarized","type":"adaptive"}`
	temperature := 0.5
	schema := &llm.Schema{Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)}
	tools := []llm.ToolSpec{{Name: "f"}}
	forced := llm.Choice{Mode: llm.ChoiceAny}
	cases := []struct {
		id                            string
		req                           llm.Request
		thinking, config, temperature string
		choice                        string
	}{
		{"claude-3-7-sonnet-20250219", llm.Request{Effort: "high", Schema: schema}, `{"budget_tokens":8000,"type":"enabled"}`, "null", "null", "null"},
		{"claude-3-7-sonnet-20250219", llm.Request{Effort: "high", OutputTokensMax: 64_000}, `{"budget_tokens":24000,"type":"enabled"}`, "null", "null", "null"},
		{"claude-3-7-sonnet-20250219", llm.Request{Effort: "low", OutputTokensMax: 1500}, "null", "null", "null", "null"}, // no room for thinking
		{"claude-sonnet-4-20250514", llm.Request{Temperature: &temperature}, "null", "null", "0.5", "null"},
		{"claude-haiku-4-5-20251001", llm.Request{Effort: "low", Temperature: &temperature, Tools: tools, Choice: forced}, "null", "null", "0.5", `{"type":"any"}`},
		{"claude-opus-4-5-20251101", llm.Request{Effort: "medium"}, `{"budget_tokens":8000,"type":"enabled"}`, `{"effort":"medium"}`, "null", "null"},
		{"claude-opus-4-6", llm.Request{Effort: "medium"}, adaptive, `{"effort":"medium"}`, "null", "null"},
		{"anthropic.claude-opus-4-8", llm.Request{Temperature: &temperature}, "null", "null", "null", "null"},
		{"claude-sonnet-5", llm.Request{Effort: "low", Tools: tools, Choice: forced}, "null", `{"effort":"low"}`, "null", `{"type":"any"}`},
		{"claude-fable-5-1", llm.Request{}, bound, "null", "null", "null"},
		{"claude-opus-5-5", llm.Request{Effort: "high", Tools: tools, Choice: forced, Serial: true, Temperature: &temperature}, bound, `{"effort":"high"}`, "null", `{"disable_parallel_tool_use":true,"type":"auto"}`},
		{
			"my-gateway-alias",
			llm.Request{Effort: "high", Schema: schema},
			adaptive,
			`{"effort":"high","format":{"schema":{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"type":"json_schema"}}`, "null", "null",
		},
	}
	for _, c := range cases {
		c.req.Messages = []llm.Message{llm.User("hi")}
		b := body(t, c.id, &c.req)
		got := []string{compact(t, b["thinking"]), compact(t, b["output_config"]), compact(t, b["temperature"]), compact(t, b["tool_choice"])}
		if diff := cmp.Diff([]string{c.thinking, c.config, c.temperature, c.choice}, got); diff != "" {
			t.Errorf("%s %+v (-want +got):\n%s", c.id, c.req.Effort, diff)
		}
	}
}

// A budget within a chain of calls needs the thinking of the chain's beginning.
func TestBudget_isLeftOutIfTheChainBeganElsewhere(t *testing.T) {
	chain := func(first llm.Block) []llm.Message {
		return []llm.Message{llm.User("a"), llm.Assistant(first, call("1")), user(result("1", "r"))}
	}
	foreign := llm.Block{Kind: llm.KindReasoning, Text: "x"}
	for _, c := range []struct {
		messages []llm.Message
		want     bool
	}{
		{chain(thought("x")), true},
		{chain(foreign), false},
		{append(chain(foreign), llm.Assistant(llm.Text("done")), llm.User("b")), true},
		{append(chain(thought("x")), llm.Assistant(call("2")), user(result("2", "r"))), false},
	} {
		_, has := body(t, "claude-sonnet-4-5", &llm.Request{Effort: "high", Messages: c.messages})["thinking"]
		if has != c.want {
			t.Errorf("%s: thinking %v, want %v", shape(t, c.messages), has, c.want)
		}
	}
}

func TestSchema_onlyWhatTheVendorTakes(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}}},"required":["a"],"additionalProperties":false}`: true,
		`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`:                                                        true,
		`{"type":"object","properties":{"a":{"type":"string"}}}`:                                                                                     false,
		`{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer","minimum":1}}}`:                                           false,
		`{"type":"object","additionalProperties":false,"properties":{"n":{"$ref":"#"}}}`:                                                             false,
		`{"type":"object","additionalProperties":false,"properties":{"n":{"type":"object"}}}`:                                                        false,
		`{"type":"string"}`: false,
		`{"type":`:          false,
		`[]`:                false,
		``:                  false,
		`{"type":"object","additionalProperties":false,"anyOf":[{"type":"object"}]}`: false,
		`{"type":"object","additionalProperties":false,"anyOf":3}`:                   false,
	} {
		if got := schemaFits(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}

// TestRequest_isOneThatTheSDKKnows: what we write, the vendor's own types read
// and write again without loss. A field that they do not know would be gone.
func TestRequest_isOneThatTheSDKKnows(t *testing.T) {
	temperature := 0.25
	req := &llm.Request{
		System: []llm.Block{{Kind: llm.KindText, Text: "Be terse.", Cache: true}, llm.Text("More.")},
		Messages: []llm.Message{
			user(llm.Text("look"), llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("png")}},
				llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "application/pdf", Data: []byte("pdf")}}),
			llm.Assistant(thought("hm"), llm.Block{Kind: llm.KindReasoning, Vendor: &llm.Vendor{Dialect: dialect, Data: json.RawMessage(`{"type":"redacted_thinking","data":"eA=="}`)}},
				llm.Text("ok"), call("1"), llm.Block{Kind: llm.KindCall, Call: llm.NewCall("2", "f", `{"cut`)}),
			{Role: llm.RoleUser, Cache: true, Blocks: []llm.Block{
				result("1", "r"),
				{Kind: llm.KindResult, Result: &llm.Result{CallID: "2", Failed: true, Blocks: []llm.Block{llm.Text("no"), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("png")}}}}},
			}},
		},
		Tools:  []llm.ToolSpec{{Name: "f", Description: "does f", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`)}, {Name: "g"}},
		Choice: llm.Choice{Mode: llm.ChoiceTool, Name: "f"}, Serial: true, Temperature: &temperature,
		Schema: &llm.Schema{Name: "x", Schema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)},
		Stop:   []string{"END"},
	}
	thinks := *req
	thinks.Choice, thinks.Effort = llm.Choice{Mode: llm.ChoiceNone}, "high"
	for _, id := range []string{"claude-sonnet-4-5", "claude-opus-4-5", "claude-sonnet-4-6", "claude-sonnet-5"} {
		for _, r := range []*llm.Request{req, &thinks} {
			sameThroughSDK(t, model(t, id).encode(r), new(sdk.MessageNewParams))
		}
	}
	sameThroughSDK(t, model(t, "claude-opus-5-5").encode(&thinks), new(sdk.BetaMessageNewParams))
}

func sameThroughSDK(t *testing.T, text []byte, params any) {
	t.Helper()
	if err := json.Unmarshal(text, params); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	again, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs map[string]any
	if err := json.Unmarshal(text, &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &theirs); err != nil {
		t.Fatal(err)
	}
	delete(ours, "stream") // the SDK adds it by itself
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("the SDK's types lose or change (-ours +theirs):\n%s", diff)
	}
}

// history is a run of n steps, about 1 KB each.
func history(n int) *llm.Request {
	req := &llm.Request{System: []llm.Block{{Kind: llm.KindText, Text: strings.Repeat("You are terse. ", 200), Cache: true}}}
	for i := range 20 {
		req.Tools = append(req.Tools, llm.ToolSpec{
			Name: fmt.Sprint("tool_", i), Description: strings.Repeat("It does things. ", 20),
			Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}`),
		})
	}
	req.Messages = append(req.Messages, llm.User("Fix the test."))
	out := strings.Repeat("ok  \tpackage/of/something\t0.01s \"quoted\"\n", 16)
	for i := range n {
		id := fmt.Sprint("toolu_", i)
		req.Messages = append(req.Messages,
			llm.Assistant(thought("I should look at the next file and see what it says."), llm.Text("I look at it."),
				llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, "tool_1", fmt.Sprintf(`{"path":"/workspace/file_%d.go","limit":100}`, i))}),
			user(result(id, out)))
	}
	return req
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, req := model(b, "claude-opus-5-5"), history(n)
			b.SetBytes(int64(len(m.encode(req))))
			b.ReportAllocs()
			for b.Loop() {
				m.encode(req)
			}
		})
	}
}

// BenchmarkEncodeSDK is the same through the vendor's types, for comparison.
func BenchmarkEncodeSDK(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var params sdk.BetaMessageNewParams
			text := model(b, "claude-opus-5-5").encode(history(n))
			if err := json.Unmarshal(text, &params); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := json.Marshal(params); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCall is a whole call over loopback: build, send, read a short answer.
func BenchmarkCall(b *testing.B) {
	answer, err := os.ReadFile("testdata/thinking_and_parallel_tools.sse")
	if err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client sees to errors
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(answer)
	}))
	defer s.Close()
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, err := New(Config{Info: llm.Info{ID: "claude-opus-5-5"}, URL: s.URL})
			if err != nil {
				b.Fatal(err)
			}
			req := history(n)
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range m.Stream(b.Context(), req) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
