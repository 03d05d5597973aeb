package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Bounds of taking the text out of a PDF.
const (
	documentTimeout  = time.Minute
	documentAnswer   = documentTimeout + 20*time.Second // then the machine does not answer
	documentBytesMax = 8 << 20                          // of text
	complaintBytes   = 300
)

// documentText runs in the machine: the server does not parse documents of unknown
// origin. The path is in the environment, so that no shell reads it.
const documentText = `command -v pdftotext >/dev/null || exit 127; exec pdftotext -layout -enc UTF-8 "$SKETE_DOCUMENT" -`

// document shows a window of a PDF's text.
func (t read) document(ctx context.Context, p string, size int64, w *window) (tool.Result, error) {
	if t.env.Commands == nil {
		return unseen(p, llm.PDF, size), nil
	}
	ctx, stop := context.WithTimeout(ctx, documentAnswer)
	defer stop()
	proc, err := t.env.Commands.Start(ctx, "text_"+strings.ToLower(rand.Text()), tool.Command{
		Shell: documentText, Env: map[string]string{"SKETE_DOCUMENT": p}, Timeout: documentTimeout,
	})
	if err != nil {
		return failed(err)
	}
	text := pages{w: w}
	ended, err := text.collect(ctx, proc)
	switch {
	case errors.Is(err, errTextMax):
		text.cut = true
		return text.result(p, size), nil
	case err != nil:
		return failed(err)
	case ended.Exit == 127:
		return unseen(p, llm.PDF, size), nil
	case ended.TimedOut:
		return whole(tool.Fail(tool.CodeTimeout, fmt.Sprintf("Error: timeout: the text of %s was not there after %s", show(p), documentTimeout))), nil
	case ended.Exit != 0:
		return whole(tool.Fail(tool.CodeInvalidPath, fmt.Sprintf("Error: invalid_path: %s: its text cannot be extracted: pdftotext ended with %d: %s",
			show(p), ended.Exit, clip.Line(string(text.complaint), complaintBytes)))), nil
	}
	w.end()
	return text.result(p, size), nil
}

// unseen describes a file that the model cannot be shown.
func unseen(p, mime string, size int64) tool.Result {
	text := fmt.Sprintf("%s: %s, %d bytes. You cannot look at it; a command can say what is in it", show(p), mime, size)
	if mime == llm.PDF {
		text += ", such as Python with pypdf. Where the machine has pdftotext (poppler-utils), this tool shows the text"
	}
	return whole(tool.Text(text + "."))
}

var errTextMax = errors.New("the text is too long")

// pages feeds what pdftotext writes to a window. A form feed is behind each page;
// a line with the page's number is put before each but the first.
type pages struct {
	w         *window
	bytes     int
	ended     int  // pages
	begun     bool // the page under way has bytes
	text      bool // there is something that is not white space
	cut       bool // there is more than documentBytesMax
	complaint []byte
}

// collect returns how the program ended. After an error it does not go on.
func (d *pages) collect(ctx context.Context, p tool.Process) (tool.Ended, error) {
	err := p.Output(ctx, tool.Offsets{}, true, d.take)
	if err == nil {
		return p.Wait(ctx)
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), documentAnswer-documentTimeout)
	defer stop()
	_ = p.Kill(ctx) // else its own time ends it
	return tool.Ended{}, err
}

func (d *pages) take(c tool.Chunk) error {
	if c.Stderr {
		d.complaint = append(d.complaint, c.Data[:min(len(c.Data), complaintBytes-len(d.complaint))]...)
		return nil
	}
	if d.bytes += len(c.Data); d.bytes > documentBytesMax || c.Gap > 0 {
		return errTextMax
	}
	for page := range bytes.SplitAfterSeq(c.Data, []byte{'\f'}) {
		text, ended := bytes.CutSuffix(page, []byte{'\f'})
		if len(text) > 0 {
			d.feed(text)
		}
		if ended {
			d.ended, d.begun = d.ended+1, false
		}
	}
	return nil
}

func (d *pages) feed(text []byte) {
	if !d.begun && d.ended > 0 {
		d.w.feed(fmt.Appendf(nil, "--- page %d ---\n", d.ended+1))
	}
	d.begun = true
	d.text = d.text || len(bytes.TrimSpace(text)) > 0
	d.w.feed(text)
}

// result is the window, or that there is no text.
func (d *pages) result(p string, size int64) tool.Result {
	about := fmt.Sprintf("%s: %s, %d bytes", show(p), llm.PDF, size)
	switch {
	case d.cut: // how many pages there are is not known
	case d.ended == 1:
		about += ", 1 page"
	default:
		about += fmt.Sprintf(", %d pages", d.ended)
	}
	if !d.text {
		return whole(tool.Text(about + ", with no text in them: they may be pictures."))
	}
	r := d.w.result(p, size)
	if !r.Failed {
		r.Blocks[0].Text = about + "; this is its text, not the file.\n" + r.Blocks[0].Text
	}
	return r
}
