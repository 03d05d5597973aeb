package snapshot

import (
	"maps"
	"slices"
	"strings"

	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
)

// placed is a snapshot of another node that its tenant sees.
type placed struct{ tenant, node string }

// place notes a record of another node. Preconditions: s.mu is held.
func (s *Store) place(r record) {
	delete(s.elsewhere, r.Snapshot.ID)
	if r.Plan == whole && !r.Hidden {
		s.elsewhere[r.Snapshot.ID] = placed{r.Snapshot.Tenant, r.Node}
	}
}

// Saw takes in a record of the registry that another server may have written.
func (s *Store) Saw(c kv.Change) {
	id, ok := idOf(c.Key)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Deleted {
		delete(s.elsewhere, id)
		return
	}
	if r, err := decode(c.Key, c.Value); err == nil && r.Node != s.c.Node {
		s.place(r)
	}
}

// Only forgets the snapshots of other nodes whose records are not among those that
// there are.
func (s *Store) Only(there map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Collect(maps.Keys(s.elsewhere)) {
		if !there[keyOf(id)] {
			delete(s.elsewhere, id)
		}
	}
}

func idOf(key string) (sandbox.SnapshotID, bool) {
	id, ok := strings.CutPrefix(key, prefix)
	return sandbox.SnapshotID(id), ok
}
