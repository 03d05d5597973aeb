package life

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/quota"
)

// shutdownGrace is what processes get at a stop.
const shutdownGrace = time.Second

// Start boots a machine for a stopped or failed sandbox; its workspace is as
// it was. Nothing happens to a running one.
func (k *Keeper) Start(ctx context.Context) (sandbox.Info, error) {
	asked := time.Now()
	return k.change(ctx, job{
		kind: kindStart,
		ready: func() error {
			switch k.rec.Info.State {
			case sandbox.Running:
				if k.rec.Plan == planNone {
					return errDone
				}
			case sandbox.Stopped, sandbox.Failed:
				if k.rec.Plan == planNone {
					return nil
				}
				return errCleanup(k.id)
			}
			return k.usable()
		},
		run: func(ctx context.Context) error { return k.restart(ctx, asked) },
	})
}

func errCleanup(id sandbox.ID) error {
	return errs.New(errs.Conflict, "sandbox %s is still being cleaned up", id).WithHint("try again in a moment")
}

// change does a job and returns what came of it.
func (k *Keeper) change(ctx context.Context, j job) (sandbox.Info, error) {
	ready := j.ready
	j.ready = func() error {
		if k.gone {
			return errDestroyed(k.id)
		}
		return ready()
	}
	if err := k.do(ctx, j); err != nil {
		return sandbox.Info{}, err
	}
	return k.Info(), nil
}

// restart boots a machine on the workspace that is there. When it fails the
// sandbox is Failed, and says why.
func (k *Keeper) restart(ctx context.Context, asked time.Time) error {
	info := k.record().Info
	root, err := RootfsFor(ctx, k.d.Templates, info.Spec)
	if err != nil {
		return err
	}
	// The same provider as before: a start must not change the isolation.
	p, err := k.d.Ladder.Named(ctx, sandbox.Spec{Provider: info.Provider, Require: info.Spec.Require})
	if err != nil {
		return err
	}
	if err := k.d.Quota.Charge(k.tenant, k.id, quota.Machine(info.Spec)); err != nil {
		return err
	}
	err = k.commit(func(r *record) { r.Plan, r.Info.State, r.Info.RootfsHash = planStart, sandbox.Creating, root.Hash })
	if err != nil {
		k.d.Quota.Set(k.tenant, k.id, quota.Usage{Sandboxes: 1})
		return err
	}
	if err = k.attachVolume(ctx); err == nil {
		err = k.boot(ctx, p, root, asked)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("start %s: %w", k.id, err)
	if herr := k.halt(context.WithoutCancel(ctx), sandbox.Failed, "start: "+errs.Public(err)); herr != nil {
		k.d.Log.Error("cannot clean up after a start that failed; will try again", "id", k.id, "error", herr)
	}
	return k.interrupted(ctx, err)
}

func (k *Keeper) attachVolume(ctx context.Context) error {
	form, err := k.form()
	if err != nil {
		return err
	}
	v, err := k.d.Volumes.Attach(ctx, string(k.id), form)
	if err != nil {
		return fmt.Errorf("attach the workspace: %w", err)
	}
	k.mu.Lock()
	k.volume = v
	k.mu.Unlock()
	return nil
}

// Stop ends the machine and keeps the workspace. Nothing happens to a sandbox
// that has none.
func (k *Keeper) Stop(ctx context.Context) (sandbox.Info, error) {
	return k.change(ctx, k.halting(sandbox.Stopped, sandbox.ReasonStopped, func() error { return nil }))
}

// halting is the job of ending a machine. ready is asked only while there is one.
func (k *Keeper) halting(state sandbox.State, reason string, ready func() error) job {
	return job{
		kind: kindHalt,
		ready: func() error {
			switch k.rec.Info.State {
			case sandbox.Running, sandbox.Paused:
				if k.rec.Plan == planDestroy {
					return errCleanup(k.id)
				}
				return ready()
			case sandbox.Stopped, sandbox.Failed:
				return errDone
			case sandbox.Creating:
				return errCleanup(k.id)
			}
			return errDestroyed(k.id)
		},
		run: func(ctx context.Context) error {
			k.shutdown(ctx)
			return k.halt(ctx, state, reason)
		},
	}
}

// shutdown gives the processes inside a moment to end well. A guest that does
// not play along loses only that.
func (k *Keeper) shutdown(ctx context.Context) {
	k.mu.Lock()
	client, running := k.client, k.rec.Info.State == sandbox.Running && k.rec.Plan == planNone
	k.mu.Unlock()
	if client == nil || !running {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*shutdownGrace)
	defer cancel()
	_, _ = client.Control.Shutdown(ctx, connect.NewRequest(&wire.ShutdownRequest{GraceMs: shutdownGrace.Milliseconds()}))
}

// halt ends the machine, keeps the workspace and commits the state.
func (k *Keeper) halt(ctx context.Context, state sandbox.State, reason string) error {
	err := k.commit(func(r *record) {
		if r.Plan != planHalt { // else an earlier try knows the true reason
			r.Plan, r.PlanState, r.PlanReason = planHalt, state, reason
		}
	})
	if err != nil {
		return err
	}
	return k.finish(ctx)
}

// finish does what is left of the plan to end or undo; a crash, or an
// error, at any point and another finish give the same result.
func (k *Keeper) finish(ctx context.Context) error {
	rec := k.record()
	switch rec.Plan {
	case planCreate:
		return k.wipe()
	case planDestroy:
		return k.raze(ctx, rec.PlanReason)
	case planStart:
		rec.PlanState, rec.PlanReason = sandbox.Failed, sandbox.ReasonLost
	case planNone:
		return nil
	}
	if err := k.teardown(ctx, true); err != nil {
		return fmt.Errorf("end the machine of %s: %w", k.id, err)
	}
	err := k.commit(func(r *record) {
		r.Plan, r.PlanState, r.PlanReason = planNone, "", ""
		r.Info.State, r.Info.Reason, r.Info.EndedAt = rec.PlanState, rec.PlanReason, k.d.now()
		r.Info.LastUsedAt = k.Info().LastUsedAt
	})
	if err == nil {
		k.d.Quota.Set(k.tenant, k.id, quota.Usage{Sandboxes: 1})
	}
	return err
}

// teardown removes the machine and all that the host holds for it; the
// workspace too, unless it is kept.
func (k *Keeper) teardown(ctx context.Context, keep bool) error {
	machine := k.takeMachine()
	provider := k.record().Info.Provider
	p, ok := k.d.Ladder.Get(provider)
	if !ok {
		return errs.New(errs.Unsupported, "the sandbox's provider %s is not part of this server", provider).
			WithHint("start the server with that provider, then destroy the sandbox")
	}
	err := p.Destroy(ctx, k.id)
	if machine != nil {
		_ = machine.Close()
	}
	if err != nil {
		return err
	}
	if keep {
		err = k.d.Volumes.Detach(ctx, string(k.id))
	} else {
		err = k.d.Volumes.Remove(ctx, string(k.id))
	}
	if err != nil {
		return err
	}
	return removeDir(k.dir())
}

// Pause freezes the machine. Nothing happens to a paused one.
func (k *Keeper) Pause(ctx context.Context) (sandbox.Info, error) {
	return k.change(ctx, k.freezing(kindFreeze, sandbox.Running, sandbox.Paused, sandbox.Machine.Pause, sandbox.Machine.Resume))
}

// Resume goes on after Pause. Nothing happens to a running one.
func (k *Keeper) Resume(ctx context.Context) (sandbox.Info, error) {
	return k.change(ctx, k.freezing(kindThaw, sandbox.Paused, sandbox.Running, sandbox.Machine.Resume, sandbox.Machine.Pause))
}

// freezing is the job of going from one state to the other by act, and back by
// undo if the registry does not take it.
func (k *Keeper) freezing(what kind, from, to sandbox.State, act, undo func(sandbox.Machine, context.Context) error) job {
	return job{
		kind: what,
		ready: func() error {
			p, ok := k.d.Ladder.Get(k.rec.Info.Provider)
			switch {
			case k.rec.Info.State == to && k.rec.Plan == planNone:
				return errDone
			case k.rec.Info.State != from || k.rec.Plan != planNone || k.machine == nil:
				return k.usable()
			case !ok || !p.Capabilities().Pause:
				return errs.New(errs.Unsupported, "provider %s cannot pause", k.rec.Info.Provider).WithHint("stop the sandbox instead; its files are kept")
			}
			return nil
		},
		run: func(ctx context.Context) error {
			k.mu.Lock()
			machine := k.machine
			k.mu.Unlock()
			if machine == nil {
				return errs.New(errs.Conflict, "sandbox %s has just ended", k.id)
			}
			if err := act(machine, ctx); err != nil {
				return err
			}
			err := k.commit(func(r *record) { r.Info.State = to })
			if err != nil {
				return errors.Join(err, undo(machine, context.WithoutCancel(ctx)))
			}
			k.mu.Lock()
			k.used = time.Now() // the time in the ice was no idleness
			k.mu.Unlock()
			return nil
		},
	}
}

// died handles a machine that ended by itself.
func (k *Keeper) died(machine sandbox.Machine, exit sandbox.Exit) {
	if exit.Reason == "" {
		exit.Reason = sandbox.ReasonExited
	}
	k.mu.Lock()
	state := k.lostState()
	k.mu.Unlock()
	j := k.halting(state, exit.Reason, func() error {
		if k.machine != machine {
			return errDone // whoever took it knows better
		}
		return nil
	})
	j.run = func(ctx context.Context) error { return k.halt(ctx, state, exit.Reason) }
	k.d.Log.Info("a machine has ended", "id", k.id, "reason", exit.Reason, "detail", exit.Detail)
	if err := k.do(k.d.Ctx, j); err != nil && k.d.Ctx.Err() == nil {
		k.d.Log.Error("cannot clean up after a machine; will try again", "id", k.id, "error", err)
	}
}

// lostState is where a sandbox goes when its machine is gone.
//
// Preconditions: k.mu is held.
func (k *Keeper) lostState() sandbox.State {
	if k.rec.Info.Spec.Persist {
		return sandbox.Stopped
	}
	return sandbox.Failed
}

// Destroy ends a sandbox for good, from every state; it wins over whatever is
// under way. It may be repeated.
func (k *Keeper) Destroy(ctx context.Context) error {
	return k.do(ctx, k.destroying(sandbox.ReasonDestroyed, func() error { return nil }))
}

// destroying is the job of a Destroy. ready is asked while there is something.
func (k *Keeper) destroying(reason string, ready func() error) job {
	return job{
		kind: kindDestroy,
		ready: func() error {
			if k.gone || k.rec.Info.State == sandbox.Destroyed {
				return errDone
			}
			return ready()
		},
		run: func(ctx context.Context) error {
			err := k.commit(func(r *record) { r.Plan, r.PlanReason = planDestroy, reason })
			if err != nil {
				// Go on: it may be for a full disk that somebody destroys. Should
				// we crash now, the sandbox is found without its machine.
				k.d.Log.Warn("cannot note that a sandbox will be destroyed", "id", k.id, "error", err)
			}
			return k.raze(ctx, reason)
		},
	}
}

// raze removes all of a sandbox but the record, which becomes a tombstone.
func (k *Keeper) raze(ctx context.Context, reason string) error {
	if err := k.teardown(ctx, false); err != nil {
		return fmt.Errorf("destroy %s: %w", k.id, err)
	}
	err := k.commit(func(r *record) {
		r.Plan, r.PlanState, r.PlanReason = planNone, "", ""
		r.Info.State, r.Info.Reason, r.Info.EndedAt = sandbox.Destroyed, reason, k.d.now()
		r.Info.Spec.Env = nil // it may hold what its owner wants gone
	})
	if err != nil {
		return err
	}
	k.d.Quota.Set(k.tenant, k.id, quota.Usage{})
	k.bury()
	k.d.Buried(k)
	return nil
}

// wipe removes all of a sandbox that never came up, the record too.
func (k *Keeper) wipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	defer cancel()
	if err := k.teardown(ctx, false); err != nil {
		return err
	}
	if err := k.deleteRecord(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	k.rec.Info.State, k.rec.Info.Reason = sandbox.Destroyed, sandbox.ReasonDestroyed
	info := k.rec.Info
	k.mu.Unlock()
	k.forget()
	k.d.Events.Publish(k.d.now(), info)
	return nil
}

func (k *Keeper) deleteRecord(ctx context.Context) error {
	k.write.Lock()
	defer k.write.Unlock()
	err := k.d.Registry.Delete(ctx, recordKey(k.id), k.revision)
	if errs.Is(err, errs.Conflict) { // an earlier write of ours landed unseen
		_, rev, gerr := k.d.Registry.Get(ctx, recordKey(k.id))
		if errs.Is(gerr, errs.NotFound) {
			return nil
		}
		if gerr != nil {
			return gerr
		}
		err = k.d.Registry.Delete(ctx, recordKey(k.id), rev)
	}
	return err
}

// forget lets go of a sandbox whose record is deleted, or never was.
func (k *Keeper) forget() {
	k.mu.Lock()
	k.gone = true
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	k.d.Quota.Set(k.tenant, k.id, quota.Usage{})
	k.d.Forget(k)
}

// Update changes settings of a sandbox that is not destroyed. The request has
// been checked.
func (k *Keeper) Update(u sandbox.UpdateRequest) (sandbox.Info, error) {
	k.mu.Lock()
	ended := k.gone || k.rec.Info.State == sandbox.Destroyed
	k.mu.Unlock()
	if ended {
		return sandbox.Info{}, errDestroyed(k.id)
	}
	if err := k.commit(func(r *record) { k.apply(&r.Info, u) }); err != nil {
		return sandbox.Info{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.TTL != nil {
		k.deadline = deadlineOf(k.rec.Info.Spec.TTL)
	}
	k.arm()
	return k.info(), nil
}

func (k *Keeper) apply(i *sandbox.Info, u sandbox.UpdateRequest) {
	if u.TTL != nil {
		i.Spec.TTL = *u.TTL
		if i.Spec.TTL == 0 {
			i.Spec.TTL = k.d.Limits.TTLMax
		}
		i.ExpiresAt = time.Time{}
		if i.Spec.TTL > 0 {
			i.ExpiresAt = k.d.now().Add(i.Spec.TTL)
		}
	}
	if u.IdleTimeout != nil {
		i.Spec.IdleTimeout = *u.IdleTimeout
		if i.Spec.IdleTimeout == 0 {
			i.Spec.IdleTimeout = k.d.Defaults.IdleTimeout
		}
	}
	if u.Metadata != nil {
		i.Spec.Metadata = maps.Clone(u.Metadata)
	}
}
