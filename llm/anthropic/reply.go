package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// event is what this package reads of a stream's events.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	Block json.RawMessage `json:"content_block"`
	Delta struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
		JSON      string `json:"partial_json"`
		Stop      string `json:"stop_reason"`
	} `json:"delta"`
	Usage usage  `json:"usage"`
	Error apiErr `json:"error"`
}

// usage counts what is so far. A field that is absent or null says nothing.
type usage struct {
	Input      *int `json:"input_tokens"`
	Output     *int `json:"output_tokens"`
	CacheRead  *int `json:"cache_read_input_tokens"`
	CacheWrite *int `json:"cache_creation_input_tokens"`
	Details    struct {
		Thinking *int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func parseEvent(data []byte) (event, error) {
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return ev, fmt.Errorf("an event is no JSON of an event: %w", err)
	}
	return ev, nil
}

// blocksMax bounds the content blocks of an answer.
const blocksMax = 4096

// tokenBytes is how many bytes a token is taken for where the server counts none.
const tokenBytes = 4

// assembly puts an answer together.
type assembly struct {
	yield func(llm.Delta) bool
	id    string // the model that was asked
	sent  int    // bytes of the request
	heard int    // bytes of text, thinking and arguments

	begun  bool // message_start came
	model  string
	blocks []*block
	calls  int
	usage  llm.Usage
	stop   string
}

// block is a content block on its way.
type block struct {
	kind      string
	text      strings.Builder // of text, thinking or arguments
	signature strings.Builder
	start     json.RawMessage // as content_block_start had it
	id, name  string
	call      int // which call of the answer
}

// add takes an event; done at the end of the message. An error means that the
// stream makes no sense, or errLeft.
func (a *assembly) add(ev event) (done bool, err error) {
	switch ev.Type {
	case "message_start":
		a.begun = true
		a.model = ev.Message.Model
		a.count(ev.Message.Usage)
	case "content_block_start":
		return false, a.open(ev)
	case "content_block_delta":
		return false, a.grow(ev)
	case "message_delta":
		a.count(ev.Usage)
		if ev.Delta.Stop != "" {
			a.stop = ev.Delta.Stop
		}
	case "message_stop":
		if !a.begun {
			return false, errors.New("the message ends before it begins")
		}
		return true, nil
	}
	return false, nil // pings, and what the vendor adds later
}

func (a *assembly) count(u usage) {
	for _, c := range []struct {
		from *int
		to   *int
	}{
		{u.Input, &a.usage.Input},
		{u.Output, &a.usage.Output},
		{u.CacheRead, &a.usage.CacheRead},
		{u.CacheWrite, &a.usage.CacheWrite},
		{u.Details.Thinking, &a.usage.Reasoning},
	} {
		if c.from != nil && *c.from >= 0 {
			*c.to = *c.from
		}
	}
}

func (a *assembly) open(ev event) error {
	if !a.begun {
		return errors.New("a block begins before the message")
	}
	if ev.Index != len(a.blocks) || ev.Index >= blocksMax {
		return fmt.Errorf("block %d follows %d blocks", ev.Index, len(a.blocks))
	}
	var start struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(ev.Block, &start); err != nil {
		return fmt.Errorf("block %d: %w", ev.Index, err)
	}
	b := &block{kind: start.Type, start: ev.Block, id: start.ID, name: start.Name}
	a.blocks = append(a.blocks, b)
	switch start.Type {
	case "text":
		return a.say(llm.DeltaText, b, start.Text)
	case "thinking":
		b.signature.WriteString(start.Signature)
		return a.say(llm.DeltaReasoning, b, start.Thinking)
	case "tool_use":
		b.call = a.calls
		a.calls++
		if !a.yield(llm.Delta{Kind: llm.DeltaCall, Index: b.call, Name: b.name}) {
			return errLeft
		}
		if in := strings.TrimSpace(string(start.Input)); in != "" && in != "{}" && in != "null" {
			return a.say(llm.DeltaArgs, b, in) // gateways that do not stream arguments
		}
	}
	return nil
}

func (a *assembly) grow(ev event) error {
	if ev.Index < 0 || ev.Index >= len(a.blocks) {
		return fmt.Errorf("a delta of block %d, which did not begin", ev.Index)
	}
	b := a.blocks[ev.Index]
	switch {
	case ev.Delta.Type == "text_delta" && b.kind == "text":
		return a.say(llm.DeltaText, b, ev.Delta.Text)
	case ev.Delta.Type == "thinking_delta" && b.kind == "thinking":
		return a.say(llm.DeltaReasoning, b, ev.Delta.Thinking)
	case ev.Delta.Type == "signature_delta" && b.kind == "thinking":
		b.signature.WriteString(ev.Delta.Signature)
	case ev.Delta.Type == "input_json_delta" && b.kind == "tool_use":
		return a.say(llm.DeltaArgs, b, ev.Delta.JSON)
	}
	return nil
}

func (a *assembly) say(kind llm.DeltaKind, b *block, text string) error {
	if text == "" {
		return nil
	}
	b.text.WriteString(text)
	a.heard += len(text)
	if !a.yield(llm.Delta{Kind: kind, Index: b.call, Text: text}) {
		return errLeft
	}
	return nil
}

func (a *assembly) response() llm.Response {
	r := llm.Response{Message: llm.Message{Role: llm.RoleAssistant}, Usage: a.usage, Model: a.model}
	if r.Model == "" {
		r.Model = a.id
	}
	for _, b := range a.blocks {
		if block, ok := b.neutral(); ok {
			r.Message.Blocks = append(r.Message.Blocks, block)
		}
	}
	if a.usage == (llm.Usage{}) { // a gateway that does not count
		r.Usage = llm.Usage{Input: a.sent / tokenBytes, Output: (a.heard + tokenBytes - 1) / tokenBytes, Estimated: true}
	}
	r.Stop = stopOf(a.stop, a.calls > 0)
	return r
}

// neutral returns the block in our form; not ok for kinds that were not asked for.
func (b *block) neutral() (llm.Block, bool) {
	switch b.kind {
	case "text":
		return llm.Text(b.text.String()), b.text.Len() > 0
	case "thinking":
		return llm.Block{Kind: llm.KindReasoning, Text: b.text.String(), Vendor: b.thinking()}, true
	case "redacted_thinking":
		return llm.Block{Kind: llm.KindReasoning, Vendor: &llm.Vendor{Dialect: dialect, Data: b.start}}, true
	case "tool_use":
		return llm.Block{Kind: llm.KindCall, Call: llm.NewCall(b.id, b.name, b.text.String())}, true
	}
	return llm.Block{}, false
}

// thinking returns what the vendor wants back. A signature comes last: without
// it the block was cut off, and would be refused.
func (b *block) thinking() *llm.Vendor {
	if b.signature.Len() == 0 {
		return nil
	}
	data := []byte(`{"type":"thinking","thinking":`)
	data = fault.AppendString(data, b.text.String())
	data = append(data, `,"signature":`...)
	data = fault.AppendString(data, b.signature.String())
	return &llm.Vendor{Dialect: dialect, Data: append(data, '}')}
}

func stopOf(reason string, calls bool) llm.Stop {
	switch reason {
	case "max_tokens", "model_context_window_exceeded":
		return llm.StopLength
	case "refusal":
		return llm.StopRefusal
	case "pause_turn":
		return llm.StopPause
	}
	if calls { // whatever the reason says: results are waited for
		return llm.StopTools
	}
	return llm.StopEnd
}
