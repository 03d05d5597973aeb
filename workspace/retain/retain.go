// Package retain chooses which revisions of a workspace stay, and finds what
// they need.
//
//	order := retain.Order(revs, policy, clock)   // what may stay, the dearest first
//	m := retain.NewMarker(store)
//	kept, err := retain.Choose(ctx, m, order, budget, []string{"node_modules"})
//	store.Drop(m.Has)
//
// # What stays
//
// The newest revision, those to which undo and redo would go, and those that
// Policy.Keep names, always; all for a time; after it, the borders of a
// person's turns for a longer time; those that a person gave a name, for good.
// Times are those of the history's own clock, which goes while it is open and
// which cannot be set. By the wall clock a year would have passed when it is
// moved by one, and everything would be old at once.
//
// If that takes more than there is room for, directories that can be made again
// go first, those of the oldest first of all; then the oldest revisions that have
// no name, then the oldest of those that have one.
//
// Functions are pure but for the store that a Marker reads. A Marker is for one
// goroutine at a time.
package retain

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/tree"
)

// Revision is a revision of a workspace.
type Revision = revlog.Revision

// Times and sizes of a Policy that says no others.
const (
	AllDefault     = 24 * time.Hour
	BordersDefault = 30 * 24 * time.Hour
	bytesMin       = 256 << 20
	BytesMax       = 5 << 30
)

// Policy says what stays. The zero Policy has the defaults.
type Policy struct {
	All     time.Duration // for which every revision stays; 0 = 24 h
	Borders time.Duration // for which those at the borders of turns stay; 0 = 30 days
	// BytesMax bounds the history; 0 = twice the workspace, but at least
	// 256 MiB and at most 5 GiB.
	BytesMax int64
	// Keep names more that must stay; nil = none.
	Keep func(Revision) bool
}

// Bytes is the bound of a history whose workspace has this size.
func (p Policy) Bytes(workspace int64) int64 {
	if p.BytesMax > 0 {
		return p.BytesMax
	}
	return min(max(2*workspace, bytesMin), BytesMax)
}

// person reports whether a revision was made by a person, as one is at each
// turn.
func person(r Revision) bool { return r.Actor == "user" || strings.HasPrefix(r.Actor, "user:") }

// border reports whether it lies at the border of a turn: what a person did, or
// what was there when a run began.
func border(r Revision) bool { return person(r) || r.Run != "" && r.Call == "" }

// HasName reports whether a person gave it a name. A going back is labelled too,
// but by us; the border of a turn has the person's words, and its run.
func HasName(r Revision) bool { return person(r) && r.Label != "" && r.Undoes == 0 && r.Run == "" }

// Ranks of a Candidate.
const (
	Must  = iota // stays, whatever it takes
	named        // goes last
	plain        // goes first
)

// Candidate is a revision that may stay.
type Candidate struct {
	Revision
	Rank int
}

// Order lists what may stay, the dearest first. clock is that of the history,
// now (Revision.Clock); must are the numbers of those that do.
func Order(revs []Revision, p Policy, clock time.Duration, must ...uint64) (order []Candidate) {
	for i, r := range revs {
		c := Candidate{Revision: r, Rank: plain}
		switch {
		case i == len(revs)-1, slices.Contains(must, r.N), p.Keep != nil && p.Keep(r):
			c.Rank = Must
		case HasName(r):
			c.Rank = named
		case p.old(r, clock-aged(r)):
			continue
		}
		order = append(order, c)
	}
	slices.SortStableFunc(order, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), -cmp.Compare(a.N, b.N))
	})
	return order
}

// old reports whether a revision of this age need not stay.
func (p Policy) old(r Revision, age time.Duration) bool {
	return age > cmp.Or(p.All, AllDefault) && (!border(r) || age > cmp.Or(p.Borders, BordersDefault))
}

// Choose marks what the revisions need, in their order, as long as it is no
// more than budget bytes; 0 = no bound. It returns those that stay, the oldest
// first. If not all of it fits, directories of the names in derived, which can
// be made again, go before any revision does, those of the oldest first: such a
// revision is Thin, and its tree is without them.
func Choose(ctx context.Context, m *Marker, order []Candidate, budget int64, derived []string) (kept []Revision, err error) {
	chosen, all, err := m.choose(ctx, order, budget)
	if err == nil && !all && len(derived) > 0 {
		chosen, err = m.thinned(ctx, order, budget, derived)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		kept = append(kept, c.Revision)
	}
	slices.SortFunc(kept, func(a, b Revision) int { return cmp.Compare(a.N, b.N) })
	return kept, nil
}

// choose marks trees in their order.
func (m *Marker) choose(ctx context.Context, order []Candidate, budget int64) (kept []Candidate, all bool, err error) {
	all = true
	for i := 0; i < len(order); i++ {
		fits, err := m.Tree(ctx, order[i].Root, budget, order[i].Rank == Must)
		if err != nil {
			return nil, false, err
		}
		if fits {
			kept = append(kept, order[i])
			continue
		}
		all = false
		for rank := order[i].Rank; i+1 < len(order) && order[i+1].Rank == rank; {
			i++ // older ones would only be gaps in what can be undone
		}
	}
	return kept, all, nil
}

// thinned chooses among trees without what can be made again, and gives that
// back to the dearest as long as there is room.
func (m *Marker) thinned(ctx context.Context, order []Candidate, budget int64, derived []string) ([]Candidate, error) {
	*m = *NewMarker(m.store)
	t := thinner{m.store, derived, map[object.Hash]object.Hash{}}
	whole := map[uint64]object.Hash{}
	order = slices.Clone(order)
	for i := range order {
		c := &order[i]
		if c.Rank == Must {
			continue
		}
		thin, err := t.tree(c.Root)
		if errors.Is(err, object.ErrFull) {
			break // the rest is what it was
		}
		if err != nil {
			return nil, err
		}
		if thin != c.Root {
			whole[c.N], c.Root, c.Thin = c.Root, thin, true
		}
	}
	kept, _, err := m.choose(ctx, order, budget)
	for i := range kept {
		root, ok := whole[kept[i].N]
		if !ok || err != nil {
			continue
		}
		var fits bool
		if fits, err = m.Tree(ctx, root, budget, false); !fits {
			break
		}
		kept[i].Root, kept[i].Thin = root, false
	}
	return kept, err
}

// Marker knows which objects are needed.
type Marker struct {
	store *object.Store
	seen  map[object.Hash]struct{}
	bytes int64
	fresh []object.Hash // of the tree that is being marked
}

// NewMarker returns a Marker that knows none.
func NewMarker(store *object.Store) *Marker {
	return &Marker{store: store, seen: map[object.Hash]struct{}{}}
}

// Has reports whether an object is needed.
func (m *Marker) Has(h object.Hash) bool {
	_, ok := m.seen[h]
	return ok
}

// Bytes is what the needed objects take in the store.
func (m *Marker) Bytes() int64 { return m.bytes }

// Tree marks all that a tree needs. fits is false if that would be more than
// budget bytes (0 = no bound) and it need not be; then nothing is marked.
// Corrupt, NotFound: a part of the tree cannot be read.
func (m *Marker) Tree(ctx context.Context, root object.Hash, budget int64, must bool) (fits bool, err error) {
	before := m.bytes
	m.fresh = m.fresh[:0]
	err = m.tree(ctx, root)
	if err == nil && (must || budget <= 0 || m.bytes <= budget || len(m.fresh) == 0) {
		return true, nil
	}
	for _, h := range m.fresh {
		delete(m.seen, h)
	}
	m.bytes = before
	return false, err
}

// mark reports whether an object is new.
func (m *Marker) mark(h object.Hash) bool {
	if h.IsZero() || m.Has(h) {
		return false
	}
	m.seen[h] = struct{}{}
	m.fresh = append(m.fresh, h)
	m.bytes += m.store.Length(h)
	return true
}

func (m *Marker) tree(ctx context.Context, h object.Hash) error {
	if !m.mark(h) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := apply.Read(m.store, h)
	for i := 0; err == nil && i < len(entries); i++ {
		switch e := entries[i]; {
		case e.Type == tree.Dir:
			err = m.tree(ctx, e.Hash)
		case e.Type == tree.File && e.Listed:
			err = m.list(e.Hash)
		case e.Type == tree.File:
			m.mark(e.Hash)
		}
	}
	return err
}

func (m *Marker) list(h object.Hash) error {
	if !m.mark(h) {
		return nil
	}
	data, err := m.store.Get(object.List, h)
	if err != nil {
		return err
	}
	chunks, err := tree.DecodeList(data)
	for _, c := range chunks {
		m.mark(c.Hash)
	}
	return err
}
