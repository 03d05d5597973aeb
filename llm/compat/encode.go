package compat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/llm"
)

// encode builds the body of a request as parts that stand one after the other.
// The parts of messages come from the memo and are shared: they are never
// written to. The order of the fields never changes, so that the same request
// has the same bytes.
func (m *Model) encode(req *llm.Request) (parts [][]byte, size int64) {
	head := append([]byte(`{"model":`), quote(nil, m.o.Info.ID)...)
	head = append(head, `,"messages":[`...)
	parts = append(make([][]byte, 0, len(req.Messages)+4), head)
	first := true
	add := func(part []byte) {
		if len(part) == 0 {
			return
		}
		if first {
			part, first = part[1:], false // every message begins with a comma
		}
		parts = append(parts, part)
	}
	add(m.memo.get(systemKey(req.System), func() []byte { return encodeSystem(req.System) }))
	for i := range req.Messages {
		msg := &req.Messages[i]
		add(m.memo.get(messageKey(msg), func() []byte { return m.encodeMessage(msg) }))
	}
	parts = append(parts, m.encodeRest(req))
	for _, p := range parts {
		size += int64(len(p))
	}
	return parts, size
}

func encodeSystem(blocks []llm.Block) []byte {
	text := joinTexts(blocks)
	if text == "" {
		return nil
	}
	b := quote([]byte(`,{"role":"system","content":`), text)
	return append(b, '}')
}

func joinTexts(blocks []llm.Block) string {
	var texts []string
	for _, b := range blocks {
		if b.Kind == llm.KindText && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// encodeMessage returns the messages of the wire that a message becomes: none,
// one, or several, each with a comma before it.
func (m *Model) encodeMessage(msg *llm.Message) []byte {
	if msg.Role == llm.RoleAssistant {
		return m.encodeAssistant(msg)
	}
	var out []byte
	var rest []llm.Block
	for _, b := range msg.Blocks {
		if b.Kind != llm.KindResult || b.Result == nil {
			rest = append(rest, b)
			continue
		}
		text, media := m.resultText(b.Result)
		out = quote(append(out, `,{"role":"tool","tool_call_id":`...), b.Result.CallID)
		out = append(quote(append(out, `,"content":`...), text), '}')
		rest = append(rest, media...)
	}
	return m.encodeUser(out, rest)
}

// resultText returns the text of a result, and the images that have to follow
// in a message of the user, for the dialect has no place for them in results.
func (m *Model) resultText(r *llm.Result) (text string, follow []llm.Block) {
	var texts []string
	for _, b := range r.Blocks {
		switch {
		case b.Kind == llm.KindText:
			texts = append(texts, b.Text)
		case b.Media != nil && m.shows(b.Media):
			note := fmt.Sprintf("[%s, shown below as the result of %s]", b.Media.Type, r.CallID)
			texts = append(texts, note)
			follow = append(follow, llm.Text(fmt.Sprintf("[%s, the result of %s]", b.Media.Type, r.CallID)), b)
		case b.Media != nil:
			texts = append(texts, hidden(b.Media))
		}
	}
	return strings.Join(texts, "\n"), follow
}

// shows reports whether the model can be shown this.
func (m *Model) shows(media *llm.Media) bool {
	return m.o.Info.Media && strings.HasPrefix(media.Type, "image/") && len(media.Data) > 0
}

func hidden(media *llm.Media) string {
	return fmt.Sprintf("[%s of %d bytes, which this model cannot be shown]", media.Type, len(media.Data))
}

func (m *Model) encodeUser(out []byte, blocks []llm.Block) []byte {
	var parts []llm.Block
	images := false
	for _, b := range blocks {
		switch {
		case b.Kind == llm.KindText && b.Text != "":
			parts = append(parts, b)
		case b.Media != nil && m.shows(b.Media):
			parts, images = append(parts, b), true
		case b.Media != nil:
			parts = append(parts, llm.Text(hidden(b.Media)))
		}
	}
	if len(parts) == 0 {
		return out
	}
	out = append(out, `,{"role":"user","content":`...)
	if !images { // many servers know nothing but a string
		return append(quote(out, joinTexts(parts)), '}')
	}
	for i, b := range parts {
		out = append(out, "[,"[min(i, 1)])
		if b.Media == nil {
			out = append(quote(append(out, `{"type":"text","text":`...), b.Text), '}')
			continue
		}
		out = append(out, `{"type":"image_url","image_url":{"url":"data:`...)
		out = append(append(out, safeType(b.Media.Type)...), ";base64,"...)
		out = base64.StdEncoding.AppendEncode(out, b.Media.Data)
		out = append(out, `"}}`...)
	}
	return append(out, `]}`...)
}

// safeType keeps what may stand in a MIME type.
func safeType(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/.+-", r) {
			return r
		}
		return -1
	}, s)
}

func (m *Model) encodeAssistant(msg *llm.Message) []byte {
	text, calls := joinTexts(msg.Blocks), msg.Calls()
	reasoning := m.encodeReasoning(msg.Blocks)
	if text == "" && len(calls) == 0 {
		return nil // servers refuse an answer of nothing
	}
	out := []byte(`,{"role":"assistant","content":`)
	if text == "" {
		out = append(out, `null`...)
	} else {
		out = quote(out, text)
	}
	out = append(out, reasoning...)
	i := 0
	for _, b := range msg.Blocks {
		if b.Kind != llm.KindCall || b.Call == nil {
			continue
		}
		if i == 0 {
			out = append(out, `,"tool_calls":[`...)
		} else {
			out = append(out, ',')
		}
		out = m.encodeCall(out, b)
		i++
	}
	if i > 0 {
		out = append(out, ']')
	}
	return append(out, '}')
}

func (m *Model) encodeCall(out []byte, b llm.Block) []byte {
	out = quote(append(out, `{"id":`...), b.Call.ID)
	out = quote(append(out, `,"type":"function","function":{"name":`...), b.Call.Name)
	out = append(quote(append(out, `,"arguments":`...), arguments(b.Call)), '}')
	if e := m.own(b.Vendor); e != nil && len(e.Extra) > 0 {
		out = append(append(out, `,"extra_content":`...), e.Extra...)
	}
	return append(out, '}')
}

// arguments of a call that was no JSON go out as an object that holds them:
// templates of local servers parse what they are given.
func arguments(c *llm.Call) string {
	switch {
	case c.Raw:
		return `{"invalid_arguments":` + string(c.Args) + `}`
	case len(c.Args) == 0:
		return `{}`
	}
	return string(c.Args)
}

// echo is what Block.Vendor.Data holds: what this server wants back.
type echo struct {
	From    string          `json:"from"`              // which server and model
	Field   string          `json:"field,omitempty"`   // the name under which plain reasoning came
	Details json.RawMessage `json:"details,omitempty"` // reasoning_details
	Extra   json.RawMessage `json:"extra,omitempty"`   // extra_content of a call
}

// own returns what came from this very server, else nil.
func (m *Model) own(v *llm.Vendor) *echo {
	var e echo
	if v == nil || v.Dialect != "compat" || json.Unmarshal(v.Data, &e) != nil || e.From != m.from {
		return nil
	}
	return &e
}

// encodeReasoning returns the fields that carry reasoning back, with a comma
// before each.
func (m *Model) encodeReasoning(blocks []llm.Block) []byte {
	var out []byte
	for _, b := range blocks {
		if b.Kind != llm.KindReasoning {
			continue
		}
		e := m.own(b.Vendor)
		if e == nil {
			continue
		}
		if m.o.EchoReasoning && b.Text != "" && (e.Field == "reasoning_content" || e.Field == "reasoning") {
			out = append(out, `,"`+e.Field+`":`...)
			out = quote(out, b.Text)
		}
		if len(e.Details) > 0 {
			out = append(append(out, `,"reasoning_details":`...), e.Details...)
		}
		return out // a reply holds one such block
	}
	return out
}

// encodeRest returns what follows the messages.
func (m *Model) encodeRest(req *llm.Request) []byte {
	b := []byte{']'}
	if len(req.Tools) > 0 {
		b = append(b, m.memo.get(toolsKey(req.Tools), func() []byte { return encodeTools(req.Tools) })...)
		b = encodeChoice(b, req.Choice)
		if req.Serial {
			b = append(b, `,"parallel_tool_calls":false`...)
		}
	}
	n := req.OutputTokensMax
	if known := m.o.Info.OutputTokensMax; known > 0 && (n == 0 || n > known) {
		n = known
	}
	if n > 0 {
		name := `,"max_tokens":`
		if m.o.CompletionTokens {
			name = `,"max_completion_tokens":`
		}
		b = strconv.AppendInt(append(b, name...), int64(n), 10)
	}
	if req.Temperature != nil {
		b = strconv.AppendFloat(append(b, `,"temperature":`...), *req.Temperature, 'f', -1, 64)
	}
	if req.Effort != "" {
		b = quote(append(b, `,"reasoning_effort":`...), req.Effort)
	}
	for i, s := range req.Stop {
		b = quote(append(b, []string{`,"stop":[`, `,`}[min(i, 1)]...), s)
	}
	if len(req.Stop) > 0 {
		b = append(b, ']')
	}
	if s := req.Schema; s != nil {
		b = quote(append(b, `,"response_format":{"type":"json_schema","json_schema":{"name":`...), s.Name)
		b = append(append(b, `,"strict":true,"schema":`...), object(s.Schema)...)
		b = append(b, `}}`...)
	}
	if !m.o.NoStream {
		b = append(b, `,"stream":true`...)
		if !m.o.NoUsage {
			b = append(b, `,"stream_options":{"include_usage":true}`...)
		}
	}
	return append(b, '}')
}

func encodeTools(specs []llm.ToolSpec) []byte {
	b := []byte(`,"tools":[`)
	for i, t := range specs {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(append(b, `{"type":"function","function":{"name":`...), t.Name)
		b = quote(append(b, `,"description":`...), t.Description)
		b = append(append(b, `,"parameters":`...), object(t.Schema)...)
		b = append(b, `}}`...)
	}
	return append(b, ']')
}

// object returns a JSON Schema, or the one of any object.
func object(schema json.RawMessage) []byte {
	if !json.Valid(schema) {
		return []byte(`{"type":"object"}`)
	}
	return schema
}

func encodeChoice(b []byte, c llm.Choice) []byte {
	switch c.Mode {
	case llm.ChoiceNone:
		return append(b, `,"tool_choice":"none"`...)
	case llm.ChoiceAny:
		return append(b, `,"tool_choice":"required"`...)
	case llm.ChoiceTool:
		return append(quote(append(b, `,"tool_choice":{"type":"function","function":{"name":`...), c.Name), `}}`...)
	}
	return b
}

const hexDigits = "0123456789abcdef"

// quote appends s as a JSON string. Only what must be escaped is: that is half
// the work of encoding/json, and long results are most of a request.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		b = escape(append(b, s[start:i]...), c)
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

func escape(b []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(b, '\\', c)
	case c == '\n':
		return append(b, '\\', 'n')
	case c == '\r':
		return append(b, '\\', 'r')
	case c == '\t':
		return append(b, '\\', 't')
	case c < ' ':
		return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(b, `\ufffd`...) // no UTF-8
}

// partsReader reads parts one after the other without joining them.
type partsReader struct {
	parts [][]byte
	i, at int
}

func (r *partsReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if r.i == len(r.parts) {
			if n == 0 && len(p) > 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		k := copy(p[n:], r.parts[r.i][r.at:])
		n, r.at = n+k, r.at+k
		if r.at == len(r.parts[r.i]) {
			r.i, r.at = r.i+1, 0
		}
	}
	return n, nil
}

func (r *partsReader) Close() error { return nil }
