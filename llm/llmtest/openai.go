package llmtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/llm"
)

// This file is the server's side of OpenAI's Responses API for
// llmtest: it refuses what the vendor refuses, and streams what it streams.

// OpenAI implements llmtest.Dialect.
type OpenAI struct{}

// Facts implements llmtest.Dialect. Temperature is missing because reasoning
// models, as which an unknown one is taken, refuse it.
func (OpenAI) Facts() Facts {
	return Facts{
		Dialect: "openai", Reasoning: true, Opaque: true, Redacted: true, Ordered: true,
		CacheKey: true, Schema: true, Serial: true, Effort: true,
		Media: true, MediaInResults: true, Late: true,
		Stops: []llm.Stop{llm.StopEnd, llm.StopTools, llm.StopLength, llm.StopFilter, llm.StopRefusal},
	}
}

type openaiRequest struct {
	Model        string            `json:"model"`
	Stream       bool              `json:"stream"`
	Store        *bool             `json:"store"`
	Include      []string          `json:"include"`
	Instructions string            `json:"instructions"`
	Input        []json.RawMessage `json:"input"`
	Tools        []openaiTool      `json:"tools"`
	ToolChoice   json.RawMessage   `json:"tool_choice"`
	Parallel     *bool             `json:"parallel_tool_calls"`
	Temperature  *float64          `json:"temperature"`
	OutputMax    *int              `json:"max_output_tokens"`
	CacheKey     string            `json:"prompt_cache_key"`
	Reasoning    *struct {
		Effort  string `json:"effort"`
		Summary string `json:"summary"`
	} `json:"reasoning"`
	Text *struct {
		Format *struct {
			Type   string          `json:"type"`
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict bool            `json:"strict"`
		} `json:"format"`
	} `json:"text"`
}

type openaiTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// item is an input item of any kind.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Phase     string          `json:"phase"`
	Content   json.RawMessage `json:"content"`
	Summary   *[]part         `json:"summary"`
	Encrypted string          `json:"encrypted_content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments *string         `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

type part struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	ImageURL    string `json:"image_url"`
	Detail      string `json:"detail"`
	Filename    string `json:"filename"`
	FileData    string `json:"file_data"`
	Annotations []any  `json:"annotations"`
}

func strictly(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// Parse implements llmtest.Dialect.
func (OpenAI) Parse(r *http.Request, body []byte) (Seen, error) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	seen := Seen{Key: key}
	if r.Method != http.MethodPost || r.URL.Path != "/responses" {
		return seen, fmt.Errorf("%s %s", r.Method, r.URL.Path)
	}
	var req openaiRequest
	if err := strictly(body, &req); err != nil {
		return seen, err
	}
	seen.Model, seen.Stream = req.Model, req.Stream
	return seen, req.neutral(&seen.Request)
}

func (r *openaiRequest) neutral(out *llm.Request) error {
	if r.Model == "" || !r.Stream || len(r.Input) == 0 {
		return errors.New("missing required parameter: model, stream or input")
	}
	if r.Store == nil || *r.Store {
		return errors.New("the suite wants store=false")
	}
	if r.Instructions != "" {
		out.System = []llm.Block{llm.Text(r.Instructions)}
	}
	if r.OutputMax != nil {
		if out.OutputTokensMax = *r.OutputMax; out.OutputTokensMax < 16 {
			return errors.New("invalid 'max_output_tokens': integer below minimum value")
		}
	}
	out.Temperature, out.CacheKey = r.Temperature, r.CacheKey
	if len(r.CacheKey) > 64 {
		return errors.New("invalid 'prompt_cache_key': string too long")
	}
	out.Serial = r.Parallel != nil && !*r.Parallel
	if r.Reasoning != nil {
		out.Effort = r.Reasoning.Effort
	}
	if r.Text != nil && r.Text.Format != nil {
		f := r.Text.Format
		if f.Type != "json_schema" || f.Name == "" || !json.Valid(f.Schema) {
			return errors.New("text.format")
		}
		out.Schema = &llm.Schema{Name: f.Name, Schema: f.Schema}
	}
	for _, t := range r.Tools {
		if t.Type != "function" || t.Name == "" || t.Strict == nil || !json.Valid(t.Parameters) {
			return errors.New("tools: type, name, parameters, strict")
		}
		out.Tools = append(out.Tools, llm.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Parameters})
	}
	if err := r.choice(out); err != nil {
		return err
	}
	messages, err := openaiHistory(r.Input)
	out.Messages = messages
	return err
}

func (r *openaiRequest) choice(out *llm.Request) error {
	var mode string
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	switch {
	case len(r.ToolChoice) == 0:
		return nil
	case len(r.Tools) == 0:
		return errors.New("tool choice is only allowed when 'tools' are specified")
	case json.Unmarshal(r.ToolChoice, &mode) == nil:
		known := map[string]llm.ChoiceMode{"auto": llm.ChoiceAuto, "none": llm.ChoiceNone, "required": llm.ChoiceAny}
		m, ok := known[mode]
		if !ok {
			return fmt.Errorf("tool_choice: %q", mode)
		}
		out.Choice.Mode = m
	case strictly(r.ToolChoice, &named) == nil && named.Type == "function" && named.Name != "":
		out.Choice = llm.Choice{Mode: llm.ChoiceTool, Name: named.Name}
	default:
		return errors.New("tool_choice")
	}
	return nil
}

// openaiHistory checks the items as the vendor does.
func openaiHistory(raws []json.RawMessage) ([]llm.Message, error) {
	var out []llm.Message
	ids := map[string]bool{}
	open, known := map[string]bool{}, map[string]bool{}
	reasoning := "" // an item that waits for what it led to
	for i, raw := range raws {
		var it item
		if err := strictly(raw, &it); err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
		if it.ID != "" && ids[it.ID] {
			return nil, fmt.Errorf("input[%d]: Duplicate item found with id %s", i, it.ID)
		}
		ids[it.ID] = true
		role, block, err := it.neutral()
		if err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
		switch it.Type {
		case "reasoning":
			reasoning = it.ID
		case "function_call":
			known[it.CallID], open[it.CallID] = true, true
		case "function_call_output":
			if !known[it.CallID] {
				return nil, fmt.Errorf("input[%d]: No tool call found for function call output with call_id %s", i, it.CallID)
			}
			delete(open, it.CallID)
		}
		if reasoning != "" && role == llm.RoleUser {
			return nil, fmt.Errorf("item '%s' of type 'reasoning' was provided without its required following item", reasoning)
		}
		if it.Type != "reasoning" {
			reasoning = ""
		}
		out = append(out, llm.Message{Role: role, Blocks: block})
	}
	if reasoning != "" {
		return nil, fmt.Errorf("item '%s' of type 'reasoning' was provided without its required following item", reasoning)
	}
	for id := range open {
		return nil, fmt.Errorf("no tool output found for function call %s", id)
	}
	return out, nil
}

func (it item) neutral() (llm.Role, []llm.Block, error) {
	switch it.Type {
	case "message":
		return it.message()
	case "reasoning":
		if it.ID == "" || it.Summary == nil || it.Encrypted == "" {
			return "", nil, errors.New("reasoning needs id, summary and, with store=false, encrypted_content")
		}
		var text strings.Builder
		for i, p := range *it.Summary {
			if i > 0 {
				text.WriteString("\n\n")
			}
			text.WriteString(p.Text)
		}
		return llm.RoleAssistant, []llm.Block{Reasoning(text.String(), it.Encrypted)}, nil
	case "function_call":
		if it.CallID == "" || it.Name == "" || it.Arguments == nil {
			return "", nil, errors.New("function_call needs call_id, name, arguments")
		}
		return llm.RoleAssistant, []llm.Block{Call(it.CallID, it.Name, *it.Arguments)}, nil
	case "function_call_output":
		if it.CallID == "" || len(it.Output) == 0 {
			return "", nil, errors.New("function_call_output needs call_id, output")
		}
		blocks, err := openaiContent(it.Output, "input_text")
		return llm.RoleUser, []llm.Block{{Kind: llm.KindResult, Result: &llm.Result{CallID: it.CallID, Blocks: blocks}}}, err
	}
	return "", nil, fmt.Errorf("invalid value: %q", it.Type)
}

func (it item) message() (llm.Role, []llm.Block, error) {
	if len(it.Content) == 0 {
		return "", nil, errors.New("content is required")
	}
	if it.Role == "user" {
		blocks, err := openaiContent(it.Content, "input_text")
		return llm.RoleUser, blocks, err
	}
	if it.Role != "assistant" {
		return "", nil, fmt.Errorf("role %q", it.Role)
	}
	if it.ID != "" && it.Status == "" {
		return "", nil, errors.New("a message with an id has a status")
	}
	blocks, err := openaiContent(it.Content, "output_text")
	return llm.RoleAssistant, blocks, err
}

func openaiContent(raw json.RawMessage, kind string) ([]llm.Block, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []llm.Block{llm.Text(text)}, nil
	}
	var parts []part
	if err := strictly(raw, &parts); err != nil {
		return nil, err
	}
	var blocks []llm.Block
	for _, p := range parts {
		data := p.ImageURL
		switch p.Type {
		case kind:
			blocks = append(blocks, llm.Text(p.Text))
			continue
		case "input_image":
		case "input_file":
			data = p.FileData
		default:
			return nil, fmt.Errorf("invalid value: %q", p.Type)
		}
		head, encoded, ok := strings.Cut(strings.TrimPrefix(data, "data:"), ";base64,")
		bytes, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			return nil, errors.New("no data URL")
		}
		blocks = append(blocks, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: head, Data: bytes}})
	}
	return blocks, nil
}

// openaiObject is JSON with the keys in the order that encoding/json gives them.
type openaiObject map[string]any

// openaiStream numbers the events of an answer.
type openaiStream struct {
	chunks [][]byte
}

func (s *openaiStream) add(name string, data openaiObject) {
	data["type"], data["sequence_number"] = name, len(s.chunks)
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // strings and numbers only
	}
	s.chunks = append(s.chunks, fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text))
}

// Answer implements llmtest.Dialect.
func (OpenAI) Answer(seen Seen, r Reply) Wire {
	var s openaiStream
	response := openaiObject{"id": "resp_1", "object": "response", "status": "in_progress", "model": seen.Model, "output": []any{}, "usage": nil, "error": nil}
	s.add("response.created", openaiObject{"response": response})
	s.add("response.in_progress", openaiObject{"response": response})
	output := []any{}
	for i, b := range r.Blocks {
		output = append(output, s.item(i, b, r))
	}
	u := r.Usage
	end := openaiObject{
		"id": "resp_1", "object": "response", "status": "completed", "model": seen.Model, "output": output, "error": nil, "incomplete_details": nil,
		"usage": openaiObject{
			"input_tokens": u.Input + u.CacheRead + u.CacheWrite, "output_tokens": u.Output, "total_tokens": u.Total(),
			"input_tokens_details":  openaiObject{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite},
			"output_tokens_details": openaiObject{"reasoning_tokens": u.Reasoning},
		},
	}
	if reason := map[llm.Stop]string{llm.StopLength: "max_output_tokens", llm.StopFilter: "content_filter"}[r.StopOr()]; reason != "" {
		end["status"], end["incomplete_details"] = "incomplete", openaiObject{"reason": reason}
	}
	s.add("response."+end["status"].(string), openaiObject{"response": end})
	return Wire{Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}, "X-Request-Id": {"req_1"}}, Chunks: s.chunks}
}

func (s *openaiStream) item(i int, b llm.Block, r Reply) openaiObject {
	switch b.Kind {
	case llm.KindReasoning:
		return s.reasoning(i, b, r.PieceOr())
	case llm.KindCall:
		return s.call(i, b.Call, r.PieceOr())
	}
	return s.message(i, b.Text, r)
}

func (s *openaiStream) pieces(text string, piece int, name string, at openaiObject) {
	for len(text) > 0 {
		n := min(piece, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		data := openaiObject{"delta": text[:n]}
		maps.Copy(data, at)
		s.add(name, data)
		text = text[n:]
	}
}

func (s *openaiStream) reasoning(i int, b llm.Block, piece int) openaiObject {
	id := fmt.Sprint("rs_", i)
	opaque := ""
	if b.Vendor != nil {
		_ = json.Unmarshal(b.Vendor.Data, &opaque) // a JSON string by the suite's contract
	}
	summary := []any{}
	s.add("response.output_item.added", openaiObject{"output_index": i, "item": openaiObject{"type": "reasoning", "id": id, "summary": summary, "encrypted_content": ""}})
	if b.Text != "" {
		at := openaiObject{"output_index": i, "item_id": id, "summary_index": 0}
		s.add("response.reasoning_summary_part.added", openaiObject{"output_index": i, "item_id": id, "summary_index": 0, "part": openaiObject{"type": "summary_text", "text": ""}})
		s.pieces(b.Text, piece, "response.reasoning_summary_text.delta", at)
		s.add("response.reasoning_summary_text.done", openaiObject{"output_index": i, "item_id": id, "summary_index": 0, "text": b.Text})
		summary = []any{openaiObject{"type": "summary_text", "text": b.Text}}
	}
	done := openaiObject{"type": "reasoning", "id": id, "summary": summary, "encrypted_content": opaque}
	s.add("response.output_item.done", openaiObject{"output_index": i, "item": done})
	return done
}

func (s *openaiStream) call(i int, c *llm.Call, piece int) openaiObject {
	id, written := fmt.Sprint("fc_", i), string(c.Args)
	if c.ID != "" { // unique in a conversation, as the vendor's are
		id += "_" + c.ID
	}
	if c.Raw {
		_ = json.Unmarshal(c.Args, &written) // a JSON string by llm's contract
	}
	base := func(status, arguments string) openaiObject {
		return openaiObject{"type": "function_call", "id": id, "call_id": c.ID, "name": c.Name, "arguments": arguments, "status": status}
	}
	s.add("response.output_item.added", openaiObject{"output_index": i, "item": base("in_progress", "")})
	s.pieces(written, piece, "response.function_call_arguments.delta", openaiObject{"output_index": i, "item_id": id})
	s.add("response.function_call_arguments.done", openaiObject{"output_index": i, "item_id": id, "arguments": written})
	done := base("completed", written)
	s.add("response.output_item.done", openaiObject{"output_index": i, "item": done})
	return done
}

func (s *openaiStream) message(i int, text string, r Reply) openaiObject {
	id := fmt.Sprint("msg_", i)
	kind, field, delta := "output_text", "text", "response.output_text.delta"
	if r.StopOr() == llm.StopRefusal {
		kind, field, delta = "refusal", "refusal", "response.refusal.delta"
	}
	s.add("response.output_item.added", openaiObject{"output_index": i, "item": openaiObject{"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []any{}}})
	at := openaiObject{"output_index": i, "item_id": id, "content_index": 0}
	s.add("response.content_part.added", openaiObject{"output_index": i, "item_id": id, "content_index": 0, "part": openaiObject{"type": kind, field: ""}})
	s.pieces(text, r.PieceOr(), delta, at)
	p := openaiObject{"type": kind, field: text}
	if kind == "output_text" {
		p["annotations"] = []any{}
	}
	s.add("response.content_part.done", openaiObject{"output_index": i, "item_id": id, "content_index": 0, "part": p})
	done := openaiObject{"type": "message", "id": id, "role": "assistant", "status": "completed", "phase": "final_answer", "content": []any{p}}
	s.add("response.output_item.done", openaiObject{"output_index": i, "item": done})
	return done
}

// Failure implements llmtest.Dialect.
func (OpenAI) Failure(f Failure) Wire {
	status, kind, code, text := openaiFailure(f)
	body, _ := json.Marshal(openaiObject{"error": openaiObject{"type": kind, "code": code, "message": text, "param": nil}}) // strings only
	w := Wire{Status: status, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"req_1"}}, Chunks: [][]byte{body}}
	if f.RetryAfter > 0 {
		w.Header.Set("Retry-After", fmt.Sprint(int(f.RetryAfter.Seconds())))
	}
	return w
}

// Late implements llmtest.Dialect: a response that failed, or, for what stands
// before the model, an event of its own.
func (OpenAI) Late(f Failure) []byte {
	_, kind, code, text := openaiFailure(f)
	var s openaiStream
	if f.Trouble == llm.Overloaded {
		s.add("response.failed", openaiObject{"response": openaiObject{"id": "resp_1", "status": "failed", "error": openaiObject{"code": "server_error", "message": text}}})
	} else {
		s.add("error", openaiObject{"code": code, "message": kind + ": " + text, "param": nil})
	}
	return s.chunks[0]
}

func openaiFailure(f Failure) (status int, kind string, code any, text string) {
	switch f.Trouble {
	case llm.RateLimited:
		status, kind, code, text = 429, "tokens", "rate_limit_exceeded", "Rate limit reached for this model on tokens per min."
	case llm.Overloaded:
		status, kind, text = 500, "server_error", "The server had an error while processing your request. Sorry about that!"
	case llm.Overflow:
		status, kind, code, text = 400, "invalid_request_error", "context_length_exceeded", "Your input exceeds the context window of this model. Please adjust your input and try again."
	case llm.Refused:
		status, kind, code, text = 401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."
		if f.Status == 403 {
			kind, code, text = "permission_error", nil, "You have insufficient permissions for this operation."
		}
	default:
		status, kind, code, text = 400, "invalid_request_error", "invalid_value", "Invalid value: 'x'."
		if f.Status == 404 {
			code, text = "model_not_found", "The requested model does not exist."
		}
	}
	if f.Status != 0 {
		status = f.Status
	}
	if f.Text != "" {
		text = f.Text
	}
	return status, kind, code, text
}
