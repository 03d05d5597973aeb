package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/tree"
)

// filesMax bounds the paths of a diff.
const filesMax = 500

// Of is a history as tools see it.
func Of(h workspace.History) tool.Past { return past{h} }

type past struct{ h workspace.History }

// Revisions implements tool.Past.
func (p past) Revisions(ctx context.Context, path string, last int) (list []tool.PastRevision, more bool, err error) {
	revs, err := p.h.Revisions(ctx)
	if err != nil {
		return nil, false, err
	}
	for i, r := range slices.Backward(revs) {
		if path != "" {
			changed, err := p.changed(ctx, revs, i, path)
			if err != nil {
				return nil, false, err
			}
			if !changed {
				continue
			}
		}
		if len(list) == last {
			return list, true, nil
		}
		list = append(list, tool.PastRevision{N: r.N, Time: r.Time, Thread: r.Thread, Run: r.Run, Call: r.Call, Step: r.Step, Actor: r.Actor, Label: r.Label})
	}
	return list, false, nil
}

// changed reports whether a revision changed a path.
func (p past) changed(ctx context.Context, revs []workspace.Revision, i int, path string) (bool, error) {
	after, err := p.entry(ctx, revs[i].N, path)
	if err != nil || i == 0 {
		return after.Type != 0, err
	}
	if revs[i-1].Root == revs[i].Root {
		return false, nil
	}
	before, err := p.entry(ctx, revs[i-1].N, path)
	return before.Type != after.Type || !before.Same(after), err
}

// entry is what is at a path; the zero Entry is nothing.
func (p past) entry(ctx context.Context, n uint64, path string) (tree.Entry, error) {
	e, err := p.h.Entry(ctx, n, path)
	if errs.Is(err, errs.NotFound) {
		return tree.Entry{}, nil
	}
	return e, err
}

// Diff implements tool.Past.
func (p past) Diff(ctx context.Context, from, to uint64, path string, bytesMax int) (string, error) {
	revs, err := p.h.Revisions(ctx)
	if err != nil {
		return "", err
	}
	if len(revs) == 0 {
		return "", errs.New(errs.NotFound, "there is no revision yet")
	}
	to = cmp.Or(to, revs[len(revs)-1].N)
	if from == 0 {
		if i := slices.IndexFunc(revs, func(r workspace.Revision) bool { return r.N == to }); i > 0 {
			from = revs[i-1].N
		}
	}
	d, err := p.h.Diff(ctx, from, to, workspace.DiffOptions{Path: path, Hunks: true, FilesMax: filesMax, BytesMax: bytesMax})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range d.Files {
		writeFile(&b, f)
		if b.Len() > bytesMax {
			d.Cut = true
			break
		}
	}
	text := b.String()
	if len(text) > bytesMax {
		text = text[:strings.LastIndexByte(text[:bytesMax], '\n')+1]
	}
	if d.Cut {
		text += "(there is more; name a path)\n"
	}
	return strings.ToValidUTF8(text, "\uFFFD"), nil
}

func writeFile(b *strings.Builder, f workspace.FileDiff) {
	fmt.Fprintf(b, "%s\n", action(f.Path, f.Before, f.After))
	switch {
	case f.Binary:
		b.WriteString("(it is no text)\n")
	case f.Large:
		b.WriteString("(too large to show)\n")
	}
	for _, h := range f.Hunks {
		fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", h.Before, h.BeforeLines, h.After, h.AfterLines)
		for _, l := range h.Lines {
			b.WriteByte(l.Kind)
			b.WriteString(l.Text + "\n")
		}
	}
}

// action says what happened to a path.
func action(path string, before, after tree.Entry) string {
	switch {
	case before.Type == 0:
		return "add " + path
	case after.Type == 0:
		return "remove " + path
	}
	return "change " + path
}

// Content implements tool.Past.
func (p past) Content(ctx context.Context, n uint64, path string, bytesMax int64) ([]byte, error) {
	e, err := p.h.Entry(ctx, n, path)
	if err != nil {
		return nil, err
	}
	if e.Type != tree.File {
		return nil, errs.New(errs.Invalid, "%.200q is no file in revision %d", path, n)
	}
	if e.Size > bytesMax {
		return nil, errs.New(errs.Limit, "%.200q has %d bytes, at most %d can be shown", path, e.Size, bytesMax)
	}
	var b bytes.Buffer
	err = p.h.Content(ctx, n, path, &b)
	return b.Bytes(), err
}

// PlanUndo implements tool.Past.
func (p past) PlanUndo(ctx context.Context, u tool.PastUndo) (tool.PastPlan, error) {
	n := u.N
	if n == 0 {
		revs, unsaved, err := workspace.ToUndo(ctx, p.h)
		if err != nil {
			return tool.PastPlan{}, err
		}
		if s := (workspace.Scope{Run: u.Run, Call: u.Call, Step: u.Step}); s != (workspace.Scope{}) {
			n, err = workspace.Before(revs, s)
		} else if unsaved != 0 {
			n = unsaved
		} else if _, n, _ = workspace.Position(revs); n == 0 {
			err = errs.New(errs.Conflict, "there is nothing to undo")
		}
		if err != nil {
			return tool.PastPlan{}, err
		}
	}
	plan, err := p.h.PlanRestore(ctx, n, u.Path)
	if err != nil {
		return tool.PastPlan{}, err
	}
	out := tool.PastPlan{ID: plan.ID, N: n}
	seen := map[string]int{}
	for _, op := range plan.Ops {
		path := string(op.Path)
		if i, twice := seen[path]; twice { // removed, and made anew
			out.Paths[i] = "change " + path
			continue
		}
		seen[path] = len(out.Paths)
		out.Paths = append(out.Paths, action(path, op.Before, op.After))
	}
	out.Total = len(out.Paths)
	for _, l := range plan.Left {
		out.Left = append(out.Left, l.Path+": "+l.Why)
	}
	return out, nil
}

// Undo implements tool.Past.
func (p past) Undo(ctx context.Context, plan string, by tool.PastRevision) (uint64, []string, error) {
	l := workspace.Label{Thread: by.Thread, Run: by.Run, Call: by.Call, Step: by.Step, Actor: by.Actor, Text: by.Label}
	// It may have been done already, by a server that died before it could say so.
	revs, err := p.h.Revisions(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, r := range revs {
		if by.Call != "" && r.Undoes != 0 && r.Thread == by.Thread && r.Run == by.Run && r.Call == by.Call {
			return r.N, nil, nil
		}
	}
	rev, res, err := p.h.Apply(ctx, plan, l)
	return rev.N, res.Kept, err
}
