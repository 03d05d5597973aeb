package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/selector"
)

const (
	reconcileAtOnce = 16
	// listMax bounds how long the start waits for a provider's list of machines,
	// and sweepMax what is done to one of them.
	listMax  = 2 * time.Second
	sweepMax = 2 * time.Minute
)

// reconcile makes the host and the registry agree, after whatever happened to
// the server before us. What the registry knows is read first; only a registry
// that cannot be read ends it. All else is done in the background: each sandbox is
// brought in order by itself, and what has no owner is removed. What cannot be done
// now is tried again later.
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
	if err := m.loadNames(ctx); err != nil {
		return err
	}
	if err := m.retell(ctx, unreadable); err != nil {
		m.c.Log.Warn("what became of sandboxes when the server ended may not have been told", "error", err)
	}
	// Now, while nothing new can be among it: no sandbox, no member of the pool, no
	// machine that a provider tries itself with.
	hosts, left, machines := m.hosts(), m.deps.Snapshots.Leftovers(ctx), m.listMachines(ctx)
	for _, k := range m.everyone() {
		k.Recover()
	}
	m.swept = make(chan struct{})
	m.spawn(func() {
		defer close(m.swept)
		m.sweepMachines(m.ctx, machines, unreadable)
		m.deps.Pool.Recover(m.ctx, func(id sandbox.ID) bool { return hosts[id] != nil || unreadable[id] })
		m.deps.Pool.Start()
		_ = m.deps.Attaching.Wait(m.ctx) // who is in order needs no more than it has
		m.sweepLeftovers(m.ctx, unreadable)
		m.deps.Snapshots.Remove(m.ctx, left)
	})
	return nil
}

// Settled returns when all that an earlier server left is in order, whatever came
// of it, or ctx's error.
func (m *Manager) Settled(ctx context.Context) error {
	if err := m.deps.Attaching.Wait(ctx); err != nil {
		return err
	}
	select {
	case <-m.swept:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Attaching says how many sandboxes this server found when it started, and how
// many of them are in order again.
func (m *Manager) Attaching() (done, total int) { return m.deps.Attaching.Progress() }

// Attached returns when a sandbox is in order after a start of the server, as
// long as that takes; or ctx's error.
func (m *Manager) Attached(ctx context.Context, tenant string, id sandbox.ID) error {
	k, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return k.Attached(ctx)
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
			m.lives[k.ID()] = k
			m.mu.Unlock()
		default:
			// Its node may be this host, under a name that it had: nothing of it
			// is touched.
			m.elsewhere.saw(kv.Change{Key: key, Value: value, Revision: revision})
			unreadable[sandbox.ID(strings.TrimPrefix(key, life.RecordPrefix))], unreadable[machineOf(value)] = true, true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	return unreadable, nil
}

// retell tells what a crash kept from being told: how the sandboxes are now, and
// that those are gone of which there is no record any more.
func (m *Manager) retell(ctx context.Context, unreadable map[sandbox.ID]bool) error {
	newest := map[sandbox.ID]event.Event{}
	err := m.c.Events.Newest(ctx, event.Sandbox, func(e event.Event) error {
		newest[sandbox.ID(e.ID)] = e
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range m.everyone() {
		k.Retell(newest[k.ID()].Revision)
		delete(newest, k.ID())
	}
	for id, e := range newest {
		ours := e.Node == m.c.Node || slices.Contains(m.c.Formerly, e.Node)
		if !ours || unreadable[id] || e.State == string(sandbox.Destroyed) {
			continue
		}
		var i sandbox.Info
		if json.Unmarshal(e.Data, &i) != nil {
			continue
		}
		i.State, i.Reason = sandbox.Destroyed, sandbox.ReasonDestroyed
		m.deps.Events.Publish(m.c.Now().Round(0).UTC(), m.c.Node, e.Revision+1, i)
	}
	return nil
}

// renameNode makes the records of a time when this node had another name its own.
func (m *Manager) renameNode(ctx context.Context) error {
	if len(m.c.Formerly) == 0 {
		return nil
	}
	type stored struct {
		key      string
		value    []byte
		revision uint64
	}
	var old []stored
	err := m.c.Registry.List(ctx, "", func(key string, value []byte, revision uint64) error {
		var r struct{ Node string }
		if json.Unmarshal(value, &r) == nil && slices.Contains(m.c.Formerly, r.Node) {
			old = append(old, stored{key, value, revision})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	for _, f := range old {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(f.value, &fields); err != nil {
			return err
		}
		if fields["node"], err = json.Marshal(m.c.Node); err != nil {
			return err
		}
		value, err := json.Marshal(fields)
		if err == nil {
			_, err = m.c.Registry.Update(ctx, f.key, value, f.revision)
		}
		if err != nil {
			return fmt.Errorf("make the record %s this node's: %w", f.key, err)
		}
	}
	return nil
}

// found is a machine that a provider has.
type found struct {
	provider *selector.Provider
	id       sandbox.ID
}

// listMachines lists what there is. One provider that does not answer keeps the
// start waiting for a moment; what is its own is swept by the next start.
func (m *Manager) listMachines(ctx context.Context) (all []found) {
	ctx, cancel := context.WithTimeout(ctx, listMax)
	defer cancel()
	providers := m.deps.Selector.Providers()
	lists := make(chan []found, len(providers))
	for _, p := range providers {
		m.spawn(func() {
			ids, err := p.List(ctx)
			if err != nil {
				m.c.Log.Error("cannot list what a provider left", "provider", p.Name(), "error", err)
			}
			var list []found
			for _, id := range ids {
				list = append(list, found{p, id})
			}
			lists <- list
		})
	}
	for range providers {
		select {
		case list := <-lists:
			all = append(all, list...)
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// sweepMachines destroys every machine that no record wants to live.
func (m *Manager) sweepMachines(ctx context.Context, machines []found, unreadable map[sandbox.ID]bool) {
	atOnce(machines, func(f found) {
		if !unreadable[f.id] {
			m.sweepMachine(ctx, f.provider, f.id)
		}
	})
}

func (m *Manager) sweepMachine(ctx context.Context, p *selector.Provider, id sandbox.ID) {
	ctx, cancel := context.WithTimeout(ctx, sweepMax)
	defer cancel()
	k, release := m.stray(id)
	if k != nil {
		if err := k.Sweep(ctx, p); err != nil {
			m.c.Log.Error("cannot remove a machine that its sandbox does not want", "id", id, "provider", p.Name(), "error", err)
		}
		return
	}
	if release == nil {
		return // it is the pool's
	}
	defer release()
	m.c.Log.Info("removing a machine without an owner", "id", id, "provider", p.Name())
	if err := p.Destroy(ctx, id); err != nil {
		m.c.Log.Error("cannot remove a machine without an owner", "id", id, "provider", p.Name(), "error", err)
	}
}

// stray returns the life of the sandbox that an ID on the host is of, or, where
// neither a sandbox nor the pool has it, takes the ID: until release is called
// no sandbox is made with it.
func (m *Manager) stray(id sandbox.ID) (k *life.Sandbox, release func()) {
	if m.deps.Pool.Owns(id) { // asked first: it may be given to a sandbox, and not back
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all() {
		if k.Host() == id || k.ID() == id {
			return k, nil
		}
	}
	m.sweeping[id] = true
	return nil, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.sweeping, id)
	}
}

// sweepLeftovers removes directories and volumes that no record owns.
func (m *Manager) sweepLeftovers(ctx context.Context, unreadable map[sandbox.ID]bool) {
	m.orphans(m.dirNames(), unreadable, func(id sandbox.ID) {
		// Whatever is mounted there is a provider's to take away.
		for _, p := range m.deps.Selector.Providers() {
			if err := p.Destroy(ctx, id); err != nil {
				m.c.Log.Error("cannot remove what a crash left", "id", id, "provider", p.Name(), "error", err)
			}
		}
		if err := m.deps.RemoveDir(id); err != nil {
			m.c.Log.Error("cannot remove the directory that a crash left", "id", id, "error", err)
		}
	})
	err := m.deps.SweepKeys(func(names []string, remove func(sandbox.ID)) { m.orphans(names, unreadable, remove) })
	if err != nil {
		m.c.Log.Error("cannot remove the keys of sandboxes that are gone", "error", err)
	}
	volumes, err := m.c.Volumes.List(ctx)
	if err != nil {
		m.c.Log.Error("cannot list volumes", "error", err)
	}
	m.orphans(volumes, unreadable, func(id sandbox.ID) {
		if err := m.c.Volumes.Remove(ctx, string(id)); err != nil {
			m.c.Log.Error("cannot remove a volume that no sandbox owns", "id", id, "error", err)
		}
	})
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

// orphans calls remove with each of the names that is an ID of no sandbox of ours.
// No sandbox is made with it meanwhile.
func (m *Manager) orphans(names []string, unreadable map[sandbox.ID]bool, remove func(sandbox.ID)) {
	for _, name := range names {
		id, err := sandbox.ParseID(name)
		if err != nil || unreadable[id] {
			continue
		}
		k, release := m.stray(id)
		switch {
		case release != nil:
			remove(id)
			release()
		case k != nil && k.Info().State == sandbox.Destroyed:
			remove(id)
		}
	}
}
