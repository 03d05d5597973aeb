package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"

	"github.com/skete-dev/skete/errs"
)

// Model is one model of one vendor, ready to be asked.
//
// Stream sends a request and yields deltas as they come. The last delta of a
// whole answer carries Response and no error follows it. An answer that fails
// or ends early yields one error, an *Error unless the context ended, and
// nothing after it. Leaving the loop ends the request.
//
// Safe for concurrent use.
type Model interface {
	Info() Info
	Stream(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// Info is what is known about a model, from configuration: nothing here is
// asked of the vendor, and zero means unknown.
type Info struct {
	Name            string  `json:"name" yaml:"name"`     // how users call it: "anthropic/claude-…", or a name of the configuration
	Vendor          string  `json:"vendor" yaml:"vendor"` // the driver: anthropic, openai, google, compat, script, replay
	ID              string  `json:"id" yaml:"id"`         // what the vendor calls it
	WindowTokens    int     `json:"window_tokens,omitempty" yaml:"window_tokens"`
	OutputTokensMax int     `json:"output_tokens_max,omitempty" yaml:"output_tokens_max"`
	Calling         Calling `json:"calling,omitempty" yaml:"calling"`
	Media           bool    `json:"media,omitempty" yaml:"media"` // takes images
	Price           Price   `json:"price,omitzero" yaml:"price"`
	Profile         Profile `json:"profile,omitzero" yaml:"-"`
	Documents       bool    `json:"-" yaml:"-"` // takes PDFs too; of the driver
	// Guessed: nothing was configured or known about the model, so the window
	// is a careful guess and the price is missing.
	Guessed bool `json:"guessed,omitempty" yaml:"-"`
	// Programs: it is for programs in sandboxes only, since no driver speaks its API.
	Programs bool `json:"programs,omitempty" yaml:"-"`
}

// ForAgents says why an agent cannot use the model. Unsupported; nil: it can.
func (i Info) ForAgents() error {
	if !i.Programs {
		return nil
	}
	return errs.New(errs.Unsupported, "the model %s is for programs in sandboxes: agents do not speak the API of %s", i.Name, i.Vendor).
		WithHint("`skete run --agent gemini` is such a program; or name another model with --model; `skete help models` says how")
}

// Profile says how models of a family are best treated. The zero value is as any other.
type Profile struct {
	Edit   string `json:"edit,omitempty" yaml:"edit"`     // the tool that changes files; "" = edit_file
	Serial bool   `json:"serial,omitempty" yaml:"serial"` // one call a reply is asked for
	Effort string `json:"effort,omitempty" yaml:"effort"` // where the agent says nothing
	Advice string `json:"advice,omitempty" yaml:"advice"` // behind the agent's instructions
}

// Calling says how a model asks for tools.
type Calling string

// Callings.
const (
	CallingNative Calling = "native" // the default: tool calls of the API
	CallingJSON   Calling = "json"   // one JSON action per reply, as text
)

// Price is in US dollars per million tokens.
type Price struct {
	Input      float64 `json:"input,omitempty" yaml:"input"`
	Output     float64 `json:"output,omitempty" yaml:"output"`
	CacheRead  float64 `json:"cache_read,omitempty" yaml:"cache_read"`
	CacheWrite float64 `json:"cache_write,omitempty" yaml:"cache_write"`
}

// Cost returns US dollars.
func (p Price) Cost(u Usage) float64 {
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output +
		float64(u.CacheRead)*p.CacheRead + float64(u.CacheWrite)*p.CacheWrite) / 1e6
}

// Request is one call of a model.
type Request struct {
	System   []Block // text blocks
	Messages []Message
	Tools    []ToolSpec
	Choice   Choice
	// Serial asks for at most one tool call a reply, where the vendor can.
	Serial          bool
	OutputTokensMax int // 0 = the driver's default for the model
	Temperature     *float64
	Effort          string // of reasoning: "", "low", "medium", "high"
	// Schema asks for an answer that is JSON of this schema, where the vendor
	// can; others ignore it. The agent checks in either case.
	Schema *Schema
	// CacheKey groups requests that share their beginning: the thread's id.
	CacheKey string
	Stop     []string
	// Step is which model call of the run this is, from 1; 0 = not known. It
	// does not go over the wire: scripted models go by it, because a compaction
	// makes the history shorter.
	Step int
}

// Choice says whether the model must call a tool.
type Choice struct {
	Mode ChoiceMode
	Name string // with ChoiceTool
}

// ChoiceMode is the kind of a Choice.
type ChoiceMode string

// Modes.
const (
	ChoiceAuto ChoiceMode = "" // as the model likes
	ChoiceNone ChoiceMode = "none"
	ChoiceAny  ChoiceMode = "any"  // some tool
	ChoiceTool ChoiceMode = "tool" // the one that Name says
)

// ToolSpec tells the model about a tool.
type ToolSpec struct {
	Name        string          `json:"name"` // 1..64 of A-Za-z0-9_-
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the arguments, an object
}

// Schema is a named JSON Schema for a structured answer.
type Schema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// DeltaKind says what a Delta carries.
type DeltaKind string

// Kinds of deltas.
const (
	DeltaText      DeltaKind = "text"      // Text
	DeltaReasoning DeltaKind = "reasoning" // Text
	DeltaCall      DeltaKind = "tool_call" // Index, Name: a call begins
	DeltaArgs      DeltaKind = "tool_args" // Index, Text: its arguments grow
	DeltaDone      DeltaKind = "done"      // Response
)

// Delta is a part of an answer on its way.
type Delta struct {
	Kind     DeltaKind `json:"kind"`
	Index    int       `json:"index,omitempty"` // which call of the answer, from 0
	Name     string    `json:"name,omitempty"`
	Text     string    `json:"text,omitempty"`
	Response *Response `json:"-"`
}

// Response is a whole answer.
type Response struct {
	Message Message
	Usage   Usage
	Stop    Stop
	Model   string // the id that the vendor reported
}

// Stop says why the model ended.
type Stop string

// Stops.
const (
	StopEnd     Stop = "end"      // it was done
	StopTools   Stop = "tool_use" // it waits for results
	StopLength  Stop = "length"   // its output limit
	StopRefusal Stop = "refusal"
	StopFilter  Stop = "content_filter"
	StopPause   Stop = "pause"  // ask again with what there is
	StopFailed  Stop = "failed" // of a program in the place of a model: it did not do it
)

// Usage counts tokens. Input counts what was neither read from nor written to
// a cache; Reasoning is a part of Output.
type Usage struct {
	Input      int `json:"input"`
	Output     int `json:"output"`
	Reasoning  int `json:"reasoning,omitempty"`
	CacheRead  int `json:"cache_read,omitempty"`
	CacheWrite int `json:"cache_write,omitempty"`
	// Estimated: the server told nothing, the numbers are ours (4 characters a token).
	Estimated bool `json:"estimated,omitempty"`
}

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output, Reasoning: u.Reasoning + v.Reasoning,
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
		Estimated: u.Estimated || v.Estimated,
	}
}

// Total is all tokens, in and out.
func (u Usage) Total() int { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// SizeHint is about how many bytes a request has as JSON, so that a body can be
// written without growing.
func (r *Request) SizeHint() int {
	n := 4096
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema) + 128
	}
	for _, b := range r.System {
		n += b.sizeHint()
	}
	for _, m := range r.Messages {
		for _, b := range m.Blocks {
			n += b.sizeHint()
		}
	}
	return n
}

func (b Block) sizeHint() int {
	n := 240 + len(b.Text) + len(b.Text)/16
	if b.Vendor != nil {
		n += len(b.Vendor.Data)
	}
	if b.Call != nil {
		n += len(b.Call.Args) + len(b.Call.Args)/4 // it may be a string in a string
	}
	if b.Media != nil {
		n += base64.StdEncoding.EncodedLen(len(b.Media.Data))
	}
	if b.Result != nil {
		for _, c := range b.Result.Blocks {
			n += c.sizeHint()
		}
	}
	return n
}
