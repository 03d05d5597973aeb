package workspace

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/retain"
)

// Policy says which revisions stay, and how much they may take.
type Policy = retain.Policy

// When a history that has a policy is pruned by itself: beyond a share of its
// bound, and at least so often while revisions are made. What stays takes no
// more than keepShare of the bound, so that there is room for what comes.
const (
	pruneEvery = time.Hour
	pruneShare = 0.875
	keepShare  = 0.75
	thinRoom   = 1 << 20
)

// Pruned says what Prune did.
type Pruned struct {
	Dropped int   // revisions
	Thinned int   // that lost what can be made again
	Kept    int   // revisions
	Freed   int64 // bytes on disk; negative if others made it grow meanwhile
	Bytes   int64 // on disk afterwards
}

// Prune drops the revisions that a policy gives up and gives the space back,
// while others make revisions and go back to them. It takes no more than one
// segment of further space. A call that is reading a revision goes on. After a
// crash each revision is there whole or not at all.
func (w *Workspace) Prune(ctx context.Context, p Policy) (Pruned, error) {
	w.pruning.Lock()
	defer w.pruning.Unlock()
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return Pruned{}, errClosed()
	}
	w.readers.Add(1) // Close waits
	revs := slices.Clone(w.revs)
	clock := w.clock.Now()
	w.mu.Unlock()
	defer w.readers.Done()

	before := w.objects.Bytes()
	bound := w.bound(p, revs)
	current, undo, redo := Position(revs)
	m := retain.NewMarker(w.objects)
	order := retain.Order(revs, p, clock, current, undo, redo)
	if w.c.Policy != nil && bound > 0 { // trees are made that stand for larger ones
		w.objects.Limit(bound + thinRoom)
		defer w.objects.Limit(bound)
	}
	kept, err := retain.Choose(ctx, m, order, int64(keepShare*float64(bound)), w.derived())
	if err != nil {
		return Pruned{}, err
	}
	w.stage("gc marked")
	out, err := w.drop(ctx, m, revs, kept)
	if err != nil {
		return out, err
	}
	w.stage("gc listed")
	_, err = w.objects.Shrink(ctx, int64(pruneShare*float64(bound)), func(name string) { w.stage("gc " + name) })
	w.stage("gc done")
	out.Bytes = w.objects.Bytes()
	out.Freed = before - out.Bytes
	return out, err
}

func (w *Workspace) stage(name string) {
	if w.c.Stage != nil {
		w.c.Stage(name)
	}
}

// drop takes the revisions that do not stay out of the list, and what they
// alone needed out of the store. What was made since revs were read stays.
func (w *Workspace) drop(ctx context.Context, m *retain.Marker, revs, kept []Revision) (Pruned, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return Pruned{}, errClosed()
	}
	kept = append(kept, w.revs[len(revs):]...)
	need := []object.Hash{w.scanned}
	for _, r := range w.revs[len(revs):] {
		need = append(need, r.Root)
	}
	for h := range w.pins {
		need = append(need, h)
	}
	for _, p := range w.plans {
		need = append(need, p.Now, p.tree)
	}
	for _, h := range need {
		if _, err := m.Tree(ctx, h, 0, true); err != nil {
			return Pruned{}, err
		}
	}
	out := Pruned{Dropped: len(w.revs) - len(kept), Kept: len(kept)}
	out.Thinned = thinned(w.revs, kept)
	if out.Dropped+out.Thinned > 0 {
		if err := w.objects.Sync(); err != nil { // thin trees are new
			w.capture.Forget()
			return Pruned{}, err
		}
		if err := w.log.Replace(kept); err != nil {
			return Pruned{}, err
		}
		w.revs = kept
	}
	if w.halfScanned { // it may believe in objects that nothing names
		w.capture.Forget()
		w.halfScanned = false
	}
	w.objects.Retry()
	w.objects.Drop(m.Has)
	w.pruned = w.clock.Now()
	return out, nil
}

// thinned is how many revisions are Thin that were not.
func thinned(before, after []Revision) (n int) {
	count := func(revs []Revision) (n int) {
		for _, r := range revs {
			if r.Thin {
				n++
			}
		}
		return n
	}
	was := slices.DeleteFunc(slices.Clone(before), func(r Revision) bool {
		_, kept := slices.BinarySearchFunc(after, r.N, func(r Revision, n uint64) int { return cmp.Compare(r.N, n) })
		return !kept
	})
	return count(after) - count(was)
}

// prune starts Prune if it is time for it. Preconditions: w.mu is held.
func (w *Workspace) prune() {
	n := len(w.revs)
	if w.c.Policy == nil || n == 0 || w.background {
		return
	}
	bound := w.bound(*w.c.Policy, w.revs)
	w.objects.Limit(bound)
	if float64(w.objects.Bytes()) < pruneShare*float64(bound) && w.clock.Now()-w.pruned < pruneEvery {
		return
	}
	w.background = true
	w.readers.Go(func() {
		out, err := w.Prune(w.life, *w.c.Policy)
		w.mu.Lock()
		w.background = false
		w.mu.Unlock()
		if w.c.Pruned != nil {
			w.c.Pruned(out, err)
		}
	})
}

// bound is how much a history of these revisions may take; 0 = anything.
func (w *Workspace) bound(p Policy, revs []Revision) int64 {
	if len(revs) == 0 {
		return w.c.BytesMax
	}
	return w.atMost(p.Bytes(revs[len(revs)-1].Bytes))
}

// atMost holds a bound within the configured one.
func (w *Workspace) atMost(bytes int64) int64 {
	if w.c.BytesMax > 0 {
		return min(bytes, w.c.BytesMax)
	}
	return bytes
}

// withRoom calls f again after pruning, if the history is full. A workspace
// that has grown beyond what its history may take gets the most there is.
func (w *Workspace) withRoom(ctx context.Context, f func() error) error {
	err := f()
	if w.c.Policy == nil || !errors.Is(err, object.ErrFull) {
		return err
	}
	if _, pruneErr := w.Prune(ctx, *w.c.Policy); pruneErr != nil {
		return errors.Join(err, pruneErr)
	}
	if err = f(); !errors.Is(err, object.ErrFull) {
		return err
	}
	w.objects.Limit(w.atMost(cmp.Or(w.c.Policy.BytesMax, retain.BytesMax)))
	return f()
}
