package life

import (
	"context"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/ladder"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

// claim takes a warm machine of the sandbox's shape, if there is one. From then
// on the record, which is stored next, names all that the host holds by it.
func (k *Keeper) claim(ctx context.Context, p *ladder.Rung, root template.Rootfs) *pool.Member {
	if k.from != nil {
		return nil
	}
	m := k.d.Pool.Claim(ctx, pool.ShapeOf(k.record().Info.Spec, p.Name(), root, k.d.GuestID), k.id)
	if m != nil {
		k.mu.Lock()
		k.rec.Machine, k.volume = m.ID, m.Volume
		k.mu.Unlock()
	}
	return m
}

// equip gives a sandbox whose record is stored its machine: the warm one, or a
// new one.
func (k *Keeper) equip(ctx context.Context, p *ladder.Rung, root template.Rootfs, warm *pool.Member) error {
	if warm != nil {
		k.d.Pool.Taken(warm.ID)
		err := k.moveIn(ctx, root, warm)
		if err == nil {
			return k.up(p, warm.Machine, k.asked, "", nil)
		}
		if ctx.Err() != nil {
			_ = warm.Machine.Close()
			return err
		}
		// It was no good any more. Another takes its place, under its name.
		k.d.Log.Warn("a warm machine is of no use; booting one", "id", k.id, "machine", warm.ID, "error", err)
		if err := k.moveOut(ctx, p, warm); err != nil {
			return err
		}
	}
	if err := k.makeVolume(ctx); err != nil {
		return err
	}
	return k.boot(ctx, p, root, k.asked, k.from)
}

// moveIn makes a warm machine the sandbox's: names, environment, randomness
// and time.
func (k *Keeper) moveIn(ctx context.Context, root template.Rootfs, warm *pool.Member) error {
	b := sandbox.Boot{ID: warm.ID, Name: k.id, Spec: k.record().Info.Spec, Rootfs: root}
	return snapshot.Adopt(ctx, warm.Machine.Guest(), b.BootFile(), k.d.now)
}

func (k *Keeper) moveOut(ctx context.Context, p *ladder.Rung, warm *pool.Member) error {
	err := p.Destroy(ctx, warm.ID)
	_ = warm.Machine.Close()
	if err != nil {
		return err
	}
	return k.d.Volumes.Remove(ctx, string(warm.ID))
}
