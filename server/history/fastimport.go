package history

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/tree"
)

// exportRef is the branch of an export.
const exportRef = "refs/heads/main"

// exportFilesMax bounds the paths of one commit.
const exportFilesMax = 1 << 20

// exporter writes a history as a stream for `git fast-import`: a commit for
// each revision on one branch. What git cannot hold is left out: directories
// without files, named pipes, owners and attributes, modes but executable, and
// whatever is called .git, the user's own repositories.
type exporter struct {
	ctx context.Context
	h   workspace.History
	w   *bufio.Writer
}

// exportTo writes the revisions, the oldest first.
func exportTo(ctx context.Context, h workspace.History, out io.Writer) error {
	revs, err := h.Revisions(ctx)
	if err != nil {
		return err
	}
	e := exporter{ctx, h, bufio.NewWriterSize(out, 64<<10)}
	before := uint64(0)
	for _, r := range revs {
		if err := e.commit(r, before); err != nil {
			return err
		}
		before = r.N
	}
	fmt.Fprint(e.w, "done\n")
	return e.w.Flush()
}

func (e *exporter) commit(r workspace.Revision, before uint64) error {
	d, err := e.h.Diff(e.ctx, before, r.N, workspace.DiffOptions{FilesMax: exportFilesMax})
	if err != nil {
		return err
	}
	if d.Cut {
		return errs.New(errs.Limit, "revision %d changes more than %d paths", r.N, exportFilesMax)
	}
	message := clip.Text(r.Label, labelMax)
	if message == "" {
		message = fmt.Sprintf("revision %d", r.N)
	}
	message += fmt.Sprintf("\n\nRevision: %d\nRoot: %s\n", r.N, r.Root)
	for _, l := range [][2]string{{"Thread", r.Thread}, {"Run", r.Run}, {"Call", r.Call}} {
		if l[1] != "" {
			message += l[0] + ": " + oneLine(l[1]) + "\n"
		}
	}
	who := oneLine(r.Actor)
	if who == "" {
		who = "unknown"
	}
	fmt.Fprintf(e.w, "commit %s\nmark :%d\ncommitter %s <> %d +0000\ndata %d\n%s\n", exportRef, r.N, who, r.Time.Unix(), len(message), message)
	for _, f := range d.Files { // what goes first makes room for what comes
		if isGit(f.Path) || f.Before.Type != tree.File && f.Before.Type != tree.Link || f.After.Type == tree.File || f.After.Type == tree.Link {
			continue
		}
		fmt.Fprintf(e.w, "D %s\n", gitPath(f.Path))
	}
	for _, f := range d.Files {
		if isGit(f.Path) {
			continue
		}
		if err := e.modify(r.N, f.Path, f.After); err != nil {
			return err
		}
	}
	_, err = e.w.WriteString("\n")
	return err
}

func (e *exporter) modify(n uint64, path string, entry tree.Entry) error {
	switch entry.Type {
	case tree.Link:
		fmt.Fprintf(e.w, "M 120000 inline %s\ndata %d\n%s\n", gitPath(path), len(entry.Target), entry.Target)
	case tree.File:
		mode := "100644"
		if entry.Mode&0o100 != 0 {
			mode = "100755"
		}
		fmt.Fprintf(e.w, "M %s inline %s\ndata %d\n", mode, gitPath(path), entry.Size)
		if err := e.h.Content(e.ctx, n, path, e.w); err != nil {
			return err
		}
		_, err := e.w.WriteString("\n")
		return err
	}
	return nil
}

// isGit reports whether git would not take a path because it is a repository's own.
func isGit(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if strings.EqualFold(name, ".git") {
			return true
		}
	}
	return false
}

// gitPath quotes a path, which is any bytes.
func gitPath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// oneLine is a label that cannot end a line or a name of git's.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return ' '
		}
		return r
	}, strings.TrimSpace(clip.Text(s, labelMax)))
}
