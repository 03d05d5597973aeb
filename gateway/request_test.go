package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/catalog"
)

// Whatever a request is, it is read or refused; if it is read, the model's name is what a
// reader of JSON finds, and another name in its place changes nothing else.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"model":"a"}`, `{"model" : "\u0061\n" ,"x":[1,{"model":"b"}]}`, `{"mod\u0065l":"a"}`, `{"model":5}`, `{"model":"a"} x`, `{"a":{"model":"b"},"model":"c"}`, "{\"model\":\"\xff\"}",
		`{"model":"a","model":"b"}`, `[]`, `{"max_tokens":1e9,"model":"a"}`, `{"model":"a","n":"5"}`, "\ufeff{}",
		`{"contents":[{"role":"user","parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"functionResponse":{"response":{"fileData":1}}}]}]}`,
		`{"contents":{"parts":{"file_data":{"file_uri":"https://a.example"}}},"tools":{"functionDeclarations":[]},"generation_config":{"max_output_tokens":5,"candidateCount":2}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var was, is any
		broken := json.Unmarshal([]byte(body), &was)
		s := scanner{in: []byte(body), onField: func(string, any, int, int) {}}
		v, err := s.scan()
		switch {
		case err == nil && broken != nil:
			t.Fatalf("%q is taken, and is no JSON: %v", body, broken)
		case err == nil && cmp.Diff(was, plain(v)) != "":
			t.Fatalf("%q is read otherwise: %s", body, cmp.Diff(was, plain(v)))
		case err != nil && broken == nil && strings.Contains(err.Error(), "no JSON"):
			t.Fatalf("%q is refused: %v", body, err)
		}
		for _, d := range []dialect{messages, responses, chat, generate} {
			a, err := parse(d, []byte(body))
			if err != nil {
				continue
			}
			if d == generate {
				hides(t, a, body)
				continue
			}
			named := a.named([]byte(body), "other/model")
			if err := json.Unmarshal(named, &is); err != nil {
				t.Fatalf("%q becomes %q: %v", body, named, err)
			}
			before, after := was.(map[string]any), is.(map[string]any)
			if before["model"] != a.model || after["model"] != "other/model" {
				t.Fatalf("%q: %q is read, and %q comes", body, a.model, named)
			}
			if after["model"] = a.model; cmp.Diff(was, is) != "" {
				t.Fatalf("%q becomes %q", body, named)
			}
			_ = a.check(d)
			if most, in := a.most(catalog.Endpoint{}); most.tokens <= 0 || in < 0 {
				t.Fatalf("%q costs %+v", body, most)
			}
			is = nil
		}
	})
}

// hides fails if a request of Google's API is allowed that names a model, or what the vendor
// has kept, beside its path. Its body stays as it is.
func hides(t *testing.T, a asked, body string) {
	if named := a.named([]byte(body), "other/model"); string(named) != body {
		t.Fatalf("%q becomes %q", body, named)
	}
	if most, in := a.most(catalog.Endpoint{}); most.tokens <= 0 || in < 0 {
		t.Fatalf("%q costs %+v", body, most)
	}
	if a.check(generate) != nil {
		return
	}
	for _, key := range []string{"model", "Model", "cachedContent", "cached_content", "generateContentRequest"} {
		if a.root.of(key) != nil {
			t.Fatalf("%q is allowed", body)
		}
	}
}

// plain is what encoding/json makes of the same.
func plain(v any) any {
	switch v := v.(type) {
	case text:
		return v.String()
	case json.Number:
		f, _ := v.Float64()
		return f
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plain(x)
		}
		return list
	case object:
		m := map[string]any{}
		for _, f := range v {
			m[string(f.key)] = plain(f.value)
		}
		return m
	}
	return v
}

// What encoding/json refuses is refused; so is what it takes and other readers may not.
func TestScan(t *testing.T) {
	for in, says := range map[string]string{
		``: "no JSON", ` `: "no JSON", `nul`: "no JSON", `tru`: "no JSON", `+1`: "no JSON", `-`: "no JSON", `.5`: "no JSON", `1.`: "no JSON", `1e`: "no JSON", `01`: "follows",
		`1 2`: "follows", `[1,]`: "no JSON", `[,1]`: "no JSON", `[1`: "no JSON", `[1 2]`: "no JSON", `{"a"}`: "no JSON", `{"a":}`: "no JSON", `{"a":1,}`: "no JSON", `{a:1}`: "no JSON", `{"a":1`: "no JSON",
		`"a`: "no JSON", `"\`: "no JSON", `"\u12"`: "no JSON", `"\u12g4"`: "no JSON", `"\u+123"`: "no JSON", `"\x"`: "no JSON", "\"a\nb\"": "no JSON", "\"\xff\"": "UTF-8", "\ufeff1": "no JSON",
		`{"a":1,"\u0061":2}`: "twice", `[[{"a":1,"a":2}]]`: "twice", `'a'`: "no JSON", `NaN`: "no JSON", "1\f": "follows",
	} {
		s := scanner{in: []byte(in), onField: func(string, any, int, int) {}}
		if v, err := s.scan(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v, not %q", in, v, err, says)
		}
	}
	const in = ` { "a\u00e4\n" : [ 1 , -0.5e+3 , true , null , false , { } , [ ] ] , "b" : "\ud83d\ude00\"ü" } `
	s := scanner{in: []byte(in), onField: func(string, any, int, int) {}}
	v, err := s.scan()
	want := map[string]any{"aä\n": []any{1.0, -500.0, true, nil, false, map[string]any{}, []any{}}, "b": "😀\"ü"}
	if d := cmp.Diff(any(want), plain(v)); d != "" || err != nil {
		t.Errorf("%s %v", d, err)
	}
}

// Strings end, and are found wrong, wherever in the words they are read by.
func TestScan_words(t *testing.T) {
	for n := range 20 {
		for in, want := range map[string]string{
			`"`: "", `\n"`: "\n", `\""`: `"`, `é"`: "é", "\x7f\"": "\x7f", "!\"": "!",
			"\x1f\"": "no JSON", "\x00\"": "no JSON", "é\n\"": "no JSON", "\xff\"": "UTF-8", "\xc3\"": "UTF-8", "": "no JSON",
		} {
			for _, more := range []string{"", " " + strings.Repeat(" ", n)} {
				before := strings.Repeat("a", n)
				v, err := (&scanner{in: []byte(`"` + before + in + more)}).scan()
				switch {
				case want == "no JSON" || want == "UTF-8":
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%d and %q: %v, %v, not %q", n, in, v, err, want)
					}
				case err != nil || plain(v) != before+want:
					t.Errorf("%d and %q: %v, %v", n, in, plain(v), err)
				}
			}
		}
	}
}

// A key that is twice is found in objects of any size, wherever the two are.
func TestScan_twice(t *testing.T) {
	for n := 2; n < 3*fieldsFew; n++ {
		for again := range n {
			var fields []string
			for i := range n {
				fields = append(fields, fmt.Sprintf(`"k%d":0`, i))
			}
			in := "{" + strings.Join(fields, ",") + "}"
			s := scanner{in: []byte(in), onField: func(string, any, int, int) {}}
			if v, err := s.scan(); err != nil || len(v.(object)) != n {
				t.Fatalf("%s: %v, %v", in, v, err)
			}
			for _, key := range []string{`"k%d"`, `"\u006b%d"`} {
				s = scanner{in: []byte("[{" + strings.Join(fields, ",") + "," + fmt.Sprintf(key, again) + ":1}]")}
				if v, err := s.scan(); err == nil || !strings.Contains(err.Error(), "twice") {
					t.Fatalf("%s: %v, %v", s.in, v, err)
				}
			}
		}
	}
}

// What a call may cost is the request, and all that it may be answered with.
func TestMost(t *testing.T) {
	e := catalog.Endpoint{Info: llm.Info{WindowTokens: 128_000, OutputTokensMax: 1000, Price: llm.Price{Input: 10, Output: 100, CacheWrite: 20}}}
	image := strings.Repeat("QUJD", 3<<18) // 3 MB
	for name, c := range map[string]struct {
		body     string
		out, in  int64
		unbound  bool
		endpoint catalog.Endpoint
		dialect  dialect
	}{
		"asked":        {body: `{"model":"a","max_tokens":70}`, out: 70},
		"not asked":    {body: `{"model":"a"}`, out: 1000},
		"too many":     {body: `{"model":"a","max_output_tokens":5000000000}`, out: 1000},
		"both":         {body: `{"model":"a","max_tokens":70,"max_completion_tokens":60}`, out: 60},
		"replies":      {body: `{"model":"a","max_completion_tokens":60,"n":4}`, out: 240},
		"what is kept": {body: `{"model":"a","max_output_tokens":70,"previous_response_id":"resp_1"}`, out: 70, in: 128_000},
		"images": {
			body: `{"model":"a","max_tokens":70,"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + image + `"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}]}`,
			out:  70, in: 2*mediaTokens + 59,
		},
		"an image in an answer": {body: `{"model":"a","max_tokens":70,"input":[{"output":[{"type":"input_image","image_url":"data:image/png;base64,` + image + `"}]}]}`, out: 70, in: mediaTokens + 30},
		"a document":            {body: `{"model":"a","max_tokens":70,"messages":[{"content":[{"file":{"file_data":"data:application/pdf;base64,` + image + `"}}]}]}`, out: 70, in: 49*mediaTokens + 27},
		"text like an image":    {body: `{"model":"a","max_tokens":70,"messages":[{"content":"` + image + `"},{"content":[{"type":"tool_use","input":{"type":"base64","media_type":"image/png","data":"` + image + `"}}]}]}`, out: 70},
		"long text":             {body: `{"model":"a","max_tokens":70,"x":"` + strings.Repeat("a word ", 900) + `"}`, out: 70},
		"nothing said":          {body: `{"model":"a"}`, out: outputDefault, unbound: true},
		"Google's":              {body: `{"generation_config":{"maxOutputTokens":70,"candidate_count":3},"max_tokens":1}`, out: 210, dialect: generate},
		"Google's, not said":    {body: `{"maxOutputTokens":70,"max_output_tokens":70}`, out: 1000, dialect: generate},
		"Google's image": {
			body: `{"contents":[{"parts":[{"inline_data":{"mime_type":"image/png","data":"` + image + `"}},{"functionResponse":{"parts":{"inlineData":{"mimeType":"application/pdf","data":"` + image + `"}}}}]}]}`,
			out:  1000, in: 50*mediaTokens + 55, dialect: generate,
		},
		"Google's text like an image": {body: `{"contents":[{"parts":[{"functionCall":{"args":{"mimeType":"image/png","data":"` + image + `"}}},{"functionResponse":{"response":{"mimeType":"image/png","data":"` + image + `"}}}]}]}`, out: 1000, dialect: generate},
	} {
		if c.dialect == 0 {
			c.dialect = chat
		}
		if !c.unbound {
			c.endpoint = e
		}
		a, err := parse(c.dialect, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.in == 0 {
			c.in = int64(len(c.body) / bytesPerToken)
		}
		p := c.endpoint.Price
		want := amount{calls: 1, tokens: c.in + c.out, cost: (float64(c.in)*max(p.CacheWrite, p.Input) + float64(c.out)*p.Output) / 1e6}
		if got, in := a.most(c.endpoint); got != want || in != c.in {
			t.Errorf("%s: %+v with %d, not %+v with %d", name, got, in, want, c.in)
		}
	}
}

var streams = map[string]struct {
	dialect dialect
	kind    string
	text    string
	want    llm.Usage
}{
	"messages": {
		messages, "text/event-stream",
		"event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":11,\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":3,\"output_tokens\":1}}}\n\ndata: {\"delta\":\"x\"}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":42}}\n\n",
		llm.Usage{Input: 11, CacheRead: 5, CacheWrite: 3, Output: 42},
	},
	"messages, whole": {
		messages, "application/json",
		`{"usage":{"input_tokens":11,"cache_read_input_tokens":5,"output_tokens":42}}`,
		llm.Usage{Input: 11, CacheRead: 5, Output: 42},
	},
	"messages, cut off": {
		messages, "text/event-stream",
		"data: {\"message\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n" + strings.Repeat("data: {}\n\n", 40),
		llm.Usage{Input: 11, Output: 20, Estimated: true},
	},
	"responses": {
		responses, "text/event-stream",
		"data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\r\n\r\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":11,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":9,\"output_tokens_details\":{\"reasoning_tokens\":6}}}}\r\n\r\n",
		llm.Usage{Input: 7, CacheRead: 4, Output: 9, Reasoning: 6},
	},
	"chat": {
		chat, "text/event-stream; charset=utf-8",
		"data: {\"choices\":[],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens\":9}}\n\ndata: [DONE]\n\n",
		llm.Usage{Input: 7, CacheRead: 4, Output: 9},
	},
	"chat that does not tell": {
		chat, "text/event-stream",
		strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", 30) + "data: [DONE]",
		llm.Usage{Input: 100, Output: 15, Estimated: true},
	},
	"a lie below zero": {
		chat, "text/event-stream",
		"data: {\"usage\":{\"prompt_tokens\":-11,\"completion_tokens\":-9}}\n\n",
		llm.Usage{Input: 100, Estimated: true},
	},
	"an event that is too long": {
		messages, "text/event-stream",
		"data: " + strings.Repeat("x", lineBytesMax) + "\ndata: {\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n",
		llm.Usage{Input: 3, Output: 4},
	},
	"generate": {
		generate, "text/event-stream",
		"data: {\"candidates\":[{\"content\":{}}],\"usageMetadata\":{\"promptTokenCount\":11,\"cachedContentTokenCount\":4,\"totalTokenCount\":11}}\r\n\r\n" +
			"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":11,\"toolUsePromptTokenCount\":2,\"cachedContentTokenCount\":4,\"candidatesTokenCount\":9,\"thoughtsTokenCount\":6}}\r\n\r\n",
		llm.Usage{Input: 9, CacheRead: 4, Output: 15, Reasoning: 6},
	},
	"generate, thoughts first": {
		generate, "text/event-stream",
		"data: {\"usageMetadata\":{\"promptTokenCount\":11,\"thoughtsTokenCount\":6}}\n\ndata: {\"usageMetadata\":{\"promptTokenCount\":11,\"thoughtsTokenCount\":6,\"candidatesTokenCount\":3}}\n\ndata: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":11,\"thoughtsTokenCount\":7,\"candidatesTokenCount\":4}}\n",
		llm.Usage{Input: 11, Output: 11, Reasoning: 7},
	},
	"generate, whole": {
		generate, "application/json; charset=UTF-8",
		`{"candidates":[{"finishReason":"MAX_TOKENS"}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":9}}`,
		llm.Usage{Input: 11, Output: 9},
	},
	"generate, a list": {
		generate, "application/json; charset=UTF-8",
		"[{\"usageMetadata\":{\"promptTokenCount\":11,\"candidatesTokenCount\":2}}\n,\r\n{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":11,\"candidatesTokenCount\":9}}\n]\n",
		llm.Usage{Input: 11, Output: 9},
	},
	"generate, cut off": {
		generate, "text/event-stream",
		strings.Repeat("data: {\"usageMetadata\":{\"promptTokenCount\":11,\"candidatesTokenCount\":1}}\n\n", 40),
		llm.Usage{Input: 11, Output: 20, Estimated: true},
	},
	"generate, blocked": {
		generate, "application/json",
		`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":11}}`,
		llm.Usage{Input: 11},
	},
	"generate that does not tell": {
		generate, "text/event-stream",
		strings.Repeat("data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{}}\n\n", 30),
		llm.Usage{Input: 100, Output: 15, Estimated: true},
	},
	"generate, a lie below zero": {
		generate, "text/event-stream",
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":-11,\"candidatesTokenCount\":-9,\"thoughtsTokenCount\":-9,\"toolUsePromptTokenCount\":-1,\"cachedContentTokenCount\":-3}}\n",
		llm.Usage{Input: 100, Estimated: true},
	},
	"no JSON": {chat, "text/html", "<html>", llm.Usage{Input: 100, Output: 2, Estimated: true}},
}

// What an answer cost is counted whatever pieces it comes in.
func TestMeter(t *testing.T) {
	for name, c := range streams {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := newMeter(c.dialect)
				m.begin(c.kind)
				for rest := c.text; rest != ""; {
					n := rapid.IntRange(1, max(len(rest)/3, 1)).Draw(t, "bytes")
					_, _ = m.Write([]byte(rest[:n]))
					rest = rest[n:]
				}
				if got := m.usage(100, 200); got != c.want {
					t.Fatalf("%+v, not %+v", got, c.want)
				}
			})
		})
	}
	m := newMeter(chat)
	if u := m.usage(100, 429); u != (llm.Usage{}) {
		t.Errorf("a refusal costs %+v", u)
	}
}

// FuzzMeter: whatever a vendor sends is counted without a fault and never below zero.
func FuzzMeter(f *testing.F) {
	for _, c := range streams {
		if len(c.text) < 10_000 {
			f.Add(c.text, int(c.dialect), strings.HasPrefix(c.kind, "text/event"))
		}
	}
	f.Fuzz(func(t *testing.T, text string, d int, streams bool) {
		m := newMeter(dialect(uint(d) % 4))
		m.streams = streams
		_, _ = m.Write([]byte(text))
		if u := m.usage(100, 200); u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 {
			t.Fatalf("%+v", u)
		}
	})
}

// FuzzGenerateRoute: whatever the path is, the vendor is asked for the model that is
// configured and for nothing else.
func FuzzGenerateRoute(f *testing.F) {
	for _, s := range []string{"v1beta/models/a:generateContent", "v1/models/google/a:b:countTokens", "v1beta/models/../x:generateContent", "v1beta/models/:generateContent", "v1beta/models", "v1beta/models/a:streamGenerateContent?alt=sse&key=k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		path, query, _ := strings.Cut(path, "?")
		to, ok := generateRoute(&http.Request{Method: http.MethodPost, URL: &url.URL{RawQuery: query}}, path)
		if !ok {
			return
		}
		at, err := catalog.Endpoint{Info: llm.Info{Vendor: catalog.Google}, URL: "https://a.example"}.At(to.at("it"))
		calls := []string{"generateContent", "streamGenerateContent", "countTokens"}
		if err != nil || !slices.Contains(calls, to.call) || at != "https://a.example/"+to.version+"/models/it:"+to.call || to.model == "" || slices.Contains(strings.Split(to.model, "/"), "..") {
			t.Fatalf("%q is %+v, at %s, %v", path, to, at, err)
		}
	})
}
