package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Snapshot implements sandbox.Machine.
//
// gVisor writes the machine into dir and ends it; a new sentry goes on from
// there, under the same ID and with the same workspace. (A sentry that is left
// running keeps half of its connections to us in a state in which the guest
// never learns that they are broken.) While there is none, nothing moves. The
// record says so throughout, and a server that finds it makes the new sentry.
func (m *machine) Snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error {
	if m.p.rootless() {
		return errs.New(errs.Unsupported, "gVisor saves no memory without root").WithHint("run the server as root, or stop the sandbox; its files are kept")
	}
	m.pauseMu.Lock()
	defer m.pauseMu.Unlock()
	ctx, land, err := m.takeOff(ctx)
	if err != nil {
		return err
	}
	defer land()
	if err := m.snapshot(ctx, dir, frozen); err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(cause, shared.ErrDestroyed) {
			err = cause
		}
		return fmt.Errorf("snapshot %s: %w", m.id, err)
	}
	return nil
}

// takeOff lets a Destroy overtake what is done to a machine that is there. Only a Destroy ends
// the returned context, and time: who asked for the snapshot cannot take back
// half of it.
func (m *machine) takeOff(ctx context.Context) (context.Context, func(), error) {
	if m.lifetime.Ended() {
		return nil, nil, errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	ctx, land, err := m.p.machines.Work(ctx, m.id)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() { cancel(); land() }, nil
}

func (m *machine) snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error {
	image, err := m.image(dir)
	if err != nil {
		return err
	}
	if err := m.save(ctx, dir); err != nil {
		return err
	}
	// There is no sentry. Whatever happens now, there must be one again, or
	// the machine has ended.
	err = errors.Join(image.Seal(dir), frozen(ctx))
	rec, _, _ := m.now()
	rec.Saving, rec.Paused = dir, m.paused
	next, rerr := m.p.revive(ctx, m.id, rec)
	var watch *hostproc.Watch
	if rerr == nil {
		watch, rerr = hostproc.Open(next.Sentry)
	}
	m.follows(ctx, next, watch, rerr)
	if rerr == nil {
		rerr = m.lifetime.AwaitGuest(ctx, m.guest)
	}
	if rerr == nil && m.paused {
		rerr = m.p.runsc(ctx, m.id, next, "pause", string(m.id))
	}
	return errors.Join(err, rerr)
}

// image looks whether a snapshot can be made, before anything is touched.
func (m *machine) image(dir string) (savedManifest, error) {
	rec, _, _ := m.now()
	if _, err := os.Stat(rec.Program); err != nil || rec.Rootfs == "" {
		return savedManifest{}, errs.Wrap(errs.Unsupported, err, "the machine was started by another version of the server").
			WithHint("stop the sandbox and start it again")
	}
	spec, err := m.p.specOf(m.id)
	if err != nil {
		return savedManifest{}, err
	}
	image, err := savedBy(rec.Program, spec, rec.Rootfs, rec.DiskMB)
	if err != nil {
		return savedManifest{}, err
	}
	return image, m.p.keepGuest(m.id, dir)
}

// save has the sentry write its memory and end. On error it either runs on,
// or has ended for good.
func (m *machine) save(ctx context.Context, dir string) error {
	rec, watch, _ := m.now()
	rec.Paused = m.paused
	was := rec
	rec.Saving = dir
	if err := writeRecord(m.p.dir(m.id), rec); err != nil {
		return err
	}
	if m.paused { // a kernel that was saved in its sleep never wakes
		if err := m.p.runsc(ctx, m.id, rec, "resume", string(m.id)); err != nil {
			return err
		}
	}
	m.expectEnd(true)
	err := m.p.runsc(ctx, m.id, rec, "checkpoint", "--compression=none", "--exclude-committed-zero-pages",
		"--image-path="+dir, string(m.id))
	if err == nil {
		select {
		case <-watch.Done():
			return nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	switch {
	case ctx.Err() != nil: // it may end at any time, or never: it must
		_ = rec.Sentry.Signal(unix.SIGKILL)
		<-watch.Done()
	case m.paused:
		err = errors.Join(err, m.p.runsc(ctx, m.id, rec, "pause", string(m.id)))
	}
	m.expectEnd(false)
	m.next <- struct{}{} // if it has ended, that was it
	_ = writeRecord(m.p.dir(m.id), was)
	return err
}

// expectEnd tells awaitExit whether the sentry's end is the machine's.
func (m *machine) expectEnd(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saving = yes
	select {
	case <-m.next: // left by a snapshot that awaitExit did not wait for
	default:
	}
}

// follows tells awaitExit which sentry goes on, or by err that none does.
func (m *machine) follows(ctx context.Context, rec record, watch *hostproc.Watch, err error) {
	m.mu.Lock()
	m.saving = false
	switch {
	case err == nil:
		m.rec, m.watch = rec, watch
	case errors.Is(context.Cause(ctx), shared.ErrDestroyed):
		m.lifetime.Doom(true)
	default:
		m.lost = &sandbox.Exit{Reason: sandbox.ReasonLost, Detail: "it could not go on after its snapshot: " + err.Error(), Time: time.Now()}
	}
	m.mu.Unlock()
	m.guest.Close() // its connections are of the sentry before
	m.next <- struct{}{}
}

// revive makes the sentry that goes on after a snapshot. On error nothing of
// it runs.
func (p *Provider) revive(ctx context.Context, id sandbox.ID, rec record) (record, error) {
	if err := p.sweepSentry(ctx, id); err != nil {
		return record{}, err
	}
	args := []string{"restore", "--detach", "--pid-file=" + p.pidFile(id), "--bundle=" + p.dir(id), "--image-path=" + rec.Saving, string(id)}
	rec.Saving = ""
	next, err := p.run(ctx, id, rec, p.ownGroup(id), args...)
	if err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
		return record{}, errors.Join(err, p.sweepSentry(cleanup, id))
	}
	return next, nil
}

// sweepSentry ends whatever runs in the machine's name and removes what gVisor
// knows of it.
func (p *Provider) sweepSentry(ctx context.Context, id sandbox.ID) error {
	if err := p.kill(ctx, id); err != nil {
		return err
	}
	return removeAll(p.strayFiles(id))
}

// recover finishes what a server that died during a snapshot left: the old
// sentry writes on and ends by itself, and a new one must go on. NotFound:
// the snapshot is not whole, and the machine is lost with it.
func (p *Provider) recover(ctx context.Context, id sandbox.ID, rec record) (record, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, saveTimeout)
		defer cancel()
	}
	if w, err := hostproc.Open(rec.Sentry); err == nil {
		defer w.Close()
		wait := commandTimeout // perhaps it was never told
		if _, err := os.Stat(filepath.Join(rec.Saving, savedState)); err != nil {
			wait = 0
		}
		select {
		case <-w.Done():
		case <-ctx.Done():
			return rec, ctx.Err()
		case <-time.After(wait):
			rec.Saving = ""
			return rec, writeRecord(p.dir(id), rec)
		}
	}
	next, err := p.revive(ctx, id, rec)
	if err != nil {
		return rec, errs.Wrap(errs.NotFound, err, "the machine ended in a snapshot that its server did not finish")
	}
	if rec.Paused {
		err = p.runsc(ctx, id, next, "pause", string(id))
	}
	return next, err
}
