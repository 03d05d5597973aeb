package llmtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
)

func hello() *llm.Request {
	return &llm.Request{Messages: []llm.Message{llm.User(testPrompt)}, OutputTokensMax: 100, Tools: Tools("read", "write")}
}

// Tools makes plain specifications of tools that take a path.
func Tools(names ...string) []llm.ToolSpec {
	var specs []llm.ToolSpec
	for _, n := range names {
		specs = append(specs, llm.ToolSpec{
			Name: n, Description: "Does " + n + ".",
			Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"é < > &"}},"required":["path"],"additionalProperties":false}`),
		})
	}
	return specs
}

// Call makes a block of a call, for replies.
func Call(id, name, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, name, args)}
}

// Reasoning makes a block of reasoning; opaque is what must come back to the
// vendor, "" = nothing.
func Reasoning(text, opaque string) llm.Block {
	b := llm.Block{Kind: llm.KindReasoning, Text: text}
	if opaque != "" {
		data, _ := json.Marshal(opaque) // a string always can
		b.Vendor = &llm.Vendor{Data: data}
	}
	return b
}

// awkward has what breaks naive cutting and escaping: several bytes a
// character, escapes, line separators, what looks like the wire.
const awkward = "Grüße, 世界 👩‍👩‍👧 \u2028 \"quoted\" \\ back\nslash\r\n\ndata: [DONE]\n\nevent: x\n{\"a\": 1} </script> \x7f end"

func replies(t *testing.T, d Driver) {
	usage := llm.Usage{Input: 120, Output: 34}
	f := d.Dialect.Facts()
	cases := []struct {
		name   string
		blocks []llm.Block
		skip   bool
	}{
		{"Text", []llm.Block{llm.Text("Hello.")}, false},
		{"AwkwardText", []llm.Block{llm.Text(awkward)}, false},
		{"OneCall", []llm.Block{Call("call_1", "read", `{"path":"a.txt"}`)}, false},
		{"CallWithoutArguments", []llm.Block{Call("call_1", "read", `{}`)}, false},
		{"AwkwardArguments", []llm.Block{Call("call_1", "write", jsonObject("text", awkward))}, false},
		{"NumbersKeepTheirDigits", []llm.Block{Call("call_1", "write", `{"n":12345678901234567890.10,"e":1E400}`)}, false},
		{"SeveralCalls", []llm.Block{Call("call_1", "read", `{"path":"a"}`), Call("call_2", "read", `{"path":"a"}`), Call("call_3", "write", `{"path":"b"}`)}, false},
		{"TextAndCalls", []llm.Block{llm.Text("I look."), Call("call_1", "read", `{"path":"a"}`), Call("call_2", "read", `{"path":"b"}`)}, false},
		{"RawArguments", []llm.Block{Call("call_1", "read", `{"path":"a`)}, false},
		{"LargeArguments", []llm.Block{Call("call_1", "write", jsonObject("text", strings.Repeat("0123456789abcde\n", 16<<10)))}, false},
		{"Reasoning", []llm.Block{Reasoning("I think "+awkward, "b3BhcXVl+/=="), llm.Text("So.")}, !f.Reasoning},
		{"ReasoningAndCalls", []llm.Block{Reasoning("I think", "b3BhcXVl"), llm.Text("So."), Call("call_1", "read", `{"path":"a"}`)}, !f.Reasoning},
		{"RedactedReasoning", []llm.Block{Reasoning("", "cmVkYWN0ZWQ="), llm.Text("So.")}, !f.Redacted},
	}
	for _, c := range cases {
		if c.skip {
			continue
		}
		for _, piece := range []int{1, 7, 1 << 20} {
			if c.name == "LargeArguments" {
				piece = max(piece, 4096) // or the wire is larger than a reply may be
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, piece), func(t *testing.T) {
				b := d.play(t, Reply{Blocks: c.blocks, Usage: usage, Piece: piece})
				resp, _ := b.ask(hello())
				b.sameBlocks(resp.Message, c.blocks)
				if diff := cmp.Diff(usage, resp.Usage); diff != "" {
					t.Errorf("usage (-said +understood):\n%s", diff)
				}
				if want := (Reply{Blocks: c.blocks}).StopOr(); resp.Stop != want {
					t.Errorf("stop %q, want %q", resp.Stop, want)
				}
				if resp.Model != testModel {
					t.Errorf("model %q, want the one that the server reported, %q", resp.Model, testModel)
				}
			})
		}
	}
	if !d.Whole {
		t.Run("DeltasComeAsTheyAreWritten", func(t *testing.T) { early(t, d) })
	}
	t.Run("Usage", func(t *testing.T) { usages(t, d) })
	t.Run("Stops", func(t *testing.T) { stops(t, d) })
}

func jsonObject(key, value string) string {
	text, _ := json.Marshal(map[string]string{key: value}) // strings always can
	return string(text)
}

// early: the first delta is there while the server holds the rest back.
func early(t *testing.T, d Driver) {
	b := d.play(t, Reply{Blocks: []llm.Block{llm.Text(strings.Repeat("word ", 200))}, Fault: Hang})
	for delta, err := range b.model.Stream(t.Context(), hello()) {
		if err != nil {
			t.Fatalf("no delta before the end: %v", err)
		}
		if delta.Kind == llm.DeltaText {
			return
		}
	}
	t.Error("no delta came")
}

func usages(t *testing.T, d Driver) {
	f := d.Dialect.Facts()
	want := llm.Usage{Input: 7, Output: 90, CacheRead: 1000}
	if f.Reasoning {
		want.Reasoning = 40
	}
	if f.CacheHintsMax > 0 {
		want.CacheWrite = 300
	}
	b := d.play(t, Reply{Blocks: []llm.Block{llm.Text("x")}, Usage: want})
	resp, _ := b.ask(hello())
	// Not every vendor tells how much of the output was reasoning.
	if resp.Usage.Reasoning == 0 {
		want.Reasoning = 0
	}
	if resp.Usage != want {
		t.Errorf("usage %+v, want %+v", resp.Usage, want)
	}
}

func stops(t *testing.T, d Driver) {
	for _, stop := range d.Dialect.Facts().Stops {
		blocks := []llm.Block{llm.Text("so far")}
		if stop == llm.StopTools {
			blocks = []llm.Block{Call("call_1", "read", `{"path":"a"}`)}
		}
		b := d.play(t, Reply{Blocks: blocks, Stop: stop})
		if resp, _ := b.ask(hello()); resp.Stop != stop {
			t.Errorf("stop %q was understood as %q", stop, resp.Stop)
		}
	}
}
