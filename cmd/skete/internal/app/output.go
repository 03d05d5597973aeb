package app

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
)

// PrintJSON writes v for programs: indented, so that people can read it too.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
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

// table prints rows in columns. What is wider than width is cut; 0 = nothing is.
func table(w io.Writer, header []string, rows [][]string, width int) error {
	for _, r := range rows {
		for i := range r {
			r[i] = Cell(r[i])
		}
	}
	if width > 0 {
		fit(append([][]string{header}, rows...), width)
	}
	t := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	fmt.Fprintln(t, strings.Join(header, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

const (
	columnGap  = 2
	columnsMin = 6 // that a column is cut to at least
)

// fit cuts the cells of the widest columns until the rows are no wider than
// width. The first column is never cut: it names the thing.
func fit(rows [][]string, width int) {
	var wide []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
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
	for _, r := range rows {
		for i, cell := range r {
			if runes := []rune(cell); len(runes) > wide[i] {
				r[i] = string(runes[:wide[i]-1]) + "…"
			}
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
		s.ID, s.Name, state, ShortRun(s.Run), isolation, s.Provider, s.Language,
		fmt.Sprintf("%g", s.CPUs), fmt.Sprintf("%d", s.MemoryMB), Age(s.CreatedAt), expires,
	}
}

// shortRun is how many characters of a run's id tables show.
const shortRun = 12

// ShortRun is the beginning of a run's id, enough for every command.
func ShortRun(id string) string { return id[:min(shortRun, len(id))] }

// PrintJSONLine writes v on one line, for streams of values.
func PrintJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

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
