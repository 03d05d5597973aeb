package llmtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/llm"
)

// This file is the server's side of Anthropic's Messages API for
// llmtest: it refuses what the vendor refuses, and streams what it streams.

// Anthropic implements llmtest.Dialect.
type Anthropic struct{}

// Facts implements llmtest.Dialect. Temperature and StopTexts are missing: the
// vendor refuses the first together with thinking, and blank stop texts, and
// the suite asks for all of that in one request.
func (Anthropic) Facts() Facts {
	return Facts{
		Dialect: "anthropic", Reasoning: true, Opaque: true, Redacted: true, Ordered: true,
		CacheHintsMax: 4, Schema: true, Serial: true, Effort: true,
		Media: true, MediaInResults: true, FailedResults: true, Late: true,
		Stops: []llm.Stop{llm.StopEnd, llm.StopTools, llm.StopLength, llm.StopRefusal, llm.StopPause},
	}
}

type request struct {
	Model        string    `json:"model"`
	MaxTokens    int       `json:"max_tokens"`
	Stream       bool      `json:"stream"`
	System       []block   `json:"system"`
	Messages     []message `json:"messages"`
	Tools        []tool    `json:"tools"`
	ToolChoice   *choice   `json:"tool_choice"`
	Temperature  *float64  `json:"temperature"`
	Stop         []string  `json:"stop_sequences"`
	Thinking     *thinking `json:"thinking"`
	OutputConfig *struct {
		Effort string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

type block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Thinking  *string         `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   []block         `json:"content"`
	IsError   bool            `json:"is_error"`
	Source    *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
	Cache *struct {
		Type string `json:"type"`
	} `json:"cache_control"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

type choice struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Serial bool   `json:"disable_parallel_tool_use"`
}

type thinking struct {
	Type    string `json:"type"`
	Budget  int    `json:"budget_tokens"`
	Display string `json:"display"`
	Binding *struct {
		Mismatch string `json:"prefix_mismatch_behavior"`
	} `json:"block_binding"`
}

// Parse implements llmtest.Dialect.
func (Anthropic) Parse(r *http.Request, body []byte) (Seen, error) {
	seen := Seen{Key: r.Header.Get("X-Api-Key")}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		return seen, fmt.Errorf("%s %s", r.Method, r.URL.Path)
	}
	if r.Header.Get("Anthropic-Version") == "" {
		return seen, errors.New("anthropic-version: header is required")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var req request
	if err := dec.Decode(&req); err != nil {
		return seen, err
	}
	seen.Model, seen.Stream = req.Model, req.Stream
	return seen, req.neutral(&seen.Request)
}

func (r *request) neutral(out *llm.Request) error {
	if r.Model == "" || r.MaxTokens <= 0 || !r.Stream || len(r.Messages) == 0 {
		return errors.New("model, max_tokens, stream, messages: field required")
	}
	out.OutputTokensMax, out.Temperature, out.Stop = r.MaxTokens, r.Temperature, r.Stop
	hints := 0
	for i, b := range r.System {
		if err := b.valid(); err != nil || b.Type != "text" {
			return fmt.Errorf("system.%d: %q %w", i, b.Type, err)
		}
		out.System = append(out.System, llm.Block{Kind: llm.KindText, Text: *b.Text, Cache: b.Cache != nil})
		hints += b.hint()
	}
	for _, t := range r.Tools {
		if t.Name == "" || !json.Valid(t.Schema) || t.Schema[0] != '{' {
			return errors.New("tools: name and input_schema: field required")
		}
		out.Tools = append(out.Tools, llm.ToolSpec(t))
	}
	if err := r.settings(out); err != nil {
		return err
	}
	messages, n, err := anthropicHistory(r.Messages)
	if err != nil {
		return err
	}
	if hints += n; hints > 4 {
		return fmt.Errorf("a maximum of 4 blocks with cache_control may be provided. Found %d", hints)
	}
	out.Messages = messages
	return nil
}

func (r *request) settings(out *llm.Request) error {
	if c := r.OutputConfig; c != nil {
		out.Effort = c.Effort
		if c.Format != nil {
			if c.Format.Type != "json_schema" {
				return errors.New("output_config.format.type")
			}
			out.Schema = &llm.Schema{Schema: c.Format.Schema}
		}
	}
	if t := r.Thinking; t != nil {
		switch {
		case t.Type == "enabled" && (t.Budget < 1024 || t.Budget >= r.MaxTokens):
			return errors.New("thinking.budget_tokens: at least 1024 and less than max_tokens")
		case t.Type != "enabled" && t.Type != "adaptive":
			return errors.New("thinking.type")
		case r.Temperature != nil && *r.Temperature != 1:
			return errors.New("temperature may only be set to 1 when thinking is enabled")
		case r.ToolChoice != nil && (r.ToolChoice.Type == "any" || r.ToolChoice.Type == "tool"):
			return errors.New("thinking may not be enabled when tool_choice forces tool use")
		}
	}
	for _, s := range r.Stop {
		if strings.TrimSpace(s) == "" {
			return errors.New("stop_sequences: each stop sequence must contain non-whitespace")
		}
	}
	if c := r.ToolChoice; c != nil {
		if len(r.Tools) == 0 {
			return errors.New("tool_choice may only be specified while providing tools")
		}
		mode, ok := map[string]llm.ChoiceMode{"auto": llm.ChoiceAuto, "any": llm.ChoiceAny, "none": llm.ChoiceNone, "tool": llm.ChoiceTool}[c.Type]
		if !ok {
			return errors.New("tool_choice.type")
		}
		out.Choice, out.Serial = llm.Choice{Mode: mode, Name: c.Name}, c.Serial
	}
	return nil
}

// anthropicHistory checks messages as the vendor does, and returns them with the number
// of their cache hints.
func anthropicHistory(in []message) (out []llm.Message, hints int, err error) {
	open := map[string]bool{} // calls of the message before
	for i, m := range in {
		if m.Role != "user" && m.Role != "assistant" {
			return nil, 0, fmt.Errorf("messages.%d.role", i)
		}
		if len(m.Content) == 0 {
			return nil, 0, fmt.Errorf("messages.%d: all messages must have non-empty content", i)
		}
		if i > 0 && in[i-1].Role == m.Role {
			return nil, 0, fmt.Errorf("messages.%d: roles must alternate", i)
		}
		msg := llm.Message{Role: llm.Role(m.Role)}
		calls := map[string]bool{}
		text := false
		for j, b := range m.Content {
			at := fmt.Sprintf("messages.%d.content.%d", i, j)
			if err := b.valid(); err != nil {
				return nil, 0, fmt.Errorf("%s: %w", at, err)
			}
			switch b.Type {
			case "tool_use":
				if m.Role != "assistant" || calls[b.ID] {
					return nil, 0, fmt.Errorf("%s: tool_use ids must be unique, of the assistant", at)
				}
				calls[b.ID] = true
			case "tool_result":
				if m.Role != "user" || text || !open[b.ToolUseID] {
					return nil, 0, fmt.Errorf("%s: unexpected tool_use_id found in tool_result blocks: %s", at, b.ToolUseID)
				}
				delete(open, b.ToolUseID)
			case "thinking", "redacted_thinking":
				if m.Role != "assistant" {
					return nil, 0, fmt.Errorf("%s: thinking of the user", at)
				}
			default:
				text = true
			}
			if b.hint() > 0 {
				hints++
				msg.Cache = true
			}
			msg.Blocks = append(msg.Blocks, b.neutral())
		}
		if len(open) > 0 {
			return nil, 0, fmt.Errorf("messages.%d: tool_use ids were found without tool_result blocks immediately after: %v", i, open)
		}
		open = calls
		out = append(out, msg)
	}
	if len(open) > 0 {
		return nil, 0, errors.New("the last calls have no results")
	}
	return out, hints, nil
}

func (b block) hint() int {
	if b.Cache == nil {
		return 0
	}
	return 1
}

func (b block) valid() error {
	if b.Cache != nil && (b.Cache.Type != "ephemeral" || strings.Contains(b.Type, "thinking")) {
		return errors.New("cache_control")
	}
	switch b.Type {
	case "text":
		if b.Text == nil || strings.TrimSpace(*b.Text) == "" {
			return errors.New("text content blocks must contain non-whitespace text")
		}
	case "thinking":
		if b.Thinking == nil || b.Signature == "" {
			return errors.New("thinking.signature: field required")
		}
	case "redacted_thinking":
		if b.Data == "" {
			return errors.New("redacted_thinking.data: field required")
		}
	case "tool_use":
		if b.ID == "" || b.Name == "" || len(b.Input) == 0 || b.Input[0] != '{' {
			return errors.New("tool_use.input: input should be a valid dictionary")
		}
	case "tool_result":
		for _, c := range b.Content {
			if c.Type != "text" && c.Type != "image" && c.Type != "document" {
				return fmt.Errorf("tool_result.content: %q", c.Type)
			}
			if err := c.valid(); err != nil {
				return err
			}
		}
	case "image", "document":
		if b.Source == nil || b.Source.Type != "base64" || b.Source.MediaType == "" {
			return errors.New("source: field required")
		}
		if _, err := base64.StdEncoding.DecodeString(b.Source.Data); err != nil {
			return err
		}
	default:
		return fmt.Errorf("input tag %q does not match any of the expected tags", b.Type)
	}
	return nil
}

func (b block) neutral() llm.Block {
	switch b.Type {
	case "thinking":
		return Reasoning(*b.Thinking, b.Signature)
	case "redacted_thinking":
		return Reasoning("", b.Data)
	case "tool_use":
		return Call(b.ID, b.Name, string(b.Input))
	case "tool_result":
		r := &llm.Result{CallID: b.ToolUseID, Failed: b.IsError}
		for _, c := range b.Content {
			r.Blocks = append(r.Blocks, c.neutral())
		}
		return llm.Block{Kind: llm.KindResult, Result: r}
	case "image", "document":
		data, _ := base64.StdEncoding.DecodeString(b.Source.Data) // valid has tried it
		return llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: b.Source.MediaType, Data: data}}
	}
	return llm.Text(*b.Text)
}

// object is JSON with the keys in the order that encoding/json gives them.
type object map[string]any

func event(name string, data object) []byte {
	data["type"] = name
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
}

// Answer implements llmtest.Dialect.
func (Anthropic) Answer(seen Seen, r Reply) Wire {
	w := Wire{Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}, "Request-Id": {"req_1"}}}
	add := func(name string, data object) { w.Chunks = append(w.Chunks, event(name, data)) }
	add("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "content": []any{}, "model": seen.Model, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": r.Usage.Input, "cache_read_input_tokens": r.Usage.CacheRead, "cache_creation_input_tokens": r.Usage.CacheWrite, "output_tokens": 1},
	}})
	add("ping", object{})
	for i, b := range r.Blocks {
		start, deltas := content(b, r.PieceOr())
		add("content_block_start", object{"index": i, "content_block": start})
		for _, d := range deltas {
			add("content_block_delta", object{"index": i, "delta": d})
		}
		add("content_block_stop", object{"index": i})
	}
	usage := object{"output_tokens": r.Usage.Output}
	if r.Usage.Reasoning > 0 {
		usage["output_tokens_details"] = object{"thinking_tokens": r.Usage.Reasoning}
	}
	add("message_delta", object{"delta": object{"stop_reason": reasons[r.StopOr()], "stop_sequence": nil}, "usage": usage})
	add("message_stop", object{})
	return w
}

var reasons = map[llm.Stop]string{
	llm.StopEnd: "end_turn", llm.StopTools: "tool_use", llm.StopLength: "max_tokens",
	llm.StopRefusal: "refusal", llm.StopPause: "pause_turn",
}

func content(b llm.Block, piece int) (start object, deltas []object) {
	grow := func(kind, field, text string) {
		for len(text) > 0 {
			n := min(piece, len(text))
			for n < len(text) && !utf8.RuneStart(text[n]) {
				n++
			}
			deltas = append(deltas, object{"type": kind, field: text[:n]})
			text = text[n:]
		}
	}
	switch b.Kind {
	case llm.KindReasoning:
		opaque := ""
		if b.Vendor != nil {
			_ = json.Unmarshal(b.Vendor.Data, &opaque) // a JSON string by the suite's contract
		}
		if b.Text == "" {
			return object{"type": "redacted_thinking", "data": opaque}, nil
		}
		grow("thinking_delta", "thinking", b.Text)
		grow("signature_delta", "signature", opaque)
		return object{"type": "thinking", "thinking": "", "signature": ""}, deltas
	case llm.KindCall:
		written := string(b.Call.Args)
		if b.Call.Raw {
			_ = json.Unmarshal(b.Call.Args, &written) // a JSON string by llm's contract
		}
		if written != "{}" {
			grow("input_json_delta", "partial_json", written)
		}
		return object{"type": "tool_use", "id": b.Call.ID, "name": b.Call.Name, "input": object{}}, deltas
	}
	grow("text_delta", "text", b.Text)
	return object{"type": "text", "text": ""}, deltas
}

// Failure implements llmtest.Dialect.
func (Anthropic) Failure(f Failure) Wire {
	status, kind, text := failure(f)
	body, _ := json.Marshal(object{"type": "error", "error": object{"type": kind, "message": text}, "request_id": "req_1"}) // strings only
	w := Wire{Status: status, Header: http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_1"}}, Chunks: [][]byte{body}}
	if f.RetryAfter > 0 {
		w.Header.Set("Retry-After", fmt.Sprint(int(f.RetryAfter.Seconds())))
	}
	return w
}

// Late implements llmtest.Dialect.
func (Anthropic) Late(f Failure) []byte {
	_, kind, text := failure(f)
	return event("error", object{"error": object{"type": kind, "message": text}})
}

func failure(f Failure) (status int, kind, text string) {
	switch f.Trouble {
	case llm.RateLimited:
		status, kind, text = 429, "rate_limit_error", "This request would exceed your organization's rate limit."
	case llm.Overloaded:
		status, kind, text = 529, "overloaded_error", "Overloaded"
		if f.Status != 0 && f.Status != 529 {
			kind, text = "api_error", "Internal server error"
		}
	case llm.Overflow:
		status, kind, text = 400, "invalid_request_error", "prompt is too long: 214315 tokens > 200000 maximum"
	case llm.Refused:
		status, kind, text = 401, "authentication_error", "invalid x-api-key"
		if f.Status == 403 {
			kind, text = "permission_error", "Your API key does not have permission to use the specified resource."
		}
	default:
		status, kind, text = 400, "invalid_request_error", "max_tokens: 9 > 8, which is the maximum allowed"
		if f.Status == 404 {
			kind, text = "not_found_error", "model: no such model"
		}
	}
	if f.Status != 0 {
		status = f.Status
	}
	if f.Text != "" {
		text = f.Text
	}
	return status, kind, text
}
