package life

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// layered is a machine that can say what its root's writable layer holds.
type layered interface{ LayerBytes() int64 }

// suspender is a machine that can be stopped faster than it can be paused.
type suspender interface {
	Suspend() error
	Continue() error
}

// suspend stops a machine that fills the host's disk, by the fastest way it has.
func suspend(m sandbox.Machine, ctx context.Context) error {
	if s, ok := m.(suspender); ok {
		return s.Suspend()
	}
	return m.Pause(ctx)
}

// unsuspend lets it go on.
func unsuspend(m sandbox.Machine, ctx context.Context) error {
	if s, ok := m.(suspender); ok {
		return s.Continue()
	}
	return m.Resume(ctx)
}

// Held says how many bytes of the host's disks the sandbox has: its volume, with
// what is on its way there, and what its machine wrote beside it.
func (k *Sandbox) Held() (volume, beside int64) {
	if k.d.Disks != nil {
		held, pending, _ := k.d.Disks.Held(string(k.Host())) // what is just going away holds nothing
		volume = held + pending
	}
	k.mu.Lock()
	machine := k.machine
	k.mu.Unlock()
	if m, ok := machine.(layered); ok {
		beside = m.LayerBytes()
	}
	return volume, beside + dirBytes(k.dir())
}

// dirBytes adds up the files of one directory.
func dirBytes(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, e.Name()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			n += st.Blocks * 512
		}
	}
	return n
}

// Runs reports whether the sandbox's machine can make it grow. One that is being
// woken does so before its guest has answered, and may let that wait.
func (k *Sandbox) Runs() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	runs := k.rec.Info.State == sandbox.Running || k.work.Kind() == kindThaw
	return k.machine != nil && runs && k.rec.Plan == planNone
}

// HoldStill freezes a sandbox that fills the host's disk until GoOn; where its
// machine cannot be frozen, it is stopped. Nothing is asked of the guest, and the
// machine stands still before anything is written down: that could take long now.
func (k *Sandbox) HoldStill(ctx context.Context) error {
	k.mu.Lock()
	provider, machine := k.rec.Info.Provider, k.machine
	k.mu.Unlock()
	if s, ok := machine.(suspender); ok && s.Suspend() == nil {
		defer func() {
			if i := k.Info(); i.State != sandbox.Paused {
				_ = s.Continue() // it was not to be
			}
		}()
	}
	still := func() error { return nil }
	if p, ok := k.d.Selector.Get(provider); ok && p.Capabilities().Pause {
		return k.work.Do(ctx, k.freezing(sandbox.ReasonHostFull, still))
	}
	return k.cut(ctx, sandbox.ReasonHostFull)
}

// HeldStill reports whether HoldStill has frozen the sandbox.
func (k *Sandbox) HeldStill() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rec.Info.State == sandbox.Paused && k.rec.Info.Reason == sandbox.ReasonHostFull && k.rec.Plan == planNone && !k.attaching()
}

// GoOn wakes what HoldStill has frozen, once there is room.
func (k *Sandbox) GoOn(ctx context.Context) error {
	if !k.HeldStill() {
		return nil
	}
	_, err := k.Resume(ctx)
	return err
}

// CutOff stops a sandbox whose volume takes no writes any more. The volume is then
// checked: see Ailing.
func (k *Sandbox) CutOff(ctx context.Context) error {
	k.mu.Lock()
	k.mended = false
	k.mu.Unlock()
	return k.cut(ctx, sandbox.ReasonReadOnly)
}

// Ailing reports whether CutOff has stopped the sandbox, this server's or one's
// before it, and its volume was not checked since.
func (k *Sandbox) Ailing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ailing()
}

// ailing is Ailing. Preconditions: k.mu is held.
func (k *Sandbox) ailing() bool {
	i := k.rec.Info
	return !k.gone && !k.mended && i.State == sandbox.Stopped && i.Reason == sandbox.ReasonReadOnly && k.rec.Plan == planNone
}

// Mend has the volume of an ailing sandbox checked, so that its files are at hand
// before its next start. Unavailable: there is no room for that. What fails for
// another reason is not tried again: the next start says what a person must do.
func (k *Sandbox) Mend(ctx context.Context) error {
	return k.work.Do(ctx, job{
		Kind: kindTidy,
		Ready: func() error {
			if !k.ailing() {
				return errDone
			}
			return nil
		},
		Run: func(ctx context.Context) error {
			err := k.d.Disks.Mend(ctx, string(k.Host()))
			if errs.Is(err, errs.Unavailable) || ctx.Err() != nil {
				return err
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.mended = true
			return err
		},
	})
}

// OverQuota stops a sandbox of a tenant that holds more than it may.
func (k *Sandbox) OverQuota(ctx context.Context) error { return k.cut(ctx, sandbox.ReasonDiskQuota) }

// cut is a stop that gives the processes inside no time, in which they would write on.
func (k *Sandbox) cut(ctx context.Context, reason string) error {
	j := k.halting(sandbox.Stopped, reason, func() error { return nil })
	j.Run = func(ctx context.Context) error { return k.halt(ctx, sandbox.Stopped, reason) }
	return k.work.Do(ctx, j)
}

// ofDisk names the disk where an error came of its being full or broken, which a
// program that we start says in words of its own.
func (k *Sandbox) ofDisk(err error) error {
	if err == nil || errs.Of(err) != errs.Internal {
		return err
	}
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return k.ofBrokenDisk(err)
	}
	if full := k.d.Host.GoOn(); full != nil {
		return errors.Join(full, err)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Wrap(errs.Unavailable, err, "the server's disk is full").WithHint("ask the operator for more room")
	}
	return err
}

// ofBrokenDisk says what is about a file system that answers with EIO or EROFS.
func (k *Sandbox) ofBrokenDisk(err error) error {
	if k.d.Disks != nil {
		if broken := k.d.Disks.Broken(string(k.Host())); broken != nil {
			return errors.Join(broken, err)
		}
	}
	return errs.Wrap(errs.Unavailable, err, "the server's disk answers with an error").
		WithHint("ask the operator to look at the server's log and at the disk")
}
