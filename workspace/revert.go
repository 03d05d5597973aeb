package workspace

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/compare"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// Choice is what to do with a path where a revert has a conflict.
type Choice string

// Choices. Markers writes both sides into a text file.
const (
	KeepNow    Choice = "keep now"
	TakeBefore Choice = "take before"
	Markers    Choice = "write markers"
)

// Conflict is a path that was changed by the step and again since.
type Conflict struct {
	Path   string
	Why    string
	Text   bool // Markers is possible
	before tree.Entry
	now    tree.Entry
	marked []byte
}

// PlanRevert plans to take back what one revision changed and to keep what
// later ones did. Paths with conflicts are in Plan.Conflicts; as long as there
// are some that choices do not name, Apply refuses the plan, and nothing of it
// is done.
func (w *Workspace) PlanRevert(ctx context.Context, n uint64, choices map[string]Choice) (p Plan, err error) {
	err = w.withRoom(ctx, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		p, err = w.planRevert(ctx, n, choices)
		return err
	})
	return p, err
}

func (w *Workspace) planRevert(ctx context.Context, n uint64, choices map[string]Choice) (Plan, error) {
	step, err := w.revision(n)
	if err != nil {
		return Plan{}, err
	}
	var before Revision // the zero Revision is an empty directory
	if n > 1 {
		if before, err = w.revision(n - 1); err != nil {
			return Plan{}, errs.Wrap(errs.NotFound, err, "what was before revision %d is not kept any more", n)
		}
	}
	now, _, err := w.snapshot(ctx, Label{Actor: Outside})
	if err != nil {
		return Plan{}, err
	}
	r := reverter{objects: w.objects, choices: choices}
	if step.Thin || before.Thin {
		r.lost = w.derived()
	}
	target, err := r.dir("", before.Root, step.Root, now.Root)
	if err != nil {
		return Plan{}, err
	}
	ops, left, err := apply.Plan(ctx, w.objects, now.Root, target, apply.Filter{})
	if err != nil {
		return Plan{}, err
	}
	return w.remember(Plan{Target: n, Now: now.Root, Ops: ops, Left: left, Conflicts: r.open, tree: target}), nil
}

// reverter makes the tree that is now without one step: a three-way merge with
// the tree after the step as base, what is now as ours, and the tree before
// the step as theirs.
type reverter struct {
	objects *object.Store
	choices map[string]Choice
	open    []Conflict
	lost    []string // names of directories that one of the trees may have lost; they stay
}

// dir returns the merged tree of a directory.
func (r *reverter) dir(path string, before, after, now object.Hash) (object.Hash, error) {
	switch {
	case before == after:
		return now, nil
	case now == after:
		return before, nil
	}
	b, err := r.read(before)
	if err != nil {
		return now, err
	}
	a, err := r.read(after)
	if err != nil {
		return now, err
	}
	n, err := apply.Read(r.objects, now)
	if err != nil {
		return now, err
	}
	entries, err := r.names(path, b, a, n)
	if err != nil {
		return now, err
	}
	data, err := tree.Encode(entries)
	if err != nil {
		return now, err
	}
	return r.objects.Put(object.Tree, data)
}

func (r *reverter) read(h object.Hash) (map[string]tree.Entry, error) {
	entries, err := apply.Read(r.objects, h)
	m := make(map[string]tree.Entry, len(entries))
	for _, e := range entries {
		m[e.Name] = e
	}
	return m, err
}

// names merges a directory's names in order.
func (r *reverter) names(path string, before, after map[string]tree.Entry, now []tree.Entry) (merged []tree.Entry, err error) {
	var gone []tree.Entry // that the step removed and that are not there now
	here := make(map[string]bool, len(now))
	for _, e := range now {
		here[e.Name] = true
	}
	for name, e := range before {
		if !here[name] {
			gone = append(gone, e)
		}
	}
	slices.SortFunc(gone, func(a, b tree.Entry) int { return strings.Compare(a.Name, b.Name) })
	err = apply.Merge(gone, now, func(b, n tree.Entry) error {
		name := b.Name
		if b.Type == 0 {
			name = n.Name
		}
		e, err := r.name(apply.Join(path, name), before[name], after[name], n)
		if err == nil && e.Type != 0 {
			merged = append(merged, e)
		}
		return err
	})
	return merged, err
}

// name merges one path; the zero Entry is nothing.
func (r *reverter) name(path string, before, after, now tree.Entry) (tree.Entry, error) {
	switch {
	case slices.Contains(r.lost, cmp.Or(before.Name, after.Name, now.Name)):
		return now, nil
	case same(before, after), same(now, before):
		return now, nil
	case same(now, after):
		return before, nil
	case cmp.Or(before.Name, after.Name, now.Name) == apply.GitDir:
		return now, nil // git's own; whatever else came to it since stays
	}
	if now.Type == tree.Dir && (before.Type == tree.Dir || after.Type == tree.Dir) {
		h, err := r.dir(path, dirHash(before), dirHash(after), now.Hash)
		if err != nil {
			return now, err
		}
		if before.Type == 0 { // the step made it: it goes, if nothing else is in it
			if entries, err := apply.Read(r.objects, h); err != nil || len(entries) == 0 {
				return tree.Entry{}, err
			}
		}
		now.Hash = h
		return now, nil
	}
	return r.contents(path, before, after, now)
}

func same(a, b tree.Entry) bool { return a.Type == b.Type && (a.Type == 0 || a.Same(b)) }

func dirHash(e tree.Entry) object.Hash {
	if e.Type == tree.Dir {
		return e.Hash
	}
	return object.Hash{}
}

// contents merges a file that was changed again since, by lines if it can be.
func (r *reverter) contents(path string, before, after, now tree.Entry) (tree.Entry, error) {
	c := Conflict{Path: path, before: before, now: now}
	switch {
	case now.Type == 0:
		c.Why = "it was removed since"
	case before.Type == 0:
		c.Why = "the step made it, and it was changed since"
	case before.Type != tree.File || after.Type != tree.File || now.Type != tree.File:
		c.Why = "it was replaced since"
	default:
		merged, marked, ok, err := r.lines(before, after, now)
		if err != nil {
			return now, err
		}
		if ok {
			return r.file(now, merged)
		}
		c.Why, c.marked, c.Text = "the same lines were changed since", marked, marked != nil
		if !c.Text {
			c.Why = "it is no text, and was changed since"
		}
	}
	switch r.choices[path] {
	case KeepNow:
		return now, nil
	case TakeBefore:
		return before, nil
	case Markers:
		if c.Text {
			return r.file(now, c.marked)
		}
	}
	r.open = append(r.open, c)
	return now, nil
}

// lines joins three texts. marked is nil for what is no text.
func (r *reverter) lines(before, after, now tree.Entry) (merged, marked []byte, ok bool, err error) {
	var texts [3][]byte
	for i, e := range []tree.Entry{after, now, before} {
		if e.Size > compare.TextBytesMax {
			return nil, nil, false, nil
		}
		var b bytes.Buffer
		err := apply.Content(r.objects, e, func(_ int64, data []byte) error {
			_, err := b.Write(data)
			return err
		})
		if err != nil {
			return nil, nil, false, err
		}
		if texts[i] = b.Bytes(); !compare.IsText(texts[i]) {
			return nil, nil, false, nil
		}
	}
	text, conflicts := compare.MergeLines(texts[0], texts[1], texts[2])
	if len(conflicts) > 0 {
		return nil, text, false, nil
	}
	return text, nil, true, nil
}

func (r *reverter) file(e tree.Entry, content []byte) (tree.Entry, error) {
	h, err := r.objects.Put(object.Blob, content)
	e.Hash, e.Size, e.Listed = h, int64(len(content)), false
	return e, err
}
