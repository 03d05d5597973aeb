package screen

import (
	"io"
	"strconv"
	"strings"
)

// Terminal draws lines that stay, and beneath them lines that change, on a
// real terminal. In raw mode lines need their own carriage return; it is sent
// always.
type Terminal struct {
	w     io.Writer
	lines int    // that change, as they stand there
	drawn string // what was drawn last, to draw nothing twice
}

// NewTerminal returns a terminal.
func NewTerminal(w io.Writer) *Terminal { return &Terminal{w: w} }

// Draw puts stay above what changes. One write: the terminal shows all or nothing.
func (t *Terminal) Draw(stay, change []string) error {
	tail := strings.Join(change, "\r\n")
	if len(stay) == 0 && tail == t.drawn {
		return nil
	}
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[?25l") // draw at once; no cursor meanwhile
	t.erase(&b)
	for _, line := range stay {
		b.WriteString(line + "\r\n")
	}
	b.WriteString(tail)
	b.WriteString("\x1b[?2026l")
	t.lines, t.drawn = len(change), tail
	_, err := io.WriteString(t.w, b.String())
	return err
}

// erase takes away the lines that change; the cursor is where they began.
func (t *Terminal) erase(b *strings.Builder) {
	b.WriteString("\r")
	if t.lines > 1 {
		b.WriteString("\x1b[" + strconv.Itoa(t.lines-1) + "A")
	}
	b.WriteString("\x1b[J")
}

// Close takes away what changes and shows the cursor again. Draw may follow.
func (t *Terminal) Close() error {
	var b strings.Builder
	t.erase(&b)
	b.WriteString("\x1b[?25h")
	t.lines, t.drawn = 0, ""
	_, err := io.WriteString(t.w, b.String())
	return err
}
