package manager

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/quota"
)

// Several nodes may keep their records in one store, and each record names its
// node. A server knows where all sandboxes are and what they count of their
// tenants' quotas: by the records that it read at its start and, where other
// servers write to the store, by a watch.

const (
	watchRetry = time.Second
	countWait  = 10 * time.Second // for the watch to tell what this server wrote itself
)

// elsewhere knows the sandboxes of other nodes. It is safe for concurrent use.
type elsewhere struct {
	node  string // this one
	quota *quota.Quota

	mu   sync.Mutex // guards all below; held for a moment only
	all  map[sandbox.ID]placed
	read uint64        // newest revision that was seen
	more chan struct{} // closed when read grows
}

// placed is a sandbox of another node.
type placed struct {
	tenant, name, node string // name: "" also of one that is destroyed
}

func newElsewhere(node string, q *quota.Quota) *elsewhere {
	return &elsewhere{node: node, quota: q, all: map[sandbox.ID]placed{}, more: make(chan struct{})}
}

// find returns where a tenant's sandbox is, if another node has it.
func (e *elsewhere) find(tenant string, id sandbox.ID) (node string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.all[id]
	return p.node, ok && p.tenant == tenant
}

func (e *elsewhere) has(id sandbox.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.all[id]
	return ok
}

// of returns a tenant's, with their names.
func (e *elsewhere) of(tenant string) map[sandbox.ID]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[sandbox.ID]string{}
	for id, p := range e.all {
		if p.tenant == tenant {
			out[id] = p.name
		}
	}
	return out
}

// saw takes in a record, of any node.
func (e *elsewhere) saw(c kv.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Revision > e.read {
		e.read = c.Revision
		close(e.more)
		e.more = make(chan struct{})
	}
	id, ok := life.RecordID(c.Key)
	if !ok {
		return
	}
	if c.Deleted {
		e.drop(id)
		return
	}
	node, info, err := life.Peek(c.Value)
	if err != nil || node == e.node {
		return
	}
	p := placed{info.Tenant, info.Spec.Name, node}
	if info.State == sandbox.Destroyed {
		p.name = ""
	}
	e.all[id] = p
	e.quota.Seen(info.Tenant, id, quota.Of(info), c.Revision)
}

// drop forgets a sandbox. Preconditions: e.mu is held.
func (e *elsewhere) drop(id sandbox.ID) {
	if p, ok := e.all[id]; ok {
		e.quota.Seen(p.tenant, id, quota.Usage{}, 0)
		delete(e.all, id)
	}
}

// only forgets the sandboxes whose records are not among those that there are.
func (e *elsewhere) only(there map[string]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range slices.Collect(maps.Keys(e.all)) {
		if !there[life.RecordPrefix+string(id)] {
			e.drop(id)
		}
	}
}

// reached waits until the records up to a revision were seen. Unavailable: they
// are not, for too long.
func (e *elsewhere) reached(ctx context.Context, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	for {
		e.mu.Lock()
		read, more := e.read, e.more
		e.mu.Unlock()
		if read >= revision {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return errs.New(errs.Unavailable, "the store does not say what other nodes have").WithHint("try again in a moment")
			}
			return ctx.Err()
		}
	}
}

// followNodes takes in what other servers write, until the manager closes.
func (m *Manager) followNodes() {
	for {
		there := map[string]bool{}
		err := m.c.Registry.Watch(m.ctx, "", func(c kv.Change) error {
			if c.Synced {
				m.elsewhere.only(there)
				m.deps.Snapshots.Only(there)
				there = nil
				return nil
			}
			if there != nil {
				there[c.Key] = !c.Deleted
			}
			m.elsewhere.saw(c)
			m.deps.Snapshots.Saw(c)
			return nil
		})
		if m.ctx.Err() != nil {
			return
		}
		m.c.Log.Warn("the records of other nodes are watched anew", "error", err)
		if sleep.For(m.ctx, watchRetry) != nil {
			return
		}
	}
}

// counted refuses what a sandbox was charged for if, in the order in which the
// store has the records of all nodes, the tenant's quota was used up before: of two
// nodes at the limit the one that wrote first wins. Limit, Unavailable.
func (m *Manager) counted(ctx context.Context, tenant string, added quota.Usage, revision uint64) error {
	if m.c.Leases == nil {
		return nil // no other server writes to the store
	}
	if err := m.elsewhere.reached(ctx, revision); err != nil {
		return err
	}
	return m.deps.Quota.Confirm(tenant, added, revision)
}
