package llmtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/llm"
)

// This file is the server's side of the Chat Completions dialect, as the
// suite of model drivers needs it: a well-behaved server, strict in what it
// accepts. What real servers get wrong is on the tapes of llm/compat.
//
// All methods are pure.

// Chat is the dialect of Chat Completions with streamed reasoning and the
// opaque reasoning_details that OpenRouter made common.
type Chat struct{}

var _ Dialect = Chat{}

// Facts implements llmtest.Dialect.
func (Chat) Facts() Facts {
	return Facts{
		Dialect: "compat", Reasoning: true, Opaque: true, Redacted: true,
		Schema: true, Serial: true, Effort: true, Temperature: true, StopTexts: true, Media: true,
		Stops: []llm.Stop{llm.StopEnd, llm.StopTools, llm.StopLength, llm.StopFilter, llm.StopRefusal},
		Late:  true,
	}
}

type chatObject = map[string]any

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // our own maps and strings
	}
	return bytes.TrimSpace(b.Bytes())
}

// Answer implements llmtest.Dialect.
func (Chat) Answer(seen Seen, r Reply) Wire {
	if seen.Stream {
		return stream(seen, r)
	}
	message, finish := chatObject{"role": "assistant", "content": nil}, finishOf(r.StopOr())
	var text, reasoning string
	var calls, details []chatObject
	for _, b := range r.Blocks {
		switch b.Kind {
		case llm.KindText:
			text += b.Text
		case llm.KindReasoning:
			reasoning += b.Text
			if d := detail(b); d != nil {
				details = append(details, d)
			}
		case llm.KindCall:
			calls = append(calls, chatObject{"id": b.Call.ID, "type": "function", "function": chatObject{"name": b.Call.Name, "arguments": written(b.Call)}})
		}
	}
	set(message, "content", text)
	set(message, "reasoning", reasoning)
	if r.Stop == llm.StopRefusal {
		set(message, "refusal", "no")
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	if details != nil {
		message["reasoning_details"] = details
	}
	whole := chatHead(seen, "chat.completion")
	whole["choices"] = []chatObject{{"index": 0, "message": message, "finish_reason": finish}}
	whole["usage"] = usage(r.Usage)
	return Wire{Header: http.Header{"Content-Type": {"application/json"}}, Chunks: [][]byte{encode(whole)}}
}

func set(o chatObject, key, value string) {
	if value != "" {
		o[key] = value
	}
}

func chatHead(seen Seen, kind string) chatObject {
	sum := sha256.Sum256(seen.Body) // clients take two answers with one id for one message
	return chatObject{"id": fmt.Sprintf("chatcmpl-%x", sum[:8]), "object": kind, "created": 1750000000, "model": seen.Model}
}

func finishOf(stop llm.Stop) string {
	switch stop {
	case llm.StopTools:
		return "tool_calls"
	case llm.StopLength:
		return "length"
	case llm.StopFilter:
		return "content_filter"
	}
	return "stop"
}

func usage(u llm.Usage) chatObject {
	in := u.Input + u.CacheRead + u.CacheWrite
	return chatObject{
		"prompt_tokens": in, "completion_tokens": u.Output, "total_tokens": in + u.Output,
		"prompt_tokens_details":     chatObject{"cached_tokens": u.CacheRead},
		"completion_tokens_details": chatObject{"reasoning_tokens": u.Reasoning},
	}
}

// written is what the model wrote as arguments.
func written(c *llm.Call) string {
	var s string
	if c.Raw && json.Unmarshal(c.Args, &s) == nil {
		return s
	}
	return string(c.Args)
}

// chatOpaque returns the opaque text of a block.
func chatOpaque(b llm.Block) string {
	var s string
	if b.Vendor != nil {
		_ = json.Unmarshal(b.Vendor.Data, &s) // the suite's own
	}
	return s
}

// detail is a block of reasoning in the form that has to come back.
func detail(b llm.Block) chatObject {
	switch data := chatOpaque(b); {
	case data == "":
		return nil
	case b.Text == "":
		return chatObject{"type": "reasoning.encrypted", "data": data, "id": nil, "format": "test-v1", "index": 0}
	default:
		return chatObject{"type": "reasoning.text", "text": b.Text, "signature": data, "format": "test-v1", "index": 0}
	}
}

// pieces cuts s into runes' worth of at least n bytes: JSON cannot hold half
// a character.
func pieces(s string, n int) []string {
	var cut []string
	for len(s) > 0 {
		end := min(n, len(s))
		for end < len(s) && s[end]&0xC0 == 0x80 {
			end++
		}
		cut, s = append(cut, s[:end]), s[end:]
	}
	return cut
}

func stream(seen Seen, r Reply) Wire {
	w := Wire{Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}}
	data := func(v any) { w.Chunks = append(w.Chunks, []byte("data: "+string(encode(v))+"\n\n")) }
	chunk := func(delta chatObject, finish any) {
		c := chatHead(seen, "chat.completion.chunk")
		c["choices"] = []chatObject{{"index": 0, "delta": delta, "finish_reason": finish}}
		data(c)
	}
	chunk(chatObject{"role": "assistant", "content": ""}, nil)
	calls := 0
	for _, b := range r.Blocks {
		deltas(b, calls, r.PieceOr(), func(delta chatObject) { chunk(delta, nil) })
		if b.Kind == llm.KindCall {
			calls++
		}
	}
	if r.Stop == llm.StopRefusal {
		chunk(chatObject{"refusal": "no"}, nil)
	}
	chunk(chatObject{}, finishOf(r.StopOr()))
	if bytes.Contains(seen.Body, []byte(`"include_usage":true`)) {
		c := chatHead(seen, "chat.completion.chunk")
		c["choices"], c["usage"] = []chatObject{}, usage(r.Usage)
		data(c)
	}
	w.Chunks = append(w.Chunks, []byte("data: [DONE]\n\n"))
	return w
}

// deltas says one block in pieces; call is the number of the call.
func deltas(b llm.Block, call, n int, say func(chatObject)) {
	switch b.Kind {
	case llm.KindText:
		for _, p := range pieces(b.Text, n) {
			say(chatObject{"content": p})
		}
	case llm.KindReasoning:
		whole := detail(b)
		for _, p := range pieces(b.Text, n) {
			delta := chatObject{"reasoning": p}
			if whole != nil {
				delta["reasoning_details"] = []chatObject{{"type": "reasoning.text", "text": p, "format": "test-v1", "index": 0}}
			}
			say(delta)
		}
		if whole != nil {
			delete(whole, "text")
			say(chatObject{"reasoning_details": []chatObject{whole}})
		}
	case llm.KindCall:
		say(chatObject{"tool_calls": []chatObject{{"index": call, "id": b.Call.ID, "type": "function", "function": chatObject{"name": b.Call.Name, "arguments": ""}}}})
		for _, p := range pieces(written(b.Call), n) {
			say(chatObject{"tool_calls": []chatObject{{"index": call, "function": chatObject{"arguments": p}}}})
		}
	}
}

// Failure implements llmtest.Dialect.
func (Chat) Failure(f Failure) Wire {
	status, header := statusOf(f), http.Header{"Content-Type": {"application/json"}}
	if f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
	}
	return Wire{Status: status, Header: header, Chunks: [][]byte{encode(body(f))}}
}

// Late implements llmtest.Dialect.
func (Chat) Late(f Failure) []byte {
	return []byte("data: " + string(encode(body(f))) + "\n\n")
}

func body(f Failure) chatObject {
	text := f.Text
	if text == "" {
		text = wording(f.Trouble)
	}
	return chatObject{"error": chatObject{"message": text, "type": kindOf(f.Trouble), "param": nil, "code": statusOf(f)}}
}

func statusOf(f Failure) int {
	if f.Status != 0 {
		return f.Status
	}
	switch f.Trouble {
	case llm.Refused:
		return http.StatusUnauthorized
	case llm.RateLimited:
		return http.StatusTooManyRequests
	case llm.Overloaded:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func wording(t llm.Trouble) string {
	switch t {
	case llm.Overflow:
		return "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."
	case llm.Refused:
		return "Incorrect API key provided."
	case llm.RateLimited:
		return "Rate limit reached."
	case llm.Overloaded:
		return "The server is overloaded."
	}
	return "The request is not valid."
}

func kindOf(t llm.Trouble) string {
	switch t {
	case llm.Overloaded:
		return "server_error"
	case llm.RateLimited:
		return "rate_limit_error"
	}
	return "invalid_request_error"
}

func bearer(h http.Header) string { return strings.TrimPrefix(h.Get("Authorization"), "Bearer ") }
