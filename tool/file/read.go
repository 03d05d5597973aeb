package file

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/picture"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Windows of read_file.
const (
	linesDefault  = 100  // deepagents'
	lineCharsMax  = 5000 // longer lines are split into 5, 5.1, 5.2
	scanBytesMax  = 256 << 20
	chunkBytes    = 1 << 20
	mediaBytesMax = picture.BytesMax
	binaryProbe   = 8 << 10
	emptyReminder = "System reminder: File exists but has empty contents"
)

// read shows a window of a file's lines.
type read struct{ base }

type readArgs struct {
	FilePath string `json:"file_path"`
	Offset   int    `json:"offset"`
	Limit    *int   `json:"limit"`
}

// Effect implements tool.Tool.
func (read) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[readArgs](args)
	return reads(a.FilePath)
}

// Run implements tool.Tool.
func (t read) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := decode[readArgs](req.Args)
	if bad != nil {
		return *bad, nil
	}
	p, bad := t.clean(a.FilePath)
	if bad != nil {
		return *bad, nil
	}
	head, size, err := t.env.Files.ReadAt(ctx, p, 0, chunkBytes)
	switch {
	case err != nil:
		return failed(err)
	case size == 0:
		return whole(tool.Text(emptyReminder)), nil
	case mediaType(p, head) == llm.PDF && !t.env.Documents:
		return t.document(ctx, p, size, t.window(a))
	case mediaType(p, head) != "":
		return t.media(ctx, p, mediaType(p, head), size)
	case bytes.IndexByte(head[:min(len(head), binaryProbe)], 0) >= 0:
		return whole(tool.Fail(tool.CodeInvalidPath, fmt.Sprintf("Error: %s is a binary file of %d bytes; look at it with a command instead", show(p), size))), nil
	}
	w := t.window(a)
	if err := t.scan(ctx, p, head, size, w); err != nil {
		return failed(err)
	}
	return w.result(p, size), nil
}

func (t read) window(a readArgs) *window {
	limit := linesDefault
	if a.Limit != nil {
		limit = *a.Limit
	}
	return &window{first: max(a.Offset, 0), lines: max(limit, 1), bytesMax: t.env.ResultBytesMax}
}

// mediaType is the MIME type of what models can look at.
func mediaType(p string, head []byte) string {
	switch t := http.DetectContentType(head); t {
	case "image/png", "image/jpeg", "image/gif", "image/webp", llm.PDF:
		return t
	}
	if strings.EqualFold(path.Ext(p), ".pdf") && bytes.HasPrefix(head, []byte("%PDF-")) {
		return llm.PDF
	}
	return ""
}

func (t read) media(ctx context.Context, p, mime string, size int64) (tool.Result, error) {
	if !t.env.Media {
		return unseen(p, mime, size), nil
	}
	if size > mediaBytesMax {
		return whole(tool.Fail(tool.CodeTooLarge, fmt.Sprintf("Error: too_large: %s (%s) has %d bytes, at most %d can be shown; make a smaller copy", show(p), mime, size, mediaBytesMax))), nil
	}
	content, hash, err := t.env.Files.Read(ctx, p, mediaBytesMax)
	if err != nil {
		return failed(err)
	}
	if mime != llm.PDF {
		if _, err := picture.Check(content); err != nil {
			return whole(tool.Fail(tool.CodeTooLarge, fmt.Sprintf("Error: %s: %s", show(p), errs.Public(err)))), nil
		}
	}
	return whole(tool.Result{Blocks: []llm.Block{
		llm.Text(fmt.Sprintf("%s: %s, %d bytes", show(p), mime, len(content))),
		{Kind: llm.KindMedia, Media: &llm.Media{Type: mime, Hash: hash, Data: content}},
	}}), nil
}

// scan feeds the file to the window, chunk by chunk, until that has enough.
func (t read) scan(ctx context.Context, p string, head []byte, size int64, w *window) error {
	for at := int64(0); ; {
		w.feed(head)
		at += int64(len(head))
		if at >= size || len(head) == 0 {
			w.end()
			return nil
		}
		if w.full() && size > chunkBytes {
			return nil // counting on would cost more than the number is worth
		}
		if at >= scanBytesMax {
			return &tool.FileError{Code: tool.CodeTooLarge, Path: p, Hint: fmt.Sprintf("only the first %d bytes are read by lines; use a command such as tail or sed for the rest", int64(scanBytesMax))}
		}
		var err error
		if head, size, err = t.env.Files.ReadAt(ctx, p, at, chunkBytes); err != nil {
			return err
		}
	}
}

// window gathers the lines that were asked for and counts all.
type window struct {
	first, lines int // from 0
	bytesMax     int

	number  int    // of the line under way, from 0
	partial []byte // of that line, when it is wanted
	cut     int    // bytes of it that are not kept
	open    bool   // it has begun
	text    strings.Builder
	shown   int // lines
	over    bool
	whole   bool // number is the file's count of lines
}

func (w *window) wanted() bool {
	return w.number >= w.first && w.number < w.first+w.lines && !w.over
}

func (w *window) full() bool { return w.over || w.number >= w.first+w.lines }

func (w *window) feed(data []byte) {
	for len(data) > 0 {
		line, rest, ended := bytes.Cut(data, []byte{'\n'})
		w.open = true
		if w.wanted() {
			keep := min(len(line), max(w.bytesMax-len(w.partial), 0))
			w.partial = append(w.partial, line[:keep]...)
			w.cut += len(line) - keep
		}
		if ended {
			w.finish()
		}
		data = rest
	}
}

// finish ends a line.
func (w *window) finish() {
	if w.wanted() {
		w.show()
	}
	w.partial, w.cut, w.open = w.partial[:0], 0, false
	w.number++
}

func (w *window) end() {
	if w.open {
		w.finish()
	}
	w.whole = true
}

// show writes a line with its number, long ones in several parts.
func (w *window) show() {
	line := strings.ToValidUTF8(string(bytes.TrimSuffix(w.partial, []byte{'\r'})), "\uFFFD")
	var b strings.Builder
	for part := 0; ; part++ {
		n := 0
		for range lineCharsMax {
			if n >= len(line) {
				break
			}
			_, size := utf8.DecodeRuneInString(line[n:])
			n += size
		}
		number := fmt.Sprint(w.number + 1)
		if part > 0 {
			number = fmt.Sprintf("%d.%d", w.number+1, part)
		}
		fmt.Fprintf(&b, "%6s  %s\n", number, line[:n])
		if line = line[n:]; line == "" {
			break
		}
	}
	if w.cut > 0 {
		fmt.Fprintf(&b, "[line %d goes on for %d more bytes, which are not shown]\n", w.number+1, w.cut)
	}
	if w.shown > 0 && w.text.Len()+b.Len() > w.bytesMax {
		w.over = true
		return
	}
	w.text.WriteString(b.String())
	w.shown++
}

// result is the window's lines, and where the next one begins.
func (w *window) result(p string, size int64) tool.Result {
	last := w.first + w.shown // its line's number, from 1; the next offset
	if w.shown == 0 {
		return whole(tool.Fail(tool.CodeArgs, fmt.Sprintf("Error: offset %d is beyond the end of %s, which has %d lines", w.first, show(p), w.number)))
	}
	text := strings.TrimSuffix(w.text.String(), "\n")
	switch {
	case w.whole && w.first == 0 && last == w.number:
	case w.whole && last >= w.number:
		text += fmt.Sprintf("\n\n[lines %d-%d of %d, the end of the file]", w.first+1, last, w.number)
	case w.whole:
		text += fmt.Sprintf("\n\n[lines %d-%d of %d; go on with offset=%d]", w.first+1, last, w.number, last)
	default:
		text += fmt.Sprintf("\n\n[lines %d-%d of a file of %d bytes; go on with offset=%d]", w.first+1, last, size, last)
	}
	if strings.TrimSpace(w.text.String()) == "" {
		text = emptyReminder
	}
	return whole(tool.Text(text))
}
