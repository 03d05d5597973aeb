package life

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// Snapshot saves the sandbox as it is, running, paused or (its disk alone)
// stopped; it goes on as it was. What runs inside stands still for as long as
// it takes, and connections into it break. A hidden snapshot is for a fork:
// no tenant sees it.
//
// Unsupported: the provider cannot save memory. Limit, Unavailable: no room.
func (k *Sandbox) Snapshot(ctx context.Context, r sandbox.SnapshotRequest, hidden bool) (sandbox.Snapshot, error) {
	snap := sandbox.Snapshot{ID: cmp.Or(r.ID, sandbox.NewSnapshotID()), Tenant: k.tenant, Name: r.Name, Sandbox: k.id, Memory: !r.DiskOnly}
	_, err := k.change(ctx, job{
		Kind:  jobKind("being saved as " + string(snap.ID)), // never shared: each asks for its own
		Ready: func() error { return k.maySave(r) },
		Run: func(ctx context.Context) error {
			var err error
			snap, err = k.save(ctx, snap, hidden)
			return err
		},
	})
	return snap, err
}

// maySave says whether a snapshot can be taken now.
func (k *Sandbox) maySave(r sandbox.SnapshotRequest) error {
	p, ok := k.d.Selector.Get(k.rec.Info.Provider)
	switch state := k.rec.Info.State; {
	case !ok:
		return errs.New(errs.Unsupported, "provider %s is not part of this server", k.rec.Info.Provider)
	case k.rec.Plan != planNone:
		return k.usable()
	case (state == sandbox.Running || state == sandbox.Paused) && k.machine == nil:
		return errs.New(errs.Conflict, "sandbox %s has just ended", k.id)
	case !r.DiskOnly && !p.Capabilities().Snapshot:
		return errs.New(errs.Unsupported, "provider %s cannot save memory here", p.Name()).
			WithHint("take its files alone: `--disk-only`")
	case state == sandbox.Running || state == sandbox.Paused:
		return nil
	case (state == sandbox.Stopped || state == sandbox.Failed) && r.DiskOnly:
		return nil
	case state == sandbox.Stopped || state == sandbox.Failed:
		return errs.New(errs.Conflict, "sandbox %s is %s and has no memory", k.id, state).
			WithHint("take its files alone: `--disk-only`; or start it first: `skete vm start %s`", k.id)
	}
	return k.usable()
}

// save is the slow part of Snapshot. The registry knows of both, the snapshot
// and that the sandbox is being saved, before either is touched.
func (k *Sandbox) save(ctx context.Context, snap sandbox.Snapshot, hidden bool) (sandbox.Snapshot, error) {
	info := k.record().Info
	snap.Spec, snap.Provider, snap.Isolation, snap.RootfsHash = info.Spec, info.Provider, info.Isolation, info.RootfsHash
	snap.Spec.Env = nil // was given to this sandbox, see sandbox.Changes
	need, err := k.d.Volumes.Usage(ctx, string(k.Host()))
	if err != nil {
		return snap, fmt.Errorf("snapshot of %s: %w", k.id, err)
	}
	if snap.Memory {
		need += int64(info.Spec.MemoryMB) << 20
	}
	dir, err := k.d.Snapshots.Begin(ctx, snap, hidden, need)
	if err != nil {
		return snap, err
	}
	if err = k.commit(func(r *registryRecord) { r.Plan = planSnapshot }); err == nil {
		err = k.take(ctx, snap, dir)
		err = errors.Join(err, k.unfreeze(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return snap, errors.Join(fmt.Errorf("snapshot of %s: %w", k.id, err), k.d.Snapshots.Discard(ctx, snap.ID))
	}
	return k.d.Snapshots.Finish(ctx, snap.ID)
}

// take copies memory and workspace at one moment.
func (k *Sandbox) take(ctx context.Context, snap sandbox.Snapshot, dir string) error {
	copyFiles := func(ctx context.Context) error {
		if err := k.keys.Copy(k.d.Snapshots.KeysFile(snap.ID)); err != nil {
			return err
		}
		return k.d.Volumes.Copy(ctx, string(k.Host()), snapshot.VolumeOf(snap.ID))
	}
	k.mu.Lock()
	machine, state := k.machine, k.rec.Info.State
	k.mu.Unlock()
	if state != sandbox.Running && state != sandbox.Paused {
		return copyFiles(ctx)
	}
	if machine == nil {
		return errs.New(errs.Conflict, "sandbox %s has just ended", k.id)
	}
	if state == sandbox.Paused { // its guest has to hold the commands, so that a copy wakes without them
		if err := machine.Resume(ctx); err != nil {
			return err
		}
	}
	if err := snapshot.Quiesce(ctx, machine.Guest()); err != nil {
		return err
	}
	if snap.Memory {
		return machine.Snapshot(ctx, dir, copyFiles)
	}
	p, ok := k.d.Selector.Get(k.record().Info.Provider)
	if !ok {
		return errs.New(errs.Unsupported, "provider %s is not part of this server", k.record().Info.Provider)
	}
	return snapshot.Still(ctx, p.Capabilities(), machine, copyFiles)
}

// unfreeze brings a sandbox back to what it was before a snapshot, whatever
// became of that. It may find anything from nothing done to all; a machine
// that has ended is another's to bury.
func (k *Sandbox) unfreeze(ctx context.Context) error {
	k.mu.Lock()
	machine, state := k.machine, k.rec.Info.State
	k.mu.Unlock()
	var err error
	if machine != nil && (state == sandbox.Running || state == sandbox.Paused) {
		if err = machine.Resume(ctx); err == nil || errs.Is(err, errs.Unsupported) { // then it was never paused
			k.alignClock(ctx, machine)
			err = snapshot.Thaw(ctx, machine.Guest())
		}
		if err == nil && state == sandbox.Paused {
			err = machine.Pause(ctx)
		}
	}
	if err != nil { // by itself the guest thaws too, only later
		k.d.Log.Warn("a sandbox may stand still for some minutes after its snapshot", "id", k.id, "error", err)
	}
	return errors.Join(err, k.commit(func(r *registryRecord) { r.Plan = planNone }))
}

// bring boots a machine, from a snapshot if there is one with memory and it
// loads; else cold on the workspace, which is the truth, and with a note.
func (k *Sandbox) bring(ctx context.Context, p *selector.Provider, b sandbox.Boot, from *sandbox.Snapshot) (m sandbox.Machine, held sandbox.SnapshotID, notes []string, err error) {
	if from != nil && from.Memory {
		m, err = k.restore(ctx, p, b, from)
		if err == nil {
			return m, from.ID, nil, nil
		}
		k.unhold(ctx)
		if ctx.Err() != nil || !errors.Is(err, sandbox.ErrSnapshot) {
			return nil, "", nil, err
		}
		k.d.Log.Warn("a snapshot does not load; booting from its files", "id", k.id, "snapshot", from.ID, "error", err)
		notes = []string{fmt.Sprintf("the memory of snapshot %s does not load here: this sandbox was booted on a copy of its files, and no command goes on", from.ID)}
		if err := freshDir(b.Dir); err != nil {
			return nil, "", nil, err
		}
	}
	m, err = p.Create(ctx, b)
	return m, "", notes, err
}

// restore loads a machine and makes it one of its own. ErrSnapshot: that
// cannot be, and nothing of it is left.
func (k *Sandbox) restore(ctx context.Context, p *selector.Provider, b sandbox.Boot, from *sandbox.Snapshot) (sandbox.Machine, error) {
	if p.Name() != from.Provider {
		return nil, fmt.Errorf("%w: it is of provider %s", sandbox.ErrSnapshot, from.Provider)
	}
	if err := k.d.Snapshots.Hold(from.ID, k.id); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
	}
	k.mu.Lock()
	k.rec.Held = from.ID // for unhold; stored with the state
	k.mu.Unlock()
	b.From = k.d.Snapshots.Dir(from.ID)
	m, err := p.Create(ctx, b)
	if err != nil {
		return nil, err
	}
	if err = k.naturalise(ctx, m, b); err == nil {
		return m, nil
	}
	// What has another's name, randomness and clock must not run.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	derr := p.Destroy(cleanup, k.Host())
	_ = m.Close()
	if derr != nil {
		return nil, errors.Join(err, derr)
	}
	return nil, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
}

// naturalise gives a restored guest its own identity, and then lets it go on.
func (k *Sandbox) naturalise(ctx context.Context, m sandbox.Machine, b sandbox.Boot) error {
	c := m.Guest()
	if err := snapshot.Adopt(ctx, c, b.BootFile(), k.d.now); err != nil {
		return err
	}
	return snapshot.Thaw(ctx, c)
}

// unhold says that no machine of the sandbox needs a snapshot's files any more.
func (k *Sandbox) unhold(ctx context.Context) {
	k.mu.Lock()
	held := k.rec.Held
	k.mu.Unlock()
	if held != "" {
		k.d.Snapshots.Release(context.WithoutCancel(ctx), held, k.id)
	}
}
