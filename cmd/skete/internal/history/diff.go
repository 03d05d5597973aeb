package history

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	past "github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a commands) diff() *cobra.Command {
	var t app.Target
	var stat bool
	var lines int
	cmd := &cobra.Command{
		Use: "diff ID [FROM[..TO]] [PATH]", Short: "Show what changed between revisions",
		Long: `Show what changed between two revisions as a unified diff. FROM alone is all
since then, up to the files as they are now; ..N is what N itself changed; 0 is
the empty workspace. Without revisions it is what is not saved yet, or if there
is nothing what the newest one changed.

Lines that are not UTF-8 are shown with their odd bytes replaced.`,
		Example: `  skete diff ID
  skete diff ID 3
  skete diff ID 3..7 src
  skete diff ID ..7 --stat`,
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			rest := args
			if len(t.VM) == 0 && len(rest) > 0 {
				rest = rest[1:]
			}
			span, path, err := asked(rest, lines)
			if err != nil {
				return err
			}
			h, _, _, err := a.open(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			from, to, err := revisions(cmd.Context(), h, span)
			if err != nil {
				return err
			}
			d, err := h.Diff(cmd.Context(), from, to, past.DiffOptions{Path: path, Hunks: true, Context: lines})
			if err != nil {
				return err
			}
			return a.printDiff(d, stat)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().BoolVar(&stat, "stat", false, "only count the lines of each file")
	cmd.Flags().IntVarP(&lines, "context", "U", 3, "lines around a change")
	return a.WithCompletion(cmd, 1)
}

// asked reads the words behind the sandbox: what is wrong with them is said
// before a server is asked.
func asked(rest []string, lines int) (span, path string, err error) {
	if lines < 0 {
		return "", "", errs.New(errs.Invalid, "--context: %d is less than 0", lines)
	}
	if len(rest) > 0 && isSpan(rest[0]) {
		span, rest = rest[0], rest[1:]
		for n := range strings.SplitSeq(span, "..") {
			if _, err := strconv.ParseUint(n, 10, 64); n != "" && err != nil {
				return "", "", errs.New(errs.Invalid, "%.40q is no number of a revision", n).WithHint("`skete history` shows them")
			}
		}
	}
	if len(rest) > 0 {
		path, rest = rest[0], rest[1:]
	}
	if from, to, two := strings.Cut(path, ".."); two && span == "" && !strings.Contains(path, "/") && from+to != "" {
		return "", "", errs.New(errs.Invalid, "%.80q names no revisions: they are numbers, as in 3..7", path).
			WithHint("`skete history` shows them; a file of that name is %.80q", "./"+path)
	}
	if len(rest) > 0 {
		return "", "", errs.New(errs.Invalid, "%.80q is too much: a diff takes revisions and one path", rest[0])
	}
	return span, path, nil
}

// isSpan tells revisions from a path; a file whose name is a number is ./7.
func isSpan(s string) bool {
	from, to, two := strings.Cut(s, "..")
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	return s != "" && digits(from) && digits(to) && (two || from != "") && s != ".."
}

// revisions reads FROM, FROM..TO, FROM.., ..TO and nothing.
func revisions(ctx context.Context, h *past.History, span string) (from, to uint64, err error) {
	a, b, two := strings.Cut(span, "..")
	number := func(s string) uint64 {
		n, bad := strconv.ParseUint(s, 10, 64)
		if bad != nil {
			err = errs.New(errs.Invalid, "%.40q is no number of a revision", s)
		}
		return n
	}
	switch {
	case span == "":
		page, err := h.Page(ctx, 2, "")
		if err != nil {
			return 0, 0, err
		}
		if len(page.Items) == 0 {
			return 0, 0, errs.New(errs.NotFound, "there is no revision yet").WithHint("an agent's run makes them; so does `skete undo --dry-run`")
		}
		to = page.Items[0].N
		if page.Unsaved != nil {
			return to, 0, nil
		}
		if len(page.Items) > 1 {
			from = page.Items[1].N
		}
		return from, to, nil
	case a == "":
		to = number(b)
		if err != nil {
			return 0, 0, err
		}
		one, err := h.Get(ctx, to)
		return one.From, to, err
	}
	from = number(a)
	if two && b != "" {
		to = number(b)
	}
	return from, to, err
}

func (a commands) printDiff(d api.Diff, stat bool) error {
	if a.JSON {
		return app.PrintJSON(a.Out, d)
	}
	if d.Cut {
		defer a.Note("there is more than is shown: name a path")
	}
	_, terminal := a.Terminal()
	w := bufio.NewWriter(a.Out)
	p := &printer{w: w, colour: terminal && os.Getenv("NO_COLOR") == "", raw: !terminal}
	for _, f := range d.Files {
		switch {
		case a.Quiet:
			fmt.Fprintln(w, quoted("", past.ChangedPath(f)))
		case stat:
			p.stat(f)
		default:
			p.file(f)
		}
	}
	return w.Flush()
}

// printer writes a diff as git does; what goes to a terminal cannot drive it.
type printer struct {
	w           io.Writer
	colour, raw bool
}

const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	cyan  = "\x1b[36m"
	plain = "\x1b[0m"
)

func (p *printer) line(colour, text string) {
	if !p.raw {
		text = app.Printable(text)
	}
	if p.colour && colour != "" {
		text = colour + text + plain
	}
	fmt.Fprintln(p.w, text)
}

// mode is a file's mode as git writes it.
func mode(e *api.TreeEntry) string {
	switch e.Type {
	case "symlink":
		return "120000"
	case "directory":
		return "040000"
	}
	return fmt.Sprintf("10%04o", e.Mode&0o7777)
}

// file prints a change. What became something else, a link in place of a file, is
// two, as git has it: one goes and the other comes.
func (p *printer) file(f api.PathChange) {
	if was, is := f.Before, f.After; was != nil && is != nil && was.Type != is.Type {
		goes, comes := f, f
		goes.Action, goes.After, comes.Action, comes.Before = "remove", nil, "add", nil
		for part, e := range map[*api.PathChange]*api.TreeEntry{&goes: was, &comes: is} {
			if e.Type != "file" { // the lines are of the file
				part.Hunks, part.Binary, part.Large = nil, false, false
			}
		}
		p.file(goes)
		p.file(comes)
		return
	}
	name := past.ChangedPath(f)
	a, b := quoted("a/", name), quoted("b/", name)
	p.line(bold, "diff --git "+a+" "+b)
	switch {
	case f.Before == nil && f.After != nil:
		p.line(bold, "new file mode "+mode(f.After))
		a = "/dev/null"
	case f.After == nil && f.Before != nil:
		p.line(bold, "deleted file mode "+mode(f.Before))
		b = "/dev/null"
	case f.Before != nil && mode(f.Before) != mode(f.After):
		p.line(bold, "old mode "+mode(f.Before))
		p.line(bold, "new mode "+mode(f.After))
	}
	switch {
	case f.Binary:
		p.line("", "Binary files "+a+" and "+b+" differ")
	case f.Large:
		p.line("", "Files "+a+" and "+b+" differ; too large to show")
	}
	if hunks := hunksOf(f); len(hunks) > 0 {
		p.line(bold, "--- "+a)
		p.line(bold, "+++ "+b)
		for _, h := range hunks {
			p.hunk(h)
		}
	}
}

// hunksOf shows a symbolic link's target as its one line.
func hunksOf(f api.PathChange) []api.DiffHunk {
	var h api.DiffHunk
	if e := f.Before; e != nil && e.Type == "symlink" {
		h.Before, h.BeforeLines = 1, 1
		h.Lines = append(h.Lines, api.DiffLine{Kind: "remove", Text: e.Target, NoNewline: true})
	}
	if e := f.After; e != nil && e.Type == "symlink" {
		h.After, h.AfterLines = 1, 1
		h.Lines = append(h.Lines, api.DiffLine{Kind: "add", Text: e.Target, NoNewline: true})
	}
	if len(h.Lines) > 0 && len(f.Hunks) == 0 && f.Action != "attributes" {
		return []api.DiffHunk{h}
	}
	return f.Hunks
}

func span(start, lines int) string {
	if lines == 1 {
		return strconv.Itoa(start)
	}
	return fmt.Sprintf("%d,%d", start, lines)
}

func (p *printer) hunk(h api.DiffHunk) {
	p.line(cyan, fmt.Sprintf("@@ -%s +%s @@", span(h.Before, h.BeforeLines), span(h.After, h.AfterLines)))
	for _, l := range h.Lines {
		switch l.Kind {
		case "remove":
			p.line(red, "-"+l.Text)
		case "add":
			p.line(green, "+"+l.Text)
		default:
			p.line("", " "+l.Text)
		}
		if l.NoNewline {
			p.line("", `\ No newline at end of file`)
		}
	}
}

// stat is a line: what happened, lines added and removed, the path.
func (p *printer) stat(f api.PathChange) {
	added, removed := 0, 0
	for _, h := range hunksOf(f) {
		for _, l := range h.Lines {
			switch l.Kind {
			case "add":
				added++
			case "remove":
				removed++
			}
		}
	}
	counts := fmt.Sprintf("+%d -%d", added, removed)
	if f.Binary || f.Large {
		counts = "bytes"
	}
	p.line("", fmt.Sprintf("%s %-12s %s", sign(f.Action), counts, quoted("", past.ChangedPath(f))))
}

// sign is an action in one letter, as git's are.
func sign(action string) string {
	switch action {
	case "add":
		return "A"
	case "remove":
		return "D"
	case "attributes":
		return "T"
	}
	return "M"
}

// quoted is a path as git shows one: in quotes with escapes if it holds what
// could be mistaken or drive a terminal.
func quoted(prefix, path string) string {
	odd := !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool {
		return r == '"' || r == '\\' || r == utf8.RuneError || !strconv.IsPrint(r)
	})
	if !odd {
		return prefix + path
	}
	var b strings.Builder
	b.WriteString(`"` + prefix)
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
