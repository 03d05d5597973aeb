package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Start boots a machine for a stopped or failed sandbox; its workspace is as
// it was. Nothing happens to a running one.
func (m *Manager) Start(ctx context.Context, tenant string, id ID) (Info, error) {
	asked := time.Now()
	return m.change(ctx, tenant, id, func(b *box) job {
		return job{
			kind: kindStart,
			ready: func() error {
				switch b.rec.Info.State {
				case Running:
					if b.rec.Plan == planNone {
						return errDone
					}
				case Stopped, Failed:
					if b.rec.Plan == planNone {
						return nil
					}
					return errCleanup(b.id)
				}
				return b.usable()
			},
			run: func(ctx context.Context) error { return m.restart(ctx, b, asked) },
		}
	})
}

func errCleanup(id ID) error {
	return errs.New(errs.Conflict, "sandbox %s is still being cleaned up", id).WithHint("try again in a moment")
}

// change does a job on a tenant's box and returns what came of it.
func (m *Manager) change(ctx context.Context, tenant string, id ID, j func(*box) job) (Info, error) {
	b, err := m.find(tenant, id)
	if err != nil {
		return Info{}, err
	}
	work := j(b)
	ready := work.ready
	work.ready = func() error {
		if b.gone {
			return errDestroyed(id)
		}
		return ready()
	}
	if err := m.do(ctx, b, work); err != nil {
		return Info{}, err
	}
	return b.snapshot(), nil
}

// restart boots a machine on the workspace that is there. When it fails the
// sandbox is Failed, and says why.
func (m *Manager) restart(ctx context.Context, b *box, asked time.Time) error {
	info := b.record().Info
	root, err := m.rootfs(ctx, info.Spec)
	if err != nil {
		return err
	}
	// The same provider as before: a start must not change the isolation.
	p, err := m.ladder.named(ctx, Spec{Provider: info.Provider, Require: info.Spec.Require})
	if err != nil {
		return err
	}
	if err := m.chargeMachine(b, info.Spec); err != nil {
		return err
	}
	err = m.commit(b, func(r *record) { r.Plan, r.Info.State = planStart, Creating })
	if err != nil {
		m.settle(b, usage{sandboxes: 1})
		return err
	}
	if err = m.attachVolume(ctx, b); err == nil {
		err = m.boot(ctx, b, p, root, asked)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("start %s: %w", b.id, err)
	if herr := m.halt(context.WithoutCancel(ctx), b, Failed, "start: "+errs.Public(err)); herr != nil {
		m.log.Error("cannot clean up after a start that failed; will try again", "id", b.id, "error", herr)
	}
	return m.interrupted(ctx, b, err)
}

func (m *Manager) attachVolume(ctx context.Context, b *box) error {
	v, err := m.c.Volumes.Attach(ctx, string(b.id))
	if err != nil {
		return fmt.Errorf("attach the workspace: %w", err)
	}
	b.mu.Lock()
	b.volume = v
	b.mu.Unlock()
	return nil
}

// Stop ends the machine and keeps the workspace. Nothing happens to a sandbox
// that has none.
func (m *Manager) Stop(ctx context.Context, tenant string, id ID) (Info, error) {
	return m.change(ctx, tenant, id, func(b *box) job {
		return m.halting(b, Stopped, ReasonStopped, func() error { return nil })
	})
}

// halting is the job of ending a machine. ready is asked only while there is one.
func (m *Manager) halting(b *box, state State, reason string, ready func() error) job {
	return job{
		kind: kindHalt,
		ready: func() error {
			switch b.rec.Info.State {
			case Running, Paused:
				if b.rec.Plan == planDestroy {
					return errCleanup(b.id)
				}
				return ready()
			case Stopped, Failed:
				return errDone
			case Creating:
				return errCleanup(b.id)
			}
			return errDestroyed(b.id)
		},
		run: func(ctx context.Context) error {
			m.shutdown(ctx, b)
			return m.halt(ctx, b, state, reason)
		},
	}
}

// shutdown gives the processes inside a moment to end well. A guest that does
// not play along loses only that.
func (m *Manager) shutdown(ctx context.Context, b *box) {
	b.mu.Lock()
	client, running := b.client, b.rec.Info.State == Running && b.rec.Plan == planNone
	b.mu.Unlock()
	if client == nil || !running {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*shutdownGrace)
	defer cancel()
	_, _ = client.Control.Shutdown(ctx, connect.NewRequest(&wire.ShutdownRequest{GraceMs: shutdownGrace.Milliseconds()}))
}

// halt ends the machine, keeps the workspace and commits the state.
func (m *Manager) halt(ctx context.Context, b *box, state State, reason string) error {
	err := m.commit(b, func(r *record) {
		if r.Plan != planHalt { // else an earlier try knows the true reason
			r.Plan, r.PlanState, r.PlanReason = planHalt, state, reason
		}
	})
	if err != nil {
		return err
	}
	return m.finish(ctx, b)
}

// finish does what is left of a box's plan to end or undo; a crash, or an
// error, at any point and another finish give the same result.
func (m *Manager) finish(ctx context.Context, b *box) error {
	rec := b.record()
	switch rec.Plan {
	case planCreate:
		return m.wipe(b)
	case planDestroy:
		return m.raze(ctx, b, rec.PlanReason)
	case planStart:
		rec.PlanState, rec.PlanReason = Failed, ReasonLost
	case planNone:
		return nil
	}
	if err := m.teardown(ctx, b, true); err != nil {
		return fmt.Errorf("end the machine of %s: %w", b.id, err)
	}
	err := m.commit(b, func(r *record) {
		r.Plan, r.PlanState, r.PlanReason = planNone, "", ""
		r.Info.State, r.Info.Reason, r.Info.EndedAt = rec.PlanState, rec.PlanReason, m.now()
		r.Info.LastUsedAt = b.snapshot().LastUsedAt
	})
	if err == nil {
		m.settle(b, usage{sandboxes: 1})
	}
	return err
}

// teardown removes the machine and all that the host holds for it; the
// workspace too, unless it is kept.
func (m *Manager) teardown(ctx context.Context, b *box, keep bool) error {
	machine := b.takeMachine()
	provider := b.record().Info.Provider
	p, ok := m.ladder.get(provider)
	if !ok {
		return errs.New(errs.Unsupported, "the sandbox's provider %s is not part of this server", provider).
			WithHint("start the server with that provider, then destroy the sandbox")
	}
	err := p.Destroy(ctx, b.id)
	if machine != nil {
		_ = machine.Close()
	}
	if err != nil {
		return err
	}
	if keep {
		err = m.c.Volumes.Detach(ctx, string(b.id))
	} else {
		err = m.c.Volumes.Remove(ctx, string(b.id))
	}
	if err != nil {
		return err
	}
	return removeDir(m.dir(b.id))
}

// Pause freezes the machine. Nothing happens to a paused one.
func (m *Manager) Pause(ctx context.Context, tenant string, id ID) (Info, error) {
	return m.change(ctx, tenant, id, func(b *box) job {
		return m.freezing(b, kindFreeze, Running, Paused, Machine.Pause, Machine.Resume)
	})
}

// Resume goes on after Pause. Nothing happens to a running one.
func (m *Manager) Resume(ctx context.Context, tenant string, id ID) (Info, error) {
	return m.change(ctx, tenant, id, func(b *box) job {
		return m.freezing(b, kindThaw, Paused, Running, Machine.Resume, Machine.Pause)
	})
}

// freezing is the job of going from one state to the other by act, and back by
// undo if the registry does not take it.
func (m *Manager) freezing(b *box, k kind, from, to State, act, undo func(Machine, context.Context) error) job {
	return job{
		kind: k,
		ready: func() error {
			p, ok := m.ladder.get(b.rec.Info.Provider)
			switch {
			case b.rec.Info.State == to && b.rec.Plan == planNone:
				return errDone
			case b.rec.Info.State != from || b.rec.Plan != planNone || b.machine == nil:
				return b.usable()
			case !ok || !p.Capabilities().Pause:
				return errs.New(errs.Unsupported, "provider %s cannot pause", b.rec.Info.Provider).WithHint("stop the sandbox instead; its files are kept")
			}
			return nil
		},
		run: func(ctx context.Context) error {
			b.mu.Lock()
			machine := b.machine
			b.mu.Unlock()
			if machine == nil {
				return errs.New(errs.Conflict, "sandbox %s has just ended", b.id)
			}
			if err := act(machine, ctx); err != nil {
				return err
			}
			err := m.commit(b, func(r *record) { r.Info.State = to })
			if err != nil {
				return errors.Join(err, undo(machine, context.WithoutCancel(ctx)))
			}
			b.mu.Lock()
			b.used = time.Now() // the time in the ice was no idleness
			b.mu.Unlock()
			return nil
		},
	}
}

// died handles a machine that ended by itself.
func (m *Manager) died(b *box, machine Machine, exit Exit) {
	fill(&exit.Reason, ReasonExited)
	b.mu.Lock()
	state := b.lostState()
	b.mu.Unlock()
	j := m.halting(b, state, exit.Reason, func() error {
		if b.machine != machine {
			return errDone // whoever took it knows better
		}
		return nil
	})
	j.run = func(ctx context.Context) error { return m.halt(ctx, b, state, exit.Reason) }
	m.log.Info("a machine has ended", "id", b.id, "reason", exit.Reason, "detail", exit.Detail)
	if err := m.do(m.ctx, b, j); err != nil && m.ctx.Err() == nil {
		m.log.Error("cannot clean up after a machine; will try again", "id", b.id, "error", err)
	}
}

// lostState is where a sandbox goes when its machine is gone.
//
// Preconditions: b.mu is held.
func (b *box) lostState() State {
	if b.rec.Info.Spec.Persist {
		return Stopped
	}
	return Failed
}

// Destroy ends a sandbox for good, from every state; it wins over whatever is
// under way. It may be repeated.
func (m *Manager) Destroy(ctx context.Context, tenant string, id ID) error {
	b, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return m.do(ctx, b, m.destroying(b, ReasonDestroyed, func() error { return nil }))
}

// destroying is the job of a Destroy. ready is asked while there is something.
func (m *Manager) destroying(b *box, reason string, ready func() error) job {
	return job{
		kind: kindDestroy,
		ready: func() error {
			if b.gone || b.rec.Info.State == Destroyed {
				return errDone
			}
			return ready()
		},
		run: func(ctx context.Context) error {
			err := m.commit(b, func(r *record) { r.Plan, r.PlanReason = planDestroy, reason })
			if err != nil {
				// Go on: it may be for a full disk that somebody destroys. Should
				// we crash now, the sandbox is found without its machine.
				m.log.Warn("cannot note that a sandbox will be destroyed", "id", b.id, "error", err)
			}
			return m.raze(ctx, b, reason)
		},
	}
}

// raze removes all of a sandbox but the record, which becomes a tombstone.
func (m *Manager) raze(ctx context.Context, b *box, reason string) error {
	if err := m.teardown(ctx, b, false); err != nil {
		return fmt.Errorf("destroy %s: %w", b.id, err)
	}
	err := m.commit(b, func(r *record) {
		r.Plan, r.PlanState, r.PlanReason = planNone, "", ""
		r.Info.State, r.Info.Reason, r.Info.EndedAt = Destroyed, reason, m.now()
		r.Info.Spec.Env = nil // it may hold what its owner wants gone
	})
	if err != nil {
		return err
	}
	m.settle(b, usage{})
	m.bury(b)
	return nil
}

// wipe removes all of a sandbox that never came up, the record too.
func (m *Manager) wipe(b *box) error {
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	defer cancel()
	if err := m.teardown(ctx, b, false); err != nil {
		return err
	}
	if err := m.deleteRecord(ctx, b); err != nil {
		return err
	}
	b.mu.Lock()
	b.rec.Info.State, b.rec.Info.Reason = Destroyed, ReasonDestroyed
	info := b.rec.Info
	b.mu.Unlock()
	m.forget(b)
	m.events.publish(m.now(), info)
	return nil
}

func (m *Manager) deleteRecord(ctx context.Context, b *box) error {
	b.write.Lock()
	defer b.write.Unlock()
	err := m.c.Registry.Delete(ctx, recordKey(b.id), b.revision)
	if errs.Is(err, errs.Conflict) { // an earlier write of ours landed unseen
		_, rev, gerr := m.c.Registry.Get(ctx, recordKey(b.id))
		if errs.Is(gerr, errs.NotFound) {
			return nil
		}
		if gerr != nil {
			return gerr
		}
		err = m.c.Registry.Delete(ctx, recordKey(b.id), rev)
	}
	return err
}

// forget drops a box whose record is deleted.
func (m *Manager) forget(b *box) {
	b.mu.Lock()
	b.gone = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	m.settle(b, usage{})
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, b.id)
}

// Update changes settings of a sandbox that is not destroyed.
func (m *Manager) Update(ctx context.Context, tenant string, id ID, u UpdateRequest) (Info, error) {
	b, err := m.find(tenant, id)
	if err != nil {
		return Info{}, err
	}
	if err := u.check(m.limits); err != nil {
		return Info{}, err
	}
	b.mu.Lock()
	ended := b.gone || b.rec.Info.State == Destroyed
	b.mu.Unlock()
	if ended {
		return Info{}, errDestroyed(id)
	}
	if err := m.commit(b, func(r *record) { m.apply(&r.Info, u) }); err != nil {
		return Info{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.TTL != nil {
		b.deadline = deadlineOf(b.rec.Info.Spec.TTL)
	}
	m.arm(b)
	return b.info(), nil
}

func (u UpdateRequest) check(l Limits) error {
	var p problems
	if u.TTL != nil {
		p.duration("ttl_ms", *u.TTL, l.TTLMax)
	}
	if u.IdleTimeout != nil {
		p.duration("idle_timeout_ms", *u.IdleTimeout, l.IdleTimeoutMax)
	}
	p.metadata(u.Metadata)
	return p.err()
}

func (m *Manager) apply(i *Info, u UpdateRequest) {
	if u.TTL != nil {
		i.Spec.TTL = *u.TTL
		if i.Spec.TTL == 0 {
			i.Spec.TTL = m.limits.TTLMax
		}
		i.ExpiresAt = time.Time{}
		if i.Spec.TTL > 0 {
			i.ExpiresAt = m.now().Add(i.Spec.TTL)
		}
	}
	if u.IdleTimeout != nil {
		i.Spec.IdleTimeout = *u.IdleTimeout
		fill(&i.Spec.IdleTimeout, m.defaults.IdleTimeout)
	}
	if u.Metadata != nil {
		i.Spec.Metadata = maps.Clone(u.Metadata)
	}
}
