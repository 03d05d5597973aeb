package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/responses"

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
func body(t *testing.T, m *Model, req *llm.Request) map[string]any {
	t.Helper()
	var out map[string]any
	text := m.encode(req)
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
	return string(text)
}

const made = "gpt-5.5" // the model that made the history of these tests

func vendor(t testing.TB, item string) *llm.Vendor {
	t.Helper()
	return model(t, made).vendor([]byte(item))
}

func call(t testing.TB, id string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, "f", `{"a":1}`), Vendor: vendor(t, `{"id":"fc_`+id+`"}`)}
}

func answered(id, text string) llm.Block {
	return llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: id, Name: "f", Blocks: []llm.Block{llm.Text(text)}}}
}

func user(blocks ...llm.Block) llm.Message { return llm.Message{Role: llm.RoleUser, Blocks: blocks} }

func thought(t testing.TB, id string) llm.Block {
	return llm.Block{Kind: llm.KindReasoning, Text: "hm", Vendor: vendor(t, `{"id":"`+id+`","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"gAAA+/=="}`)}
}

func said(t testing.TB, id, text string) llm.Block {
	b := llm.Text(text)
	b.Vendor = vendor(t, `{"id":"`+id+`","status":"completed","phase":"commentary"}`)
	return b
}

// shape shows the items of a request: user(a) rs:1 msg:1(b) call:1 out:1.
func shape(t *testing.T, id string, messages []llm.Message) string {
	t.Helper()
	var items []string
	for _, it := range body(t, model(t, id), &llm.Request{Messages: messages})["input"].([]any) {
		it := it.(map[string]any)
		str := func(name string) string { s, _ := it[name].(string); return s }
		label := str("id")
		switch str("type") {
		case "message":
			text, is := it["content"].(string)
			if !is {
				for _, p := range it["content"].([]any) {
					p := p.(map[string]any)
					if s, is := p["text"].(string); is {
						text += s
					} else {
						text += p["type"].(string)
					}
					text += " "
				}
			}
			if phase := str("phase"); phase != "" {
				label += "/" + phase
			}
			items = append(items, str("role")+label+"("+strings.TrimSpace(text)+")")
		case "function_call":
			items = append(items, strings.TrimPrefix(label+" ", " ")+"call:"+str("call_id"))
		case "function_call_output":
			items = append(items, "out:"+str("call_id"))
		default:
			items = append(items, label)
		}
	}
	return strings.Join(items, " ")
}

func TestMessages_becomeItemsThatTheVendorTakes(t *testing.T) {
	image := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("x")}}
	unsealed := llm.Block{Kind: llm.KindReasoning, Text: "open"}
	alien := llm.Block{Kind: llm.KindReasoning, Vendor: &llm.Vendor{Dialect: "anthropic", Data: json.RawMessage(`{"signature":"x"}`)}}
	cases := []struct {
		name, id string
		messages []llm.Message
		want     string
	}{
		{
			"everything goes back to the model that made it", made,
			[]llm.Message{llm.User("a"), llm.Assistant(thought(t, "rs_1"), said(t, "msg_1", "b"), call(t, "1"), call(t, "2")), user(answered("1", "r"), answered("2", "r"))},
			"user(a) rs_1 assistantmsg_1/commentary(b) fc_1 call:1 fc_2 call:2 out:1 out:2",
		},
		{
			"another model gets the words", "gpt-5.4",
			[]llm.Message{llm.User("a"), llm.Assistant(thought(t, "rs_1"), said(t, "msg_1", "b"), call(t, "1")), user(answered("1", "r"))},
			"user(a) assistant(b) call:1 out:1",
		},
		{
			"reasoning that led to nothing stays home", made,
			[]llm.Message{llm.User("a"), llm.Assistant(thought(t, "rs_1")), llm.User("b")},
			"user(a) user(b)",
		},
		{
			"what followed lost reasoning goes without its id", made,
			[]llm.Message{llm.User("a"), llm.Assistant(unsealed, said(t, "msg_1", "b"), alien, call(t, "1"), call(t, "2")), user(answered("1", "r"), answered("2", "r"))},
			"user(a) assistant/commentary(b) call:1 fc_2 call:2 out:1 out:2",
		},
		{
			"calls without results get one", made,
			[]llm.Message{llm.User("a"), llm.Assistant(call(t, "1"), call(t, "2")), user(answered("2", "r"), llm.Text("b"))},
			"user(a) fc_1 call:1 fc_2 call:2 out:1 out:2 user(b)",
		},
		{"results without calls become text", made, []llm.Message{user(answered("9", "r"), llm.Text("go on"))}, "user(Result of an earlier call of f: r go on)"},
		{"results come before words", made, []llm.Message{llm.User("a"), llm.Assistant(call(t, "1")), user(llm.Text("b"), answered("1", "r"))}, "user(a) fc_1 call:1 out:1 user(b)"},
		{"empty messages are left out", made, []llm.Message{llm.User("a"), llm.Assistant(), llm.Assistant(llm.Text("")), llm.User("b")}, "user(a) user(b)"},
		{"images", made, []llm.Message{user(llm.Text("a"), image)}, "user(a input_image)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := shape(t, c.id, c.messages); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// A log may write vendor data with white space, or its keys in another order.
func TestItem_isFoundHoweverItIsWritten(t *testing.T) {
	m := model(t, made)
	for data, want := range map[string]string{
		`{"model":"gpt-5.5","item":{"id":"x"}}`:       `{"id":"x"}`,
		`{ "model": "gpt-5.5", "item": {"id": "x"} }`: `{"id": "x"}`,
		`{"item":{"id":"x"},"model":"gpt-5.5"}`:       `{"id":"x"}`,
		`{"model":"gpt-5.5-mini","item":{"id":"x"}}`:  ``,
		`{"item":{"id":"x"}}`:                         ``,
		`{"model":"gpt-5.5","item":`:                  ``,
		`[]`:                                          ``,
		`{"model":"gpt-5.5"}`:                         ``,
	} {
		if got := m.item(&llm.Vendor{Dialect: dialect, Data: json.RawMessage(data)}); string(got) != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
}

func TestSettings_followTheKindOfModel(t *testing.T) {
	temperature := 0.5
	long := strings.Repeat("thr_", 40)
	cases := []struct {
		id, summary string
		req         llm.Request
		want        string // of include, reasoning, temperature, prompt_cache_key
	}{
		{"gpt-5.5", "", llm.Request{Effort: "high", Temperature: &temperature, CacheKey: "thr_1"}, `[["reasoning.encrypted_content"],{"effort":"high"},null,"thr_1"]`},
		{"gpt-5.5", "auto", llm.Request{}, `[["reasoning.encrypted_content"],{"summary":"auto"},null,null]`},
		{"o4-mini", "", llm.Request{}, `[["reasoning.encrypted_content"],null,null,null]`},
		{"gpt-4.1", "auto", llm.Request{Effort: "high", Temperature: &temperature}, `[null,null,0.5,null]`},
		{"gpt-4o-2024-08-06", "", llm.Request{CacheKey: long}, `[null,null,null,"` + cacheKey(long) + `"]`},
	}
	for _, c := range cases {
		m, err := New(Config{Info: llm.Info{ID: c.id}, Summary: c.summary})
		if err != nil {
			t.Fatal(err)
		}
		b := body(t, m, &c.req)
		if got := compact(t, []any{b["include"], b["reasoning"], b["temperature"], b["prompt_cache_key"]}); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.id, got, c.want)
		}
	}
	if got := cacheKey(long); len(got) > cacheKeyLenMax || got == cacheKey(long+"x") {
		t.Errorf("cache key %q", got)
	}
}

func TestStrict_onlySchemasThatQualify(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`:                                                                       true,
		`{"type":"object","properties":{},"additionalProperties":false}`:                                                                                                             true,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{},"additionalProperties":false}}},"required":["a"],"additionalProperties":false}`: true,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}`:                                           true,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`:                                                 false, // b is optional
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                                                                                    false, // open
		`{"type":"object","properties":{"a":{"type":"object"}},"required":["a"],"additionalProperties":false}`:                                                                       false,
		`{"type":"object","properties":{"a":{"type":"string","format":"uuid"}},"required":["a"],"additionalProperties":false}`:                                                       false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a","a"],"additionalProperties":false}`:                                                                   false,
		`{"type":"object","properties":3,"additionalProperties":false}`:                                                                                                              false,
		`{"type":"string"}`: false,
		`{`:                 false,
		``:                  false,
	} {
		if got := strict(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}

// TestRequest_isOneThatTheSDKKnows: what we write, the vendor's own types read
// and write again without loss. A field that they do not know would be gone.
func TestRequest_isOneThatTheSDKKnows(t *testing.T) {
	temperature := 0.25
	png := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("png")}}
	req := &llm.Request{
		System: []llm.Block{llm.Text("Be terse."), llm.Text("More.")},
		Messages: []llm.Message{
			user(llm.Text("look"), png, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "application/pdf", Data: []byte("pdf")}}),
			llm.Assistant(thought(t, "rs_1"), said(t, "msg_1", "ok"), call(t, "1"), llm.Block{Kind: llm.KindCall, Call: llm.NewCall("2", "f", `{"cut`)}),
			user(answered("1", "r"), llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: "2", Failed: true, Blocks: []llm.Block{llm.Text("no"), png}}}),
			llm.Assistant(llm.Text("of another model")),
			llm.User("go on"),
		},
		Tools: []llm.ToolSpec{
			{Name: "f", Description: "does f", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`)}, {Name: "g"},
		},
		Choice: llm.Choice{Mode: llm.ChoiceTool, Name: "f"}, Serial: true, OutputTokensMax: 100, Effort: "low", Temperature: &temperature,
		Schema: &llm.Schema{Name: "x", Schema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)}, CacheKey: "thr_1",
	}
	none := *req
	none.Choice = llm.Choice{Mode: llm.ChoiceNone}
	for _, id := range []string{made, "gpt-4.1"} {
		for _, r := range []*llm.Request{req, &none} {
			sameThroughSDK(t, model(t, id).encode(r))
		}
	}
}

func sameThroughSDK(t *testing.T, text []byte) {
	t.Helper()
	ours, theirs := through(t, text, new(responses.ResponseNewParams))
	delete(ours, "stream") // the SDK adds it by itself
	// The SDK reads two members as the first of several types that they could
	// be, and loses the rest; they go through the right one.
	if c, is := ours["tool_choice"].(map[string]any); is {
		theirs["tool_choice"] = again(t, c, new(responses.ToolChoiceFunctionParam))
	}
	for i, it := range ours["input"].([]any) {
		if m := it.(map[string]any); m["type"] == "message" && m["id"] != nil {
			theirs["input"].([]any)[i] = again(t, m, new(responses.ResponseOutputMessageParam))
		}
	}
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("the SDK's types lose or change (-ours +theirs):\n%s", diff)
	}
}

// through returns JSON as it is, and as it is after params have read it.
func through(t *testing.T, text []byte, params any) (ours, theirs map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, params); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	written, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written, &theirs); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func again(t *testing.T, v map[string]any, params any) map[string]any {
	t.Helper()
	_, theirs := through(t, []byte(compact(t, v)), params)
	return theirs
}

// history is a run of n steps, about 1 KB each, and as much sealed reasoning.
func history(t testing.TB, n int) *llm.Request {
	req := &llm.Request{System: []llm.Block{llm.Text(strings.Repeat("You are terse. ", 200))}}
	for i := range 20 {
		req.Tools = append(req.Tools, llm.ToolSpec{
			Name: fmt.Sprint("tool_", i), Description: strings.Repeat("It does things. ", 20),
			Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}`),
		})
	}
	req.Messages = append(req.Messages, llm.User("Fix the test."))
	out := strings.Repeat("ok  \tpackage/of/something\t0.01s \"quoted\"\n", 16)
	sealed := strings.Repeat("gAAAAABo", 128)
	for i := range n {
		id := fmt.Sprint("call_", i)
		req.Messages = append(req.Messages,
			llm.Assistant(
				llm.Block{Kind: llm.KindReasoning, Vendor: vendor(t, fmt.Sprintf(`{"id":"rs_%d","type":"reasoning","summary":[],"encrypted_content":"%s"}`, i, sealed))},
				said(t, fmt.Sprint("msg_", i), "I look at it."),
				llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, "tool_1", fmt.Sprintf(`{"path":"/workspace/file_%d.go","limit":100}`, i)), Vendor: vendor(t, `{"id":"fc_1"}`)}),
			user(answered(id, out)))
	}
	return req
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, req := model(b, made), history(b, n)
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
			var params responses.ResponseNewParams
			text := model(b, made).encode(history(b, n))
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
	answer, err := os.ReadFile("testdata/reasoning_and_parallel_calls.sse")
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
			m, err := New(Config{Info: llm.Info{ID: made}, URL: s.URL})
			if err != nil {
				b.Fatal(err)
			}
			req := history(b, n)
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
