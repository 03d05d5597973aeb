package manager

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
)

// reconcile makes the host and the registry agree, after whatever happened to
// the server before us. What cannot be done now is tried again later; only a
// registry that cannot be read ends it.
func (m *Manager) reconcile(ctx context.Context) error {
	if err := m.deps.Snapshots.Load(ctx); err != nil {
		return err
	}
	if err := m.deps.Pool.Load(ctx); err != nil {
		return err
	}
	unreadable, err := m.load(ctx)
	if err != nil {
		return err
	}
	keepers := m.everyone()
	m.sweepMachines(ctx, unreadable)
	atOnce(keepers, func(k *life.Keeper) { k.Recover(ctx) })
	hosts := m.hosts()
	m.deps.Pool.Recover(ctx, func(id sandbox.ID) bool { return hosts[id] != nil || unreadable[id] })
	m.sweepLeftovers(ctx, unreadable)
	m.deps.Snapshots.Sweep(ctx)
	for _, k := range keepers {
		k.Arm()
	}
	return nil
}

// atOnce calls f for each, a few at the same time.
func atOnce[T any](items []T, f func(T)) {
	tokens := make(chan struct{}, reconcileAtOnce)
	var wg sync.WaitGroup
	for _, item := range items {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			f(item)
		})
	}
	wg.Wait()
}

// load reads this node's records. Nothing of a sandbox whose record cannot be
// read is touched: the operator must look.
func (m *Manager) load(ctx context.Context) (unreadable map[sandbox.ID]bool, err error) {
	unreadable = map[sandbox.ID]bool{}
	err = m.c.Registry.List(ctx, life.RecordPrefix, func(key string, value []byte, revision uint64) error {
		k, err := life.Load(&m.deps, key, value, revision)
		switch {
		case err != nil:
			m.c.Log.Error("a sandbox's record cannot be read; it is left alone", "key", key, "error", err)
			unreadable[sandbox.ID(strings.TrimPrefix(key, life.RecordPrefix))] = true
			unreadable[machineOf(value)] = true
		case k != nil:
			m.mu.Lock()
			m.keepers[k.ID()] = k
			m.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	return unreadable, nil
}

// sweepMachines destroys every machine that no record wants to live.
func (m *Manager) sweepMachines(ctx context.Context, unreadable map[sandbox.ID]bool) {
	hosts := m.hosts()
	for _, p := range m.deps.Ladder.Rungs() {
		ids, err := p.List(ctx)
		if err != nil {
			m.c.Log.Error("cannot list what a provider left", "provider", p.Name(), "error", err)
			continue
		}
		atOnce(ids, func(id sandbox.ID) {
			if k := hosts[id]; unreadable[id] || m.deps.Pool.Owns(id) || k != nil && k.Wants(p.Name()) {
				return
			}
			m.c.Log.Info("removing a machine that nobody owns", "id", id, "provider", p.Name())
			if err := p.Destroy(ctx, id); err != nil {
				m.c.Log.Error("cannot remove a machine that nobody owns", "id", id, "provider", p.Name(), "error", err)
			}
		})
	}
}

// sweepLeftovers removes directories and volumes that no record owns.
func (m *Manager) sweepLeftovers(ctx context.Context, unreadable map[sandbox.ID]bool) {
	for _, id := range m.orphans(m.dirNames(), unreadable) {
		// Whatever is mounted there is a provider's to take away.
		for _, p := range m.deps.Ladder.Rungs() {
			if err := p.Destroy(ctx, id); err != nil {
				m.c.Log.Error("cannot remove what a crash left", "id", id, "provider", p.Name(), "error", err)
			}
		}
		if err := m.deps.RemoveDir(id); err != nil {
			m.c.Log.Error("cannot remove the directory that a crash left", "id", id, "error", err)
		}
	}
	volumes, err := m.c.Volumes.List(ctx)
	if err != nil {
		m.c.Log.Error("cannot list volumes", "error", err)
	}
	for _, id := range m.orphans(volumes, unreadable) {
		if err := m.c.Volumes.Remove(ctx, string(id)); err != nil {
			m.c.Log.Error("cannot remove a volume that nobody owns", "id", id, "error", err)
		}
	}
}

func (m *Manager) dirNames() (names []string) {
	entries, err := os.ReadDir(m.c.Dir)
	if err != nil {
		m.c.Log.Error("cannot read the directory of sandboxes", "error", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// orphans picks the names that are IDs of no sandbox of ours.
func (m *Manager) orphans(names []string, unreadable map[sandbox.ID]bool) (ids []sandbox.ID) {
	hosts := m.hosts()
	for _, name := range names {
		id, err := sandbox.ParseID(name)
		if err != nil || unreadable[id] || m.deps.Pool.Owns(id) {
			continue
		}
		if k := hosts[id]; k == nil || k.Info().State == sandbox.Destroyed {
			ids = append(ids, id)
		}
	}
	return ids
}
