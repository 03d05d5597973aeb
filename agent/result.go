package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Previews of results that are too large for the model, as deepagents makes them.
const (
	previewLines = 5
	previewChars = 1000 // of a line
	resultMax    = 32 << 20
	keepTimeout  = 30 * time.Second
)

// Key is what the effects of a call are keyed by: the same for ever, and
// another one for every thread.
func Key(id thread.ID, call string) string {
	const keyMax = 100
	key := strings.ReplaceAll(string(id), "/", ".") + "." + call
	if len(key) <= keyMax {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "call_" + hex.EncodeToString(sum[:])
}

// shrink moves to blobs what is too large for the log, and to a file what is
// too large for the model.
func (r *Runner) shrink(done *thread.ToolCompleted, whole bool) error {
	text := (llm.Message{Blocks: done.Blocks}).String()
	done.Bytes = max(done.Bytes, int64(len(text)))
	tokens := prompt.Tokens(done.Blocks)
	if inline(done.Blocks) && (whole || tokens <= r.resultTokensMax()) && !slices.ContainsFunc(done.Blocks, isMedia) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
	defer cancel()
	if err := r.keepMedia(ctx, done.Blocks); err != nil {
		return err
	}
	if !whole && tokens > r.resultTokensMax() {
		return r.evict(ctx, done, clip(text, resultMax))
	}
	content, err := json.Marshal(done.Blocks)
	if err != nil || len(content) <= thread.InlineBytesMax {
		return err
	}
	if done.Shown, err = r.c.Blobs.Put(ctx, content); err != nil {
		return err
	}
	done.ShownTokens = prompt.Tokens(done.Blocks)
	done.Blocks = []llm.Block{llm.Text(preview(text))}
	return nil
}

func isMedia(b llm.Block) bool { return b.Media != nil }

// inline reports whether blocks are so small that they may stand in an event
// whatever they are as JSON, where a byte takes six at the most. It saves
// writing nearly all of them as JSON just to see how long that is.
func inline(blocks []llm.Block) bool {
	const each, escaped = 256, 6
	n := 0
	for _, b := range blocks {
		n += each + escaped*len(b.Text)
		switch {
		case b.Result != nil:
			return false
		case b.Call != nil:
			n += escaped * (len(b.Call.ID) + len(b.Call.Name) + len(b.Call.Args))
		case b.Media != nil:
			n += escaped * (len(b.Media.Type) + len(b.Media.Hash))
		}
		if b.Vendor != nil {
			n += escaped * (len(b.Vendor.Dialect) + len(b.Vendor.Data))
		}
	}
	return n < thread.InlineBytesMax
}

// resultTokensMax is how much of one result the model sees.
func (r *Runner) resultTokensMax() int {
	limit := r.s.Agent.Limits.ResultTokensMax
	if limit <= 0 {
		limit = resultTokens
	}
	return min(limit, prompt.Window(r.s, r.c.Model.Info())/6)
}

func (r *Runner) evict(ctx context.Context, done *thread.ToolCompleted, text string) (err error) {
	if done.Blob, err = r.c.Blobs.Put(ctx, []byte(text)); err != nil {
		return err
	}
	done.File = state.ResultFile(done.Call)
	note := fmt.Sprintf("The output is too large to show (%d bytes, %d lines). It is in %s; read_file shows any part of it. It begins and ends:\n\n",
		len(text), strings.Count(text, "\n")+1, done.File)
	var rest []llm.Block
	for _, b := range done.Blocks {
		if b.Kind == llm.KindMedia {
			rest = append(rest, b)
		}
	}
	done.Blocks = append([]llm.Block{llm.Text(note + preview(text))}, rest...)
	return nil
}

// preview is the first and the last lines of a text.
func preview(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	short := func(l string) string { return clip(l, previewChars) }
	var out []string
	if len(lines) <= 2*previewLines {
		for _, l := range lines {
			out = append(out, short(l))
		}
		return strings.Join(out, "\n")
	}
	for _, l := range lines[:previewLines] {
		out = append(out, short(l))
	}
	out = append(out, fmt.Sprintf("[… %d lines …]", len(lines)-2*previewLines))
	for _, l := range lines[len(lines)-previewLines:] {
		out = append(out, short(l))
	}
	return strings.Join(out, "\n")
}

// keepMedia replaces the bytes of images by their hashes.
func (r *Runner) keepMedia(ctx context.Context, blocks []llm.Block) error {
	for i, b := range blocks {
		if b.Media == nil || b.Media.Hash != "" {
			continue
		}
		hash, err := r.c.Blobs.Put(ctx, b.Media.Data)
		if err != nil {
			return err
		}
		blocks[i].Media = &llm.Media{Type: b.Media.Type, Hash: hash}
	}
	return nil
}

// final is what a run hands in.
type final struct {
	text   string
	result json.RawMessage
}

// answer reads the result out of the last step.
func (r *Runner) answer(ctx context.Context) (final, error) {
	if c := r.s.Final(); c != nil && r.schema != nil {
		result, _ := r.schema.FromCall(c.EffectiveArgs()) // the tool accepted it
		return final{text: clip(string(result), textMax), result: result}, nil
	}
	last := r.s.Last()
	if last == nil {
		return final{}, errs.New(errs.Internal, "a run of %s is done without a step", r.c.Thread)
	}
	m, err := prompt.Message(ctx, r.c.Blobs, last.Step)
	if err != nil {
		return final{}, err
	}
	f := final{text: clip(m.String(), textMax)}
	if r.schema != nil {
		f.result, _ = r.schema.FromText(m.String())
	}
	return f, nil
}

// modelText is what people read when the model failed for good.
func modelText(err error) string {
	text := errs.Public(err)
	if hint := errs.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return clip(text, textMax)
}
