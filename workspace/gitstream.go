package workspace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/compare"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/tree"
)

// This file writes the history of a workspace as a stream for
// `git fast-import`: a commit for each revision, one after the other, on one
// branch.
//
// # What git has no word for
//
// Owners, attributes, fifos, empty directories and most of a mode are left out.
// So is what git refuses in a tree: anything in a directory named .git, in any
// case, or with names that it takes for that. Each commit's message says how
// many paths of the revision that are; the labels are trailers of it.

// gitBranch is the name of the branch that is written.
const gitBranch = "refs/heads/workspace"

// writeGit writes all revisions, the oldest first. Corrupt, NotFound: a revision
// cannot be read; what was written is then no whole stream.
func writeGit(ctx context.Context, w io.Writer, store *object.Store, revs []revlog.Revision) error {
	e := gitExporter{ctx: ctx, w: bufio.NewWriterSize(w, 256<<10), store: store}
	e.printf("feature done\n")
	var before object.Hash
	for i, r := range revs {
		e.commit(i, r, before)
		if e.err != nil {
			return fmt.Errorf("export revision %d: %w", r.N, e.err)
		}
		before = r.Root
	}
	e.printf("done\n")
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.err
}

type gitExporter struct {
	ctx   context.Context
	w     *bufio.Writer
	store *object.Store
	left  int // paths that git does not take
	err   error
}

func (e *gitExporter) printf(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format, args...)
	}
}

func (e *gitExporter) data(text string) { e.printf("data %d\n%s\n", len(text), text) }

// commit writes one revision as what differs from the one before.
func (e *gitExporter) commit(i int, r revlog.Revision, before object.Hash) {
	e.left = 0
	if e.err == nil {
		e.err = e.count(r.Root, false)
	}
	if i == 0 {
		e.printf("reset %s\n\n", gitBranch)
	}
	who := oneLine(r.Actor)
	if who == "" {
		who = "unknown"
	}
	e.printf("commit %s\nmark :%d\ncommitter %s <> %d +0000\n", gitBranch, i+1, who, max(r.Time.Unix(), 0))
	e.data(message(r, e.left))
	if i > 0 {
		e.printf("from :%d\n", i)
	}
	e.dir("", before, r.Root)
	e.printf("\n")
}

// oneLine makes a label fit for a line of the stream.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if c < ' ' || c == '<' || c == '>' || c == 0x7f {
			return ' '
		}
		return c
	}, s))
}

func message(r revlog.Revision, left int) string {
	title := oneLine(r.Label)
	if title == "" {
		title = fmt.Sprintf("Revision %d", r.N)
	}
	b := fmt.Appendf(nil, "%s\n\nRevision: %d\nRoot: %s\n", title, r.N, r.Root)
	for _, x := range []struct{ key, value string }{
		{"Thread", r.Thread}, {"Run", r.Run}, {"Call", r.Call}, {"Actor", r.Actor},
	} {
		if value := oneLine(x.value); value != "" {
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

// special reports whether a link has a name that git lets no link have.
func special(en tree.Entry) bool {
	return en.Type == tree.Link && strings.ToLower(strings.TrimRight(ignorable.Replace(en.Name), ". ")) == ".gitmodules"
}

// takes reports whether git takes an entry, which is no directory.
func takes(en tree.Entry) bool {
	return (en.Type == tree.File || en.Type == tree.Link) && !refused(en.Name) && !special(en)
}

// count counts the paths of a tree that git does not take.
func (e *gitExporter) count(h object.Hash, inside bool) error {
	entries, err := apply.Read(e.store, h)
	if err != nil {
		return err
	}
	for _, en := range entries {
		switch {
		case en.Type == tree.Dir:
			err = e.count(en.Hash, inside || refused(en.Name))
		case inside || !takes(en):
			e.left++
		}
		if err != nil {
			return err
		}
	}
	return e.ctx.Err()
}

// dir writes what differs beneath a directory.
func (e *gitExporter) dir(path string, before, after object.Hash) {
	if e.err == nil {
		e.err = e.ctx.Err()
	}
	if e.err != nil || before == after {
		return
	}
	var b, a []tree.Entry
	if b, e.err = apply.Read(e.store, before); e.err != nil {
		return
	}
	if a, e.err = apply.Read(e.store, after); e.err != nil {
		return
	}
	err := apply.Merge(b, a, func(b, a tree.Entry) error {
		e.name(path, b, a)
		return e.err
	})
	if e.err == nil {
		e.err = err
	}
}

func (e *gitExporter) name(dir string, b, a tree.Entry) {
	name := b.Name
	if b.Type == 0 {
		name = a.Name
	}
	if refused(name) || b.Type == a.Type && b.Same(a) {
		return
	}
	path := apply.Join(dir, name)
	if b.Type == tree.Dir && a.Type == tree.Dir {
		e.dir(path, b.Hash, a.Hash)
		return
	}
	if b.Type == tree.Dir || b.Type != 0 && takes(b) && (a.Type == tree.Dir || !takes(a)) {
		e.printf("D %s\n", quote(path))
	}
	switch {
	case a.Type == tree.Dir:
		e.dir(path, object.Hash{}, a.Hash)
	case a.Type != 0 && takes(a):
		e.file(path, a)
	}
}

func (e *gitExporter) file(path string, en tree.Entry) {
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
		e.err = compare.Content(e.ctx, e.store, en, e.w)
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
