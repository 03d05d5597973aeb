package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/llm"
)

// event is what this package reads of a stream's events.
type event struct {
	Type     string          `json:"type"`
	Index    int             `json:"output_index"`
	Part     int             `json:"summary_index"`
	Delta    string          `json:"delta"`
	Item     json.RawMessage `json:"item"`
	Response *result         `json:"response"`
	// Of an event of type "error"; gateways put them into an object.
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Error   *apiErr `json:"error"`
}

// result is the response as its first and last events have it.
type result struct {
	Status     string            `json:"status"`
	Model      string            `json:"model"`
	Output     []json.RawMessage `json:"output"`
	Error      *apiErr           `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input        int `json:"input_tokens"`
		Output       int `json:"output_tokens"`
		InputDetails struct {
			Cached  int `json:"cached_tokens"`
			Written int `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
}

func parseEvent(data []byte) (event, error) {
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return ev, fmt.Errorf("an event is no JSON of an event: %w", err)
	}
	return ev, nil
}

// failed returns what an event says went wrong.
func (ev event) failed() (apiErr, bool) {
	switch {
	case ev.Type == "response.failed":
		if ev.Response != nil && ev.Response.Error != nil {
			return *ev.Response.Error, true
		}
		return apiErr{Message: "the response failed"}, true
	case ev.Error != nil:
		return *ev.Error, true
	case ev.Type == "error":
		return apiErr{Code: ev.Code, Message: ev.Message}, true
	}
	return apiErr{}, false
}

// outputMax bounds the items of an answer.
const outputMax = 4096

// tokenBytes is how many bytes a token is taken for where the server counts none.
const tokenBytes = 4

// assembly puts an answer together.
type assembly struct {
	yield func(llm.Delta) bool
	m     *Model
	sent  int // bytes of the request
	heard int // bytes of text, reasoning and arguments

	begun   bool
	items   []*item // by output index
	calls   int
	refused bool
	end     *result
}

// item is an output item: as it was announced, as it grew, as it ended.
type item struct {
	wireItem
	raw  json.RawMessage // of the end; nil: it did not come
	text strings.Builder // what the deltas brought
	call int             // which call of the answer
	seen bool            // it was announced to the caller
}

type wireItem struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Status    string  `json:"status"`
	Phase     string  `json:"phase"`
	CallID    string  `json:"call_id"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Content   []part  `json:"content"`
	Summary   []part  `json:"summary"`
	Encrypted *string `json:"encrypted_content"`
}

type part struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// add takes an event; done at the end of the response. An error means that the
// stream makes no sense, or errLeft.
func (a *assembly) add(ev event) (done bool, err error) {
	a.begun = a.begun || strings.HasPrefix(ev.Type, "response.")
	switch ev.Type {
	case "response.output_item.added":
		return false, a.announce(ev.Index, ev.Item)
	case "response.output_item.done":
		return false, a.complete(ev.Index, ev.Item)
	case "response.output_text.delta", "response.refusal.delta":
		return false, a.grow(ev, "message", llm.DeltaText)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return false, a.grow(ev, "reasoning", llm.DeltaReasoning)
	case "response.reasoning_summary_part.added":
		if ev.Part > 0 {
			ev.Delta = partsGap
			return false, a.grow(ev, "reasoning", llm.DeltaReasoning)
		}
	case "response.function_call_arguments.delta":
		return false, a.grow(ev, "function_call", llm.DeltaArgs)
	case "response.completed", "response.incomplete":
		if ev.Response == nil {
			return false, errors.New("the last event holds no response")
		}
		a.end = ev.Response
		return true, nil
	}
	return false, nil // what the vendor adds later
}

// partsGap stands between the parts of a summary.
const partsGap = "\n\n"

// announce takes the beginning of an item.
func (a *assembly) announce(index int, raw json.RawMessage) error {
	if index < 0 || index > len(a.items) || index >= outputMax {
		return fmt.Errorf("item %d follows %d items", index, len(a.items))
	}
	var w wireItem
	if err := json.Unmarshal(raw, &w); err != nil {
		return fmt.Errorf("item %d: %w", index, err)
	}
	if index == len(a.items) {
		a.items = append(a.items, &item{})
	}
	it := a.items[index]
	it.wireItem = w
	if w.Type != "function_call" || it.seen {
		return nil
	}
	it.seen, it.call = true, a.calls
	a.calls++
	if !a.yield(llm.Delta{Kind: llm.DeltaCall, Index: it.call, Name: w.Name}) {
		return errLeft
	}
	return nil
}

func (a *assembly) grow(ev event, kind string, delta llm.DeltaKind) error {
	if ev.Index < 0 || ev.Index >= len(a.items) {
		return fmt.Errorf("a delta of item %d, which did not begin", ev.Index)
	}
	it := a.items[ev.Index]
	if deltaOf[it.Type] == "" {
		return nil // of a kind that was not asked for
	}
	if it.Type != kind {
		return fmt.Errorf("a delta of item %d, which is no %s", ev.Index, kind)
	}
	return a.say(it, delta, ev.Delta)
}

// deltaOf says what the items that we know consist of.
var deltaOf = map[string]llm.DeltaKind{"message": llm.DeltaText, "reasoning": llm.DeltaReasoning, "function_call": llm.DeltaArgs}

func (a *assembly) say(it *item, kind llm.DeltaKind, text string) error {
	if text == "" {
		return nil
	}
	it.text.WriteString(text)
	a.heard += len(text)
	if !a.yield(llm.Delta{Kind: kind, Index: it.call, Text: text}) {
		return errLeft
	}
	return nil
}

// complete takes an item as it ended. What the deltas left out is said now.
func (a *assembly) complete(index int, raw json.RawMessage) error {
	if err := a.announce(index, raw); err != nil {
		return err
	}
	it := a.items[index]
	it.raw = raw
	kind := deltaOf[it.Type]
	if kind == "" {
		return nil
	}
	if rest, ok := strings.CutPrefix(it.whole(), it.text.String()); ok {
		return a.say(it, kind, rest)
	}
	return nil
}

// finish takes from the whole response what no event brought by itself.
func (a *assembly) finish() error {
	for i, raw := range a.end.Output {
		if i < len(a.items) && a.items[i].raw != nil {
			continue
		}
		if err := a.complete(i, raw); err != nil {
			return err
		}
	}
	return nil
}

// whole is the text of an item as its end has it.
func (it *item) whole() string {
	switch it.Type {
	case "function_call":
		return it.Arguments
	case "reasoning":
		var parts []string
		for _, p := range it.Summary {
			parts = append(parts, p.Text)
		}
		if len(parts) > 0 {
			return strings.Join(parts, partsGap)
		}
	}
	var s strings.Builder
	for _, p := range it.Content {
		s.WriteString(p.Text + p.Refusal)
	}
	return s.String()
}

// said is the text of an item: what the deltas brought, for that is what the
// caller saw.
func (it *item) said() string { return it.text.String() }

func (a *assembly) response() llm.Response {
	r := llm.Response{Message: llm.Message{Role: llm.RoleAssistant}, Model: a.end.Model}
	if r.Model == "" {
		r.Model = a.m.c.Info.ID
	}
	if u := a.end.Usage; u != nil {
		r.Usage = llm.Usage{
			Input:  max(0, u.Input-u.InputDetails.Cached-u.InputDetails.Written),
			Output: u.Output, Reasoning: u.OutputDetails.Reasoning,
			CacheRead: u.InputDetails.Cached, CacheWrite: u.InputDetails.Written,
		}
	} else {
		r.Usage = llm.Usage{Input: a.sent / tokenBytes, Output: (a.heard + tokenBytes - 1) / tokenBytes, Estimated: true}
	}
	for _, it := range a.items {
		if block, ok := a.neutral(it); ok {
			r.Message.Blocks = append(r.Message.Blocks, block)
		}
	}
	r.Stop = a.stop()
	return r
}

// neutral returns an item in our form; not ok for kinds that were not asked for.
func (a *assembly) neutral(it *item) (llm.Block, bool) {
	switch it.Type {
	case "message":
		for _, p := range it.Content {
			a.refused = a.refused || p.Type == "refusal"
		}
		b := llm.Text(it.said())
		b.Vendor = a.labelled(it)
		return b, b.Text != ""
	case "reasoning":
		b := llm.Block{Kind: llm.KindReasoning, Text: it.said()}
		// Without its sealed content the vendor would look for an item that it
		// was told not to store.
		if it.raw != nil && it.Encrypted != nil && *it.Encrypted != "" {
			b.Vendor = a.m.vendor(it.raw)
		}
		return b, true
	case "function_call":
		b := llm.Block{Kind: llm.KindCall, Call: llm.NewCall(it.CallID, it.Name, it.said())}
		b.Vendor = a.labelled(it)
		return b, true
	}
	return llm.Block{}, false
}

func (a *assembly) labelled(it *item) *llm.Vendor {
	if it.ID == "" && it.Phase == "" {
		return nil
	}
	l := label{ID: it.ID, Phase: it.Phase}
	if it.Type == "message" && it.ID != "" {
		if l.Status = it.Status; l.Status == "" {
			l.Status = "completed"
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		return nil // strings always can
	}
	return a.m.vendor(data)
}

func (a *assembly) stop() llm.Stop {
	if a.end.Incomplete != nil && a.end.Status == "incomplete" {
		if a.end.Incomplete.Reason == "content_filter" {
			return llm.StopFilter
		}
		return llm.StopLength
	}
	switch {
	case a.refused:
		return llm.StopRefusal
	case a.calls > 0:
		return llm.StopTools
	}
	return llm.StopEnd
}
