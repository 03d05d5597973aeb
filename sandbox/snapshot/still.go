package snapshot

import (
	"context"
	"errors"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Still calls f while nothing writes to the workspace of a quiesced machine:
// its files are on the disk; where a kernel of the machine's own writes to it,
// that must stand still too.
func Still(ctx context.Context, c sandbox.Capabilities, m sandbox.Machine, f func(context.Context) error) error {
	switch {
	case c.HostWorkspace:
		return f(ctx)
	case !c.Pause:
		return errs.New(errs.Unsupported, "this provider's disks cannot be copied while a machine runs from them").
			WithHint("stop the sandbox first: `skete vm stop %s`", m.ID())
	}
	if err := m.Pause(ctx); err != nil {
		return err
	}
	return errors.Join(f(ctx), m.Resume(context.WithoutCancel(ctx)))
}
