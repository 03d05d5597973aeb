package llmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
)

// What the suite sets up by itself.
const (
	testKey        = "sk-test-3f9c0d1e-never-print-me"
	testModel      = "test-model-1"
	testPrompt     = "the-prompt-that-no-error-may-quote"
	silence        = 300 * time.Millisecond
	replyBytesMax  = 1 << 20
	patience       = 20 * time.Second // for what must end by itself
	keepalivePause = 20 * time.Millisecond
)

// Run tries everything that llm.Model promises against a fake server of the
// driver's dialect.
func Run(t *testing.T, d Driver) {
	t.Run("Reply", func(t *testing.T) { replies(t, d) })
	t.Run("Request", func(t *testing.T) { requests(t, d) })
	t.Run("Failure", func(t *testing.T) { failures(t, d) })
	t.Run("Fault", func(t *testing.T) { faults(t, d) })
	t.Run("Life", func(t *testing.T) { life(t, d) })
}

// Ask sends a request and returns what Stream yielded, checked for form: one
// response at the very end and deltas that add up to it, or one error.
func Ask(ctx context.Context, m llm.Model, req *llm.Request) (*llm.Response, []llm.Delta, error) {
	var (
		deltas []llm.Delta
		resp   *llm.Response
		failed error
	)
	for delta, err := range m.Stream(ctx, req) {
		switch {
		case resp != nil || failed != nil:
			return nil, nil, errors.Join(fmt.Errorf("the stream yielded %+v after its end", delta), err)
		case err != nil:
			failed = err
		default:
			deltas, resp = append(deltas, delta), delta.Response
		}
	}
	if failed == nil && resp == nil {
		return nil, deltas, errors.New("the stream ended without a response and without an error")
	}
	if resp != nil {
		if err := CheckDeltas(deltas, resp); err != nil {
			return nil, deltas, err
		}
	}
	return resp, deltas, failed
}

// CheckDeltas reports whether deltas are those of the response: the same text,
// reasoning, and calls with their arguments in order, ended by DeltaDone.
func CheckDeltas(deltas []llm.Delta, resp *llm.Response) error {
	if last := deltas[len(deltas)-1]; last.Kind != llm.DeltaDone {
		return fmt.Errorf("the delta with the response is of kind %q", last.Kind)
	}
	var text, reasoning string
	var names []string
	args := map[int]string{}
	for _, d := range deltas {
		switch d.Kind {
		case llm.DeltaText:
			text += d.Text
		case llm.DeltaReasoning:
			reasoning += d.Text
		case llm.DeltaCall:
			if d.Index != len(names) {
				return fmt.Errorf("call %d was announced when %d were known", d.Index, len(names))
			}
			names = append(names, d.Name)
		case llm.DeltaArgs:
			if d.Index >= len(names) {
				return fmt.Errorf("arguments came for call %d, which was not announced", d.Index)
			}
			args[d.Index] += d.Text
		case llm.DeltaDone:
		default:
			return fmt.Errorf("unknown kind of delta %q", d.Kind)
		}
	}
	if want := textOf(resp.Message, llm.KindText); text != want {
		return fmt.Errorf("text of the deltas %.200q, of the response %.200q", text, want)
	}
	if want := textOf(resp.Message, llm.KindReasoning); reasoning != want {
		return fmt.Errorf("reasoning of the deltas %.200q, of the response %.200q", reasoning, want)
	}
	calls := resp.Message.Calls()
	if len(calls) != len(names) {
		return fmt.Errorf("%d calls announced, %d in the response", len(names), len(calls))
	}
	for i, c := range calls {
		if got := llm.NewCall(c.ID, names[i], args[i]); !sameCall(got, c) {
			return fmt.Errorf("call %d of the deltas is %s %s, of the response %s %s", i, got.Name, got.Args, c.Name, c.Args)
		}
	}
	return nil
}

func textOf(m llm.Message, kind llm.Kind) string {
	var b strings.Builder
	for _, block := range m.Blocks {
		if block.Kind == kind {
			b.WriteString(block.Text)
		}
	}
	return b.String()
}

func sameCall(a, b *llm.Call) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Raw == b.Raw && compact(a.Args) == compact(b.Args)
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// bench is one model and its server.
type bench struct {
	*testing.T
	Driver
	facts  Facts
	server *Server
	model  llm.Model
}

func (d Driver) start(t *testing.T, answer func(int, Seen) Reply) *bench {
	t.Helper()
	b := &bench{T: t, Driver: d, facts: d.Dialect.Facts(), server: NewServer(d.Dialect, answer)}
	t.Cleanup(b.server.Close)
	b.model = d.New(Config{URL: b.server.URL, Model: testModel, Key: testKey, Silence: patience, ReplyBytesMax: replyBytesMax})
	return b
}

// play starts a bench that answers with the replies.
func (d Driver) play(t *testing.T, replies ...Reply) *bench {
	t.Helper()
	return d.start(t, Replies(replies...))
}

// ask fails the test if there is no answer.
func (b *bench) ask(req *llm.Request) (*llm.Response, []llm.Delta) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	before := picture(req)
	resp, deltas, err := Ask(ctx, b.model, req)
	if err != nil {
		b.Fatalf("ask: %v (wrong requests: %v)", err, b.server.Wrong())
	}
	if after := picture(req); before != after {
		b.Errorf("the driver changed the request:\n%s\nbefore\n%s", after, before)
	}
	return resp, deltas
}

// last returns the request that arrived last and fails the test if the fake
// server did not understand one.
func (b *bench) last() Seen {
	b.Helper()
	for _, err := range b.server.Wrong() {
		b.Errorf("the server did not understand the request: %v", err)
	}
	seen := b.server.Seen()
	if len(seen) == 0 {
		b.Fatal("no request arrived")
	}
	return seen[len(seen)-1]
}

// picture shows a request, the data of media too, which JSON leaves out.
func picture(req *llm.Request) string {
	text, err := json.Marshal(req)
	if err != nil {
		return err.Error()
	}
	for _, m := range req.Messages {
		for _, block := range flatBlocks(m.Blocks) {
			if block.Media != nil {
				text = fmt.Appendf(text, "\n%x", block.Media.Data)
			}
		}
	}
	return string(text)
}

func flatBlocks(blocks []llm.Block) []llm.Block {
	var flat []llm.Block
	for _, b := range blocks {
		flat = append(flat, b)
		if b.Result != nil {
			flat = append(flat, b.Result.Blocks...)
		}
	}
	return flat
}

// line is one block as the suite compares it.
type line struct {
	Role   llm.Role
	Kind   llm.Kind
	Text   string // of text, reasoning, results; joined
	ID     string
	Name   string
	Args   string
	Failed bool
	Media  string // type and data, also of results
	Opaque string
}

// lines flattens messages. Neighbouring texts of one role become one, for some
// dialects have a single string there.
func (f Facts) lines(messages []llm.Message) []line {
	var lines []line
	for _, m := range messages {
		blocks := slices.Clone(m.Blocks)
		if !f.Ordered && m.Role == llm.RoleAssistant {
			slices.SortStableFunc(blocks, func(a, b llm.Block) int { return rank(a) - rank(b) })
		}
		for _, b := range blocks {
			l := f.line(m.Role, b)
			if n := len(lines) - 1; n >= 0 && l.Kind == llm.KindText && lines[n].Kind == llm.KindText && lines[n].Role == l.Role {
				lines[n].Text += "\n" + l.Text
				continue
			}
			lines = append(lines, l)
		}
	}
	for i := range lines {
		if lines[i].Kind == llm.KindText {
			lines[i].Text = strings.Join(strings.Fields(lines[i].Text), " ")
		}
	}
	return lines
}

func rank(b llm.Block) int {
	return slices.Index([]llm.Kind{llm.KindReasoning, llm.KindText, llm.KindCall}, b.Kind)
}

func (f Facts) line(role llm.Role, b llm.Block) line {
	l := line{Role: role, Kind: b.Kind, Text: b.Text}
	if b.Vendor != nil && f.Opaque {
		// A JSON string of the opaque text; anything else shows as it is.
		if json.Unmarshal(b.Vendor.Data, &l.Opaque) != nil {
			l.Opaque = string(b.Vendor.Data)
		}
	}
	switch {
	case b.Call != nil:
		l.ID, l.Name, l.Args = b.Call.ID, b.Call.Name, compact(b.Call.Args)
	case b.Result != nil:
		l.ID, l.Failed = b.Result.CallID, b.Result.Failed && f.FailedResults
		for _, part := range b.Result.Blocks {
			l.Text += part.Text
			if part.Media != nil && f.MediaInResults {
				l.Media += mediaText(part.Media)
			}
		}
	case b.Media != nil:
		l.Media = mediaText(b.Media)
	}
	return l
}

func mediaText(m *llm.Media) string { return fmt.Sprintf("%s:%x", m.Type, m.Data) }

// sameBlocks compares what a driver made of a reply with the reply. Opaque
// data is the driver's own business until it is sent back.
func (b *bench) sameBlocks(got llm.Message, want []llm.Block) {
	b.Helper()
	plain := b.facts
	plain.Opaque = false
	if got.Role != llm.RoleAssistant {
		b.Errorf("the answer's role is %q", got.Role)
	}
	a, w := plain.lines([]llm.Message{got}), plain.lines([]llm.Message{llm.Assistant(want...)})
	if diff := cmp.Diff(w, a); diff != "" {
		b.Errorf("the answer differs (-said +understood):\n%s", diff)
	}
}
