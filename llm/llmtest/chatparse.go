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

type chatRequest struct {
	Model             string          `json:"model"`
	Messages          []chatMessage   `json:"messages"`
	Tools             []chatTool      `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	MaxTokens         int             `json:"max_tokens"`
	Temperature       *float64        `json:"temperature"`
	ReasoningEffort   string          `json:"reasoning_effort"`
	Stop              []string        `json:"stop"`
	Stream            bool            `json:"stream"`
	StreamOptions     *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ResponseFormat *struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict bool            `json:"strict"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningDetails []struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        json.RawMessage `json:"id"`
		Format    string          `json:"format"`
		Index     int             `json:"index"`
	} `json:"reasoning_details"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// Parse implements llmtest.Dialect. It knows no field that weak servers do not.
func (Chat) Parse(r *http.Request, body []byte) (Seen, error) {
	var q chatRequest
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
		return Seen{}, fmt.Errorf("%s %s is not served", r.Method, r.URL.Path)
	case r.Header.Get("Content-Type") != "application/json":
		return Seen{}, errors.New("no JSON, the header says")
	case !utf8.Valid(body):
		return Seen{}, errors.New("no UTF-8")
	}
	if err := d.Decode(&q); err != nil {
		return Seen{}, err
	}
	seen := Seen{Model: q.Model, Key: bearer(r.Header), Stream: q.Stream}
	seen.Request = llm.Request{
		OutputTokensMax: q.MaxTokens, Temperature: q.Temperature, Effort: q.ReasoningEffort, Stop: q.Stop,
		Serial: q.ParallelToolCalls != nil && !*q.ParallelToolCalls,
	}
	if q.ResponseFormat != nil {
		seen.Request.Schema = &llm.Schema{Name: q.ResponseFormat.JSONSchema.Name, Schema: q.ResponseFormat.JSONSchema.Schema}
	}
	for _, f := range []func(*chatRequest, *llm.Request) error{parseTools, parseChoice, parseMessages} {
		if err := f(&q, &seen.Request); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func parseTools(q *chatRequest, req *llm.Request) error {
	if q.Tools != nil && len(q.Tools) == 0 {
		return errors.New("tools: an empty list")
	}
	for i, t := range q.Tools {
		if t.Type != "function" || t.Function.Name == "" || !json.Valid(t.Function.Parameters) {
			return fmt.Errorf("tools[%d] is no function", i)
		}
		req.Tools = append(req.Tools, llm.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	if len(q.Tools) == 0 && (q.ToolChoice != nil || q.ParallelToolCalls != nil) {
		return errors.New("tool_choice or parallel_tool_calls without tools")
	}
	return nil
}

func parseChoice(q *chatRequest, req *llm.Request) error {
	var word string
	var named struct {
		Type     string
		Function struct{ Name string }
	}
	switch {
	case q.ToolChoice == nil:
	case json.Unmarshal(q.ToolChoice, &word) == nil:
		modes := map[string]llm.ChoiceMode{"none": llm.ChoiceNone, "required": llm.ChoiceAny, "auto": llm.ChoiceAuto}
		mode, ok := modes[word]
		if !ok {
			return fmt.Errorf("tool_choice %q", word)
		}
		req.Choice.Mode = mode
	case json.Unmarshal(q.ToolChoice, &named) == nil && named.Type == "function" && named.Function.Name != "":
		req.Choice = llm.Choice{Mode: llm.ChoiceTool, Name: named.Function.Name}
	default:
		return fmt.Errorf("tool_choice %s", q.ToolChoice)
	}
	return nil
}

func parseMessages(q *chatRequest, req *llm.Request) error {
	open := map[string]bool{} // calls that no result answered yet
	for i, m := range q.Messages {
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("messages[%d]: %d calls before it have no result", i, len(open))
		}
		var err error
		switch m.Role {
		case "system":
			if i > 0 {
				return fmt.Errorf("messages[%d]: the system prompt stands first", i)
			}
			req.System, err = chatContent(m.Content)
		case "user":
			err = parseUser(m, req)
		case "assistant":
			err = parseAssistant(m, req, open)
		case "tool":
			err = parseResult(m, req, open)
		default:
			err = fmt.Errorf("role %q", m.Role)
		}
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if len(open) > 0 {
		return errors.New("the last calls have no results")
	}
	if len(req.Messages) == 0 {
		return errors.New("no messages")
	}
	return nil
}

func parseUser(m chatMessage, req *llm.Request) error {
	blocks, err := chatContent(m.Content)
	if len(blocks) == 0 && err == nil {
		err = errors.New("an empty message")
	}
	req.Messages = append(req.Messages, llm.Message{Role: llm.RoleUser, Blocks: blocks})
	return err
}

func parseAssistant(m chatMessage, req *llm.Request, open map[string]bool) error {
	out := llm.Message{Role: llm.RoleAssistant}
	for _, d := range m.ReasoningDetails {
		out.Blocks = append(out.Blocks, Reasoning(d.Text, d.Signature+d.Data))
	}
	if text := m.Reasoning + m.ReasoningContent; text != "" && m.ReasoningDetails == nil {
		out.Blocks = append(out.Blocks, Reasoning(text, ""))
	}
	if string(m.Content) != "null" && m.Content != nil {
		blocks, err := chatContent(m.Content)
		if err != nil {
			return err
		}
		out.Blocks = append(out.Blocks, blocks...)
	}
	for _, c := range m.ToolCalls {
		switch {
		case c.ID == "" || c.Function.Name == "" || c.Type != "function" || c.Function.Arguments == nil:
			return fmt.Errorf("tool call %+v is not whole", c)
		case open[c.ID]:
			return fmt.Errorf("tool call %s twice", c.ID)
		}
		open[c.ID] = true
		out.Blocks = append(out.Blocks, Call(c.ID, c.Function.Name, *c.Function.Arguments))
	}
	if len(out.Blocks) == 0 {
		return errors.New("an empty answer")
	}
	req.Messages = append(req.Messages, out)
	return nil
}

func parseResult(m chatMessage, req *llm.Request, open map[string]bool) error {
	if !open[m.ToolCallID] {
		return fmt.Errorf("a result for %q, which was not called", m.ToolCallID)
	}
	delete(open, m.ToolCallID)
	var text string
	if json.Unmarshal(m.Content, &text) != nil {
		return errors.New("the content of a result is a string")
	}
	req.Messages = append(req.Messages, llm.Results(llm.Result{CallID: m.ToolCallID, Blocks: []llm.Block{llm.Text(text)}}))
	return nil
}

// chatContent reads a string, or a list of texts and images.
func chatContent(raw json.RawMessage) ([]llm.Block, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return nil, nil
		}
		return []llm.Block{llm.Text(text)}, nil
	}
	var parts []struct {
		Type     string
		Text     string
		ImageURL struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	var blocks []llm.Block
	for _, p := range parts {
		if p.Type == "text" {
			blocks = append(blocks, llm.Text(p.Text))
			continue
		}
		mime, data, ok := strings.Cut(strings.TrimPrefix(p.ImageURL.URL, "data:"), ";base64,")
		bytes, err := base64.StdEncoding.DecodeString(data)
		if p.Type != "image_url" || !ok || err != nil {
			return nil, fmt.Errorf("a part of type %q", p.Type)
		}
		blocks = append(blocks, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: mime, Data: bytes}})
	}
	return blocks, nil
}
