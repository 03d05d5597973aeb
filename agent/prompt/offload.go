package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// This file makes results and messages fit: into an event of the log, and into
// what a model should see of one result. What is cut off is a blob.
//
// A shown preview is the first and the last lines, as deepagents makes them.

// Previews of results that are too large for the model, as deepagents makes them.
const (
	previewLines = 5
	previewChars = 1000 // of a line
	resultMax    = 32 << 20
	keepTimeout  = 30 * time.Second
)

// OffloadResult moves to blobs what is too large for the log, and to a file what is
// too large for the model.
func OffloadResult(blobs thread.Blobs, done *thread.ToolCompleted, tokensMax int, whole bool) error {
	text := (llm.Message{Blocks: done.Blocks}).String()
	done.Bytes = max(done.Bytes, int64(len(text)))
	tokens := Tokens(done.Blocks)
	if inlineMedia(done.Blocks) && (whole || tokens <= tokensMax) && !slices.ContainsFunc(done.Blocks, isMedia) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
	defer cancel()
	if err := offloadMedia(ctx, blobs, done.Blocks); err != nil {
		return err
	}
	if !whole && tokens > tokensMax {
		return offload(ctx, blobs, done, clip.Text(text, resultMax))
	}
	content, err := json.Marshal(done.Blocks)
	if err != nil || len(content) <= thread.InlineBytesMax {
		return err
	}
	if done.Shown, err = blobs.Put(ctx, content); err != nil {
		return err
	}
	done.ShownTokens = Tokens(done.Blocks)
	done.Blocks = []llm.Block{llm.Text(offloadPreview(text))}
	return nil
}

func isMedia(b llm.Block) bool { return b.Media != nil }

// inlineMedia reports whether blocks are so small that they may stand in an event
// whatever they are as JSON, where a byte takes six at the most. It saves
// writing nearly all of them as JSON just to see how long that is.
func inlineMedia(blocks []llm.Block) bool {
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

func offload(ctx context.Context, blobs thread.Blobs, done *thread.ToolCompleted, text string) (err error) {
	if done.Blob, err = blobs.Put(ctx, []byte(text)); err != nil {
		return err
	}
	done.File = runs.ResultFile(done.Call)
	note := fmt.Sprintf("The output is too large to show (%d bytes, %d lines). It is in %s; read_file shows any part of it. It begins and ends:\n\n",
		len(text), strings.Count(text, "\n")+1, done.File)
	var rest []llm.Block
	for _, b := range done.Blocks {
		if b.Kind == llm.KindMedia {
			rest = append(rest, b)
		}
	}
	done.Blocks = append([]llm.Block{llm.Text(note + offloadPreview(text))}, rest...)
	return nil
}

// offloadPreview is the first and the last lines of a text.
func offloadPreview(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	short := func(l string) string { return clip.Text(l, previewChars) }
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

// offloadMedia replaces the bytes of images by the hashes of blobs. A hash that
// comes with the bytes is the tool's own (of a file, say) and names no blob.
func offloadMedia(ctx context.Context, blobs thread.Blobs, blocks []llm.Block) error {
	for i, b := range blocks {
		if b.Media == nil {
			continue
		}
		m, err := runs.KeepMedia(ctx, blobs, *b.Media)
		if err != nil {
			return err
		}
		blocks[i].Media = &m
	}
	return nil
}

// OffloadMessage puts a message into an event, or into a blob when it is large.
func OffloadMessage(ctx context.Context, blobs thread.Blobs, done *thread.ModelCompleted, m llm.Message) error {
	done.Message = m
	if inlineMedia(m.Blocks) {
		return nil
	}
	content, err := json.Marshal(m)
	if err != nil || len(content) <= thread.InlineBytesMax {
		return err
	}
	done.Message = messageShape(m)
	if done.Blob, err = blobs.Put(ctx, content); err != nil {
		return fmt.Errorf("keep a message: %w", err)
	}
	return nil
}

// messageShape is what an event keeps of a message that is a blob: enough for the
// state and for a line in a view.
func messageShape(m llm.Message) llm.Message {
	s := llm.Message{Role: m.Role}
	for _, b := range m.Blocks {
		short := llm.Block{Kind: b.Kind, Text: clip.Text(b.Text, shapeTextMax)}
		if b.Call != nil {
			short.Call = &llm.Call{ID: b.Call.ID, Name: b.Call.Name, Args: json.RawMessage("{}"), Raw: b.Call.Raw}
			if short.Call.Raw {
				short.Call.Args = json.RawMessage(`""`)
			}
		}
		s.Blocks = append(s.Blocks, short)
	}
	return s
}

const shapeTextMax = 1 << 10
