package workspace

import (
	"context"

	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/compare"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// Unsaved says how the files differ from the newest revision.
type Unsaved struct {
	Since uint64 // the newest revision; 0 = there is none
	Any   bool   // they do differ
	Files int    // that differ; directories are not counted
	Cut   bool   // there are more
	// Aside: going back to the newest revision would do nothing, as after a
	// commit of git.
	Aside bool
}

// unsavedMax bounds how many files are counted.
const unsavedMax = 1000

// Unsaved implements History.
func (w *Workspace) Unsaved(ctx context.Context) (u Unsaved, err error) {
	now, last, done, err := w.lookingNow(ctx)
	if err != nil {
		return u, err
	}
	defer done()
	if u.Since = last.N; now == last.Root && u.Since > 0 {
		return u, nil
	}
	d, err := compare.Trees(ctx, w.objects, last.Root, now, DiffOptions{FilesMax: unsavedMax, Without: w.lost(last.N)})
	if err != nil {
		return u, err
	}
	for _, f := range d.Files {
		if f.Before.Type != tree.Dir && f.After.Type != tree.Dir {
			u.Files++
		}
	}
	u.Any, u.Cut = len(d.Files) > 0, d.Cut
	if u.Since > 0 {
		u.Any = true // the trees do, if only in what is not shown
		moves, err := apply.Moves(ctx, w.objects, now, last.Root)
		u.Aside = err == nil && !moves
	}
	return u, nil
}

// DiffNow implements History.
func (w *Workspace) DiffNow(ctx context.Context, from uint64, o DiffOptions) (d Diff, to uint64, err error) {
	now, last, done, err := w.lookingNow(ctx)
	if err != nil {
		return d, 0, err
	}
	defer done()
	roots, gone, err := w.looking(from)
	if err != nil {
		return d, 0, err
	}
	defer gone()
	if now == last.Root {
		to = last.N
	}
	o.Without = w.lost(from)
	d, err = compare.Trees(ctx, w.objects, roots[0], now, o)
	return d, to, err
}

// lookingNow looks at the files and returns their tree, which stays until done
// is called, and the newest revision. No revision is made.
func (w *Workspace) lookingNow(ctx context.Context) (now object.Hash, last Revision, done func(), err error) {
	err = w.withRoom(ctx, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return errClosed()
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		r, err := w.look(ctx)
		if err != nil {
			return err
		}
		last, _ = w.last()
		now, done = r.Root, w.pin([]object.Hash{r.Root, last.Root})
		return nil
	})
	return now, last, done, err
}
