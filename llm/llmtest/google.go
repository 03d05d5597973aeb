package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skete-dev/skete/llm"
)

// Google is the dialect of Google's Generative Language API, for tests of what passes it on:
// no driver speaks it. Of requests it reads what a scripted vendor looks at. All methods are
// pure.
type Google struct{}

var _ Dialect = Google{}

// Facts implements llmtest.Dialect.
func (Google) Facts() Facts {
	return Facts{Dialect: "google", Stops: []llm.Stop{llm.StopEnd, llm.StopTools, llm.StopLength}}
}

type googlePart struct {
	Text     string          `json:"text,omitempty"`
	Thought  bool            `json:"thought,omitempty"`
	Call     *googleCall     `json:"functionCall,omitempty"`
	Response *googleResponse `json:"functionResponse,omitempty"`
}

type googleCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type googleResponse struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
}

// Parse implements llmtest.Dialect.
func (Google) Parse(r *http.Request, body []byte) (Seen, error) {
	seen := Seen{Key: r.Header.Get("X-Goog-Api-Key"), Body: body}
	path, ok := strings.CutPrefix(r.URL.Path, "/v1beta/models/")
	var call string
	if seen.Model, call, ok = cutLast(path, ":", ok); !ok || call != "generateContent" && call != "streamGenerateContent" {
		return seen, fmt.Errorf("nothing is at %s", r.URL.Path)
	}
	seen.Stream = r.URL.Query().Get("alt") == "sse"
	if seen.Stream != (call == "streamGenerateContent") {
		return seen, fmt.Errorf("%s, and alt is %q", call, r.URL.Query().Get("alt"))
	}
	var asked struct {
		Contents []struct {
			Role  string       `json:"role"`
			Parts []googlePart `json:"parts"`
		} `json:"contents"`
		Tools []struct {
			Functions []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return seen, err
	}
	for _, t := range asked.Tools {
		for _, f := range t.Functions {
			seen.Request.Tools = append(seen.Request.Tools, llm.ToolSpec{Name: f.Name})
		}
	}
	for _, c := range asked.Contents {
		m := llm.Message{Role: llm.RoleUser}
		if c.Role == "model" {
			m.Role = llm.RoleAssistant
		}
		for _, p := range c.Parts {
			m.Blocks = append(m.Blocks, p.block())
		}
		seen.Request.Messages = append(seen.Request.Messages, m)
	}
	return seen, nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string, was bool) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if !was || i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (p googlePart) block() llm.Block {
	switch {
	case p.Call != nil:
		return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: p.Call.ID, Name: p.Call.Name, Args: p.Call.Args}}
	case p.Response != nil:
		return llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: p.Response.ID, Blocks: []llm.Block{llm.Text(string(p.Response.Response))}}}
	}
	return llm.Text(p.Text)
}

// Answer implements llmtest.Dialect. Each event tells the usage so far; a call is never cut.
func (Google) Answer(seen Seen, r Reply) Wire {
	var parts []googlePart
	for _, b := range r.Blocks {
		switch b.Kind {
		case llm.KindCall:
			parts = append(parts, googlePart{Call: &googleCall{b.Call.ID, b.Call.Name, b.Call.Args}})
		case llm.KindText, llm.KindReasoning:
			cut := []string{b.Text}
			if seen.Stream {
				cut = pieces(b.Text, r.PieceOr())
			}
			for _, text := range cut {
				parts = append(parts, googlePart{Text: text, Thought: b.Kind == llm.KindReasoning})
			}
		}
	}
	if !seen.Stream {
		return Wire{Header: http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, Chunks: [][]byte{encode(googleAnswer(seen, r, parts, true))}}
	}
	w := Wire{Header: http.Header{"Content-Type": {"text/event-stream"}}}
	for i := range max(len(parts), 1) {
		end := i+1 >= len(parts)
		w.Chunks = append(w.Chunks, []byte("data: "+string(encode(googleAnswer(seen, r, parts[i:min(i+1, len(parts))], end)))+"\r\n\r\n"))
	}
	return w
}

func googleAnswer(seen Seen, r Reply, parts []googlePart, end bool) map[string]any {
	in := r.Usage.Input + r.Usage.CacheRead
	candidate, usage := map[string]any{"index": 0}, map[string]any{"promptTokenCount": in, "cachedContentTokenCount": r.Usage.CacheRead}
	if len(parts) > 0 {
		candidate["content"] = map[string]any{"role": "model", "parts": parts}
	}
	if end {
		candidate["finishReason"] = "STOP"
		if r.StopOr() == llm.StopLength {
			candidate["finishReason"] = "MAX_TOKENS"
		}
		usage["thoughtsTokenCount"], usage["candidatesTokenCount"] = r.Usage.Reasoning, r.Usage.Output-r.Usage.Reasoning
		usage["totalTokenCount"] = in + r.Usage.Output
	}
	return map[string]any{"candidates": []any{candidate}, "usageMetadata": usage, "modelVersion": seen.Model, "responseId": "resp-1"}
}

// Failure implements llmtest.Dialect.
func (Google) Failure(f Failure) Wire {
	status, text := statusOf(f), f.Text
	if text == "" {
		text = wording(f.Trouble)
	}
	name := map[int]string{
		http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED",
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusServiceUnavailable: "UNAVAILABLE",
	}[status]
	return Wire{Status: status, Header: http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, Chunks: [][]byte{encode(map[string]any{"error": map[string]any{"code": status, "message": text, "status": name}})}}
}

// Late implements llmtest.Dialect: there is none.
func (Google) Late(Failure) []byte { return nil }
