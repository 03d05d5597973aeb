package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// View is the place that there is, and the moment.
type View struct {
	Width, Height int // of the terminal, in characters
	Now           time.Time
	Colour        bool
}

// Style of a text.
type Style string

// Styles: the parameters of SGR.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

func (v View) paint(style Style, s string) string {
	if !v.Colour || style == Plain || s == "" {
		return s
	}
	return "\x1b[" + string(style) + "m" + s + "\x1b[0m"
}

// Block is something to show: a mark, a text, a note. Texts are clean.
type Block struct {
	Mark  string
	Style Style // of the mark
	Text  string
	Tone  Style // of the text
	Note  string
	// Weak: the note is left out where both do not fit.
	Weak bool
	// One: on one line, cut to the width; else the text is wrapped.
	One bool
	// Gap: an empty line stands before it.
	Gap    bool
	Indent int
}

// widthMin is the least that lines are made for; a terminal that is narrower
// cuts what is too long by itself.
const widthMin = 8

// Render makes lines of blocks. No line takes more columns than the view has.
func (v View) Render(blocks []Block) []string {
	var lines []string
	for _, b := range blocks {
		if b.Gap {
			lines = append(lines, "")
		}
		lines = append(lines, v.block(b)...)
	}
	return lines
}

func (v View) block(b Block) []string {
	width := max(v.Width, widthMin)
	lead := strings.Repeat(" ", min(b.Indent, width/2))
	hang := lead
	if b.Mark != "" {
		lead += v.paint(b.Style, b.Mark) + " "
		hang += strings.Repeat(" ", Width(b.Mark)+1)
	}
	room := max(width-Width(hang), 1)
	if b.One {
		return []string{lead + v.one(b, room)}
	}
	var lines []string
	for i, line := range wrap(b.Text, room) {
		if i > 0 {
			lead = hang
		}
		lines = append(lines, strings.TrimRight(lead+v.paint(b.Tone, line), " "))
	}
	return lines
}

// one puts the note behind the text; the text gives way to it, down to a third.
func (v View) one(b Block, room int) string {
	text, note := strings.ReplaceAll(b.Text, "\n", " "), strings.ReplaceAll(b.Note, "\n", " ")
	const between = "  "
	if note == "" || b.Weak && Width(text)+len(between)+Width(note) > room {
		return v.paint(b.Tone, Cut(text, room))
	}
	note = Cut(note, max(room*2/3-len(between), 0))
	text = Cut(text, max(room-Width(note)-len(between), 0))
	return v.paint(b.Tone, text) + between + v.paint(Dim, note)
}

// span writes a duration with one unit that says enough.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Bytes writes a size.
func Bytes(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// tokens writes a count of tokens.
func tokens(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d tokens", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk tokens", float64(n)/1e3)
	}
	return fmt.Sprintf("%.2fM tokens", float64(n)/1e6)
}

// thousands writes a number of tokens in few characters.
func thousands(n int) string {
	s, unit := float64(n)/1e3, "k"
	switch {
	case n < 100:
		return strconv.Itoa(n)
	case n >= 1_000_000:
		s, unit = s/1e3, "M"
	}
	return strings.TrimSuffix(strconv.FormatFloat(s, 'f', 1, 64), ".0") + unit
}

// Cost writes US dollars; nothing for nothing.
func Cost(usd float64) string {
	switch {
	case usd <= 0:
		return ""
	case usd < 0.1:
		return fmt.Sprintf("$%.4f", usd)
	}
	return fmt.Sprintf("$%.2f", usd)
}

// join puts what is not empty together.
func join(sep string, parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, sep)
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
