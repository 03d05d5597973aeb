package sandbox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// reconcile makes the host and the registry agree, after whatever happened to
// the server before us. What cannot be done now is tried again later; only a
// registry that cannot be read ends it.
func (m *Manager) reconcile(ctx context.Context) error {
	unreadable, err := m.load(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	boxes := m.all()
	m.mu.Unlock()
	slices.SortFunc(boxes, func(a, b *box) int { return a.rec.Info.EndedAt.Compare(b.rec.Info.EndedAt) })
	m.sweepMachines(ctx, unreadable)
	atOnce(boxes, func(b *box) { m.recover(ctx, b) })
	m.sweepLeftovers(ctx, unreadable)
	for _, b := range boxes {
		b.mu.Lock()
		m.arm(b)
		b.mu.Unlock()
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
func (m *Manager) load(ctx context.Context) (unreadable map[ID]bool, err error) {
	unreadable = map[ID]bool{}
	err = m.c.Registry.List(ctx, recordPrefix, func(key string, value []byte, revision uint64) error {
		rec, err := decodeRecord(key, value)
		if err != nil {
			m.log.Error("a sandbox's record cannot be read; it is left alone", "key", key, "error", err)
			unreadable[ID(key[len(recordPrefix):])] = true
			return nil
		}
		if rec.Node == m.c.Node {
			m.restore(rec, revision)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	return unreadable, nil
}

// restore makes the box of a stored record.
func (m *Manager) restore(rec record, revision uint64) {
	b := &box{id: rec.Info.ID, tenant: rec.Info.Tenant, rec: rec, revision: revision, used: time.Now()}
	if at := rec.Info.ExpiresAt; !at.IsZero() {
		// A wall clock that went backwards must not lengthen a life.
		left := min(at.Sub(m.now()), rec.Info.Spec.TTL)
		b.deadline = time.Now().Add(left)
	}
	m.mu.Lock()
	m.boxes[b.id] = b
	m.mu.Unlock()
	switch rec.Info.State {
	case Destroyed:
	case Stopped, Failed:
		m.settle(b, usage{sandboxes: 1})
	default:
		m.settle(b, rec.Info.Spec.machineUsage().plus(usage{sandboxes: 1}))
	}
}

// sweepMachines destroys every machine that no record wants to live.
func (m *Manager) sweepMachines(ctx context.Context, unreadable map[ID]bool) {
	for _, p := range m.ladder.rungs {
		ids, err := p.List(ctx)
		if err != nil {
			m.log.Error("cannot list what a provider left", "provider", p.Name(), "error", err)
			continue
		}
		atOnce(ids, func(id ID) {
			if unreadable[id] || m.wanted(id, p.Name()) {
				return
			}
			m.log.Info("removing a machine that nobody owns", "id", id, "provider", p.Name())
			if err := p.Destroy(ctx, id); err != nil {
				m.log.Error("cannot remove a machine that nobody owns", "id", id, "provider", p.Name(), "error", err)
			}
		})
	}
}

func (m *Manager) wanted(id ID, provider string) bool {
	m.mu.Lock()
	b := m.boxes[id]
	m.mu.Unlock()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.alive() && b.rec.Info.Provider == provider
}

// recover brings one box to where its record leads.
func (m *Manager) recover(ctx context.Context, b *box) {
	var err error
	switch rec := b.rec; {
	case rec.Plan != planNone:
		err = m.finish(ctx, b)
	case rec.Info.State == Destroyed:
		m.bury(b)
	case rec.alive():
		err = m.reattach(ctx, b)
	}
	if err != nil {
		m.log.Error("cannot bring a sandbox in order; will try again", "id", b.id, "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holdOff(err)
}

// reattach takes over a machine that should run, or notes its loss.
func (m *Manager) reattach(ctx context.Context, b *box) error {
	err := m.attach(ctx, b)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errs.Is(err, errs.NotFound) {
		m.log.Error("cannot attach to a machine", "id", b.id, "error", err)
	}
	b.mu.Lock()
	state := b.lostState()
	b.mu.Unlock()
	return m.halt(ctx, b, state, ReasonLost)
}

func (m *Manager) attach(ctx context.Context, b *box) error {
	info := b.record().Info
	p, ok := m.ladder.get(info.Provider)
	if !ok {
		return errs.New(errs.Unsupported, "provider %s is not part of this server", info.Provider)
	}
	if err := m.attachVolume(ctx, b); err != nil {
		return err
	}
	machine, err := p.Attach(ctx, b.id)
	for try := 1; err != nil && !errs.Is(err, errs.NotFound) && try < attachTries; try++ {
		m.sleep(attachRetryAfter)
		machine, err = p.Attach(ctx, b.id)
	}
	if err != nil {
		return err
	}
	m.adopt(b, machine)
	if !p.Capabilities().Pause {
		return nil
	}
	// We may have died between an act and its record; the record is the truth.
	if info.State == Paused {
		return machine.Pause(ctx)
	}
	return machine.Resume(ctx)
}

// sweepLeftovers removes directories and volumes that no record owns.
func (m *Manager) sweepLeftovers(ctx context.Context, unreadable map[ID]bool) {
	for _, id := range m.orphans(m.dirNames(), unreadable) {
		// Whatever is mounted there is a provider's to take away.
		for _, p := range m.ladder.rungs {
			if err := p.Destroy(ctx, id); err != nil {
				m.log.Error("cannot remove what a crash left", "id", id, "provider", p.Name(), "error", err)
			}
		}
		if err := removeDir(m.dir(id)); err != nil {
			m.log.Error("cannot remove the directory that a crash left", "id", id, "error", err)
		}
	}
	volumes, err := m.c.Volumes.List(ctx)
	if err != nil {
		m.log.Error("cannot list volumes", "error", err)
	}
	for _, id := range m.orphans(volumes, unreadable) {
		if err := m.c.Volumes.Remove(ctx, string(id)); err != nil {
			m.log.Error("cannot remove a volume that nobody owns", "id", id, "error", err)
		}
	}
}

func (m *Manager) dirNames() (names []string) {
	entries, err := os.ReadDir(m.c.Dir)
	if err != nil {
		m.log.Error("cannot read the directory of sandboxes", "error", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// orphans picks the names that are IDs of no sandbox of ours.
func (m *Manager) orphans(names []string, unreadable map[ID]bool) (ids []ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		id, err := ParseID(name)
		if err != nil || unreadable[id] {
			continue
		}
		b := m.boxes[id]
		if b == nil || b.record().Info.State == Destroyed {
			ids = append(ids, id)
		}
	}
	return ids
}
