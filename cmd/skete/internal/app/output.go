package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
)

// PrintJSON writes v for programs: indented, so that people can read it too.
func PrintJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printableJSON(b.Bytes()))
	return err
}

// printableJSON writes what could drive a terminal as escapes of JSON: its strings are
// the same, and text of a guest is hostile.
func printableJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n' || unicode.IsPrint(r) && !(r == utf8.RuneError && n == 1):
			out = append(out, text[i:i+n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}

// Printable replaces what could drive a terminal: text of a guest is hostile.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// Cell is printable text for one cell of a table.
func Cell(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
	if s == "" {
		return "-"
	}
	return s
}

// table prints rows in columns. What is wider than width is left out or cut; 0 =
// nothing is.
func table(w io.Writer, header []string, rows [][]string, width int) error {
	for _, r := range rows {
		for i := range r {
			r[i] = Cell(r[i])
		}
	}
	lines := append([][]string{header}, rows...)
	wide := widths(lines)
	if width > 0 {
		lines, wide = leaveOut(lines, wide, width)
		fit(lines, wide, width)
	}
	var b strings.Builder
	for _, line := range lines {
		for i, cell := range line {
			b.WriteString(cell)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", wide[i]-screen.Width(cell)+columnGap))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const (
	columnGap   = 2
	columnsGood = 12 // that a column is cut to before others are left out
	columnsMin  = 6  // that a column is cut to at least
)

// spare names the columns that a narrow terminal does without, in the order in
// which they are left out; --json has all of them.
var spare = []string{"LANG", "CPU", "MEM", "PID", "PROVIDER", "EXPIRES", "RESTARTS", "COST", "STEPS", "ISOLATION", "RUN"}

// widths are how many columns of the terminal the cells take at most.
func widths(lines [][]string) []int {
	var wide []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], screen.Width(cell))
		}
	}
	return wide
}

// leaveOut takes spare columns away until the others need not be cut to where
// they say nothing. The first column names the thing, and stays.
func leaveOut(lines [][]string, wide []int, width int) ([][]string, []int) {
	for _, name := range spare {
		if len(wide) == 0 || needed(wide) <= width {
			break
		}
		i := slices.Index(lines[0], name)
		if i < 1 {
			continue
		}
		wide = slices.Delete(wide, i, i+1)
		for n, line := range lines {
			lines[n] = slices.Delete(line, i, i+1)
		}
	}
	return lines, wide
}

// needed is how wide a table is whose columns are cut, but not too much.
func needed(wide []int) int {
	total := wide[0] + columnGap*(len(wide)-1)
	for _, n := range wide[1:] {
		total += min(n, columnsGood)
	}
	return total
}

// fit cuts the cells of the widest columns until the lines are no wider than
// width. The first column is never cut: it names the thing.
func fit(lines [][]string, wide []int, width int) {
	total := columnGap * (len(wide) - 1)
	for _, n := range wide {
		total += n
	}
	for ; total > width; total-- {
		widest := 0
		for i := 1; i < len(wide); i++ {
			if widest == 0 || wide[i] > wide[widest] {
				widest = i
			}
		}
		if widest == 0 || wide[widest] <= columnsMin {
			break // it cannot be made to fit
		}
		wide[widest]--
	}
	for _, line := range lines {
		for i, cell := range line {
			line[i] = screen.Cut(cell, wide[i])
		}
	}
}

// List prints items in the form that was asked for.
func List[T any](a *App, items []T, id func(T) string, header []string, row func(T) []string) error {
	switch {
	case a.JSON:
		if items == nil {
			items = []T{}
		}
		return PrintJSON(a.Out, items)
	case a.Quiet:
		for _, it := range items {
			if _, err := fmt.Fprintln(a.Out, id(it)); err != nil {
				return err
			}
		}
		return nil
	}
	rows := make([][]string, 0, len(items))
	for _, it := range items {
		rows = append(rows, row(it))
	}
	return table(a.Out, slices.Clone(header), rows, a.width())
}

// span writes a duration with one unit that says enough.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Age says how long ago something was.
func Age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(time.Since(t))
}

// Until says when something will be.
func Until(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return "in " + span(time.Until(*t))
}

// BytesText writes a size.
func BytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%dB", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 3; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f%ciB", v, "KMGT"[i])
}

// SandboxHeader heads a table of sandboxes.
var SandboxHeader = []string{"ID", "NAME", "STATE", "RUN", "ISOLATION", "PROVIDER", "LANG", "CPU", "MEM", "AGE", "EXPIRES"}

// SandboxRow is a sandbox as a row below SandboxHeader.
func SandboxRow(s api.Sandbox) []string {
	state := s.State
	if s.Reason != "" && s.State != "running" {
		state += " (" + s.Reason + ")"
	}
	isolation := s.Isolation
	if isolation == "none" {
		isolation = "NONE!"
	}
	expires := Until(s.ExpiresAt)
	if s.State != "running" && s.State != "paused" && s.State != "creating" {
		expires = ""
	}
	return []string{
		s.ID, s.Name, state, forWhat(s), isolation, s.Provider, s.Language,
		fmt.Sprintf("%g", s.CPUs), fmt.Sprintf("%d", s.MemoryMB), Age(s.CreatedAt), expires,
	}
}

// forWhat is the run that a sandbox is for, or the tool and the calls that share it.
func forWhat(s api.Sandbox) string {
	if tool := s.Metadata["skete.tool.name"]; s.Run == "" && tool != "" {
		return tool + " (" + s.Metadata["skete.tool.scope"] + ")"
	}
	return ShortRun(s.Run)
}

// shortRun is how many characters of a run's id tables show.
const shortRun = 12

// ShortRun is the beginning of a run's id, enough for every command.
func ShortRun(id string) string { return id[:min(shortRun, len(id))] }

// PrintJSONLine writes v on one line, for streams of values.
func PrintJSONLine(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(printableJSON(text), '\n'))
	return err
}

// width is that of the terminal that we print to; 0 = it is none.
func (a *App) width() int {
	f, ok := a.Terminal()
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Terminal is stdout if it is one that can be drawn on.
func (a *App) Terminal() (*os.File, bool) {
	f, ok := a.Out.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// HasKeyboard reports whether stdin is a terminal.
func (a *App) HasKeyboard() bool { return a.In != nil && term.IsTerminal(int(a.In.Fd())) }

// Checked tells what was found out about each of a list of files: by say, or as JSON, which is
// shown. It exits with 1 if one of them is not ok.
func Checked[T any](a *App, list []T, shown any, ok func(T) bool, say func(T)) error {
	bad := false
	for _, v := range list {
		bad = bad || !ok(v)
		if !a.JSON {
			say(v)
		}
	}
	if a.JSON {
		if err := PrintJSON(a.Out, shown); err != nil {
			return err
		}
	}
	if bad {
		return Exit(1)
	}
	return nil
}
