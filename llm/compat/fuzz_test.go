package compat

import (
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/skete-dev/skete/llm"
)

func offered(names ...string) []llm.ToolSpec {
	var specs []llm.ToolSpec
	for _, n := range names {
		specs = append(specs, llm.ToolSpec{Name: n, Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}}}`)})
	}
	return specs
}

// FuzzAnswer: whatever the events of a stream hold, the answer is in good form
// or an error, and can be sent back.
func FuzzAnswer(f *testing.F) {
	names, _ := filepath.Glob("testdata/*.txtar")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(text).Files {
			if strings.HasPrefix(file.Name, "reply.") {
				f.Add(string(file.Data))
			}
		}
	}
	m, err := New(Options{Info: llm.Info{ID: "m"}, URL: "http://127.0.0.1:1", EchoReasoning: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		req := &llm.Request{Messages: []llm.Message{llm.User("hi")}, Tools: offered("read", "write")}
		resp := read(t, m, req, text)
		if resp == nil {
			return
		}
		req.Messages = append(req.Messages, resp.Message)
		parts, size := m.encode(req)
		var body []byte
		for _, p := range parts {
			body = append(body, p...)
		}
		if !json.Valid(body) || !utf8.Valid(body) || int64(len(body)) != size {
			t.Errorf("what goes back is no JSON: %s", body)
		}
	})
}

// read lets a call read bytes, and checks what it yields.
func read(t *testing.T, m *Model, req *llm.Request, text string) (resp *llm.Response) {
	t.Helper()
	var deltas []llm.Delta
	stream := iter.Seq2[llm.Delta, error](func(yield func(llm.Delta, error) bool) {
		c := &call{m: m, req: req, yield: yield}
		body := &limited{in: strings.NewReader(text), watch: &watch{limit: silenceDefault, fire: func() {}}, left: 1 << 20}
		if err := c.read(http.Header{}, body); err != nil {
			yield(llm.Delta{}, c.broken(t.Context(), err))
		}
	})
	for d, err := range stream {
		switch {
		case resp != nil:
			t.Errorf("%+v, %v after the response", d, err)
		case err != nil:
			if llm.TroubleOf(err) == "" {
				t.Errorf("no trouble: %v", err)
			}
			return nil
		}
		deltas, resp = append(deltas, d), d.Response
	}
	if resp == nil {
		t.Error("neither a response nor an error")
		return nil
	}
	checkCalls(t, deltas, resp)
	return resp
}

func checkCalls(t *testing.T, deltas []llm.Delta, resp *llm.Response) {
	t.Helper()
	text, args := "", map[int]string{}
	var names []string
	for _, d := range deltas {
		switch d.Kind {
		case llm.DeltaText:
			text += d.Text
		case llm.DeltaCall:
			names = append(names, d.Name)
		case llm.DeltaArgs:
			args[d.Index] += d.Text
		}
	}
	if got := resp.Message.String(); got != text {
		t.Errorf("deltas say %q, the response %q", text, got)
	}
	calls := resp.Message.Calls()
	if len(calls) != len(names) {
		t.Fatalf("%d calls announced, %d in the response", len(names), len(calls))
	}
	for i, c := range calls {
		if want := llm.NewCall(c.ID, names[i], args[i]); !cmp.Equal(want, c) || !json.Valid(c.Args) {
			t.Errorf("call %d is %+v, its deltas say %+v", i, c, want)
		}
	}
}

// FuzzQuote: strings are what encoding/json makes of them, but for escapes
// that JSON does not need.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x1f\x7f", "Grüße \u2028 👩 <&>", "\xff\xc3", "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := quote(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && back != replaceEach(s) || !utf8.Valid(got) {
			t.Errorf("%q is %s (%v)", s, got, err)
		}
	})
}

// replaceEach puts U+FFFD for each byte that is no UTF-8, as encoding/json does.
func replaceEach(s string) string { return string([]rune(s)) }

func TestMemo_staysWithinItsBound(t *testing.T) {
	m := newMemo()
	made := 0
	for i := range 4000 {
		m.get(key{uint64(i)}, func() []byte { made++; return make([]byte, 64<<10) })
		m.get(key{0}, func() []byte { made++; return make([]byte, 64<<10) }) // used all the time
	}
	if made != 4000 {
		t.Errorf("%d parts were made, want 4000: what is used stays", made)
	}
	total := 0
	for _, gen := range []map[key][]byte{m.young, m.old} {
		for _, p := range gen {
			total += len(p)
		}
	}
	if total > 2*memoBytesMax {
		t.Errorf("%d bytes are kept", total)
	}
	m.get(key{9, 9}, func() []byte { return make([]byte, memoPartMax+1) })
	if _, kept := m.young[key{9, 9}]; kept {
		t.Error("a part beyond the bound is kept")
	}
}

// Everything that changes the bytes changes the key.
func TestMessageKey_knowsEveryFieldThatIsSent(t *testing.T) {
	block := func(b llm.Block) llm.Message { return llm.Message{Role: llm.RoleUser, Blocks: []llm.Block{b}} }
	messages := []llm.Message{
		{},
		{Role: llm.RoleUser},
		{Role: llm.RoleAssistant},
		block(llm.Text("")), block(llm.Text("a")), block(llm.Block{Kind: llm.KindReasoning, Text: "a"}),
		{Role: llm.RoleUser, Blocks: []llm.Block{llm.Text("a"), llm.Text("b")}},
		{Role: llm.RoleUser, Blocks: []llm.Block{llm.Text("ab"), llm.Text("")}},
		block(llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "i", Name: "n", Args: json.RawMessage(`"a"`)}}),
		block(llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "i", Name: "n", Args: json.RawMessage(`"a"`), Raw: true}}),
		block(llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "in", Name: "", Args: json.RawMessage(`"a"`)}}),
		block(llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: "c", Blocks: []llm.Block{llm.Text("x")}}}),
		block(llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: "d", Blocks: []llm.Block{llm.Text("x")}}}),
		block(llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: "c", Blocks: []llm.Block{llm.Text("y")}}}),
		block(llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("x")}}),
		block(llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("y")}}),
		block(llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/gif", Data: []byte("x")}}),
		block(llm.Block{Kind: llm.KindReasoning, Text: "a", Vendor: &llm.Vendor{Dialect: "compat", Data: json.RawMessage(`1`)}}),
		block(llm.Block{Kind: llm.KindReasoning, Text: "a", Vendor: &llm.Vendor{Dialect: "compat", Data: json.RawMessage(`2`)}}),
	}
	seen := map[key]int{}
	for i, m := range messages {
		k := messageKey(&m)
		if before, twice := seen[k]; twice {
			t.Errorf("messages %d and %d have one key", before, i)
		}
		seen[k] = i
		if again := messageKey(&m); again != k {
			t.Errorf("message %d has two keys", i)
		}
	}
}

func TestEndpoint_understandsWhatPeopleWrite(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:8080":                        "http://127.0.0.1:8080/v1/chat/completions",
		"http://127.0.0.1:8080/":                       "http://127.0.0.1:8080/v1/chat/completions",
		"http://h/v1":                                  "http://h/v1/chat/completions",
		"http://h/v1/":                                 "http://h/v1/chat/completions",
		"https://h/api/v1/chat/completions":            "https://h/api/v1/chat/completions",
		"https://h/chat/completions":                   "https://h/chat/completions",
		"https://h/v1beta/openai/":                     "https://h/v1beta/openai/chat/completions",
		"https://h/openai/v1?api-version=2025-01#frag": "https://h/openai/v1/chat/completions?api-version=2025-01",
		"127.0.0.1:8080":                               "", "ftp://h": "", "": "", "http://": "", "http://user:pass@h/v1": "", "://": "",
	} {
		got, err := endpoint(text, "chat/completions")
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "pass") && strings.Contains(err.Error(), "user:pass") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

func saying(text string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
}

// BenchmarkStream is one call, streamed over loopback, at some length of the
// history, with the messages made anew each time as a resumed run does.
func BenchmarkStream(b *testing.B) {
	s := saying("data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	defer s.Close()
	for _, steps := range []int{1, 100, 1000} {
		for _, warm := range []bool{false, true} {
			name := map[bool]string{false: "cold", true: "warm"}[warm]
			b.Run(name+"/"+map[int]string{1: "1", 100: "100", 1000: "1000"}[steps], func(b *testing.B) {
				m, err := New(Options{Info: llm.Info{ID: "m"}, URL: s.URL})
				if err != nil {
					b.Fatal(err)
				}
				req := longRequest(steps)
				_, size := m.encode(req)
				b.SetBytes(size)
				b.ReportAllocs()
				for b.Loop() {
					if !warm {
						m.memo = newMemo()
					}
					for _, err := range m.Stream(b.Context(), req) {
						if err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// BenchmarkEncode is the same without the network, beside encoding/json.
func BenchmarkEncode(b *testing.B) {
	req := longRequest(1000)
	m, err := New(Options{Info: llm.Info{ID: "m"}, URL: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.encode(req)
		}
	})
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.memo = newMemo()
			m.encode(req)
		}
	})
	b.Run("encoding_json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(req); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// longRequest has about 1 KB a step, as in the measurements of other clients.
func longRequest(steps int) *llm.Request {
	req := &llm.Request{System: []llm.Block{llm.Text(strings.Repeat("You are careful. ", 20))}, Messages: []llm.Message{llm.User("Fix the test.")}, Tools: offered("read", "write", "ls", "grep")}
	for i := range steps {
		id := "call_" + string(rune('a'+i%26)) + strings.Repeat("x", i%7)
		req.Messages = append(req.Messages,
			llm.Assistant(llm.Text("I look at the next file."), llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, "read", `{"path":"/workspace/`+id+`.go"}`)}),
			llm.Results(llm.Result{CallID: id, Name: "read", Blocks: []llm.Block{llm.Text(strings.Repeat("\tif x := f(y); x != nil { return \"a\" }\n", 20))}}))
	}
	return req
}
