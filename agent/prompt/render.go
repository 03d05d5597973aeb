package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// charsPerToken is the usual estimate where tokens are not counted.
const charsPerToken = 4

// mediaTokens is what an image is taken to cost.
const mediaTokens = 1500

func tokensOf(s string) int { return (len(s) + charsPerToken - 1) / charsPerToken }

// Tokens estimates what blocks cost.
func Tokens(blocks []llm.Block) int {
	n := 0
	for _, b := range blocks {
		n += tokensOf(b.Text)
		if b.Vendor != nil {
			n += len(b.Vendor.Data) / charsPerToken
		}
		switch {
		case b.Call != nil:
			n += tokensOf(b.Call.Name) + len(b.Call.Args)/charsPerToken
		case b.Result != nil:
			n += Tokens(b.Result.Blocks)
		case b.Media != nil:
			n += mediaTokens
		}
	}
	return n
}

// perMessage is what a message costs beside its content.
const perMessage = 4

func count(l *Ledger, item *runs.Item, m llm.Message) {
	n := Tokens(m.Blocks) + perMessage
	switch {
	case item.Summary != nil:
		l.Summary += n
	case item.Input != nil:
		l.Inputs += n
	case m.Role == llm.RoleAssistant:
		l.Assistant += n
	default:
		l.Results += n
	}
}

// resultTokens estimates the results of a step's calls, which the vendor had
// not seen when it counted that step.
func resultTokens(item *runs.Item) int {
	if len(item.Calls) == 0 {
		return 0
	}
	n := perMessage + tokensOf(reminderOf(item))
	for _, c := range item.Calls {
		n += callTokens(c)
	}
	return n
}

// callTokens estimates what a call's result costs in a prompt.
func callTokens(c *runs.Call) int {
	n := tokensOf(changed(c))
	switch {
	case c.Completed == nil || c.ClearedAt > 0:
		return n + clearedTokens
	case c.Completed.Shown != "":
		return n + c.Completed.ShownTokens
	}
	return n + Tokens(c.Completed.Blocks)
}

// clearedTokens is what a line instead of a result costs.
const clearedTokens = 25

// render returns the messages that an item is in a prompt.
func (b *Builder) render(ctx context.Context, item *runs.Item, spec Spec) ([]llm.Message, error) {
	msgs, err := b.messages(ctx, item, spec)
	return msgs, inEvent(err, item.Seq)
}

func (b *Builder) messages(ctx context.Context, item *runs.Item, spec Spec) ([]llm.Message, error) {
	var msgs []llm.Message
	switch {
	case item.Summary != nil:
		msgs = []llm.Message{llm.User(summaryText(item.Summary.Summary, item.Summary.File))}
	case item.Input != nil:
		blocks, err := b.inputBlocks(ctx, item.Input)
		if err != nil {
			return nil, err
		}
		msgs = []llm.Message{{Role: llm.RoleUser, Blocks: blocks}}
	default:
		m, err := Message(ctx, b.blobs, item)
		if err != nil {
			return nil, err
		}
		msgs = []llm.Message{m}
		if len(item.Calls) > 0 {
			results, err := b.results(ctx, item)
			if err != nil {
				return nil, err
			}
			if note := reminderOf(item); note != "" {
				results.Blocks = append(results.Blocks, llm.Text(note))
			}
			msgs = append(msgs, results)
		}
	}
	if err := b.media(ctx, msgs, spec.Model); err != nil {
		return nil, err
	}
	if spec.Calling != nil {
		msgs = spec.Calling.Encode(msgs)
	}
	return msgs, nil
}

// Message returns the whole message of an item with a step.
func Message(ctx context.Context, blobs thread.Blobs, item *runs.Item) (llm.Message, error) {
	if item.Step.Blob == "" {
		return item.Step.Message, nil
	}
	content, err := readBlob(ctx, blobs, item.Step.Blob)
	if err != nil {
		return llm.Message{}, inEvent(fmt.Errorf("read a message: %w", err), item.Seq)
	}
	var m llm.Message
	if err := json.Unmarshal(content, &m); err != nil {
		return llm.Message{}, inEvent(unreadable(err, "the blob %s is no message", item.Step.Blob), item.Seq)
	}
	return m, nil
}

// UnreadableError says that a blob which the log names is gone or damaged. Trying
// again does not help.
type UnreadableError struct {
	Event uint64 // whose blob it is; 0 = of no part of the conversation
	Err   error  // Corrupt
}

func (e *UnreadableError) Error() string { return fmt.Sprintf("event %d: %v", e.Event, e.Err) }

func (e *UnreadableError) Unwrap() error { return e.Err }

func unreadable(cause error, format string, args ...any) error {
	return &UnreadableError{Err: errs.Wrap(errs.Corrupt, cause, format, args...)}
}

// inEvent says whose blob cannot be read.
func inEvent(err error, seq uint64) error {
	if e, ok := errors.AsType[*UnreadableError](err); ok {
		e.Event = seq
	}
	return err
}

func readBlob(ctx context.Context, blobs thread.Blobs, hash string) ([]byte, error) {
	content, err := blobs.Get(ctx, hash)
	switch {
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.Invalid):
		return nil, unreadable(err, "the log names the blob %.12s, which is not stored", hash)
	case errs.Is(err, errs.Corrupt):
		return nil, unreadable(err, "the log names the blob %.12s, which is damaged", hash)
	}
	return content, err
}

func (b *Builder) text(ctx context.Context, inline, blob string) (string, error) {
	if blob == "" {
		return inline, nil
	}
	content, err := readBlob(ctx, b.blobs, blob)
	return string(content), err
}

// unseen says why a model cannot be shown media of this type; "" = it can.
func unseen(mime string, info llm.Info) string {
	switch {
	case mime == llm.PDF && !info.Documents:
		return "[a PDF that this model cannot be shown; read_file shows its text]"
	case !info.Media:
		return "[" + mime + " not shown: this model takes no images]"
	}
	return ""
}

// media fills in the bytes of images, or says that they are there to a model
// that cannot see them.
func (b *Builder) media(ctx context.Context, msgs []llm.Message, info llm.Info) error {
	for _, m := range msgs {
		for i := range m.Blocks {
			blocks := m.Blocks[i : i+1]
			if r := m.Blocks[i].Result; r != nil {
				blocks = r.Blocks
			}
			for j, x := range blocks {
				if x.Media == nil {
					continue
				}
				if why := unseen(x.Media.Type, info); why != "" {
					blocks[j] = llm.Text(why)
					continue
				}
				data, err := readBlob(ctx, b.blobs, x.Media.Hash)
				if err != nil {
					return fmt.Errorf("read an image: %w", err)
				}
				blocks[j].Media = &llm.Media{Type: x.Media.Type, Hash: x.Media.Hash, Data: data}
			}
		}
	}
	return nil
}

// InputBlocks returns what an input holds, whole.
func InputBlocks(ctx context.Context, blobs thread.Blobs, in thread.Input) ([]llm.Block, error) {
	if in.Shown == "" {
		return in.Blocks, nil
	}
	return (&Builder{blobs: blobs}).blocks(ctx, in.Shown)
}

// inputBlocks marks what does not come from the user, so that neither a guard
// nor a sub-agent can be taken for the person.
func (b *Builder) inputBlocks(ctx context.Context, in *thread.Input) ([]llm.Block, error) {
	shown := in.Blocks
	if in.Shown != "" {
		var err error
		if shown, err = b.blocks(ctx, in.Shown); err != nil {
			return nil, err
		}
	}
	if in.From == "user" || in.From == "parent" {
		return append([]llm.Block(nil), shown...), nil
	}
	name := in.From
	if in.Name != "" {
		name += " " + in.Name
	}
	blocks := []llm.Block{llm.Text(llm.MarkBegin("note", "from", name))}
	for _, b := range shown {
		b.Text = llm.Unclosed("note", b.Text)
		blocks = append(blocks, b)
	}
	return append(blocks, llm.Text(llm.MarkEnd("note"))), nil
}

func summaryText(summary, file string) string {
	text := "<summary>\nWhat happened so far, in short:\n" + llm.Unclosed("summary", strings.TrimSpace(summary)) + "\n</summary>"
	if file != "" {
		text += "\nThe whole conversation is in " + file + "; read_file shows it."
	}
	return text
}

// reminderOf is the plan after a step that did not change it: the result of one
// that did shows it already.
func reminderOf(item *runs.Item) string {
	for _, c := range item.Calls {
		if c.Completed != nil && c.Completed.Todos != nil {
			return ""
		}
	}
	return reminder(item.Todos)
}

// results answers all calls of a step in their order.
func (b *Builder) results(ctx context.Context, item *runs.Item) (llm.Message, error) {
	results := make([]llm.Result, 0, len(item.Calls))
	for _, c := range item.Calls {
		r := llm.Result{CallID: c.ID, Name: c.Name}
		var err error
		if r.Blocks, err = b.resultBlocks(ctx, c); err != nil {
			return llm.Message{}, fmt.Errorf("read the result of %s: %w", c.ID, err)
		}
		r.Failed = c.Completed == nil || c.Completed.Failed
		if len(r.Blocks) == 0 {
			r.Blocks = []llm.Block{llm.Text("[no output]")}
		}
		results = append(results, r)
	}
	return llm.Results(results...), nil
}

func (b *Builder) resultBlocks(ctx context.Context, c *runs.Call) ([]llm.Block, error) {
	var blocks []llm.Block
	if said := changed(c); said != "" {
		blocks = append(blocks, llm.Text(said))
	}
	switch {
	case c.Completed == nil: // not in prompts
		return append(blocks, llm.Text("[no result]")), nil
	case c.ClearedAt > 0:
		return append(blocks, llm.Text("[output removed to save space; read_file "+runs.ResultFile(c.ID)+" shows it]")), nil
	case c.Completed.Shown == "":
		return append(blocks, c.Completed.Blocks...), nil
	}
	shown, err := b.blocks(ctx, c.Completed.Shown)
	return append(blocks, shown...), err
}

// changed says what ran in place of what the model asked for, and who wanted it so. A
// result beside other arguments would make no sense to it.
func changed(c *runs.Call) string {
	said := ""
	if d := c.Permit(); d != nil && d.Text != "" && (d.Decision == thread.Edit || d.Decision == thread.Approve) {
		said = " The person says: " + d.Text
	}
	args := c.EffectiveArgs()
	switch {
	case c.Permit() != nil && c.Permit().Decision == thread.Edit:
		return "[A person changed this call before it ran. What ran: " + clip.Text(string(args), changedMax) + said + "]\n"
	case c.Started != nil && c.Started.Args != nil:
		return "[A hook changed this call before it ran. What ran: " + clip.Text(string(args), changedMax) + said + "]\n"
	case said != "":
		return "[The call was approved." + said + "]\n"
	}
	return ""
}

// changedMax bounds the arguments that are shown again.
const changedMax = 2000

// blocks reads what was too large for an event.
func (b *Builder) blocks(ctx context.Context, blob string) ([]llm.Block, error) {
	content, err := readBlob(ctx, b.blobs, blob)
	if err != nil {
		return nil, err
	}
	var blocks []llm.Block
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, unreadable(err, "the blob %s holds no blocks", blob)
	}
	return blocks, nil
}

// systemBlocks are the instructions, and what the thread was told about its
// surroundings: the two parts that stay the same for long, each with a hint.
func (b *Builder) systemBlocks(ctx context.Context, s *runs.State, spec Spec, l *Ledger) ([]llm.Block, error) {
	text := s.Agent.Instructions
	if advice := spec.Model.Profile.Advice; advice != "" && !s.Agent.Bare {
		text = strings.TrimSpace(text + "\n\n" + advice)
	}
	if spec.Calling != nil {
		text = strings.TrimSpace(text + "\n\n" + spec.Calling.System(spec.Tools))
	}
	l.System = tokensOf(text)
	var blocks []llm.Block
	if text != "" {
		blocks = append(blocks, llm.Block{Kind: llm.KindText, Text: text, Cache: true})
	}
	about, err := b.contextText(ctx, s.Context)
	if err != nil {
		return nil, err
	}
	if about != "" {
		l.Memory = tokensOf(about)
		blocks = append(blocks, llm.Block{Kind: llm.KindText, Text: about, Cache: true})
	}
	return blocks, nil
}

func (b *Builder) contextText(ctx context.Context, c *thread.Context) (string, error) {
	if c == nil {
		return "", nil
	}
	var out strings.Builder
	if c.Note != "" {
		fmt.Fprintf(&out, "<surroundings>\n%s\nThe date is %s.\n</surroundings>\n", llm.Unclosed("surroundings", strings.TrimSpace(c.Note)), c.Now.UTC().Format("2006-01-02"))
	}
	for _, group := range []struct {
		tag   string
		files []thread.ContextFile
	}{{"memory", c.Memory}, {"skill", c.Skills}} {
		for _, f := range group.files {
			text, err := b.text(ctx, f.Text, f.Blob)
			if err != nil {
				return "", fmt.Errorf("read %s: %w", f.Path, err)
			}
			out.WriteString(llm.Marked(group.tag, "path", f.Path, text) + "\n")
		}
	}
	return strings.TrimSpace(out.String()), nil
}
