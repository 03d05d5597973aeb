package prompt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Prompt is a request and what is known about it.
type Prompt struct {
	Request *llm.Request
	Hash    string // sha256 of all that is sent, hex
	Ledger  Ledger
}

// Ledger says what fills the window.
type Ledger = thread.Ledger

// Builder builds the prompts of one thread.
type Builder struct {
	blobs thread.Blobs

	epoch  int
	items  int           // how many of the state's items are in msgs
	msgs   []llm.Message // of these items; behind its end the tail of the last request
	chain  [sha256.Size]byte
	ledger Ledger // of msgs
	marks  []int  // messages that carry a cache hint now
	ends   []int  // where the last two prompts ended, without their tails

	fixed *fixed // nil = not made yet

	last      uint64 // the step up to which the vendor counted
	lastCount int    // tokens that it counted, answer included
	lastSum   int    // our estimate of the same
}

// NewBuilder returns a builder; blobs hold what was too large for the log.
func NewBuilder(blobs thread.Blobs) *Builder { return &Builder{blobs: blobs, epoch: -1} }

// Spec is what a prompt needs beside the state.
type Spec struct {
	Tools []llm.ToolSpec
	Model llm.Info
	// JSON: the model asks for tools by JSON actions; see Calling.
	Calling Calling
}

// Calling renders tools and calls for models without native tool calls. nil =
// native.
type Calling interface {
	// System returns the section that explains tools and the form of actions.
	System(tools []llm.ToolSpec) string
	// Schema is the form of replies, for servers that can hold a model to one.
	Schema(tools []llm.ToolSpec) *llm.Schema
	// Encode turns messages with calls and results into plain text. It works
	// message by message.
	Encode(messages []llm.Message) []llm.Message
}

// Build returns the prompt for the next model call. Precondition: no call is open.
func (b *Builder) Build(ctx context.Context, s *runs.State, spec Spec) (*Prompt, error) {
	if err := b.advance(ctx, s, spec); err != nil {
		return nil, err
	}
	done := len(b.msgs)
	ledger := b.ledger
	tail, err := b.tail(ctx, s, spec, &ledger)
	if err != nil {
		return nil, err
	}
	f, err := b.fix(ctx, s, spec)
	if err != nil {
		return nil, err
	}
	ledger.System, ledger.Memory, ledger.Tools = f.ledger.System, f.ledger.Memory, f.ledger.Tools
	req := &llm.Request{
		System: f.system, Tools: f.tools, Messages: append(b.msgs, tail...), CacheKey: string(s.Opened.Name) + "/" + string(s.Run.ID),
		Effort: cmp.Or(s.Agent.Effort, spec.Model.Profile.Effort), Serial: spec.Model.Profile.Serial, Step: s.Run.Steps + 1, Schema: f.schema,
	}
	b.msgs = req.Messages[:done]
	ledger.Total, ledger.Window = b.total(s, ledger), Window(s, spec.Model)
	hash := b.hash(req, tail)
	b.mark(req, done)
	return &Prompt{Request: req, Hash: hash, Ledger: ledger}, nil
}

// Window returns how many tokens a prompt and its answer may have together.
func Window(s *runs.State, info llm.Info) int {
	window := info.WindowTokens
	if window <= 0 {
		window = windowDefault
	}
	if w := s.Agent.Limits.WindowTokens; w > 0 {
		window = min(window, w)
	}
	if o := s.Overflow; o.WindowTokens > 0 && o.Model == info.Name {
		window = min(window, o.WindowTokens)
	}
	return window
}

// Room is Window as our estimate counts, which a server has shown to be low.
func Room(s *runs.State, info llm.Info) int {
	window := Window(s, info)
	if o := s.Overflow; o.Scale > 1 && o.Model == info.Name {
		window = int(float64(window) / o.Scale)
	}
	return window
}

const windowDefault = 32_000

// fixed is the part of the prompt that stays the same until the next epoch, as
// long as it is built for the same tools.
type fixed struct {
	spec   []llm.ToolSpec // it was made for them
	system []llm.Block
	tools  []llm.ToolSpec
	schema *llm.Schema
	ledger Ledger
	json   []byte // of all that is sent of it
}

// fix makes the fixed part, once.
func (b *Builder) fix(ctx context.Context, s *runs.State, spec Spec) (*fixed, error) {
	if f := b.fixed; f != nil && len(f.spec) == len(spec.Tools) && (len(f.spec) == 0 || &f.spec[0] == &spec.Tools[0]) {
		return f, nil
	}
	f := &fixed{spec: spec.Tools}
	var err error
	if f.system, err = b.systemBlocks(ctx, s, spec, &f.ledger); err != nil {
		return nil, err
	}
	if spec.Calling == nil {
		f.tools = spec.Tools
	} else if spec.Model.Vendor == "compat" { // others take forms without open objects only
		f.schema = spec.Calling.Schema(spec.Tools)
	}
	for _, t := range spec.Tools {
		f.ledger.Tools += tokensOf(t.Name) + tokensOf(t.Description) + len(t.Schema)/charsPerToken
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	_ = enc.Encode(f.system) // plain data
	_ = enc.Encode(f.tools)
	if f.schema != nil {
		_ = enc.Encode(f.schema)
	}
	f.json = out.Bytes()
	b.fixed = f
	return f, nil
}

// advance brings msgs to the state's items.
func (b *Builder) advance(ctx context.Context, s *runs.State, spec Spec) error {
	if s.Epoch != b.epoch || len(s.Items) < b.items {
		*b = Builder{blobs: b.blobs, epoch: s.Epoch, last: b.last}
	}
	for ; b.items < len(s.Items); b.items++ {
		item := s.Items[b.items]
		msgs, err := b.render(ctx, item, spec)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			b.chain = link(b.chain, m)
			count(&b.ledger, item, m)
			b.msgs = append(b.msgs, m)
		}
		if item.Step != nil {
			u := item.Step.Usage
			b.last, b.lastCount, b.lastSum = item.Seq, 0, 0
			if !u.Estimated && item.Seq > s.EpochSeq {
				b.lastCount = u.Total()
				b.lastSum = b.ledger.Sum() - resultTokens(item)
			}
		}
	}
	return nil
}

// total is the vendor's count of what it has seen and our estimate of the rest.
// A vendor that counts far too little (a test's script) is not believed.
func (b *Builder) total(s *runs.State, l Ledger) int {
	estimate := l.Sum()
	if b.lastCount == 0 {
		return estimate
	}
	fixed := l.System + l.Memory + l.Tools // in the vendor's count, not in lastSum
	counted := b.lastCount + max(estimate-fixed-b.lastSum, 0)
	return max(counted, estimate*6/10)
}

func (b *Builder) tail(ctx context.Context, s *runs.State, spec Spec, l *Ledger) ([]llm.Message, error) {
	var tail []llm.Message
	for _, item := range s.Queue {
		msgs, err := b.render(ctx, item, spec)
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			count(l, item, m)
		}
		tail = append(tail, msgs...)
	}
	return tail, nil
}

// reminder shows the plan back to the model as long as something is left of it.
// It stays where it was shown: a prompt only grows at its end, which keeps the
// vendors' caches, and the reasoning that some of them tie to what is before it.
func reminder(todos []thread.Todo) string {
	var b strings.Builder
	left := false
	for _, t := range todos {
		mark := map[string]string{"completed": "[x]", "in_progress": "[>]"}[t.Status]
		if mark == "" {
			mark = "[ ]"
		}
		left = left || t.Status != "completed"
		fmt.Fprintf(&b, "\n%s %s", mark, t.Content)
	}
	if !left {
		return ""
	}
	return "<todos>" + b.String() + "\n</todos>\nThis is your plan as it stands; keep it up to date with write_todos."
}

// hash chains what is sent: a fresh builder and one that went all the way agree.
func (b *Builder) hash(req *llm.Request, tail []llm.Message) string {
	chain := b.chain
	for _, m := range tail {
		chain = link(chain, m)
	}
	h := sha256.New()
	h.Write(chain[:])
	h.Write(b.fixed.json)
	enc := json.NewEncoder(h)
	for _, part := range []any{req.Choice, req.Effort, req.Step} {
		_ = enc.Encode(part) // a hash takes everything, and all of it is plain data
	}
	return hex.EncodeToString(h.Sum(nil))
}

func link(chain [sha256.Size]byte, m llm.Message) [sha256.Size]byte {
	h := sha256.New()
	h.Write(chain[:])
	_ = json.NewEncoder(h).Encode(m)
	h.Sum(chain[:0])
	return chain
}

// mark sets cache hints at the end of what will not change, here and where it
// was the last time, and takes older hints back.
func (b *Builder) mark(req *llm.Request, done int) {
	for _, at := range b.marks {
		if at < len(req.Messages) {
			req.Messages[at].Cache = false
		}
	}
	b.marks = b.marks[:0]
	b.ends = append(b.ends, done)
	if len(b.ends) > 2 {
		b.ends = b.ends[1:]
	}
	for _, end := range b.ends {
		if end > 0 && end <= len(req.Messages) {
			req.Messages[end-1].Cache = true
			b.marks = append(b.marks, end-1)
		}
	}
}
