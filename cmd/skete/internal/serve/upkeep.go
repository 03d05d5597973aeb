package serve

import (
	"context"

	"github.com/skete-dev/skete/cmd/skete/internal/upkeep"
)

// erasuresBucket of the store.
const erasuresBucket = "erasures"

func (r *running) openUpkeep(ctx context.Context) (upkeep.Upkeep, error) {
	grants, err := r.store.KV(ctx, previewsBucket)
	if err != nil {
		return upkeep.Upkeep{}, err
	}
	pending, err := r.store.KV(ctx, erasuresBucket)
	return upkeep.Upkeep{
		Threads: r.store.Threads(), Runs: r.keeper, Records: r.records, Histories: r.histories, Machines: r.manager,
		Grants: grants, Pending: pending, Log: r.c.Log,
	}, err
}
