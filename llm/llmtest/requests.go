package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
)

func requests(t *testing.T, d Driver) {
	t.Run("History", func(t *testing.T) { history(t, d) })
	t.Run("ResultsInTheOrderOfTheCalls", func(t *testing.T) { resultOrder(t, d) })
	t.Run("OpaqueDataComesBackByteForByte", func(t *testing.T) { opaque(t, d) })
	t.Run("OpaqueDataOfOthersIsDropped", func(t *testing.T) { foreign(t, d) })
	t.Run("OpaqueDataSurvivesTheLog", func(t *testing.T) { logged(t, d) })
	t.Run("Settings", func(t *testing.T) { settings(t, d) })
	t.Run("OutputLimit", func(t *testing.T) { outputLimit(t, d) })
	t.Run("NothingUnasked", func(t *testing.T) { nothingUnasked(t, d) })
	t.Run("Choice", func(t *testing.T) { choices(t, d) })
	t.Run("CacheHints", func(t *testing.T) { cacheHints(t, d) })
	t.Run("Media", func(t *testing.T) { media(t, d) })
	t.Run("OddHistory", func(t *testing.T) { oddHistory(t, d) })
	t.Run("SameBytesForTheSameRequest", func(t *testing.T) { sameBytes(t, d) })
	t.Run("Key", func(t *testing.T) { key(t, d) })
}

func ok() Reply { return Reply{Blocks: []llm.Block{llm.Text("ok")}} }

func (b *bench) sameMessages(want []llm.Message) {
	b.Helper()
	got := b.facts.lines(b.last().Request.Messages)
	if diff := cmp.Diff(b.facts.lines(want), got); diff != "" {
		b.Errorf("the messages differ (-meant +arrived):\n%s", diff)
	}
}

func result(id, text string, failed bool) llm.Result {
	return llm.Result{CallID: id, Name: "read", Blocks: []llm.Block{llm.Text(text)}, Failed: failed}
}

func history(t *testing.T, d Driver) {
	b := d.play(t, ok())
	req := &llm.Request{
		System: []llm.Block{llm.Text("You are terse."), llm.Text("Mind " + awkward)},
		Messages: []llm.Message{
			llm.User("Read a and b."),
			llm.Assistant(llm.Text("I read."), Call("call_1", "read", `{"path":"a"}`), Call("call_2", "read", `{"path":"b"}`)),
			llm.Results(result("call_1", "A "+awkward, false), result("call_2", "no such file", true)),
			llm.Assistant(Call("call_3", "read", `{"path":"c"}`)),
			llm.Results(result("call_3", "C", false)),
			llm.User("And then?"),
			llm.Assistant(llm.Text("Nothing.")),
			llm.User("Thanks. " + awkward),
		},
		Tools: Tools("read", "write", "x-y_Z9"), OutputTokensMax: 100,
	}
	b.ask(req)
	b.sameMessages(req.Messages)
	seen := b.last()
	rest := joined(seen.Request.System)
	for _, block := range req.System {
		_, after, found := strings.Cut(rest, block.Text)
		if !found {
			t.Errorf("the system prompt %q lacks %q, or has it in another order", joined(seen.Request.System), block.Text)
		}
		rest = after
	}
	if diff := cmp.Diff(toolTexts(req.Tools), toolTexts(seen.Request.Tools)); diff != "" {
		t.Errorf("the tools differ (-meant +arrived):\n%s", diff)
	}
	if seen.Model != testModel || seen.Key != testKey {
		t.Errorf("model %q, key %q arrived", seen.Model, seen.Key)
	}
}

func joined(blocks []llm.Block) string {
	var texts []string
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n")
}

// toolTexts compares schemas as values: a dialect may order their keys.
func toolTexts(specs []llm.ToolSpec) []string {
	var texts []string
	for _, s := range specs {
		var schema any
		_ = json.Unmarshal(s.Schema, &schema) // what is no JSON shows as nil
		texts = append(texts, fmt.Sprintf("%s | %s | %v", s.Name, s.Description, schema))
	}
	return texts
}

func resultOrder(t *testing.T, d Driver) {
	b := d.play(t, ok())
	var calls []llm.Block
	var results []llm.Result
	for i := range 12 {
		id := fmt.Sprintf("call_%d", (i*7)%12)
		calls = append(calls, Call(id, "read", fmt.Sprintf(`{"path":"%d"}`, i)))
		results = append(results, result(id, fmt.Sprint("text of ", i), i%3 == 0))
	}
	req := hello()
	req.Messages = append(req.Messages, llm.Assistant(calls...), llm.Results(results...))
	b.ask(req)
	b.sameMessages(req.Messages)
}

// opaque: what a reply carried comes back in the next request exactly.
func opaque(t *testing.T, d Driver) {
	f := d.Dialect.Facts()
	if !f.Opaque {
		t.Skip("the dialect has no opaque data")
	}
	said := []llm.Block{Reasoning("thinking "+awkward, `Ev8B+/=="<>&'`), llm.Text("So."), Call("call_1", "read", `{"path":"a"}`)}
	if f.Redacted {
		said = append([]llm.Block{Reasoning("", `ZW5j+/==`)}, said...)
	}
	b := d.play(t, Reply{Blocks: said}, ok())
	req := hello()
	resp, _ := b.ask(req)
	req.Messages = append(req.Messages, resp.Message, llm.Results(result("call_1", "A", false)))
	b.ask(req)
	want := append([]llm.Message{req.Messages[0], llm.Assistant(said...)}, req.Messages[2:]...)
	b.sameMessages(want)
}

// logged: the same after the message went through JSON, as a log does it.
func logged(t *testing.T, d Driver) {
	if !d.Dialect.Facts().Opaque {
		t.Skip("the dialect has no opaque data")
	}
	said := []llm.Block{Reasoning("hm", `Ev8B+/=="<>&'`), Call("call_1", "read", `{"path":"a"}`)}
	b := d.play(t, Reply{Blocks: said}, ok())
	req := hello()
	resp, _ := b.ask(req)
	text, err := json.Marshal(resp.Message)
	if err != nil {
		t.Fatal(err)
	}
	var read llm.Message
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, read, llm.Results(result("call_1", "A", false)))
	b.ask(req)
	b.sameMessages([]llm.Message{req.Messages[0], llm.Assistant(said...), req.Messages[2]})
}

func foreign(t *testing.T, d Driver) {
	b := d.play(t, ok())
	const marker = "FOREIGN-OPAQUE-DATA"
	alien := llm.Block{Kind: llm.KindReasoning, Text: "other thoughts", Vendor: &llm.Vendor{Dialect: "elsewhere", Data: json.RawMessage(`{"signature":"` + marker + `"}`)}}
	call := Call("call_1", "read", `{"path":"a"}`)
	call.Vendor = &llm.Vendor{Dialect: "elsewhere", Data: json.RawMessage(`"` + marker + `"`)}
	req := hello()
	req.Messages = append(req.Messages, llm.Assistant(alien, llm.Text("So."), call), llm.Results(result("call_1", "A", false)))
	b.ask(req)
	if seen := b.last(); bytes.Contains(seen.Body, []byte(marker)) {
		t.Errorf("opaque data of another vendor was sent: %s", seen.Body)
	}
	for _, l := range b.facts.lines(b.last().Request.Messages) {
		if l.Kind == llm.KindReasoning {
			t.Errorf("reasoning of another vendor's model was sent as reasoning: %+v", l)
		}
	}
	texts := fmt.Sprint(b.facts.lines(b.last().Request.Messages))
	if !strings.Contains(texts, "So.") || !strings.Contains(texts, "call_1") {
		t.Errorf("what stood beside it is missing: %s", texts)
	}
}

func settings(t *testing.T, d Driver) {
	b := d.play(t, ok())
	f, temperature := b.facts, 0.25
	req := hello()
	req.OutputTokensMax = 4321
	req.Temperature, req.Effort = &temperature, "high"
	req.CacheKey, req.Stop, req.Serial = "thr_abc", []string{"STOP", "\n\n"}, true
	req.Schema = &llm.Schema{Name: "answer", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)}
	b.ask(req)
	got := b.last().Request
	check := func(can bool, name string, got, want any) {
		if diff := cmp.Diff(want, got); can && diff != "" {
			t.Errorf("%s (-meant +arrived):\n%s", name, diff)
		}
	}
	check(true, "most tokens of output", got.OutputTokensMax, 4321)
	check(f.Temperature, "temperature", got.Temperature, req.Temperature)
	check(f.Effort, "effort", got.Effort, "high")
	check(f.CacheKey, "cache key", got.CacheKey, "thr_abc")
	check(f.StopTexts, "stop texts", got.Stop, req.Stop)
	check(f.Serial, "serial", got.Serial, true)
	if f.Schema {
		if got.Schema == nil {
			t.Fatal("the schema did not arrive")
		}
		check(true, "schema", toolTexts([]llm.ToolSpec{{Schema: got.Schema.Schema}}), toolTexts([]llm.ToolSpec{{Schema: req.Schema.Schema}}))
	}
}

// outputLimit: what a model may answer at most goes over the wire, also when the
// request does not say it.
func outputLimit(t *testing.T, d Driver) {
	for _, c := range []struct{ model, request, want int }{{1000, 0, 1000}, {1000, 4321, 1000}, {1000, 100, 100}, {0, 100, 100}} {
		b := d.play(t, ok())
		b.model = d.New(Config{URL: b.server.URL, Model: testModel, Key: testKey, Silence: patience, ReplyBytesMax: replyBytesMax, OutputTokensMax: c.model})
		b.ask(&llm.Request{Messages: []llm.Message{llm.User("hi")}, OutputTokensMax: c.request})
		if got := b.last().Request.OutputTokensMax; got != c.want {
			t.Errorf("the model's %d and the request's %d: %d arrived, want %d", c.model, c.request, got, c.want)
		}
	}
}

// nothingUnasked: weak servers refuse fields that they do not know, so a plain
// request has none of the optional ones.
func nothingUnasked(t *testing.T, d Driver) {
	b := d.play(t, ok())
	b.ask(&llm.Request{Messages: []llm.Message{llm.User("hi")}, OutputTokensMax: 100})
	got := b.last().Request
	got.Messages, got.OutputTokensMax = nil, 0
	if diff := cmp.Diff(llm.Request{}, got); diff != "" {
		t.Errorf("a plain request carried more than its message (-want +arrived):\n%s", diff)
	}
}

func choices(t *testing.T, d Driver) {
	for _, c := range []llm.Choice{{}, {Mode: llm.ChoiceNone}, {Mode: llm.ChoiceAny}, {Mode: llm.ChoiceTool, Name: "write"}} {
		b := d.play(t, ok())
		req := hello()
		req.Choice = c
		b.ask(req)
		if got := b.last().Request.Choice; got != c {
			t.Errorf("choice %+v arrived as %+v", c, got)
		}
	}
}

// cacheHints: at most as many as the dialect allows, the last ones first.
func cacheHints(t *testing.T, d Driver) {
	f := d.Dialect.Facts()
	if f.CacheHintsMax == 0 {
		t.Skip("the dialect has no cache hints")
	}
	b := d.play(t, ok())
	req := hello()
	req.System = []llm.Block{{Kind: llm.KindText, Text: "one", Cache: true}, {Kind: llm.KindText, Text: "two", Cache: true}}
	req.Messages = nil
	for i := range 4 {
		m := llm.User(fmt.Sprint("question ", i))
		m.Cache = true
		req.Messages = append(req.Messages, m, llm.Assistant(llm.Text(fmt.Sprint("answer ", i))))
	}
	last := llm.User("last")
	last.Cache = true
	req.Messages = append(req.Messages, last)
	b.ask(req)
	got := b.last().Request
	var hints []string
	for _, s := range got.System {
		if s.Cache {
			hints = append(hints, s.Text)
		}
	}
	for _, m := range got.Messages {
		if m.Cache {
			hints = append(hints, m.String())
		}
	}
	all := []string{"one", "two", "question 0", "question 1", "question 2", "question 3", "last"}
	want := all[max(0, len(all)-f.CacheHintsMax):]
	if diff := cmp.Diff(want, hints); diff != "" {
		t.Errorf("cache hints (-want +arrived):\n%s", diff)
	}
}

func media(t *testing.T, d Driver) {
	f := d.Dialect.Facts()
	if !f.Media {
		t.Skip("the dialect has no media")
	}
	b := d.play(t, ok())
	image := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: "00", Data: []byte("\x89PNG\r\n\x1a\n\x00\xff")}}
	req := hello()
	req.Messages = []llm.Message{
		{Role: llm.RoleUser, Blocks: []llm.Block{llm.Text("What is this?"), image}},
		llm.Assistant(Call("call_1", "read", `{"path":"a.png"}`)),
		llm.Results(llm.Result{CallID: "call_1", Name: "read", Blocks: []llm.Block{llm.Text("an image"), image}}),
	}
	b.ask(req)
	if f.MediaInResults {
		b.sameMessages(req.Messages)
		return
	}
	// Where results cannot hold it, it must not get lost in silence: it follows
	// in a message of the user, or words say that it is left out.
	lines := b.facts.lines(b.last().Request.Messages)
	if len(lines) < 4 || lines[1].Media != mediaText(image.Media) {
		t.Errorf("the image of the user did not arrive: %+v", lines)
	}
	rest := fmt.Sprint(lines[3:])
	if !strings.Contains(rest, mediaText(image.Media)) && !strings.Contains(rest, "image/png") {
		t.Errorf("nothing tells the model of the image in the result: %s", rest)
	}
}

// oddHistory: histories that are legal for us and that vendors trip over.
func oddHistory(t *testing.T, d Driver) {
	cases := map[string][]llm.Message{
		"RawCall":          {llm.User("hi"), llm.Assistant(Call("call_1", "read", `{"path":`)), llm.Results(result("call_1", "bad arguments", true))},
		"EmptyResult":      {llm.User("hi"), llm.Assistant(Call("call_1", "read", `{}`)), llm.Results(result("call_1", "", false))},
		"NoBlocksInResult": {llm.User("hi"), llm.Assistant(Call("call_1", "read", `{}`)), llm.Results(llm.Result{CallID: "call_1"})},
		"EmptyText":        {llm.User("hi"), llm.Assistant(llm.Text(""), Call("call_1", "read", `{}`)), llm.Results(result("call_1", "A", false))},
		"EmptyAnswer":      {llm.User("hi"), {Role: llm.RoleAssistant}, llm.User("hello?")},
		"TwoUsers":         {llm.User("hi"), llm.User("hello?")},
		"UserInResults": {
			llm.User("hi"), llm.Assistant(Call("call_1", "read", `{}`)),
			{Role: llm.RoleUser, Blocks: append(llm.Results(result("call_1", "A", false)).Blocks, llm.Text("by the way"))},
		},
	}
	for name, messages := range cases {
		t.Run(name, func(t *testing.T) {
			b := d.play(t, ok())
			req := hello()
			req.Messages = messages
			b.ask(req)
			seen := b.last() // it parsed: it is valid on the wire
			texts := fmt.Sprint(b.facts.lines(seen.Request.Messages))
			for _, m := range messages {
				for _, block := range flatBlocks(m.Blocks) {
					if !strings.Contains(texts, strings.TrimSpace(block.Text)) || block.Result != nil && !strings.Contains(texts, block.Result.CallID) {
						t.Errorf("%+v is missing in %s", block, texts)
					}
				}
			}
			for _, m := range seen.Request.Messages {
				for _, c := range m.Calls() {
					if c.Raw {
						t.Errorf("a call went out whose arguments are no object: %s", c.Args)
					}
				}
			}
		})
	}
}

// sameBytes: prompt caches live on requests that begin with the same bytes.
func sameBytes(t *testing.T, d Driver) {
	b := d.play(t, ok())
	build := func(extra int) *llm.Request {
		req := hello()
		req.System = []llm.Block{llm.Text("You are terse.")}
		for i := range extra {
			id := fmt.Sprint("call_", i)
			req.Messages = append(req.Messages, llm.Assistant(Call(id, "read", `{"path":"a","b":1,"a":2}`)), llm.Results(result(id, "A", false)))
		}
		return req
	}
	b.ask(build(3))
	b.ask(build(3))
	seen := b.server.Seen()
	if !bytes.Equal(seen[0].Body, seen[1].Body) {
		t.Errorf("the same request became\n%s\nand\n%s", seen[0].Body, seen[1].Body)
	}
}

func key(t *testing.T, d Driver) {
	b := d.play(t, ok())
	b.ask(hello())
	if seen := b.last(); bytes.Contains(seen.Body, []byte(testKey)) {
		t.Error("the key stands in the body")
	}
	shown := fmt.Sprintf("%v %+v %#v", b.model, b.model, b.model) + fmt.Sprintf("%+v", b.model.Info())
	if strings.Contains(shown, testKey) {
		t.Errorf("printing the model shows the key: %s", shown)
	}
}
