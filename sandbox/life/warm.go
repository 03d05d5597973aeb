package life

import (
	"context"
	"fmt"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

// moveIn gives a new sandbox a warm machine of its shape, if there is one that
// is of use; then it is done, for better or worse.
//
// Until the sandbox is Running its machine is the pool's, which destroys it
// after a crash. So the sandbox's first record is the one that says Running.
func (k *Sandbox) moveIn(ctx context.Context, p *selector.Provider, root template.Rootfs) (done bool, err error) {
	if k.from != nil {
		return false, nil
	}
	info := k.record().Info
	spec := info.Spec
	network := k.d.Network(ctx, info) // before it has a machine: it may wait
	boot := sandbox.Boot{ID: k.id, Spec: spec, Rootfs: root, Network: network}.BootFile()
	var setting string
	if !spec.NoStart {
		setting = pool.Setting(boot)
	}
	warm := k.d.Pool.Claim(ctx, pool.ShapeOf(spec, p.Name(), root, k.d.GuestID), k.id, setting)
	if warm == nil {
		return false, nil
	}
	if err = snapshot.Adopt(ctx, warm.Machine.Guest(), boot, k.d.now); err == nil && warm.Begun {
		err = stillReady(ctx, warm.Machine.Guest(), root)
	}
	if err != nil {
		k.d.Pool.Discard(warm.ID)
		if ctx.Err() != nil {
			return true, k.notBuilt(ctx, err)
		}
		k.d.Log.Warn("a warm machine is of no use; booting one", "id", k.id, "machine", warm.ID, "error", err)
		return false, nil
	}
	if err := k.own(ctx, p, warm); err != nil {
		k.takeMachine()
		k.d.Pool.Discard(warm.ID)
		return true, k.notBuilt(ctx, err)
	}
	k.d.Pool.Taken(warm.ID)
	// Not before: others wait to move in, and this may take a while.
	if err = k.counted(ctx, quota.Machine(spec).Plus(quota.Kept(spec))); err == nil {
		err = startServices(ctx, warm.Machine.Guest(), root, k.record().Info.Spec, warm.Begun)
	}
	if err != nil {
		if uerr := k.unbuild(); uerr != nil {
			k.d.Log.Error("cannot remove a sandbox whose template did not get ready; will try again", "id", k.id, "error", uerr)
		}
		return true, k.interrupted(ctx, fmt.Errorf("create %s: %w", k.id, err))
	}
	return true, nil
}

// own stores the first record of a sandbox that runs on a warm machine. From
// then on it names all that the host holds by the machine.
func (k *Sandbox) own(ctx context.Context, p *selector.Provider, warm *pool.Member) error {
	k.mu.Lock()
	k.volume = warm.Volume
	k.mu.Unlock()
	k.adopt(warm.Machine)
	rec := k.record()
	begun := rec.Info
	rec.Machine = warm.ID
	k.running(p, k.asked, warm.From, nil)(&rec)
	k.d.Snapshots.Rehold(warm.From, k.id) // if any; the pool lets go of it at Taken
	if err := k.store(ctx, rec); err != nil {
		k.d.Snapshots.Release(context.WithoutCancel(ctx), warm.From, k.id)
		return err
	}
	k.settle()
	k.tell(begun, rec.Info)
	return nil
}
