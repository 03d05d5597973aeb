package snapshot

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

// What is asked of a guest around a snapshot, and how long it may take.
const (
	thawAfter    = 10 * time.Minute // a guest whose server died goes on by itself
	haltAfter    = time.Minute
	entropyBytes = 64
	callTimeout  = 15 * time.Second
)

// Quiesce stops the commands inside and brings their files to the disk. They
// go on at Thaw, or by themselves.
func Quiesce(ctx context.Context, c *wire.Client) error { return quiesce(ctx, c, thawAfter, false) }

// Halt is Quiesce for who shares the machine's files with it and sees them as
// its programs do: nothing is brought to disk, which in gVisor takes its time
// for each file that was ever opened.
//
// It is for a moment: should the server die, they go on after haltAfter.
func Halt(ctx context.Context, c *wire.Client) error { return quiesce(ctx, c, haltAfter, true) }

func quiesce(ctx context.Context, c *wire.Client, after time.Duration, unsynced bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	_, err := c.Control.Quiesce(ctx, connect.NewRequest(&wire.QuiesceRequest{ThawAfterMs: after.Milliseconds(), Unsynced: unsynced}))
	if err != nil {
		return fmt.Errorf("quiesce: %w", wire.Err(err))
	}
	return nil
}

// restoring bounds a call to a guest that may just have come out of a snapshot:
// by callTimeout, or by half of what the caller has left, if that is more. On a
// busy host such a guest is slow, and to give it up is to lose its memory; the
// other half is for what the caller does about one that never answers.
func restoring(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := callTimeout
	if at, ok := ctx.Deadline(); ok {
		limit = max(limit, time.Until(at)/2)
	}
	return context.WithTimeout(ctx, limit)
}

// Thaw lets the commands go on.
func Thaw(ctx context.Context, c *wire.Client) error {
	ctx, cancel := restoring(ctx)
	defer cancel()
	if _, err := c.Control.Thaw(ctx, connect.NewRequest(&wire.ThawRequest{})); err != nil {
		return fmt.Errorf("thaw: %w", wire.Err(err))
	}
	return nil
}

// Adopt makes a restored guest a sandbox of its own, before anything in it
// goes on: new names, a new boot id, fresh randomness, the time, and the
// environment of its own specification instead of the original's.
func Adopt(ctx context.Context, c *wire.Client, boot wire.Boot, now func() time.Time) error {
	ctx, cancel := restoring(ctx)
	defer cancel()
	entropy := make([]byte, entropyBytes)
	_, _ = rand.Read(entropy) // never fails, see crypto/rand
	r := &wire.AdoptRequest{
		Sandbox: boot.Sandbox, Hostname: boot.Hostname, TimeUnixNs: now().UnixNano(), Entropy: entropy,
		Env: map[string][]byte{}, Workdir: []byte(boot.Workdir), Authority: boot.Authority(), Files: boot.Files(),
	}
	for name, value := range boot.Env {
		r.Env[name] = []byte(value)
	}
	res, err := c.Control.Adopt(ctx, connect.NewRequest(r))
	if err != nil {
		return fmt.Errorf("adopt: %w", wire.Err(err))
	}
	if res.Msg.ClockSet { // late by as long as the call was on its way
		return alignClock(ctx, c, now)
	}
	return nil
}

// AlignClock sets the clock of a machine that has stood still. A machine on the
// host's clock has nothing to set.
func AlignClock(ctx context.Context, c *wire.Client, now func() time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return alignClock(ctx, c, now)
}

func alignClock(ctx context.Context, c *wire.Client, now func() time.Time) error {
	if err := c.AlignClock(ctx, now); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}
