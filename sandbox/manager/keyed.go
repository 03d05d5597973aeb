package manager

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
)

// A request with an idempotency key gives its things names that derive from the
// key, so that a repetition finds them, after a crash too. What was asked for is
// in the names or in the things: the same key for something else is refused.

// keySep is in no tenant's name and in no key.
const keySep = "\x00"

// unburyEvery is how often is looked whether a failed fork's remains are gone.
const unburyEvery = 2 * time.Millisecond

func errOtherKey(what string) error {
	return errs.New(errs.Conflict, "this idempotency key was used for another %s", what).
		WithHint("use a new key for a new %s", what)
}

// sameSnapshot refuses a key that was used for another snapshot.
func sameSnapshot(snap sandbox.Snapshot, of sandbox.ID, r sandbox.SnapshotRequest) error {
	if snap.Sandbox != of || snap.Name != r.Name || snap.Memory == r.DiskOnly {
		return errOtherKey("snapshot")
	}
	return nil
}

// lifeOf returns the life of a sandbox, or nil.
func (m *Manager) lifeOf(id sandbox.ID) *life.Sandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives[id]
}

// again answers a fork with a key: with what an earlier one with the same key
// made, whole or, if its server died, with what was missing made now from the
// same snapshot. A fork that failed left nothing, and is begun anew.
func (f *fork) again(ctx context.Context) ([]sandbox.Info, error) {
	f.name()
	var there []*life.Sandbox
	for _, id := range f.ids {
		if k := f.m.lifeOf(id); k != nil {
			there = append(there, k)
		}
	}
	infos := make([]sandbox.Info, 0, len(there))
	for _, k := range there {
		i := k.Info()
		switch {
		case i.From != f.snap:
			return nil, errOtherKey("fork")
		case i.State == sandbox.Creating: // no call is making it: we hold the key
			return nil, errs.New(errs.Unavailable, "an earlier fork with this key is still being cleaned up").WithHint("try again in a moment")
		}
		infos = append(infos, i)
	}
	if len(infos) == len(f.ids) {
		return infos, nil
	}
	left, err := f.bury(ctx, there)
	if err != nil {
		return nil, err
	}
	snap, ok := f.m.deps.Snapshots.Whole(f.tenant, f.snap)
	switch {
	case ok:
		return f.from(ctx, snap)
	case len(left) == 0:
		return f.begin(ctx)
	}
	return nil, errs.New(errs.Conflict, "%d of the %d forks with this idempotency key were made when the server ended, and what the others would go on from is gone", len(left), len(f.ids)).
		WithHint("destroy %s and the like, and fork with a new key", left[0].ID())
}

// name gives the fork's things names. Those of its sandboxes come from the key
// alone, so that another fork with the same key meets them; the snapshot's, which
// they remember, also from what was asked for.
func (f *fork) name() {
	r := f.r
	r.Key, r.Count = "", len(f.ids)
	asked, _ := json.Marshal([]any{f.of, r}) // of plain values, it cannot fail
	f.snap = sandbox.KeyedSnapshotID(f.m.secret, f.tenant, f.r.Key+keySep+"fork"+keySep+string(asked))
	for i := range f.ids {
		f.ids[i] = sandbox.KeyedID(f.m.secret, f.tenant, f.r.Key+keySep+strconv.Itoa(i))
	}
}

// bury forgets the sandboxes of a fork that failed, which were destroyed again,
// and returns those that live.
func (f *fork) bury(ctx context.Context, there []*life.Sandbox) (left []*life.Sandbox, err error) {
	tick := time.NewTicker(unburyEvery)
	defer tick.Stop()
	for _, k := range there {
		if k.Info().State != sandbox.Destroyed {
			left = append(left, k)
			continue
		}
		for k.Unbury(); f.m.lifeOf(k.ID()) == k; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return left, nil
}
