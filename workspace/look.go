package workspace

import (
	"context"
	"io"
	"slices"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/compare"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// looking gives the roots of revisions to a caller that reads them without the
// lock; until done is called nothing of them is given back. Number 0 is the
// empty tree.
func (w *Workspace) looking(numbers ...uint64) (roots []object.Hash, done func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, errClosed()
	}
	for _, n := range numbers {
		var r Revision
		if n != 0 {
			if r, err = w.revision(n); err != nil {
				return nil, nil, err
			}
		}
		roots = append(roots, r.Root)
	}
	return roots, w.pin(roots), nil
}

// pin keeps trees until done is called. Preconditions: w.mu is held.
func (w *Workspace) pin(roots []object.Hash) (done func()) {
	w.readers.Add(1)
	for _, h := range roots {
		w.pins[h]++
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, h := range roots {
			if w.pins[h]--; w.pins[h] == 0 {
				delete(w.pins, h)
			}
		}
		w.readers.Done()
	}
}

func errClosed() error { return errs.New(errs.Unavailable, "the history is closed") }

// Diff implements History.
func (w *Workspace) Diff(ctx context.Context, from, to uint64, o DiffOptions) (Diff, error) {
	roots, done, err := w.looking(from, to)
	if err != nil {
		return Diff{}, err
	}
	defer done()
	o.Without = w.lost(from, to)
	return compare.Trees(ctx, w.objects, roots[0], roots[1], o)
}

// lost are the names of directories that one of these revisions may have lost.
func (w *Workspace) lost(numbers ...uint64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range numbers {
		if r, err := w.revision(n); n != 0 && err == nil && r.Thin {
			return w.derived()
		}
	}
	return nil
}

// Entry implements History.
func (w *Workspace) Entry(_ context.Context, n uint64, path string) (tree.Entry, error) {
	roots, done, err := w.looking(n)
	if err != nil {
		return tree.Entry{}, err
	}
	defer done()
	return compare.At(w.objects, roots[0], path)
}

// List implements History.
func (w *Workspace) List(_ context.Context, n uint64, path string) ([]tree.Entry, error) {
	roots, done, err := w.looking(n)
	if err != nil {
		return nil, err
	}
	defer done()
	return compare.List(w.objects, roots[0], path)
}

// Content implements History.
func (w *Workspace) Content(ctx context.Context, n uint64, path string, out io.Writer) error {
	roots, done, err := w.looking(n)
	if err != nil {
		return err
	}
	defer done()
	e, err := compare.At(w.objects, roots[0], path)
	if err != nil {
		return err
	}
	return compare.Content(ctx, w.objects, e, out)
}

// lookingAtAll is looking at all revisions.
func (w *Workspace) lookingAtAll() (revs []Revision, done func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, errClosed()
	}
	roots := make([]object.Hash, len(w.revs))
	for i, r := range w.revs {
		roots[i] = r.Root
	}
	return slices.Clone(w.revs), w.pin(roots), nil
}
