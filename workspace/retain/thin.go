package retain

import (
	"slices"

	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// thinner makes trees without the directories of some names, wherever they
// are. It remembers what became of each directory, as most are in many trees.
type thinner struct {
	store *object.Store
	names []string
	done  map[object.Hash]object.Hash
}

// tree returns the tree, put into the store if it is another one.
func (t *thinner) tree(h object.Hash) (thin object.Hash, err error) {
	if thin, ok := t.done[h]; ok {
		return thin, nil
	}
	entries, err := apply.Read(t.store, h)
	if err != nil {
		return h, err
	}
	left := slices.DeleteFunc(slices.Clone(entries), func(e tree.Entry) bool {
		return e.Type == tree.Dir && slices.Contains(t.names, e.Name)
	})
	changed := len(left) < len(entries)
	for i := range left {
		if e := &left[i]; e.Type == tree.Dir {
			sub, err := t.tree(e.Hash)
			if err != nil {
				return h, err
			}
			changed = changed || sub != e.Hash
			e.Hash = sub
		}
	}
	if thin = h; changed {
		data, err := tree.Encode(left)
		if err != nil {
			return h, err
		}
		if thin, err = t.store.Put(object.Tree, data); err != nil {
			return h, err
		}
	}
	t.done[h] = thin
	return thin, nil
}
