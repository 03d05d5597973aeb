package workspace

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
)

// Export gives all revisions, the oldest first, and their objects to who sends
// them elsewhere; none of them is dropped before f returns. Revisions are made
// meanwhile.
func (w *Workspace) Export(f func(*object.Store, []Revision) error) error {
	revs, done, err := w.lookingAtAll()
	if err != nil {
		return err
	}
	defer done()
	return f(w.objects, revs)
}

// Import adds revisions of another history. take puts their objects into the
// store and returns them, ascending; nothing else happens to the history
// meanwhile. With replace, what the history had before is forgotten, and so are
// plans. The directory is not touched. Conflict: it has another revision of the
// same number.
func (w *Workspace) Import(replace bool, take func(*object.Store) ([]Revision, error)) error {
	w.pruning.Lock() // which thinks that revisions are only appended
	defer w.pruning.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed()
	}
	taken, err := take(w.objects)
	if err != nil {
		return err
	}
	revs := taken
	if !replace {
		if revs, err = union(w.revs, taken); err != nil {
			return err
		}
	}
	if err := w.objects.Sync(); err != nil {
		return err
	}
	if err := w.log.Replace(revs); err != nil {
		return err
	}
	w.revs = revs
	w.setClock()
	w.pruned = w.clock.Now()
	if replace {
		clear(w.plans)
		w.pending = nil // its revision was to follow one that is not there any more
		return apply.Done(w.applying())
	}
	return nil
}

// union joins two lists of revisions by number.
func union(a, b []Revision) ([]Revision, error) {
	byNumber := func(x, y Revision) int { return cmp.Compare(x.N, y.N) }
	all := slices.Clone(a)
	for _, r := range b {
		i, ok := slices.BinarySearchFunc(all, r, byNumber)
		switch {
		case !ok:
			all = slices.Insert(all, i, r)
		case all[i].Thin && !r.Thin && all[i].Time.Equal(r.Time):
			all[i].Root, all[i].Thin = r.Root, false // what was given up comes back
		case r.Thin && !all[i].Thin && all[i].Time.Equal(r.Time):
		case all[i].Root != r.Root || !all[i].Time.Equal(r.Time):
			return nil, errs.New(errs.Conflict, "this history has another revision %d", r.N)
		}
	}
	return all, nil
}

// Unfinished reports whether an Apply died in the middle: opening the history
// that is kept in store finishes it.
func Unfinished(store string) bool {
	_, err := os.Lstat(journal(store))
	return err == nil
}

func journal(store string) string { return filepath.Join(store, "journal") }
