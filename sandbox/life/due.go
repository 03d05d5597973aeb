package life

import (
	"context"
	"time"

	"github.com/skete-dev/skete/sandbox"
)

// due returns when something must be done by itself; zero = never.
//
// Preconditions: k.mu is held.
func (k *Sandbox) due() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	switch i := k.rec.Info; {
	case k.gone:
		return time.Time{}
	case k.rec.Plan != planNone:
		sooner(time.Now()) // finish it
	case i.State == sandbox.Destroyed:
		sooner(k.deadline) // of the tombstone
	case i.State == sandbox.Running || i.State == sandbox.Paused:
		if k.machine == nil && k.work.Kind() == "" {
			sooner(time.Now()) // note its loss
		}
		sooner(k.deadline)
		switch {
		case i.State == sandbox.Running && k.uses == 0:
			sooner(k.used.Add(i.Spec.IdleTimeout))
		case i.State == sandbox.Paused && i.Reason == sandbox.ReasonIdle: // who paused it by hand wants it so
			sooner(k.used.Add(k.d.Defaults.PausedTimeout))
		}
	case !i.Spec.Persist:
		sooner(k.deadline)
	}
	sooner(k.runOver())
	return k.trouble.Put(at)
}

// runOver returns when what is to become of a run's own sandbox is due; zero =
// never. Each use puts it off.
//
// Preconditions: k.mu is held.
func (k *Sandbox) runOver() time.Time {
	i := k.rec.Info
	if !i.ForRun.Waits() || k.uses > 0 {
		return time.Time{}
	}
	switch i.State {
	case sandbox.Running:
	case sandbox.Paused:
		if i.Reason != sandbox.ReasonIdle { // who paused it by hand wants it so
			return time.Time{}
		}
	case sandbox.Stopped, sandbox.Failed:
		if i.ForRun.Then != sandbox.ThenRemove {
			return time.Time{}
		}
	default:
		return time.Time{}
	}
	return k.used.Add(i.ForRun.Wait)
}

// arm sets the timer.
//
// Preconditions: k.mu is held.
func (k *Sandbox) arm() {
	at := k.due()
	switch {
	case at.IsZero() || k.work.Kind() != "" || k.d.Ctx.Err() != nil: // a flight arms when it ends
		if k.timer != nil {
			k.timer.Stop()
		}
	case k.timer == nil:
		k.timer = time.AfterFunc(time.Until(at), func() { k.d.Spawn(k.expire) })
	default:
		k.timer.Reset(time.Until(at))
	}
}

// expire does what is due, if it still is.
func (k *Sandbox) expire() {
	k.mu.Lock()
	j, ok := k.dueJob()
	if !ok {
		k.arm()
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	if err := k.work.Do(k.d.Ctx, j); err != nil && k.d.Ctx.Err() == nil {
		k.d.Log.Error("cannot do what is due on a sandbox; will try again", "id", k.id, "work", j.Kind, "error", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arm()
}

// dueJob says what is due now.
//
// Preconditions: k.mu is held.
func (k *Sandbox) dueJob() (job, bool) {
	at := k.due()
	if at.IsZero() || k.work.Kind() != "" || time.Now().Before(at) {
		return job{}, false
	}
	// Asked again, under the lock, when the job really starts.
	still := func() error {
		if at := k.due(); at.IsZero() || time.Now().Before(at) {
			return errDone
		}
		return nil
	}
	i := k.rec.Info
	over := !k.deadline.IsZero() && !time.Now().Before(k.deadline)
	switch {
	case k.rec.Plan != planNone:
		return job{Kind: kindTidy, Ready: still, Run: k.finish}, true
	case i.State == sandbox.Destroyed:
		return job{Kind: kindTidy, Ready: still, Run: k.unbury}, true
	case k.rec.Alive() && k.machine == nil:
		return k.halting(k.lostState(), sandbox.ReasonLost, still), true
	case over && i.Spec.Persist:
		return k.halting(sandbox.Stopped, sandbox.ReasonExpired, still), true
	case over:
		return k.destroying(sandbox.ReasonExpired, still), true
	}
	if at := k.runOver(); !at.IsZero() && !time.Now().Before(at) {
		if i.ForRun.Then == sandbox.ThenRemove {
			return k.destroying(sandbox.ReasonRunOver, still), true
		}
		return k.halting(sandbox.Stopped, sandbox.ReasonRunOver, still), true
	}
	if p, ok := k.d.Selector.Get(i.Provider); ok && p.Capabilities().Pause && i.State == sandbox.Running && k.d.Defaults.PausedTimeout > 0 {
		return k.freezing(sandbox.ReasonIdle, still), true
	}
	return k.halting(sandbox.Stopped, sandbox.ReasonIdle, still), true
}

// tombstoneFor is how long a destroyed sandbox is remembered.
const tombstoneFor = 24 * time.Hour

// bury makes a tombstone, so that a late reader learns of the end.
func (k *Sandbox) bury() {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := tombstoneFor - k.d.now().Sub(k.rec.Info.EndedAt)
	k.deadline = time.Now().Add(min(max(left, 0), tombstoneFor))
}

// Unbury deletes a tombstone before its time.
func (k *Sandbox) Unbury() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rec.Info.State == sandbox.Destroyed {
		k.deadline = time.Now()
		k.arm()
	}
}

func (k *Sandbox) unbury(ctx context.Context) error {
	err := k.deleteRecord(ctx)
	if err == nil {
		k.forget()
	}
	return err
}

// CheckDisk stops a sandbox that holds more than it may, where the host cannot
// refuse the bytes. It returns at once: to look may take long, and the disks of
// others are looked at meanwhile.
func (k *Sandbox) CheckDisk(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.measuring || !k.rec.Alive() || k.machine == nil || k.volume.Enforced {
		return
	}
	limit := int64(k.rec.Info.Spec.DiskMB) << 20
	k.measuring = k.d.Spawn(func() {
		k.measureDisk(ctx, limit)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.measuring = false
	})
}

func (k *Sandbox) measureDisk(ctx context.Context, limit int64) {
	n, err := k.d.Volumes.Usage(ctx, string(k.Host()))
	if err != nil || n <= limit {
		return
	}
	k.d.Log.Info("a sandbox exceeds its disk", "id", k.id, "bytes", n)
	_ = k.work.Do(ctx, k.halting(sandbox.Stopped, sandbox.ReasonDiskQuota, func() error { return nil }))
}
