package life

import (
	"context"
	"errors"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// Pause freezes the machine. Nothing happens to a paused one.
func (k *Sandbox) Pause(ctx context.Context) (sandbox.Info, error) {
	return k.change(ctx, k.freezing("", func() error { return nil }))
}

// Resume goes on after Pause. Nothing happens to a running one.
func (k *Sandbox) Resume(ctx context.Context) (sandbox.Info, error) {
	wake, undo := sandbox.Machine.Resume, sandbox.Machine.Pause
	if i := k.record().Info; i.State == sandbox.Paused && i.Reason == sandbox.ReasonHostFull {
		if err := k.d.Host.Begin(); err != nil { // it would be held still again at once
			return sandbox.Info{}, err
		}
		wake, undo = unsuspend, suspend
	}
	return k.change(ctx, job{
		Kind:  kindThaw,
		Ready: k.mayMove(sandbox.Paused, sandbox.Running),
		Run: func(ctx context.Context) error {
			return k.move(ctx, sandbox.Running, "", wake, undo)
		},
	})
}

// freezing is the job of a pause for a reason. ready is asked while there is
// something to do.
func (k *Sandbox) freezing(reason string, ready func() error) job {
	may := k.mayMove(sandbox.Running, sandbox.Paused)
	return job{
		Kind: kindFreeze,
		Ready: func() error {
			if err := may(); err != nil {
				return err
			}
			return ready()
		},
		Run: func(ctx context.Context) error {
			if reason == sandbox.ReasonHostFull {
				return k.move(ctx, sandbox.Paused, reason, suspend, unsuspend)
			}
			return k.move(ctx, sandbox.Paused, reason, sandbox.Machine.Pause, sandbox.Machine.Resume)
		},
	}
}

// mayMove returns what asks whether a machine can go from one state to another.
func (k *Sandbox) mayMove(from, to sandbox.State) func() error {
	return func() error {
		p, ok := k.d.Selector.Get(k.rec.Info.Provider)
		switch {
		case k.rec.Info.State == to && k.rec.Plan == planNone:
			return errDone
		case k.rec.Info.State != from || k.rec.Plan != planNone || k.machine == nil:
			return k.usable()
		case !ok || !p.Capabilities().Pause:
			return errs.New(errs.Unsupported, "provider %s cannot pause", k.rec.Info.Provider).WithHint("stop the sandbox instead; its files are kept")
		}
		return nil
	}
}

// move goes to a state by act, and back by undo if the registry does not take it.
func (k *Sandbox) move(ctx context.Context, to sandbox.State, reason string, act, undo func(sandbox.Machine, context.Context) error) error {
	k.mu.Lock()
	machine := k.machine
	k.mu.Unlock()
	if machine == nil {
		return errs.New(errs.Conflict, "sandbox %s has just ended", k.id)
	}
	if err := act(machine, ctx); err != nil {
		return err
	}
	if to == sandbox.Running {
		k.alignClock(ctx, machine)
	}
	if err := k.commit(func(r *registryRecord) { r.Info.State, r.Info.Reason = to, reason }); err != nil {
		return errors.Join(err, undo(machine, context.WithoutCancel(ctx)))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = time.Now() // the time frozen was no idleness
	return nil
}

// alignClock sets the clock of a machine that has stood still, before a command
// in it asks for the time.
func (k *Sandbox) alignClock(ctx context.Context, m sandbox.Machine) {
	if err := snapshot.AlignClock(ctx, m.Guest(), k.d.now); err != nil {
		k.d.Log.Warn("the clock of a sandbox that stood still may be wrong", "id", k.id, "error", err)
	}
}

// awake returns when the guest can be called, or why it cannot. A paused
// sandbox is woken, unless its spec forbids that; callers at the same time
// share one wake. With k.mu held again it may be asleep again: see Guest.
func (k *Sandbox) awake(ctx context.Context) error {
	k.mu.Lock()
	kind, state, plan, asleep := k.work.Kind(), k.rec.Info.State, k.rec.Plan, k.sleeps(ctx)
	k.mu.Unlock()
	switch {
	case kind == kindFreeze || kind == kindThaw || plan == planSnapshot && kind != "":
		// It is on its way to somewhere: see where.
		return k.work.Do(ctx, job{Kind: "", Ready: func() error { return errDone }})
	case state == sandbox.Paused && plan == planNone && kind == "" && !asleep:
		_, err := k.Resume(ctx)
		return err
	}
	return nil
}
