package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
)

// cleanupTimeout bounds what is undone after a fork that failed.
const cleanupTimeout = 2 * time.Minute

// Snapshot saves a sandbox as it is: running, paused, or (its files alone)
// stopped. It stands still meanwhile, and goes on as it was.
//
// Unsupported: its provider cannot save memory. Limit, Unavailable: no room.
func (m *Manager) Snapshot(ctx context.Context, tenant string, id sandbox.ID, r sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	if err := r.Check(); err != nil {
		return sandbox.Snapshot{}, err
	}
	if r.Key != "" {
		defer m.keyed.Lock(tenant + keySep + r.Key)()
		r.ID = sandbox.KeyedSnapshotID(m.secret, tenant, r.Key)
		if snap, ok := m.deps.Snapshots.Whole(tenant, r.ID); ok {
			return snap, sameSnapshot(snap, id, r)
		}
	}
	k, err := m.find(tenant, id)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := m.mayKeep(tenant); err != nil {
		return sandbox.Snapshot{}, err
	}
	return k.Snapshot(ctx, r, false)
}

// GetSnapshot returns one snapshot.
func (m *Manager) GetSnapshot(_ context.Context, tenant string, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	return m.deps.Snapshots.Get(tenant, id)
}

// ListSnapshots returns the tenant's snapshots, newest first.
func (m *Manager) ListSnapshots(_ context.Context, tenant string) []sandbox.Snapshot {
	return m.deps.Snapshots.List(tenant)
}

// DeleteSnapshot makes a snapshot unknown. What sandboxes made from it still
// need of its files goes with the last of them.
func (m *Manager) DeleteSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) error {
	return m.deps.Snapshots.Delete(ctx, tenant, id)
}

// fromSnapshot makes the spec of a sandbox that goes on from a snapshot.
func (m *Manager) fromSnapshot(tenant string, r sandbox.CreateRequest) (sandbox.Spec, *sandbox.Snapshot, error) {
	snap, err := m.deps.Snapshots.Get(tenant, r.From)
	if err != nil {
		return sandbox.Spec{}, nil, err
	}
	c := sandbox.Changes{
		Name: r.Spec.Name, Env: r.Spec.Env, Metadata: r.Spec.Metadata,
		TTL: r.Spec.TTL, IdleTimeout: r.Spec.IdleTimeout, Persist: r.Spec.Persist, Ephemeral: r.Spec.Ephemeral,
	}
	if !c.Covers(r.Spec) {
		return sandbox.Spec{}, nil, errs.New(errs.Invalid, "from: a sandbox that goes on from a snapshot has the machine that was saved").
			WithHint("only name, env, metadata, ttl, idle timeout, persist and ephemeral can be given")
	}
	return specOf(snap, c), &snap, nil
}

// specOf is what a sandbox from a snapshot is like.
func specOf(snap sandbox.Snapshot, c sandbox.Changes) sandbox.Spec {
	s := c.Apply(snap.Spec)
	s.Provider, s.Require = snap.Provider, snap.Isolation
	return s
}

// Fork makes sandboxes that go on from where this one is, all or none: by a
// snapshot that goes with the last of them. The original goes on too.
//
// Unsupported: its provider cannot save memory; the hint says what else.
// Conflict: the key was used for another fork, or one that cannot be finished.
func (m *Manager) Fork(ctx context.Context, tenant string, id sandbox.ID, r sandbox.ForkRequest) ([]sandbox.Info, error) {
	f := fork{m: m, asked: time.Now(), tenant: tenant, of: id, r: r, snap: sandbox.NewSnapshotID()}
	if err := r.Check(); err != nil {
		return nil, err
	}
	for range max(1, r.Count) {
		f.ids = append(f.ids, sandbox.NewID())
	}
	if r.Key == "" {
		return f.begin(ctx)
	}
	defer m.keyed.Lock(tenant + keySep + r.Key)()
	return f.again(ctx)
}

// fork is one request of many sandboxes.
type fork struct {
	m      *Manager
	asked  time.Time
	tenant string
	of     sandbox.ID
	r      sandbox.ForkRequest
	snap   sandbox.SnapshotID // that it goes by
	ids    []sandbox.ID       // that its sandboxes get
}

// begin makes the snapshot, and all sandboxes.
func (f *fork) begin(ctx context.Context) ([]sandbox.Info, error) {
	k, err := f.m.find(f.tenant, f.of)
	if err != nil {
		return nil, err
	}
	if err := f.m.mayKeep(f.tenant); err != nil {
		return nil, err
	}
	snap, err := k.Snapshot(ctx, sandbox.SnapshotRequest{DiskOnly: f.r.DiskOnly, ID: f.snap}, true)
	if err != nil {
		return nil, err
	}
	return f.from(ctx, snap)
}

// from makes those of the sandboxes that there are not. The snapshot is
// dropped: it stays as long as one of them needs it.
func (f *fork) from(ctx context.Context, snap sandbox.Snapshot) ([]sandbox.Info, error) {
	defer func() {
		if err := f.m.deps.Snapshots.Drop(context.WithoutCancel(ctx), snap.ID); err != nil {
			f.m.c.Log.Error("cannot remove the snapshot of a fork; will try at the next start", "id", snap.ID, "error", err)
		}
	}()
	spec, err := sandbox.Normalise(specOf(snap, f.r.Changes), f.m.deps.Limits, f.m.deps.Defaults)
	if err != nil {
		return nil, err
	}
	var requests []life.Request
	for i, id := range f.ids {
		if f.m.lifeOf(id) == nil {
			spec := spec
			spec.Name = f.r.NameOf(i)
			requests = append(requests, life.Request{Asked: f.asked, Tenant: f.tenant, ID: id, Spec: spec, From: &snap})
		}
	}
	made, err := f.m.createAll(ctx, requests)
	if err != nil {
		return nil, err
	}
	infos := make([]sandbox.Info, len(f.ids))
	for i, id := range f.ids {
		if len(made) > 0 && made[0].ID == id {
			infos[i], made = made[0], made[1:]
		} else if infos[i], err = f.m.Get(ctx, f.tenant, id); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// createAll makes all sandboxes or none. How many boot at once is bounded by
// Deps.Boots.
func (m *Manager) createAll(ctx context.Context, requests []life.Request) ([]sandbox.Info, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	infos, failed := make([]sandbox.Info, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() {
			if infos[i], failed[i] = m.create(ctx, r); failed[i] != nil {
				cancel(failed[i]) // the others need not go on
			}
		})
	}
	wg.Wait()
	err := context.Cause(ctx)
	if err == nil {
		return infos, nil
	}
	cleanup, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer stop()
	for i, r := range requests {
		if failed[i] == nil {
			err = errors.Join(err, m.Destroy(cleanup, r.Tenant, r.ID))
		}
	}
	return nil, err
}
