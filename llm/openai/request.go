package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// cacheKeyLenMax is how long a prompt_cache_key may be.
const cacheKeyLenMax = 64

// encode writes the body of a request.
func (m *Model) encode(req *llm.Request) []byte {
	b := make([]byte, 0, req.SizeHint())
	b = append(b, `{"model":`...)
	b = fault.AppendString(b, m.c.Info.ID)
	b = append(b, `,"stream":true,"store":false`...)
	if m.reasons {
		b = append(b, `,"include":["reasoning.encrypted_content"]`...)
	}
	b = appendMember(b, "instructions", texts(req.System))
	b = m.appendLimits(b, req)
	b = appendTools(b, req)
	b = appendFormat(b, req.Schema)
	b = appendMember(b, "prompt_cache_key", cacheKey(req.CacheKey))
	b = append(b, `,"input":[`...)
	w := items{m: m, b: b}
	w.history(req.Messages)
	return append(w.b, "]}"...)
}

// appendMember writes a member whose value is a string, nothing for "".
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return fault.AppendString(b, value)
}

func texts(blocks []llm.Block) string {
	var parts []string
	for _, b := range blocks {
		if b.Kind == llm.KindText && b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// cacheKey is the key, or a digest of one that is too long.
func cacheKey(key string) string {
	if len(key) <= cacheKeyLenMax {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func (m *Model) appendLimits(b []byte, req *llm.Request) []byte {
	limit := req.OutputTokensMax
	if known := m.c.Info.OutputTokensMax; known > 0 && (limit == 0 || limit > known) {
		limit = known
	}
	if limit > 0 {
		b = append(b, `,"max_output_tokens":`...)
		b = strconv.AppendInt(b, int64(limit), 10)
	}
	if req.Temperature != nil && !m.reasons { // the others refuse it
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, *req.Temperature, 'g', -1, 64)
	}
	if !m.reasons || (req.Effort == "" && m.c.Summary == "") {
		return b
	}
	inner := appendMember(nil, "effort", req.Effort)
	inner = appendMember(inner, "summary", m.c.Summary)
	b = append(b, `,"reasoning":{`...)
	b = append(b, inner[1:]...)
	return append(b, '}')
}

func appendTools(b []byte, req *llm.Request) []byte {
	for i, t := range req.Tools {
		if i == 0 {
			b = append(b, `,"tools":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"type":"function"`...)
		b = appendMember(b, "name", t.Name)
		b = appendMember(b, "description", t.Description)
		b = append(b, `,"parameters":`...)
		b = fault.AppendRaw(b, t.Schema, `{"type":"object","properties":{}}`)
		// Without a word the vendor makes schemas strict, and changes what
		// optional means.
		b = append(b, `,"strict":`...)
		b = strconv.AppendBool(b, strict(t.Schema))
		b = append(b, '}')
	}
	if len(req.Tools) == 0 {
		return b
	}
	b = append(b, ']')
	if req.Serial {
		b = append(b, `,"parallel_tool_calls":false`...)
	}
	switch req.Choice.Mode {
	case llm.ChoiceNone:
		return append(b, `,"tool_choice":"none"`...)
	case llm.ChoiceAny:
		return append(b, `,"tool_choice":"required"`...)
	case llm.ChoiceTool:
		b = append(b, `,"tool_choice":{"type":"function"`...)
		b = appendMember(b, "name", req.Choice.Name)
		return append(b, '}')
	}
	return b
}

func appendFormat(b []byte, s *llm.Schema) []byte {
	if s == nil || !json.Valid(s.Schema) {
		return b
	}
	name := s.Name
	if name == "" {
		name = "answer"
	}
	b = append(b, `,"text":{"format":{"type":"json_schema"`...)
	b = appendMember(b, "name", name)
	b = append(b, `,"schema":`...)
	b = append(b, s.Schema...)
	b = append(b, `,"strict":`...)
	b = strconv.AppendBool(b, strict(s.Schema))
	return append(b, "}}"...)
}

// items writes the input items of a history.
type items struct {
	m     *Model
	b     []byte
	n     int
	asked map[string]bool // call ids of the history
	told  map[string]bool // call ids with a result
}

// history writes messages. Each call must have an output and each output a
// call, or the vendor refuses the whole request.
func (w *items) history(messages []llm.Message) {
	w.asked, w.told = map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		for _, b := range m.Blocks {
			if b.Call != nil {
				w.asked[b.Call.ID] = true
			}
			if b.Result != nil {
				w.told[b.Result.CallID] = true
			}
		}
	}
	for _, m := range messages {
		if m.Role == llm.RoleAssistant {
			w.assistant(m.Blocks)
		} else {
			w.user(m.Blocks)
		}
	}
}

func (w *items) next() {
	if w.n > 0 {
		w.b = append(w.b, ',')
	}
	w.n++
}

// unanswered is the output of a call whose result is missing. It is the same
// each time, so that caches hold.
const unanswered = "No result of this call was recorded."

// assistant writes what a model said. An item of reasoning must be followed by
// what it led to, so it waits until that comes.
func (w *items) assistant(blocks []llm.Block) {
	var pending []json.RawMessage
	lost := false // reasoning that belongs to what follows does not go along
	var open []string
	for _, block := range blocks {
		switch {
		case block.Kind == llm.KindReasoning:
			if item := w.m.item(block.Vendor); item != nil {
				pending = append(pending, item)
			} else {
				lost = true
			}
			continue
		case block.Kind == llm.KindText && block.Text != "", block.Kind == llm.KindCall && block.Call != nil:
		default:
			continue
		}
		for _, item := range pending {
			w.next()
			w.b = append(w.b, item...)
		}
		l := w.m.label(block.Vendor, lost) // an id would make the vendor look for its reasoning
		pending, lost = pending[:0], false
		w.next()
		if block.Kind == llm.KindText {
			w.said(block.Text, l)
			continue
		}
		w.call(block.Call, l)
		if !w.told[block.Call.ID] {
			open = append(open, block.Call.ID)
		}
	}
	for _, id := range open {
		w.output(&llm.Result{CallID: id, Blocks: []llm.Block{llm.Text(unanswered)}})
	}
}

// said writes a message of the model, with what the vendor knows it by or as
// plain text.
func (w *items) said(text string, label []byte) {
	w.b = append(w.b, `{"type":"message","role":"assistant"`...)
	w.b = append(w.b, label...)
	if bytes.HasPrefix(label, []byte(`,"id":`)) {
		w.b = append(w.b, `,"content":[{"type":"output_text","annotations":[]`...)
		w.b = appendMember(w.b, "text", text)
		w.b = append(w.b, "}]}"...)
		return
	}
	w.b = appendMember(w.b, "content", text)
	w.b = append(w.b, '}')
}

func (w *items) call(c *llm.Call, label []byte) {
	w.b = append(w.b, `{"type":"function_call"`...)
	w.b = append(w.b, label...)
	w.b = appendMember(w.b, "call_id", c.ID)
	w.b = appendMember(w.b, "name", c.Name)
	w.b = append(w.b, `,"arguments":`...)
	w.b = fault.AppendString(w.b, arguments(c))
	w.b = append(w.b, '}')
}

// arguments is what the vendor wants: JSON of an object, as a string.
func arguments(c *llm.Call) string {
	if !c.Raw && json.Valid(c.Args) {
		return string(c.Args)
	}
	if c.Raw && json.Valid(c.Args) {
		return `{"raw":` + string(c.Args) + `}`
	}
	return `{"raw":` + string(fault.AppendString(nil, string(c.Args))) + `}`
}

func (w *items) user(blocks []llm.Block) {
	for _, block := range blocks {
		if block.Kind == llm.KindResult && block.Result != nil && w.asked[block.Result.CallID] {
			w.output(block.Result)
		}
	}
	var parts []llm.Block
	for _, block := range blocks {
		switch {
		case block.Kind == llm.KindText && block.Text != "", block.Kind == llm.KindMedia && block.Media != nil:
			parts = append(parts, block)
		case block.Kind == llm.KindResult && block.Result != nil && !w.asked[block.Result.CallID]:
			parts = append(parts, llm.Text("Result of an earlier call of "+block.Result.Name+":"))
			parts = append(parts, block.Result.Blocks...)
		}
	}
	if len(parts) == 0 {
		return
	}
	w.next()
	w.b = append(w.b, `{"type":"message","role":"user","content":`...)
	w.content(parts)
	w.b = append(w.b, '}')
}

// output writes the result of a call. One text is a string, for that is what
// all models were made with.
func (w *items) output(r *llm.Result) {
	w.next()
	w.b = append(w.b, `{"type":"function_call_output"`...)
	w.b = appendMember(w.b, "call_id", r.CallID)
	w.b = append(w.b, `,"output":`...)
	isMedia := func(b llm.Block) bool { return b.Kind == llm.KindMedia && b.Media != nil }
	if slices.ContainsFunc(r.Blocks, isMedia) {
		w.content(r.Blocks)
	} else {
		w.b = fault.AppendString(w.b, llm.Message{Blocks: r.Blocks}.String())
	}
	w.b = append(w.b, '}')
}

func (w *items) content(blocks []llm.Block) {
	w.b = append(w.b, '[')
	n := 0
	for _, block := range blocks {
		media := block.Kind == llm.KindMedia && block.Media != nil
		if !media && (block.Kind != llm.KindText || block.Text == "") {
			continue
		}
		if n++; n > 1 {
			w.b = append(w.b, ',')
		}
		if media {
			w.media(block.Media)
		} else {
			w.text(block.Text)
		}
	}
	w.b = append(w.b, ']')
}

func (w *items) text(text string) {
	w.b = append(w.b, `{"type":"input_text"`...)
	w.b = append(w.b, `,"text":`...)
	w.b = fault.AppendString(w.b, text)
	w.b = append(w.b, '}')
}

// media writes images and documents; what the vendor cannot take becomes a
// note, because a model that is told can ask for something else.
func (w *items) media(m *llm.Media) {
	switch {
	case len(m.Data) == 0:
		w.text("[" + m.Type + ", not available]")
		return
	case strings.HasPrefix(m.Type, "image/"):
		w.b = append(w.b, `{"type":"input_image","detail":"auto","image_url":"`...)
	case m.Type == llm.PDF:
		w.b = append(w.b, `{"type":"input_file","filename":"document.pdf","file_data":"`...)
	default:
		w.text("[" + m.Type + ", which this model cannot read]")
		return
	}
	prefix := fault.AppendString(nil, "data:"+m.Type+";base64,")
	w.b = append(w.b, prefix[1:len(prefix)-1]...)
	w.b = base64.StdEncoding.AppendEncode(w.b, m.Data)
	w.b = append(w.b, `"}`...)
}
