package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/template"
)

// shutdownGrace is what processes get at a stop.
const shutdownGrace = time.Second

// Start boots a machine for a stopped or failed sandbox; its workspace is as
// it was. Nothing happens to a running one.
func (k *Sandbox) Start(ctx context.Context) (sandbox.Info, error) {
	asked := time.Now()
	return k.change(ctx, job{
		Kind: kindStart, Mortal: true, Bounded: true,
		Ready: func() error {
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
		Run: func(ctx context.Context) error { return k.restart(ctx, asked) },
	})
}

func errCleanup(id sandbox.ID) error {
	return errs.New(errs.Conflict, "sandbox %s is still being cleaned up", id).WithHint("try again in a moment")
}

// change does a job and returns what came of it.
func (k *Sandbox) change(ctx context.Context, j job) (sandbox.Info, error) {
	if err := k.attached(ctx); err != nil {
		return sandbox.Info{}, err
	}
	ready := j.Ready
	j.Ready = func() error {
		if k.gone {
			return errDestroyed(k.id)
		}
		return ready()
	}
	if err := k.work.Do(ctx, j); err != nil {
		return sandbox.Info{}, err
	}
	return k.Info(), nil
}

// restart boots a machine on the workspace that is there. When it fails the
// sandbox is Failed, and says why.
func (k *Sandbox) restart(ctx context.Context, asked time.Time) error {
	if err := k.d.Host.GoOn(); err != nil {
		return err
	}
	p, root, err := k.foundation(ctx)
	if err != nil {
		return err
	}
	info := k.record().Info
	if err := k.d.Quota.Charge(k.tenant, k.id, quota.Machine(info.Spec)); err != nil {
		return err
	}
	err = k.commit(func(r *registryRecord) {
		r.Plan, r.Info.State, r.Info.RootfsHash = planStart, sandbox.Creating, root.Hash
	})
	if err != nil {
		k.d.Quota.Set(k.tenant, k.id, quota.Kept(k.record().Info.Spec))
		return err
	}
	if err := k.counted(ctx, quota.Machine(info.Spec)); err != nil {
		back := k.commit(func(r *registryRecord) { r.Plan, r.Info.State = planNone, info.State })
		if back == nil {
			k.d.Quota.Set(k.tenant, k.id, quota.Kept(info.Spec))
		}
		return errors.Join(err, back)
	}
	err = k.boot(ctx, p, root, asked, nil, func(ctx context.Context) error {
		if k.d.Disks != nil {
			if err := k.d.Disks.Mend(ctx, string(k.Host())); err != nil {
				return err
			}
		}
		_, err := k.attachVolume(ctx)
		return err
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("start %s: %w", k.id, k.ofDisk(err))
	if herr := k.halt(context.WithoutCancel(ctx), sandbox.Failed, "start: "+errs.Public(err)); herr != nil {
		k.d.Log.Error("cannot clean up after a start that failed; will try again", "id", k.id, "error", herr)
	}
	return k.interrupted(ctx, err)
}

// foundation is what a stopped sandbox is started on.
func (k *Sandbox) foundation(ctx context.Context) (*selector.Provider, template.Rootfs, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	info := k.record().Info
	// The same provider as before: a start must not change the isolation.
	p, err := k.d.Selector.Named(ctx, sandbox.Spec{Provider: info.Provider, Require: info.Spec.Require})
	if err != nil {
		return nil, template.Rootfs{}, err
	}
	root, err := RootfsFor(ctx, k.d.Templates, info.Spec, p.Capabilities())
	return p, root, err
}

func (k *Sandbox) attachVolume(ctx context.Context) (sandbox.Volume, error) {
	form, err := k.form()
	if err != nil {
		return sandbox.Volume{}, err
	}
	v, err := k.d.Volumes.Attach(ctx, string(k.Host()), form)
	if err != nil {
		return v, fmt.Errorf("attach the workspace: %w", err)
	}
	k.mu.Lock()
	k.volume = v
	k.mu.Unlock()
	return v, nil
}

// Stop ends the machine and keeps the workspace. Nothing happens to a sandbox
// that has none.
func (k *Sandbox) Stop(ctx context.Context) (sandbox.Info, error) {
	return k.change(ctx, k.halting(sandbox.Stopped, sandbox.ReasonStopped, func() error { return nil }))
}

// halting is the job of ending a machine. ready is asked only while there is one.
func (k *Sandbox) halting(state sandbox.State, reason string, ready func() error) job {
	return job{
		Kind: kindHalt,
		Ready: func() error {
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
		Run: func(ctx context.Context) error {
			k.ending(ctx, reason)
			k.shutdown(ctx)
			return k.halt(ctx, state, reason)
		},
	}
}

// shutdown gives the processes inside a moment to end well. A guest that does
// not play along loses only that.
func (k *Sandbox) shutdown(ctx context.Context) {
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
func (k *Sandbox) halt(ctx context.Context, state sandbox.State, reason string) error {
	err := k.commit(func(r *registryRecord) {
		if r.Plan != planHalt { // else an earlier try knows the true reason
			r.Plan, r.PlanState, r.PlanReason = planHalt, state, reason
			if sandbox.Died(reason) {
				r.Info.AddDeath(sandbox.Death{Time: k.d.now(), Reason: reason})
			}
		}
	})
	if err != nil {
		return err
	}
	return k.finish(ctx)
}

// finish does what is left of the plan to end or undo; a crash, or an
// error, at any point and another finish give the same result.
func (k *Sandbox) finish(ctx context.Context) error {
	rec := k.record()
	switch rec.Plan {
	case planCreate:
		return k.wipe()
	case planDestroy:
		return k.raze(ctx, rec.PlanReason)
	case planSnapshot:
		return k.unfreeze(ctx)
	case planStart:
		rec.PlanState, rec.PlanReason = sandbox.Failed, sandbox.ReasonLost
	case planNone:
		return nil
	}
	if err := k.teardown(ctx, true); err != nil {
		return fmt.Errorf("end the machine of %s: %w", k.id, err)
	}
	err := k.commit(func(r *registryRecord) {
		r.Plan, r.PlanState, r.PlanReason = planNone, "", ""
		r.Info.State, r.Info.Reason, r.Info.EndedAt = rec.PlanState, rec.PlanReason, k.d.now()
		r.Info.LastUsedAt, r.Held = k.Info().LastUsedAt, ""
		if r.Info.ForRun.Then == sandbox.ThenStop && len(r.Info.ForRun.Active) == 0 {
			r.Info.ForRun.Then, r.Info.ForRun.Wait = sandbox.ThenNothing, 0 // it is done
		}
	})
	if err == nil {
		k.d.Quota.Set(k.tenant, k.id, quota.Kept(k.record().Info.Spec))
	}
	return err
}

// teardown removes the machine and all that the host holds for it; the
// workspace too, unless it is kept.
func (k *Sandbox) teardown(ctx context.Context, keep bool) error {
	k.ending(ctx, k.record().PlanReason)
	k.borrows.Recall()
	defer k.borrows.Reopen()
	machine := k.takeMachine()
	provider := k.record().Info.Provider
	p, ok := k.d.Selector.Get(provider)
	if !ok {
		return errs.New(errs.Unsupported, "the sandbox's provider %s is not part of this server", provider).
			WithHint("start the server with that provider, then destroy the sandbox")
	}
	host := k.Host()
	err := p.Destroy(ctx, host)
	if machine != nil {
		_ = machine.Close()
	}
	if err != nil {
		return err
	}
	k.unhold(ctx)
	if keep {
		err = k.detach(ctx)
	} else {
		if k.d.Detaching != nil {
			k.d.Detaching(host)
		}
		if err = k.d.Volumes.Remove(ctx, string(host)); err == nil {
			err = removeKeyJournal(k.d.keysFile(k.id))
		}
	}
	if err != nil {
		return err
	}
	return removeDir(k.dir())
}

// died handles a machine that ended by itself.
func (k *Sandbox) died(machine sandbox.Machine, exit sandbox.Exit) {
	k.d.Log.Info("a machine has ended", "id", k.id, "reason", exit.Reason, "detail", exit.Detail)
	if err := k.noteDeath(k.d.Ctx, machine, exit); err != nil && k.d.Ctx.Err() == nil {
		k.d.Log.Error("cannot clean up after a machine; will try again", "id", k.id, "error", err)
	}
}

// noteDeath removes what is left of a machine that ended by itself. It may be repeated, and
// called by several.
func (k *Sandbox) noteDeath(ctx context.Context, machine sandbox.Machine, exit sandbox.Exit) error {
	if exit.Reason == "" {
		exit.Reason = sandbox.ReasonExited
	}
	k.mu.Lock()
	state := k.lostState()
	k.mu.Unlock()
	j := k.halting(state, exit.Reason, func() error {
		if k.machine != machine {
			return errDone // another call took it: that call's result stands
		}
		k.dying = exit.Reason // what is asked for from now on is told why
		return nil
	})
	j.Run = func(ctx context.Context) error { return k.halt(ctx, state, exit.Reason) }
	return k.work.Do(ctx, j)
}

// lostState is where a sandbox goes when its machine is gone.
//
// Preconditions: k.mu is held.
func (k *Sandbox) lostState() sandbox.State {
	if k.rec.Info.Spec.Persist {
		return sandbox.Stopped
	}
	return sandbox.Failed
}

// Destroy ends a sandbox for good, from every state; it wins over whatever is
// under way. It may be repeated.
func (k *Sandbox) Destroy(ctx context.Context) error {
	return k.work.Do(ctx, k.destroying(sandbox.ReasonDestroyed, func() error { return nil }))
}

// Discard is Destroy without a last look at the files.
func (k *Sandbox) Discard(ctx context.Context) error {
	return k.work.Do(ctx, k.destroying(sandbox.ReasonDestroyed, func() error {
		k.discarded = true
		return nil
	}))
}

// destroying is the job of a Destroy. ready is asked while there is something.
func (k *Sandbox) destroying(reason string, ready func() error) job {
	return job{
		Kind: kindDestroy, Wins: true,
		Ready: func() error {
			if k.gone || k.rec.Info.State == sandbox.Destroyed {
				return errDone
			}
			return ready()
		},
		Run: func(ctx context.Context) error {
			err := k.commit(func(r *registryRecord) { r.Plan, r.PlanReason = planDestroy, reason })
			if err != nil {
				// Go on: a full disk may be why it is destroyed. Should
				// we crash now, the sandbox is found without its machine.
				k.d.Log.Warn("cannot note that a sandbox will be destroyed", "id", k.id, "error", err)
			}
			return k.raze(ctx, reason)
		},
	}
}

// raze removes all of a sandbox but the record, which becomes a tombstone.
func (k *Sandbox) raze(ctx context.Context, reason string) error {
	if err := k.teardown(ctx, false); err != nil {
		return fmt.Errorf("destroy %s: %w", k.id, err)
	}
	err := k.commit(func(r *registryRecord) {
		r.Plan, r.PlanState, r.PlanReason = planNone, "", ""
		r.Info.State, r.Info.Reason, r.Info.EndedAt = sandbox.Destroyed, reason, k.d.now()
		r.Held, r.Info.Spec.Env = "", nil // it may hold what its owner wants gone
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
func (k *Sandbox) wipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
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
	k.write.Lock()
	defer k.write.Unlock()
	k.publish(info, 1) // later than its last record
	return nil
}

func (k *Sandbox) deleteRecord(ctx context.Context) error {
	k.write.Lock()
	defer k.write.Unlock()
	return k.journal.Delete(ctx)
}

// forget lets go of a sandbox whose record is deleted, or never was.
func (k *Sandbox) forget() {
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
func (k *Sandbox) Update(u sandbox.UpdateRequest) (sandbox.Info, error) {
	k.mu.Lock()
	ended := k.gone || k.rec.Info.State == sandbox.Destroyed
	k.mu.Unlock()
	if ended {
		return sandbox.Info{}, errDestroyed(k.id)
	}
	if (u.Network != nil || u.Models != nil) && !k.record().Info.Spec.HasNetwork() {
		return sandbox.Info{}, errs.New(errs.Unsupported, "sandbox %s was made without a network", k.id).WithHint("create another one, with a network")
	}
	if err := k.commit(func(r *registryRecord) { u.Apply(&r.Info, k.d.now(), k.d.Limits, k.d.Defaults) }); err != nil {
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
