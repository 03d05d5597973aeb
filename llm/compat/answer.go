package compat

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// What one answer may hold. Beyond that it is no answer of a model.
const (
	callsMax   = 128
	detailsMax = 1024
	nameMax    = 256 // of a tool; the agent judges shorter ones
)

// chunk is what comes in one event, or as a whole answer. Fields of which
// servers disagree about the type are raw.
type chunk struct {
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`
	Message json.RawMessage `json:"message"` // of vLLM's old errors
	Code    json.RawMessage `json:"code"`
}

type choice struct {
	Index   int             `json:"index"`
	Delta   *part           `json:"delta"`
	Message *part           `json:"message"`
	Finish  json.RawMessage `json:"finish_reason"`
	Error   json.RawMessage `json:"error"`
}

type part struct {
	Content          json.RawMessage   `json:"content"`
	ReasoningContent json.RawMessage   `json:"reasoning_content"`
	Reasoning        json.RawMessage   `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	Refusal          json.RawMessage   `json:"refusal"`
	ToolCalls        []callPart        `json:"tool_calls"`
	FunctionCall     *function         `json:"function_call"` // what calls were before there were several
}

type callPart struct {
	Index    json.RawMessage `json:"index"`
	ID       json.RawMessage `json:"id"`
	Function function        `json:"function"`
	Extra    json.RawMessage `json:"extra_content"`
}

type function struct {
	Name      json.RawMessage `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type usage struct {
	Prompt     float64 `json:"prompt_tokens"`
	Completion float64 `json:"completion_tokens"`
	Hit        float64 `json:"prompt_cache_hit_tokens"` // DeepSeek
	In         *struct {
		Cached float64 `json:"cached_tokens"`
		Write  float64 `json:"cache_write_tokens"` // OpenRouter
	} `json:"prompt_tokens_details"`
	Out *struct {
		Reasoning float64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// answer puts chunks together and passes their deltas on.
type answer struct {
	c         *call
	model     string
	reasoning strings.Builder
	field     string // under which reasoning came
	details   []map[string]json.RawMessage
	text      strings.Builder
	gate      *textCalls // nil: text is text
	calls     []*building
	byIndex   map[string]*building
	usage     *usage
	stop      llm.Stop
	done      bool // the end mark came
}

func newAnswer(c *call) *answer {
	a := &answer{c: c, byIndex: map[string]*building{}}
	if len(c.req.Tools) > 0 && c.req.Choice.Mode != llm.ChoiceNone && !c.m.o.NoTextCalls {
		a.gate = newTextCalls(c.req.Tools)
	}
	return a
}

func (a *answer) senseless(format string, args ...any) error {
	return fault.Senseless(a.c.m.o.Info.Name, format, args...)
}

// say passes a delta on.
func (a *answer) say(d llm.Delta) error {
	if !a.c.yield(d, nil) {
		return errLeft
	}
	return nil
}

// take reads one chunk. What it cannot read it does not quote: a chunk may hold
// anything that the model wrote.
func (a *answer) take(data []byte, streamed bool) error {
	var c chunk
	if err := json.Unmarshal(bytes.ToValidUTF8(data, []byte("\uFFFD")), &c); err != nil {
		return a.senseless("a chunk of %d bytes is no JSON of this dialect", len(data))
	}
	if present(c.Error) || c.Object == "error" {
		return a.said(data)
	}
	if a.model == "" {
		a.model = c.Model
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if !streamed && len(c.Choices) == 0 {
		return a.senseless("an answer without choices")
	}
	for i := range c.Choices {
		if c.Choices[i].Index != 0 {
			continue // a second choice was not asked for
		}
		if err := a.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) choice(c *choice) error {
	if present(c.Error) {
		return a.said(c.Error)
	}
	for _, p := range []*part{c.Delta, c.Message} {
		if p == nil {
			continue
		}
		if err := a.part(p); err != nil {
			return err
		}
	}
	return a.finishReason(str(c.Finish))
}

// said makes an error of one that came inside an answer.
func (a *answer) said(data []byte) error {
	var shape struct {
		Code  json.RawMessage `json:"code"`
		Error json.RawMessage `json:"error"`
	}
	code := 0
	if json.Unmarshal(data, &shape) == nil {
		var inner struct {
			Code   json.RawMessage `json:"code"`
			Status json.RawMessage `json:"status"`
		}
		_ = json.Unmarshal(shape.Error, &inner) // a text has no code
		for _, raw := range []json.RawMessage{shape.Code, inner.Code, inner.Status} {
			if n := statusCode(raw); n != 0 {
				code = n
			}
		}
	}
	return fault.Said(a.c.m.o.Info.Name, code, fault.Message(data), a.c.req, a.c.m.secrets()...)
}

// statusCode reads a status of HTTP, as a number or a string.
func statusCode(raw json.RawMessage) int {
	var n int
	if json.Unmarshal(bytes.Trim(raw, `"`), &n) != nil || n < 400 || n > 599 {
		return 0
	}
	return n
}

func (a *answer) part(p *part) error {
	if err := a.reason(p); err != nil {
		return err
	}
	thought, text := content(p.Content)
	if err := a.think("reasoning_content", thought); err != nil {
		return err
	}
	if refusal := str(p.Refusal); refusal != "" {
		a.stop = llm.StopRefusal
		text += refusal
	}
	if err := a.write(text); err != nil {
		return err
	}
	for i := range p.ToolCalls {
		if err := a.callPart(&p.ToolCalls[i]); err != nil {
			return err
		}
	}
	if p.FunctionCall != nil {
		return a.callPart(&callPart{Index: json.RawMessage("0"), Function: *p.FunctionCall})
	}
	return nil
}

// reason takes reasoning under the name that this server uses: if it sends
// both, they say the same.
func (a *answer) reason(p *part) error {
	field, text := "reasoning_content", str(p.ReasoningContent)
	if a.field == "reasoning" || text == "" {
		if other := str(p.Reasoning); other != "" {
			field, text = "reasoning", other
		}
	}
	if a.field != "" && a.field != field {
		text = ""
	}
	if err := a.think(field, text); err != nil {
		return err
	}
	for _, raw := range p.ReasoningDetails {
		if err := a.detail(raw); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) think(field, text string) error {
	if text == "" {
		return nil
	}
	a.field = field
	a.reasoning.WriteString(text)
	return a.say(llm.Delta{Kind: llm.DeltaReasoning, Text: text})
}

// detail keeps opaque reasoning. Pieces of one text become one entry again;
// whatever else they carry, the last word holds.
func (a *answer) detail(raw json.RawMessage) error {
	var d map[string]json.RawMessage
	if json.Unmarshal(raw, &d) != nil || d == nil {
		return nil
	}
	if n := len(a.details); n > 0 && sameDetail(a.details[n-1], d) {
		last := a.details[n-1]
		for k, v := range d {
			if grown := str(last[k]) + str(v); (k == "text" || k == "summary") && grown != "" {
				last[k] = quote(nil, grown)
			} else if string(v) != "null" {
				last[k] = v
			}
		}
		return nil
	}
	if len(a.details) == detailsMax {
		return a.senseless("more than %d reasoning details", detailsMax)
	}
	a.details = append(a.details, d)
	return nil
}

func sameDetail(a, b map[string]json.RawMessage) bool {
	kind := str(a["type"])
	return (kind == "reasoning.text" || kind == "reasoning.summary") && kind == str(b["type"]) && string(a["index"]) == string(b["index"])
}

// write takes text. Behind the gate it waits until it is clear whether it is
// a tool call.
func (a *answer) write(text string) error {
	if text == "" {
		return nil
	}
	if a.gate != nil {
		text = a.gate.Push(text)
	}
	return a.show(text)
}

func (a *answer) show(text string) error {
	if text == "" {
		return nil
	}
	a.text.WriteString(text)
	return a.say(llm.Delta{Kind: llm.DeltaText, Text: text})
}

// finishReason understands why the model stopped, in the words of many.
func (a *answer) finishReason(word string) error {
	switch strings.ToLower(word) {
	case "", "null":
		return nil
	case "length", "max_tokens", "model_length", "max_output_tokens":
		a.stop = llm.StopLength
	case "content_filter", "safety", "recitation", "prohibited_content", "blocklist":
		a.stop = llm.StopFilter
	case "refusal":
		a.stop = llm.StopRefusal
	case "pause_turn":
		a.stop = llm.StopPause
	case "error", "abort", "aborted", "cancelled", "insufficient_system_resource":
		return fault.Said(a.c.m.o.Info.Name, 0, "the server stopped by itself: "+word, nil)
	default: // stop, tool_calls, function_call, eos, end_turn, COMPLETE: the calls themselves tell
		if a.stop != llm.StopRefusal {
			a.stop = llm.StopEnd
		}
	}
	return nil
}

// finish ends the answer and yields the response.
func (a *answer) finish() error {
	if a.stop == "" && a.text.Len() == 0 && len(a.calls) == 0 && (a.gate == nil || a.gate.Empty()) && a.usage == nil && a.reasoning.Len() == 0 {
		return a.senseless("an answer of nothing")
	}
	if err := a.open(); err != nil {
		return err
	}
	blocks, err := a.blocks()
	if err != nil {
		return err
	}
	resp := &llm.Response{Message: llm.Assistant(blocks...), Stop: a.stop, Model: a.model, Usage: a.count()}
	if resp.Model == "" {
		resp.Model = a.c.m.o.Info.ID
	}
	if len(a.calls) > 0 && (a.stop == llm.StopEnd || a.stop == "") {
		resp.Stop = llm.StopTools
	} else if a.stop == "" {
		resp.Stop = llm.StopEnd
	}
	return a.say(llm.Delta{Kind: llm.DeltaDone, Response: resp})
}

// open lets out what the gate held back: text, and the calls it found. A call
// that the server also sent as one is no second call.
func (a *answer) open() error {
	if n := len(a.calls); n > 0 { // those without arguments
		if err := a.announce(a.calls[n-1]); err != nil {
			return err
		}
	}
	if a.gate == nil {
		return nil
	}
	text, found := a.gate.Close()
	if err := a.show(text); err != nil {
		return err
	}
	for _, f := range found {
		if a.has(f) {
			continue
		}
		b, err := a.begin()
		if err != nil {
			return err
		}
		b.name = f.Name
		if err := a.announce(b); err != nil {
			return err
		}
		if err := a.grow(b, f.Args); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) has(f textCall) bool {
	for _, b := range a.calls {
		if b.name == f.Name && sameJSON(b.args.String(), f.Args) {
			return true
		}
	}
	return false
}

func sameJSON(a, b string) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func (a *answer) blocks() ([]llm.Block, error) {
	var blocks []llm.Block
	if a.reasoning.Len() > 0 || len(a.details) > 0 {
		e := echo{From: a.c.m.from, Field: a.field}
		if len(a.details) > 0 {
			e.Details = raw(a.details)
		}
		blocks = append(blocks, llm.Block{Kind: llm.KindReasoning, Text: a.reasoning.String(), Vendor: &llm.Vendor{Dialect: "compat", Data: raw(e)}})
	}
	if a.text.Len() > 0 {
		blocks = append(blocks, llm.Text(a.text.String()))
	}
	for _, b := range a.calls {
		if b.name == "" || len(b.name) > nameMax {
			return nil, a.senseless("a tool call without a usable name")
		}
		block := llm.Block{Kind: llm.KindCall, Call: llm.NewCall(b.id, b.name, b.args.String())}
		if len(b.extra) > 0 {
			block.Vendor = &llm.Vendor{Dialect: "compat", Data: raw(echo{From: a.c.m.from, Extra: b.extra})}
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// raw encodes without the escapes for HTML, which would change opaque data.
func raw(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil // maps of raw JSON and strings always can
	}
	return bytes.TrimSpace(b.Bytes())
}

// count returns the usage, or an estimate where the server told nothing.
func (a *answer) count() llm.Usage {
	u := a.usage
	if u == nil || u.Prompt <= 0 && u.Completion <= 0 {
		out := a.text.Len() + a.reasoning.Len()
		for _, b := range a.calls {
			out += len(b.name) + b.args.Len()
		}
		return llm.Usage{Input: int(a.c.sent+3) / 4, Output: (out + 3) / 4, Estimated: true}
	}
	got := llm.Usage{Output: whole(u.Completion), CacheRead: whole(u.Hit)}
	if u.In != nil {
		got.CacheRead = max(got.CacheRead, whole(u.In.Cached))
		got.CacheWrite = whole(u.In.Write)
	}
	if u.Out != nil {
		got.Reasoning = whole(u.Out.Reasoning)
	}
	got.Input = max(0, whole(u.Prompt)-got.CacheRead-got.CacheWrite)
	return got
}

// whole makes a number of tokens of what a server counted.
func whole(f float64) int {
	if !(f > 0) {
		return 0
	}
	return int(min(f, math.MaxInt32))
}

// present reports whether a field is there and not null.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// str returns a string, "" for anything else.
func str(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// content reads a string, or a list of parts: texts, and thoughts as Mistral
// sends them.
func content(raw json.RawMessage) (thought, text string) {
	if len(raw) == 0 || raw[0] != '[' {
		return "", str(raw)
	}
	var parts []struct {
		Text     json.RawMessage `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", ""
	}
	for _, p := range parts {
		text += str(p.Text)
		if present(p.Thinking) && p.Thinking[0] == '[' {
			_, inner := content(p.Thinking)
			thought += inner
		} else {
			thought += str(p.Thinking)
		}
	}
	return thought, text
}
