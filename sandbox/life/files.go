package life

import (
	"context"
	"errors"
	"time"

	"github.com/skete-dev/skete/sandbox"
)

// Files calls f with the workspace as the host can reach it, whatever state
// the sandbox is in: a stopped one's is attached meanwhile. It is not taken
// away while f works, but f's context may be ended for that. A machine of its
// own kernel keeps its disk for itself: then Volume has no Path, and Guest is
// the way, for which a paused sandbox is woken.
//
// f is called a second time, without a machine, where the machine has ended by
// itself while f worked and f failed: what f does must bear that.
//
// Conflict: the sandbox is on its way to another state, or its machine must
// run for that. Unavailable: the disk is full, or its file system is broken.
func (k *Sandbox) Files(ctx context.Context, f func(context.Context, sandbox.Files) error) error {
	k.mu.Lock()
	state, machine := k.rec.Info.State, k.machine
	k.mu.Unlock()
	err := k.files(ctx, f)
	alone := state == sandbox.Stopped || state == sandbox.Failed
	if err != nil && !alone && k.hasDied(ctx, machine, err) {
		err = k.files(ctx, f)
	}
	return k.ofDisk(err)
}

// deathMax bounds how long a machine that answers nothing is waited for to be dead.
const deathMax = 5 * time.Second

// mute is why a machine could not be made to stop writing.
type mute struct{ error }

func (m mute) Unwrap() error { return m.error }

// hasDied reports whether a call has failed since its machine has ended by itself, and
// returns when nothing is left of that machine: then the host has the files for itself.
// It sees a death before the watch over the machine does.
func (k *Sandbox) hasDied(ctx context.Context, machine sandbox.Machine, failed error) bool {
	if errors.As(failed, new(mute)) {
		wait, cancel := context.WithTimeout(ctx, deathMax)
		defer cancel()
		exit, err := machine.Wait(wait)
		if err != nil {
			return false
		}
		_ = k.noteDeath(ctx, machine, exit) // the watch tries it again, and says so
	}
	k.mu.Lock()
	died := k.dying != "" || sandbox.Died(k.rec.PlanReason)
	k.mu.Unlock()
	return died && k.work.Do(ctx, job{Ready: func() error { return errDone }}) == nil
}

func (k *Sandbox) files(ctx context.Context, f func(context.Context, sandbox.Files) error) error {
	if err := k.attached(ctx); err != nil {
		return err
	}
	form, err := k.form()
	if err != nil {
		return err
	}
	if form == sandbox.Disk {
		return k.filesInside(ctx, f)
	}
	k.mu.Lock()
	state, ready := k.rec.Info.State, k.usable()
	machine := k.machine
	k.mu.Unlock()
	switch {
	case state == sandbox.Stopped || state == sandbox.Failed:
		return k.filesAlone(ctx, f)
	case machine == nil || ready != nil && state != sandbox.Paused:
		return ready
	}
	lent, release, ok := k.borrows.Borrow(ctx)
	if !ok {
		return errBusy(k.id)
	}
	defer release()
	files, err := k.lend(lent)
	if err != nil {
		return err
	}
	if state == sandbox.Running {
		files.Guest = machine.Guest()
		files.Freeze = func(ctx context.Context) (func(), error) {
			thaw, err := freezeFiles(ctx, machine)
			if err != nil && ctx.Err() == nil {
				err = mute{err}
			}
			return thaw, err
		}
	}
	return f(lent, files)
}

// lend sees to it that the workspace is attached, and shows it.
func (k *Sandbox) lend(ctx context.Context) (sandbox.Files, error) {
	k.mu.Lock()
	volume := k.volume
	k.mu.Unlock()
	if volume.Path == "" || k.record().Info.State != sandbox.Running { // found, not made; or perhaps detached
		var err error
		if volume, err = k.attachVolume(ctx); err != nil {
			return sandbox.Files{}, err
		}
	}
	return sandbox.Files{Host: k.Host(), Volume: volume, Empty: k.record().Info.From == "", Freeze: holdFilesStill}, nil
}

// filesInside is Files of a machine that has its disk to itself.
func (k *Sandbox) filesInside(ctx context.Context, f func(context.Context, sandbox.Files) error) error {
	c, release, err := k.Guest(ctx)
	if err != nil {
		return err
	}
	defer release()
	return f(ctx, sandbox.Files{Host: k.Host(), Guest: c, Empty: k.record().Info.From == ""})
}

// filesAlone is Files of a sandbox without a machine: work on the sandbox like
// any other, so that no start comes between.
func (k *Sandbox) filesAlone(ctx context.Context, f func(context.Context, sandbox.Files) error) error {
	return k.work.Do(ctx, job{
		Kind:   jobKind("being looked at by call " + string(sandbox.NewID())), // never shared: each does its own
		Mortal: true,
		Ready: func() error {
			if s := k.rec.Info.State; k.gone || s != sandbox.Stopped && s != sandbox.Failed || k.rec.Plan != planNone {
				return errBusy(k.id)
			}
			return nil
		},
		Run: func(work context.Context) error {
			work, cancel := context.WithCancel(work)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			files, err := k.lend(work)
			files.Alone = true
			if err == nil {
				err = f(work, files)
			}
			return errors.Join(err, k.detach(context.WithoutCancel(work)))
		},
	})
}

// detach takes the workspace away from all who work beside the machine, and
// lets go of it.
func (k *Sandbox) detach(ctx context.Context) error {
	if k.d.Detaching != nil {
		k.d.Detaching(k.Host())
	}
	return k.d.Volumes.Detach(ctx, string(k.Host()))
}
