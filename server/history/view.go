package history

import (
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/tree"
)

// Bounds of what one answer shows; what is left out is said by "cut".
const (
	filesMax     = 1000
	hunkBytesMax = 1 << 20
	labelMax     = 1000 // bytes of a label or name that a revision carries
)

// named is a path for callers: as text, and its bytes if they are no text.
func named(p string) (string, []byte) {
	if utf8.ValidString(p) {
		return p, nil
	}
	return strings.ToValidUTF8(p, "\uFFFD"), []byte(p)
}

// States of a revision.
const (
	stateLocal   = "local"
	stateDurable = "durable"
)

func revisionView(r workspace.Revision, durable uint64) api.Revision {
	return View(workspace.Stored{Revision: r, Durable: r.N <= durable})
}

// View shows a revision to callers.
func View(r workspace.Stored) api.Revision {
	v := api.Revision{
		N: r.N, Root: r.Root.String(), Time: r.Time.UTC(), Files: r.Files, Bytes: r.Bytes,
		Thread: clip.Text(r.Thread, labelMax), Run: clip.Text(r.Run, labelMax), Step: r.Step, Call: clip.Text(r.Call, labelMax), Actor: clip.Text(r.Actor, labelMax), Label: clip.Text(r.Label, labelMax),
		Title: titleOf(r.Revision), Who: whoOf(r.Revision),
		Undoes: r.Undoes, Torn: len(r.Torn), State: stateLocal,
	}
	if r.Durable {
		v.State = stateDurable
	}
	return v
}

func entryView(e tree.Entry) *api.TreeEntry {
	v := &api.TreeEntry{Type: "other", Mode: e.Mode}
	switch e.Type {
	case 0:
		return nil
	case tree.File:
		v.Type, v.Size = "file", e.Size
	case tree.Dir:
		v.Type = "directory"
	case tree.Link:
		v.Type, v.Target = "symlink", clip.Text(e.Target, labelMax)
	}
	return v
}

// action says what happened to a path that was before and is after.
func action(before, after tree.Entry) string {
	switch {
	case before.Type == 0:
		return "add"
	case after.Type == 0:
		return "remove"
	case before.Type == tree.Dir && after.Type == tree.Dir, before.SameContent(after):
		return "attributes"
	}
	return "change"
}

func changeView(path string, before, after tree.Entry) api.PathChange {
	v := api.PathChange{Action: action(before, after), Before: entryView(before), After: entryView(after)}
	v.Path, v.PathBytes = named(path)
	return v
}

var kinds = map[byte]string{' ': "same", '-': "remove", '+': "add"}

func diffView(d workspace.Diff) []api.PathChange {
	files := make([]api.PathChange, 0, len(d.Files))
	for _, f := range d.Files {
		v := changeView(f.Path, f.Before, f.After)
		v.Binary, v.Large = f.Binary, f.Large
		for _, h := range f.Hunks {
			v.Hunks = append(v.Hunks, hunkView(h))
		}
		files = append(files, v)
	}
	return files
}

func hunkView(h workspace.Hunk) api.DiffHunk {
	v := api.DiffHunk{Before: h.Before, BeforeLines: h.BeforeLines, After: h.After, AfterLines: h.AfterLines, Lines: make([]api.DiffLine, len(h.Lines))}
	for i, l := range h.Lines {
		v.Lines[i] = api.DiffLine{Kind: kinds[l.Kind], Text: strings.ToValidUTF8(l.Text, "\uFFFD"), NoNewline: l.NoNewline}
	}
	return v
}

// planView shows what a plan would do. Paths come in order of the tree, not of
// the work: one that is removed and made anew is one change.
func planView(p workspace.Plan) api.ChangePlan {
	v := api.ChangePlan{N: p.Target, Files: []api.PathChange{}, Conflicts: []api.PathConflict{}}
	type change struct{ before, after tree.Entry }
	changes := map[string]change{}
	var paths []string
	for _, op := range p.Ops {
		c, known := changes[string(op.Path)]
		if !known {
			paths = append(paths, string(op.Path))
		}
		if op.Before.Type != 0 {
			c.before = op.Before
		}
		c.after = op.After
		changes[string(op.Path)] = c
	}
	sortPaths(paths)
	v.Total = len(paths)
	if v.Cut = len(paths) > filesMax; v.Cut {
		paths = paths[:filesMax]
	}
	for _, path := range paths {
		v.Files = append(v.Files, changeView(path, changes[path].before, changes[path].after))
	}
	for i, c := range p.Conflicts {
		if i == filesMax {
			v.Cut = true
			break
		}
		pc := api.PathConflict{Why: c.Why, Markers: c.Text}
		pc.Path, pc.PathBytes = named(c.Path)
		v.Conflicts = append(v.Conflicts, pc)
	}
	for _, l := range p.Left[:min(len(p.Left), filesMax)] {
		left := api.PathLeft{Why: l.Why}
		left.Path, left.PathBytes = named(l.Path)
		v.Left = append(v.Left, left)
	}
	return v
}
