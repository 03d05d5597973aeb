package firecracker

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
)

// Destroy implements sandbox.Provider.
func (p *Provider) Destroy(ctx context.Context, id sandbox.ID) error {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return err
	}
	return p.machines.Destroy(ctx, id, destroyTimeout, func(ctx context.Context) error { return p.clear(ctx, id) })
}

// clear ends the machine and removes all that has the ID in its name. It may
// find anything from nothing to a running machine, and may be repeated. The
// user is given back last: no other machine may have it while it owns anything.
func (p *Provider) clear(ctx context.Context, id sandbox.ID) error {
	m := p.machines.Known(id)
	if m != nil {
		m.lifetime.Doom(true)
	}
	if err := p.kill(ctx, id); err != nil {
		return err
	}
	if m != nil {
		m.lifetime.Settle(ctx)
		_ = m.Close()
	}
	if p.cgroups != nil {
		if err := p.cgroups.Group(p.group(id)).Remove(ctx); err != nil {
			return err
		}
	}
	rec, _ := readRecord(p.dir(id)) // missing or torn: nothing was linked yet
	if err := p.jailOf(id, rec).Disown(jail.Work); err != nil {
		return err
	}
	if err := os.RemoveAll(p.dir(id)); err != nil {
		return err
	}
	return p.releaseUID(id)
}

// kill ends every process of the machine and returns when none is left; what
// is started meanwhile is found in the next round.
func (p *Provider) kill(ctx context.Context, id sandbox.ID) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		refs, err := p.processes(id)
		if err != nil {
			return err
		}
		refs = slices.DeleteFunc(refs, func(r hostproc.Ref) bool {
			return errors.Is(r.Signal(unix.SIGKILL), hostproc.ErrGone)
		})
		if p.cgroups != nil {
			if err := p.cgroups.Group(p.group(id)).Kill(ctx); err != nil {
				return err
			}
		}
		if len(refs) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// processes lists what belongs to the machine besides the members of its
// control group: what is on record, or where there is no record, what looks
// like it.
func (p *Provider) processes(id sandbox.ID) ([]hostproc.Ref, error) {
	rec, err := readRecord(p.dir(id))
	if err == nil && rec.Process.PID != 0 {
		return []hostproc.Ref{rec.Process}, nil
	}
	return p.jailOf(id, rec).Processes()
}
