package life

import (
	"context"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life/record"
	"github.com/skete-dev/skete/sandbox/quota"
)

// RecordPrefix is what the registry's keys of sandboxes begin with.
const RecordPrefix = record.Prefix

const (
	attachTries      = 3
	attachRetryAfter = 300 * time.Millisecond
)

// Load makes the keeper of a stored record; nil = it is another node's.
// Nothing is done to the host before Recover. Corrupt: the record cannot be read.
func Load(d *Deps, key string, value []byte, revision uint64) (*Keeper, error) {
	rec, err := record.Decode(key, value)
	if err != nil || rec.Node != d.Node {
		return nil, err
	}
	k := keep(d, rec, record.OpenJournal(d.Registry, d.Node, rec.Info.ID, revision))
	if rec.Held != "" {
		d.Snapshots.Rehold(rec.Held, k.id)
	}
	if at := rec.Info.ExpiresAt; !at.IsZero() {
		// A wall clock that went backwards must not lengthen a life.
		k.deadline = time.Now().Add(min(at.Sub(d.now()), rec.Info.Spec.TTL))
	}
	switch rec.Info.State {
	case sandbox.Destroyed:
	case sandbox.Stopped, sandbox.Failed:
		d.Quota.Set(k.tenant, k.id, quota.Usage{Sandboxes: 1})
	default:
		d.Quota.Set(k.tenant, k.id, quota.Machine(rec.Info.Spec).Plus(quota.Usage{Sandboxes: 1}))
	}
	return k, nil
}

// Wants reports whether a machine of the provider should run for this sandbox.
func (k *Keeper) Wants(provider string) bool {
	rec := k.record()
	return rec.Alive() && rec.Info.Provider == provider
}

// Recover brings a loaded sandbox to where its record leads: a plan under way
// is finished or undone, a machine that runs is attached. What fails is tried
// again by itself, from Arm on.
func (k *Keeper) Recover(ctx context.Context) {
	var err error
	switch rec := k.record(); {
	case rec.Plan == record.Snapshot && rec.Alive():
		if err = k.reattach(ctx); err == nil {
			err = k.finish(ctx)
		}
	case rec.Plan != record.None:
		err = k.finish(ctx)
	case rec.Info.State == sandbox.Destroyed:
		k.bury()
		k.d.Buried(k)
	case rec.Alive():
		err = k.reattach(ctx)
	}
	if err != nil {
		k.d.Log.Error("cannot bring a sandbox in order; will try again", "id", k.id, "error", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble.Note(err)
}

// Arm lets what is due happen by itself.
func (k *Keeper) Arm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arm()
}

// reattach takes over a machine that should run, or notes its loss.
func (k *Keeper) reattach(ctx context.Context) error {
	err := k.attach(ctx)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := k.d.Ladder.Get(k.record().Info.Provider); !ok {
		return err // it may well Run: a server that has the provider will know
	}
	if !errs.Is(err, errs.NotFound) {
		k.d.Log.Error("cannot attach to a machine", "id", k.id, "error", err)
	}
	k.mu.Lock()
	state := k.lostState()
	k.mu.Unlock()
	return k.halt(ctx, state, sandbox.ReasonLost)
}

func (k *Keeper) attach(ctx context.Context) error {
	info := k.record().Info
	p, ok := k.d.Ladder.Get(info.Provider)
	if !ok {
		return errs.New(errs.Unsupported, "provider %s is not part of this server", info.Provider)
	}
	if _, err := k.attachVolume(ctx); err != nil {
		return err
	}
	machine, err := p.Attach(ctx, k.Host())
	for try := 1; err != nil && !errs.Is(err, errs.NotFound) && try < attachTries; try++ {
		select {
		case <-time.After(attachRetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
		machine, err = p.Attach(ctx, k.Host())
	}
	if err != nil {
		return err
	}
	k.adopt(machine)
	if !p.Capabilities().Pause {
		return nil
	}
	// The server before us may have died between an act and its record; the
	// record is the truth.
	if info.State == sandbox.Paused {
		return machine.Pause(ctx)
	}
	return machine.Resume(ctx)
}
