package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// cacheHintsMax is how many breakpoints the vendor takes.
const cacheHintsMax = 4

// cacheMark is what stands at a breakpoint.
const cacheMark = `,"cache_control":{"type":"ephemeral"}`

// encode writes the body of a request.
func (m *Model) encode(req *llm.Request) []byte {
	turns := merge(req.Messages)
	system, marks := placeHints(req.System, turns)

	b := make([]byte, 0, req.SizeHint())
	b = append(b, `{"model":`...)
	b = fault.AppendString(b, m.c.Info.ID)
	tokens := m.outputTokens(req)
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(tokens), 10)
	b = append(b, `,"stream":true`...)
	b = m.appendThinking(b, req, turns, tokens)
	b = appendSystem(b, req.System, system)
	b = appendTools(b, req.Tools)
	b = m.appendChoice(b, req)
	b = appendStop(b, req.Stop)
	b = append(b, `,"messages":[`...)
	for i, t := range turns {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTurn(b, t, marks[i])
	}
	return append(b, "]}"...)
}

func (m *Model) outputTokens(req *llm.Request) int {
	limit := m.c.Info.OutputTokensMax
	switch {
	case req.OutputTokensMax > 0 && limit > 0:
		return min(req.OutputTokensMax, limit)
	case req.OutputTokensMax > 0:
		return req.OutputTokensMax
	case limit > 0:
		return min(limit, 2*outputTokensDefault)
	}
	return outputTokensDefault
}

// turn is what the vendor calls a message: roles alternate.
type turn struct {
	role   llm.Role
	blocks []llm.Block // results first; nothing that the vendor refuses
	cache  bool
}

// merge makes alternating turns of messages, leaves out what cannot be said
// (empty texts, reasoning of others), and pairs calls with results: each call
// is answered in the very next turn or the vendor refuses the whole request.
func merge(messages []llm.Message) []turn {
	var turns []turn
	for _, m := range messages {
		blocks := sayable(m.Blocks)
		if len(blocks) == 0 {
			if m.Cache && len(turns) > 0 {
				turns[len(turns)-1].cache = true
			}
			continue
		}
		if last := len(turns) - 1; last >= 0 && turns[last].role == m.Role {
			turns[last].blocks = append(slices.Clip(turns[last].blocks), blocks...)
			turns[last].cache = turns[last].cache || m.Cache
			continue
		}
		turns = append(turns, turn{role: m.Role, blocks: blocks, cache: m.Cache})
	}
	return pair(turns)
}

// sayable returns the blocks that go over the wire; the same slice if all do.
func sayable(blocks []llm.Block) []llm.Block {
	for i := range blocks {
		if !says(blocks[i]) {
			return slices.DeleteFunc(slices.Clone(blocks), func(b llm.Block) bool { return !says(b) })
		}
	}
	return blocks
}

func says(b llm.Block) bool {
	switch b.Kind {
	case llm.KindText:
		return strings.TrimSpace(b.Text) != "" // the vendor refuses blank texts
	case llm.KindReasoning:
		return b.Vendor != nil && b.Vendor.Dialect == dialect && len(b.Vendor.Data) > 0
	case llm.KindCall:
		return b.Call != nil
	case llm.KindResult:
		return b.Result != nil
	case llm.KindMedia:
		return b.Media != nil
	}
	return false
}

// pair puts the results of a turn first, answers calls that have no result,
// and turns results that answer no call into text.
func pair(turns []turn) []turn {
	for i := 0; i < len(turns); i++ {
		var open []*llm.Call
		if i > 0 && turns[i-1].role == llm.RoleAssistant {
			open = llm.Message{Blocks: turns[i-1].blocks}.Calls()
		}
		if turns[i].role == llm.RoleUser {
			turns[i].blocks = answer(open, turns[i].blocks)
			continue
		}
		if last := i == len(turns)-1; last && len(llm.Message{Blocks: turns[i].blocks}.Calls()) > 0 {
			turns = append(turns, turn{role: llm.RoleUser})
		}
	}
	return turns
}

// unanswered is the result of a call whose result is missing. It is the same
// each time, so that caches hold.
const unanswered = "No result of this call was recorded."

func answer(calls []*llm.Call, blocks []llm.Block) []llm.Block {
	if len(calls) == 0 && !slices.ContainsFunc(blocks, isResult) {
		return blocks
	}
	out := make([]llm.Block, 0, len(blocks)+len(calls))
	for _, c := range calls {
		at := slices.IndexFunc(blocks, func(b llm.Block) bool { return isResult(b) && b.Result.CallID == c.ID })
		if at >= 0 {
			out = append(out, blocks[at])
			continue
		}
		out = append(out, llm.Block{Kind: llm.KindResult, Result: &llm.Result{CallID: c.ID, Failed: true, Blocks: []llm.Block{llm.Text(unanswered)}}})
	}
	for _, b := range blocks {
		if !isResult(b) {
			out = append(out, b)
			continue
		}
		known := slices.ContainsFunc(calls, func(c *llm.Call) bool { return c.ID == b.Result.CallID })
		if !known {
			out = append(out, llm.Text("Result of an earlier call of "+b.Result.Name+":"))
			out = append(out, sayable(b.Result.Blocks)...)
		}
	}
	return out
}

func isResult(b llm.Block) bool { return b.Kind == llm.KindResult && b.Result != nil }

// placeHints chooses the breakpoints: the last ones of system and turns win.
func placeHints(system []llm.Block, turns []turn) (inSystem []bool, inTurns []bool) {
	inSystem, inTurns = make([]bool, len(system)), make([]bool, len(turns))
	left := cacheHintsMax
	for i := len(turns) - 1; i >= 0 && left > 0; i-- {
		if turns[i].cache {
			inTurns[i] = true
			left--
		}
	}
	for i := len(system) - 1; i >= 0 && left > 0; i-- {
		if system[i].Cache && says(system[i]) {
			inSystem[i] = true
			left--
		}
	}
	return inSystem, inTurns
}

func (m *Model) appendThinking(b []byte, req *llm.Request, turns []turn, tokens int) []byte {
	thinking := m.thinking(req, turns, tokens)
	b = append(b, thinking...)
	b = m.appendOutputConfig(b, req)
	if req.Temperature != nil && m.form.sampling && thinking == "" {
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, *req.Temperature, 'g', -1, 64)
	}
	return b
}

// thinking returns the member of the request, "" for none.
func (m *Model) thinking(req *llm.Request, turns []turn, tokens int) string {
	switch {
	case m.form.bound:
		// The agent clears old outputs and compacts: thinking behind such a
		// change no longer counts, and must not cost the whole request.
		return `,"thinking":{"type":"adaptive","display":"summarized","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`
	case req.Effort == "" || forces(req.Choice):
		return ""
	case m.form.adaptive:
		return `,"thinking":{"type":"adaptive","display":"summarized"}`
	}
	budget := min(budgets[req.Effort], tokens/2)
	if budget < budgetMin || !beginsWithThinking(turns) {
		return ""
	}
	return `,"thinking":{"type":"enabled","budget_tokens":` + strconv.Itoa(budget) + `}`
}

func forces(c llm.Choice) bool { return c.Mode == llm.ChoiceAny || c.Mode == llm.ChoiceTool }

// beginsWithThinking reports whether a budget may be given: within a chain of
// calls the vendor wants each assistant turn to begin with its thinking, which
// is not there if another model made it.
func beginsWithThinking(turns []turn) bool {
	for i := len(turns) - 1; i > 0; i-- {
		if turns[i].role != llm.RoleUser || !slices.ContainsFunc(turns[i].blocks, isResult) {
			return true
		}
		if before := turns[i-1].blocks; len(before) > 0 && before[0].Kind != llm.KindReasoning {
			return false
		}
		i-- // the assistant's turn
	}
	return true
}

func (m *Model) appendOutputConfig(b []byte, req *llm.Request) []byte {
	var members []string
	if req.Effort != "" && m.form.effort {
		members = append(members, `"effort":`+string(fault.AppendString(nil, req.Effort)))
	}
	if req.Schema != nil && m.form.schema && schemaFits(req.Schema.Schema) {
		members = append(members, `"format":{"type":"json_schema","schema":`+string(req.Schema.Schema)+`}`)
	}
	if len(members) == 0 {
		return b
	}
	return append(b, `,"output_config":{`+strings.Join(members, ",")+`}`...)
}

func appendSystem(b []byte, blocks []llm.Block, marks []bool) []byte {
	first := true
	for i, block := range blocks {
		if block.Kind != llm.KindText || !says(block) {
			continue
		}
		if first {
			b = append(b, `,"system":[`...)
		} else {
			b = append(b, ',')
		}
		first = false
		b = appendText(b, block.Text)
		b = closeBlock(b, marks[i])
	}
	if !first {
		b = append(b, ']')
	}
	return b
}

func appendTools(b []byte, tools []llm.ToolSpec) []byte {
	for i, t := range tools {
		if i == 0 {
			b = append(b, `,"tools":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = fault.AppendString(b, t.Name)
		if t.Description != "" {
			b = append(b, `,"description":`...)
			b = fault.AppendString(b, t.Description)
		}
		b = append(b, `,"input_schema":`...)
		b = fault.AppendRaw(b, t.Schema, `{"type":"object"}`)
		b = append(b, '}')
	}
	if len(tools) > 0 {
		b = append(b, ']')
	}
	return b
}

// appendChoice writes tool_choice. Models that are bound refuse to be forced:
// they get "auto", and the agent sees whether they called.
func (m *Model) appendChoice(b []byte, req *llm.Request) []byte {
	if len(req.Tools) == 0 {
		return b
	}
	mode := req.Choice.Mode
	if m.form.bound && forces(req.Choice) {
		mode = llm.ChoiceAuto
	}
	serial := ""
	if req.Serial && mode != llm.ChoiceNone {
		serial = `,"disable_parallel_tool_use":true`
	}
	switch mode {
	case llm.ChoiceNone:
		return append(b, `,"tool_choice":{"type":"none"}`...)
	case llm.ChoiceAny:
		return append(b, `,"tool_choice":{"type":"any"`+serial+`}`...)
	case llm.ChoiceTool:
		b = append(b, `,"tool_choice":{"type":"tool","name":`...)
		b = fault.AppendString(b, req.Choice.Name)
		return append(b, serial+`}`...)
	}
	if serial == "" {
		return b
	}
	return append(b, `,"tool_choice":{"type":"auto"`+serial+`}`...)
}

func appendStop(b []byte, stop []string) []byte {
	n := 0
	for _, s := range stop {
		if strings.TrimSpace(s) == "" {
			continue // the vendor refuses blank ones
		}
		if n++; n == 1 {
			b = append(b, `,"stop_sequences":[`...)
		} else {
			b = append(b, ',')
		}
		b = fault.AppendString(b, s)
	}
	if n > 0 {
		b = append(b, ']')
	}
	return b
}

func appendTurn(b []byte, t turn, mark bool) []byte {
	b = append(b, `{"role":"`...)
	b = append(b, t.role...)
	b = append(b, `","content":[`...)
	at := -1
	if mark { // thinking cannot carry a breakpoint
		for i, block := range t.blocks {
			if block.Kind != llm.KindReasoning {
				at = i
			}
		}
	}
	for i, block := range t.blocks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBlock(b, block, i == at)
	}
	return append(b, "]}"...)
}

func closeBlock(b []byte, mark bool) []byte {
	if mark {
		b = append(b, cacheMark...)
	}
	return append(b, '}')
}

func appendText(b []byte, text string) []byte {
	b = append(b, `{"type":"text","text":`...)
	return fault.AppendString(b, text)
}

func appendBlock(b []byte, block llm.Block, mark bool) []byte {
	switch block.Kind {
	case llm.KindReasoning:
		return append(b, block.Vendor.Data...)
	case llm.KindCall:
		return closeBlock(appendCall(b, block.Call), mark)
	case llm.KindResult:
		return closeBlock(appendResult(b, block.Result), mark)
	case llm.KindMedia:
		return closeBlock(appendMedia(b, block.Media), mark)
	}
	return closeBlock(appendText(b, block.Text), mark)
}

func appendCall(b []byte, c *llm.Call) []byte {
	b = append(b, `{"type":"tool_use","id":`...)
	b = fault.AppendString(b, c.ID)
	b = append(b, `,"name":`...)
	b = fault.AppendString(b, c.Name)
	b = append(b, `,"input":`...)
	if c.Raw || !json.Valid(c.Args) { // the vendor takes objects only
		b = append(b, `{"raw":`...)
		if c.Raw && json.Valid(c.Args) {
			b = append(b, c.Args...)
		} else {
			b = fault.AppendString(b, string(c.Args))
		}
		return append(b, '}')
	}
	return append(b, c.Args...)
}

func appendResult(b []byte, r *llm.Result) []byte {
	b = append(b, `{"type":"tool_result","tool_use_id":`...)
	b = fault.AppendString(b, r.CallID)
	n := 0
	for _, block := range r.Blocks {
		if (block.Kind != llm.KindText && block.Kind != llm.KindMedia) || !says(block) {
			continue
		}
		if n++; n == 1 {
			b = append(b, `,"content":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendBlock(b, block, false)
	}
	if n > 0 {
		b = append(b, ']')
	}
	if r.Failed {
		b = append(b, `,"is_error":true`...)
	}
	return b
}

// appendMedia writes images and documents; what the vendor cannot take becomes
// a note, because a model that is told can ask for something else.
func appendMedia(b []byte, m *llm.Media) []byte {
	kind := ""
	switch {
	case len(m.Data) == 0:
		return appendText(b, "["+m.Type+", not available]")
	case strings.HasPrefix(m.Type, "image/"):
		kind = "image"
	case m.Type == llm.PDF:
		kind = "document"
	default:
		return appendText(b, "["+m.Type+", which this model cannot read]")
	}
	b = append(b, `{"type":"`+kind+`","source":{"type":"base64","media_type":`...)
	b = fault.AppendString(b, m.Type)
	b = append(b, `,"data":"`...)
	b = base64.StdEncoding.AppendEncode(b, m.Data)
	return append(b, `"}`...)
}
