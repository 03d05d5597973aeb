package workspace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/workspace/tree"
)

// This file writes a history as a stream for
// `git fast-import`: a commit for each revision, one after the other, on one
// branch.
//
// # What git has no word for
//
// Owners, attributes, fifos, empty directories and most of a mode are left out.
// So is what git refuses in a tree: anything in a directory named .git, in any
// case, or with names that it takes for that. Each commit's message says how
// many paths of the revision that are; the labels are trailers of it.

const (
	// gitBranch is the branch that is written.
	gitBranch = "refs/heads/main"

	// gitPathsMax bounds the paths of one commit.
	gitPathsMax = 1 << 20

	// gitTextMax bounds the bytes of a label or name in a message.
	gitTextMax = 1000
)

// ExportGit writes all revisions of a history, the oldest first. Revisions may be
// made, and gone back to, meanwhile. Limit: one changes more paths than a commit
// can have here; Corrupt, NotFound: one cannot be read (any more). What was
// written before an error is no whole stream.
func ExportGit(ctx context.Context, h History, w io.Writer) error {
	revs, err := h.Revisions(ctx)
	if err != nil {
		return err
	}
	e := gitExporter{ctx: ctx, h: h, w: bufio.NewWriterSize(w, 256<<10)}
	e.printf("feature done\n")
	before := uint64(0)
	for i, r := range revs {
		e.commit(i, r, before)
		if e.err != nil {
			return fmt.Errorf("export revision %d: %w", r.N, e.err)
		}
		before = r.N
	}
	e.printf("done\n")
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.err
}

type gitExporter struct {
	ctx  context.Context
	h    History
	w    *bufio.Writer
	left int // paths of the revision that git does not take
	err  error
}

func (e *gitExporter) printf(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format, args...)
	}
}

func (e *gitExporter) data(text string) { e.printf("data %d\n%s\n", len(text), text) }

// commit writes one revision as what differs from the one before.
func (e *gitExporter) commit(i int, r Revision, before uint64) {
	if e.err != nil {
		return
	}
	d, err := e.h.Diff(e.ctx, before, r.N, DiffOptions{FilesMax: gitPathsMax})
	if err == nil && d.Cut {
		err = errs.New(errs.Limit, "it changes more than %d paths", gitPathsMax)
	}
	if err != nil {
		e.err = err
		return
	}
	for _, f := range d.Files {
		e.left += leftOf(f.Path, f.After) - leftOf(f.Path, f.Before)
	}
	if i == 0 {
		e.printf("reset %s\n\n", gitBranch)
	}
	who := strings.TrimSpace(strings.NewReplacer("<", " ", ">", " ").Replace(clip.Line(r.Actor, gitTextMax)))
	if who == "" {
		who = "unknown"
	}
	e.printf("commit %s\nmark :%d\ncommitter %s <> %d +0000\n", gitBranch, i+1, who, max(r.Time.Unix(), 0))
	e.data(message(r, e.left))
	if i > 0 {
		e.printf("from :%d\n", i)
	}
	for _, f := range d.Files { // what goes first makes room for what comes
		if takes(f.Path, f.Before) && !takes(f.Path, f.After) {
			e.printf("D %s\n", quote(f.Path))
		}
	}
	for _, f := range d.Files {
		if takes(f.Path, f.After) {
			e.file(r.N, f.Path, f.After)
		}
	}
	e.printf("\n")
}

func message(r Revision, left int) string {
	title := clip.Line(r.Label, gitTextMax)
	if title == "" {
		title = fmt.Sprintf("Revision %d", r.N)
	}
	b := fmt.Appendf(nil, "%s\n\nRevision: %d\nRoot: %s\n", title, r.N, r.Root)
	for _, x := range []struct{ key, value string }{
		{"Thread", r.Thread}, {"Run", r.Run}, {"Call", r.Call}, {"Actor", r.Actor},
	} {
		if value := clip.Line(x.value, gitTextMax); value != "" {
			b = fmt.Appendf(b, "%s: %s\n", x.key, value)
		}
	}
	if r.Step != 0 {
		b = fmt.Appendf(b, "Step: %d\n", r.Step)
	}
	if r.Undoes != 0 {
		b = fmt.Appendf(b, "Undoes: %d\n", r.Undoes)
	}
	if left > 0 {
		b = fmt.Appendf(b, "Not-in-git: %d\n", left)
	}
	return string(b)
}

// ignorable are characters that some file systems, and so git, do not see in a name.
var ignorable = strings.NewReplacer(
	"\u200c", "", "\u200d", "", "\u200e", "", "\u200f", "", "\u202a", "", "\u202b", "", "\u202c", "", "\u202d", "", "\u202e", "",
	"\u206a", "", "\u206b", "", "\u206c", "", "\u206d", "", "\u206e", "", "\u206f", "", "\ufeff", "",
)

// refused reports whether git takes a name for its own directory.
func refused(name string) bool {
	name, _, _ = strings.Cut(name, ":") // a stream of a file, on Windows
	name = strings.ToLower(strings.TrimRight(ignorable.Replace(name), ". "))
	return name == ".git" || name == "git~1"
}

// takes reports whether git takes what is at a path.
func takes(path string, en tree.Entry) bool {
	if en.Type != tree.File && en.Type != tree.Link {
		return false
	}
	name := ""
	for part := range strings.SplitSeq(path, "/") {
		if name = part; refused(name) {
			return false
		}
	}
	// git lets no link have this name.
	return en.Type == tree.File || strings.ToLower(strings.TrimRight(ignorable.Replace(name), ". ")) != ".gitmodules"
}

// leftOf is 1 for what is left out, and 0 for what is taken, is a directory or is
// not there.
func leftOf(path string, en tree.Entry) int {
	if en.Type == 0 || en.Type == tree.Dir || takes(path, en) {
		return 0
	}
	return 1
}

func (e *gitExporter) file(n uint64, path string, en tree.Entry) {
	if en.Type == tree.Link {
		e.printf("M 120000 inline %s\n", quote(path))
		e.data(en.Target)
		return
	}
	mode := "100644"
	if en.Mode&0o100 != 0 {
		mode = "100755"
	}
	e.printf("M %s inline %s\ndata %d\n", mode, quote(path), en.Size)
	if e.err == nil {
		e.err = e.h.Content(e.ctx, n, path, e.w)
	}
	e.printf("\n")
}

// quote writes a path as C does: git takes any bytes so.
func quote(path string) string {
	b := []byte{'"'}
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = fmt.Appendf(b, "\\%03o", c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
