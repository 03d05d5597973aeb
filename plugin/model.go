package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// Bounds of an answer.
const (
	callsMax  = 256
	blocksMax = 4096
)

// model is a model that a plug-in serves.
type model struct {
	h      *Host
	p      *Plugin
	tenant string
	info   llm.Info

	silence  time.Duration
	bytesMax int64
}

// Info implements llm.Model.
func (m *model) Info() llm.Info { return m.info }

// Stream implements llm.Model.
func (m *model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if err := m.stream(ctx, req, yield); err != nil {
			yield(llm.Delta{}, err)
		}
	}
}

// stream returns nil after the response, and when the caller has left.
func (m *model) stream(ctx context.Context, req *llm.Request, yield func(llm.Delta, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.tenant == "" {
		return errs.New(errs.Internal, "the model %s of a plug-in was asked for no tenant", m.info.Name)
	}
	c, done, err := m.h.runner(m.p, m.tenant).use(ctx)
	if err != nil {
		return m.failed(ctx, err)
	}
	answered := false
	defer func() { done(answered) }()
	k, end, err := c.begin(ctx, methodGenerate, m.params(req), m.bytesMax)
	if err != nil {
		return m.failed(ctx, err)
	}
	defer end()
	var a answer
	for {
		h, err := c.next(ctx, k, m.silence)
		if err != nil {
			return m.failed(ctx, err)
		}
		if h.Method != nil {
			d, err := a.piece(h.Params)
			if err != nil {
				return m.failed(ctx, err)
			}
			if !yield(d, nil) {
				return nil
			}
			continue
		}
		answered = true
		if h.Error != nil {
			return h.Error.ofModel(m.info.Name, req)
		}
		return m.finish(req, &a, h.Result, yield)
	}
}

// finish yields what was not told in pieces, and the response.
func (m *model) finish(req *llm.Request, a *answer, result json.RawMessage, yield func(llm.Delta, error) bool) error {
	resp, rest, err := a.whole(result, m.info.ID)
	if err != nil {
		return m.failed(context.Background(), err)
	}
	for _, b := range resp.Message.Blocks {
		if b.Vendor != nil {
			b.Vendor.Dialect = m.dialect()
		}
	}
	if resp.Usage == (llm.Usage{}) {
		resp.Usage = estimate(req, resp.Message)
	}
	for _, d := range rest {
		if !yield(d, nil) {
			return nil
		}
	}
	yield(llm.Delta{Kind: llm.DeltaDone, Response: resp}, nil)
	return nil
}

// failed is an error of the plug-in as one of a model.
func (m *model) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := fault.Broken(m.info.Name, err)
	if wait, ok := errors.AsType[*notYet](err); ok {
		e.RetryAfter = wait.wait
	}
	switch {
	case errors.Is(err, errTooLong), errs.Is(err, errs.Invalid):
		e.Trouble = llm.Malformed
	case errs.Is(err, errs.Limit): // what it would be sent
		e.Trouble = llm.BadRequest
	}
	e.Said = errs.Public(err)
	return e
}

// request is an llm.Request as plug-ins read it.
type request struct {
	Model           string         `json:"model"`
	System          []block        `json:"system,omitempty"`
	Messages        []talk         `json:"messages"`
	Tools           []llm.ToolSpec `json:"tools,omitempty"`
	Choice          *choice        `json:"choice,omitempty"`
	Serial          bool           `json:"serial,omitempty"`
	OutputTokensMax int            `json:"output_tokens_max,omitempty"`
	Temperature     *float64       `json:"temperature,omitempty"`
	Effort          string         `json:"effort,omitempty"`
	Schema          *llm.Schema    `json:"schema,omitempty"`
	CacheKey        string         `json:"cache_key,omitempty"`
	Stop            []string       `json:"stop,omitempty"`
	Step            int            `json:"step,omitempty"`
}

type choice struct {
	Mode llm.ChoiceMode `json:"mode"`
	Name string         `json:"name,omitempty"`
}

// talk is an llm.Message, block an llm.Block.
type talk struct {
	Role   llm.Role `json:"role"`
	Blocks []block  `json:"blocks"`
	Cache  bool     `json:"cache,omitempty"`
}

type block struct {
	Kind   llm.Kind        `json:"kind"`
	Text   string          `json:"text,omitempty"`
	Call   *callBlock      `json:"call,omitempty"`
	Result *resultBlock    `json:"result,omitempty"`
	Media  *mediaBlock     `json:"media,omitempty"`
	Opaque json.RawMessage `json:"opaque,omitempty"` // the plug-in's own, as it was
	Cache  bool            `json:"cache,omitempty"`
}

type callBlock struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // an object; in an answer also text, as the model wrote it
}

type resultBlock struct {
	CallID string  `json:"call_id"`
	Name   string  `json:"name,omitempty"`
	Blocks []block `json:"blocks"`
	Failed bool    `json:"failed,omitempty"`
}

type mediaBlock struct {
	Type string `json:"type"`
	Data []byte `json:"data"` // base64
}

func (m *model) params(req *llm.Request) request {
	r := request{
		Model: m.info.ID, System: m.blocks(req.System, false), Messages: make([]talk, 0, len(req.Messages)), Tools: req.Tools, Serial: req.Serial,
		OutputTokensMax: req.OutputTokensMax, Temperature: req.Temperature, Effort: req.Effort, Schema: req.Schema, CacheKey: req.CacheKey, Stop: req.Stop, Step: req.Step,
	}
	if most := m.info.OutputTokensMax; most > 0 && (r.OutputTokensMax == 0 || r.OutputTokensMax > most) {
		r.OutputTokensMax = most
	}
	if req.Choice.Mode != llm.ChoiceAuto {
		r.Choice = &choice{req.Choice.Mode, req.Choice.Name}
	}
	for _, t := range req.Messages {
		r.Messages = append(r.Messages, talk{t.Role, m.blocks(t.Blocks, true), t.Cache})
	}
	return r
}

// dialect is Vendor.Dialect of what a plug-in's models answer.
func (m *model) dialect() string { return "plugin/" + m.p.Name }

// blocks are the blocks without what only others understand: opaque data and the reasoning of
// other vendors.
func (m *model) blocks(list []llm.Block, said bool) []block {
	out := make([]block, 0, len(list))
	for _, b := range list {
		o := block{Kind: b.Kind, Text: b.Text, Cache: b.Cache && !said}
		own := b.Vendor != nil && b.Vendor.Dialect == m.dialect()
		if b.Kind == llm.KindReasoning && b.Vendor != nil && !own {
			continue
		}
		if own {
			o.Opaque = b.Vendor.Data
		}
		switch {
		case b.Call != nil:
			o.Call = &callBlock{b.Call.ID, b.Call.Name, b.Call.Args}
			if b.Call.Raw { // it was no object; the result says so
				o.Call.Args = json.RawMessage("{}")
			}
		case b.Result != nil:
			o.Result = &resultBlock{b.Result.CallID, b.Result.Name, m.blocks(b.Result.Blocks, true), b.Result.Failed}
		case b.Media != nil:
			o.Media = &mediaBlock{b.Media.Type, b.Media.Data}
		}
		out = append(out, o)
	}
	return out
}

// result is the last message of an answer.
type result struct {
	// Message is the whole answer; nil = what the pieces were.
	Message *talk     `json:"message"`
	Usage   llm.Usage `json:"usage"`
	Stop    llm.Stop  `json:"stop"`
	Model   string    `json:"model"`
}

// answer is what pieces have told so far.
type answer struct {
	blocks []block
	args   []strings.Builder // of calls, as they were written
	text   *strings.Builder  // of the last block, if that is text or reasoning
	pieces int
}

func errAnswer(format string, args ...any) error {
	return errs.New(errs.Invalid, "the plug-in's answer makes no sense: "+format, args...)
}

// piece takes in a piece.
func (a *answer) piece(params json.RawMessage) (llm.Delta, error) {
	d, err := parseDelta(params)
	if err != nil {
		return llm.Delta{}, err
	}
	a.pieces++
	out := llm.Delta{Kind: d.Kind, Index: d.Index, Name: d.Name, Text: d.Text}
	switch d.Kind {
	case llm.DeltaText, llm.DeltaReasoning:
		kind := llm.KindText
		if d.Kind == llm.DeltaReasoning {
			kind = llm.KindReasoning
		}
		out.Index, out.Name = 0, ""
		a.say(kind, d.Text)
	case llm.DeltaCall:
		if d.Index != len(a.args) || d.Index >= callsMax || d.Name == "" {
			return out, errAnswer("call %d of %.60q was announced when %d were known", d.Index, d.Name, len(a.args))
		}
		out.Text = ""
		a.flush()
		a.args = append(a.args, strings.Builder{})
		a.blocks = append(a.blocks, block{Kind: llm.KindCall, Call: &callBlock{ID: d.Call, Name: d.Name}})
	case llm.DeltaArgs:
		if d.Index < 0 || d.Index >= len(a.args) {
			return out, errAnswer("arguments came for call %d, which was not announced", d.Index)
		}
		out.Name = ""
		a.args[d.Index].WriteString(d.Text)
	}
	return out, nil
}

// say adds to the text at the end.
func (a *answer) say(kind llm.Kind, text string) {
	if n := len(a.blocks); a.text == nil || a.blocks[n-1].Kind != kind {
		a.flush()
		a.blocks, a.text = append(a.blocks, block{Kind: kind}), &strings.Builder{}
	}
	a.text.WriteString(text)
}

func (a *answer) flush() {
	if a.text != nil {
		a.blocks[len(a.blocks)-1].Text, a.text = a.text.String(), nil
	}
}

// whole makes the response of the last message; rest is what was not told in pieces.
func (a *answer) whole(data json.RawMessage, id string) (resp *llm.Response, rest []llm.Delta, err error) {
	a.flush()
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, nil, errAnswer("%v", err)
	}
	resp = &llm.Response{Usage: r.Usage, Stop: r.Stop, Model: r.Model}
	if u := r.Usage; min(u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite) < 0 || max(u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite) > tokensMax {
		return nil, nil, errAnswer("usage %+v", u)
	}
	if resp.Message, err = a.message(r.Message); err != nil {
		return nil, nil, err
	}
	said := deltas(resp.Message)
	switch {
	case a.pieces == 0:
		rest = said
	case r.Message != nil && !a.same(resp.Message):
		return nil, nil, errAnswer("its message is not what its pieces were")
	}
	if resp.Model == "" {
		resp.Model = id
	}
	if resp.Stop, err = stopOf(r.Stop, resp.Message); err != nil {
		return nil, nil, err
	}
	return resp, rest, nil
}

// bytesPerToken is the usual guess where nothing is said.
const bytesPerToken = 4

// estimate is the usage of an answer that says nothing of it: budgets hold in any case.
func estimate(req *llm.Request, m llm.Message) llm.Usage {
	out := 0
	for _, b := range m.Blocks {
		out += len(b.Text)
		if b.Call != nil {
			out += len(b.Call.Name) + len(b.Call.Args)
		}
	}
	return llm.Usage{Input: req.SizeHint() / bytesPerToken, Output: (out + bytesPerToken - 1) / bytesPerToken, Estimated: true}
}

func stopOf(said llm.Stop, m llm.Message) (llm.Stop, error) {
	switch said {
	case llm.StopEnd, llm.StopTools, llm.StopLength, llm.StopRefusal, llm.StopFilter, llm.StopPause:
		return said, nil
	case "":
		if len(m.Calls()) > 0 {
			return llm.StopTools, nil
		}
		return llm.StopEnd, nil
	}
	return "", errAnswer("it stopped for %.40q", said)
}

// message is the answer: as the plug-in wrote it whole, or as its pieces were.
func (a *answer) message(whole *talk) (llm.Message, error) {
	blocks := a.blocks
	if whole != nil {
		if whole.Role != llm.RoleAssistant {
			return llm.Message{}, errAnswer("its message is of role %.40q", whole.Role)
		}
		blocks = whole.Blocks
	}
	if len(blocks) > blocksMax {
		return llm.Message{}, errAnswer("%d blocks, at most %d", len(blocks), blocksMax)
	}
	m := llm.Message{Role: llm.RoleAssistant}
	calls := 0
	for _, b := range blocks {
		o := llm.Block{Kind: b.Kind, Text: b.Text}
		switch b.Kind {
		case llm.KindText, llm.KindReasoning:
		case llm.KindCall:
			if b.Call == nil || b.Call.Name == "" || calls == callsMax {
				return m, errAnswer("a call without a name, or more than %d", callsMax)
			}
			written := writtenArgs(b.Call.Args)
			if whole == nil {
				written = a.args[calls].String()
			}
			calls++
			o.Text, o.Call = "", llm.NewCall(b.Call.ID, b.Call.Name, written)
			if o.Call.ID == "" {
				o.Call.ID = "call_" + strconv.Itoa(calls)
			}
		default:
			return m, errAnswer("a block of kind %.40q", b.Kind)
		}
		if len(b.Opaque) > 0 {
			o.Vendor = &llm.Vendor{Data: b.Opaque}
		}
		m.Blocks = append(m.Blocks, o)
	}
	return m, nil
}

// writtenArgs is what a model wrote as arguments: an object is itself, a text what it says.
func writtenArgs(args json.RawMessage) string {
	var text string
	if json.Unmarshal(args, &text) == nil {
		return text
	}
	return string(args)
}

// same reports whether a message is what the pieces were.
func (a *answer) same(m llm.Message) bool {
	pieces, err := a.message(nil)
	if err != nil {
		return false
	}
	join := func(m llm.Message, kind llm.Kind) string {
		var s strings.Builder
		for _, b := range m.Blocks {
			if b.Kind == kind {
				s.WriteString(b.Text)
			}
		}
		return s.String()
	}
	x, y := pieces.Calls(), m.Calls()
	if join(pieces, llm.KindText) != join(m, llm.KindText) || join(pieces, llm.KindReasoning) != join(m, llm.KindReasoning) || len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i].Name != y[i].Name || compact(x[i].Args) != compact(y[i].Args) {
			return false
		}
	}
	return true
}

// compact is JSON without the white space that a library may put into it.
func compact(args json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, args) != nil {
		return string(args)
	}
	return b.String()
}

// deltas are a message in one piece a block.
func deltas(m llm.Message) []llm.Delta {
	var list []llm.Delta
	calls := 0
	for _, b := range m.Blocks {
		switch {
		case b.Kind == llm.KindText && b.Text != "":
			list = append(list, llm.Delta{Kind: llm.DeltaText, Text: b.Text})
		case b.Kind == llm.KindReasoning && b.Text != "":
			list = append(list, llm.Delta{Kind: llm.DeltaReasoning, Text: b.Text})
		case b.Call != nil:
			written := string(b.Call.Args)
			if b.Call.Raw {
				written = writtenArgs(b.Call.Args)
			}
			list = append(list, llm.Delta{Kind: llm.DeltaCall, Index: calls, Name: b.Call.Name}, llm.Delta{Kind: llm.DeltaArgs, Index: calls, Text: written})
			calls++
		}
	}
	return list
}
