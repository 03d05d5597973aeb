package replica

import (
	"context"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/workspace"
)

// filesMax bounds how many files a machine may say that there are.
const filesMax = 1 << 20

// Unsaved implements workspace.History: the machine looks.
func (h *History) Unsaved(ctx context.Context) (u workspace.Unsaved, err error) {
	end, err := h.begin(ctx)
	if err != nil {
		return u, err
	}
	defer end()
	err = h.agreeing(ctx, func() error {
		res, err := h.guest.History.Unsaved(ctx, connect.NewRequest(&wire.UnsavedRequest{}))
		if err != nil {
			return wire.Err(err)
		}
		m := res.Msg
		u = workspace.Unsaved{Since: m.Since, Any: m.Any, Files: int(min(m.Files, filesMax)), Cut: m.Cut, Aside: m.Aside}
		return nil
	})
	return u, err
}

// DiffNow implements workspace.History. The contents are in the machine; so what
// is compared becomes a revision first, as before a plan.
func (h *History) DiffNow(ctx context.Context, from uint64, o workspace.DiffOptions) (d workspace.Diff, to uint64, err error) {
	rev, _, err := h.Snapshot(ctx, workspace.Label{Actor: workspace.Outside})
	if err != nil {
		return d, 0, err
	}
	d, err = h.Diff(ctx, from, rev.N, o)
	return d, rev.N, err
}
