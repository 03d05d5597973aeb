package replica

import (
	"context"
	"slices"
	"time"

	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/retain"
)

// When a copy is pruned: beyond a share of its bound, and then not again for a
// while. What stays takes no more than keepShare of the bound.
const (
	pruneShare = 0.875
	keepShare  = 0.75
	pruneEvery = 10 * time.Minute
)

// pin keeps the tree of a revision while it is read.
func (c *copied) pin(n uint64) (root object.Hash, done func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.revs {
		if r.N != n {
			continue
		}
		c.pins[r.Root]++
		return r.Root, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.pins[r.Root]--; c.pins[r.Root] == 0 {
				delete(c.pins, r.Root)
			}
		}, true
	}
	return object.Hash{}, nil, false
}

// pruneIfLarge prunes a copy that is near its bound.
func (c *copied) pruneIfLarge(ctx context.Context) error {
	c.mu.Lock()
	due := float64(c.objects.Bytes()) > pruneShare*float64(c.bytesMax) && time.Since(c.pruned) > pruneEvery
	c.mu.Unlock()
	if !due {
		return nil
	}
	return c.prune(ctx)
}

// prune drops old revisions, by the host's own rules, and what a machine has
// sent that never became one.
func (c *copied) prune(ctx context.Context) error {
	c.takeMu.Lock() // nothing is put meanwhile
	defer c.takeMu.Unlock()
	revs := c.revisions()
	current, undo, redo := workspace.Position(revs)
	m := retain.NewMarker(c.objects)
	order := retain.Order(revs, retain.Policy{BytesMax: c.bytesMax}, c.clock.Now(), current, undo, redo)
	kept, err := retain.Choose(ctx, m, order, int64(keepShare*float64(c.bytesMax)), capture.DefaultRules().Derived)
	if err != nil {
		return err
	}
	if err := c.drop(ctx, m, kept); err != nil {
		return err
	}
	c.receiver.Forget()
	_, err = c.objects.Shrink(ctx, int64(pruneShare*float64(c.bytesMax)), nil)
	return err
}

func (c *copied) drop(ctx context.Context, m *retain.Marker, kept []workspace.Revision) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for root := range c.pins {
		if _, err := m.Tree(ctx, root, 0, true); err != nil {
			return err
		}
	}
	same := slices.EqualFunc(kept, c.revs, func(a, b workspace.Revision) bool { return a.N == b.N && a.Root == b.Root })
	if !same {
		if err := c.objects.Sync(); err != nil { // thin trees are new
			return err
		}
		if err := c.list.Replace(kept); err != nil {
			return err
		}
		c.revs = kept
	}
	c.objects.Retry()
	c.objects.Drop(m.Has)
	c.pruned = time.Now()
	return nil
}
