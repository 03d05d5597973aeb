package serve

import (
	"context"
)

// erasuresBucket of the store.
const erasuresBucket = "erasures"

func (r *running) openUpkeep(ctx context.Context) (Upkeep, error) {
	grants, err := r.store.KV(ctx, previewsBucket)
	if err != nil {
		return Upkeep{}, err
	}
	pending, err := r.store.KV(ctx, erasuresBucket)
	return Upkeep{
		Threads: r.store.Threads(), Runs: r.keeper, Records: r.records, Histories: r.histories, Machines: r.manager,
		Grants: grants, Pending: pending, Log: r.c.Log,
	}, err
}
