package serve

import (
	"context"
	"errors"
	"slices"

	"github.com/skete-dev/skete/agent/keeper"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/store/threads"
	"github.com/skete-dev/skete/thread"
)

// runKeeper is what upkeep needs of *keeper.Keeper.
type runKeeper interface {
	List(ctx context.Context, tenant string, f keeper.Filter) (keeper.Page, error)
	Retire(ctx context.Context, tenant string, id thread.ID) error
}

// upkeep looks after what the store keeps. It is a server.Upkeep.
type upkeep struct {
	threads *threads.Threads
	runs    runKeeper
	records func(ctx context.Context, tenant string) ([]threads.Records, error)
	// histories visits those of a tenant's sandboxes, "" = of all.
	histories func(ctx context.Context, tenant string, visit func(history.Checked) error) error
}

// problemsTold bounds an answer.
const problemsTold = 1000

// Check implements server.Upkeep.
func (u upkeep) Check(ctx context.Context, tenant string) (api.Checked, error) {
	tenants, err := u.threads.Tenants(ctx)
	if err != nil {
		return api.Checked{}, err
	}
	var all api.Checked
	known := map[string]bool{}
	for _, name := range tenants {
		if tenant != "" && name != tenant {
			continue
		}
		known[name] = true
		c, err := u.threads.Fsck(ctx, name)
		if err != nil {
			return all, err
		}
		all.Threads += c.Threads
		all.Events += c.Events
		all.Blobs += c.Blobs
		for _, p := range c.Problems {
			tell(&all, api.StoreProblem{
				Tenant: name, Thread: string(p.Thread), Event: p.Event, Sequence: p.Stream, Blob: p.Blob, Text: p.Text,
			})
		}
		if all.Truncated {
			break
		}
	}
	err = u.histories(ctx, tenant, func(c history.Checked) error {
		known[c.Tenant] = true
		all.Histories++
		all.Revisions += c.Report.Revisions
		for _, p := range c.Report.Problems {
			tell(&all, api.StoreProblem{Tenant: c.Tenant, Sandbox: string(c.ID), Text: p.String()})
		}
		all.Truncated = all.Truncated || c.Report.More > 0
		return nil
	})
	if err != nil {
		return all, err
	}
	if all.Tenants = len(known); tenant != "" && all.Tenants == 0 {
		return api.Checked{}, nothingOf(tenant)
	}
	return all, nil
}

// tell adds a problem to an answer that has room.
func tell(all *api.Checked, p api.StoreProblem) {
	if all.Truncated = all.Truncated || len(all.Problems) >= problemsTold; !all.Truncated {
		all.Problems = append(all.Problems, p)
	}
}

func nothingOf(tenant string) error {
	return errs.New(errs.NotFound, "nothing is kept for the tenant %s", tenant)
}

// Erase implements server.Upkeep. Sandboxes go first: when it fails in between,
// the records that name the others are still there for the next attempt. A run
// that starts while this goes on loses its log, and fails by that.
func (u upkeep) Erase(ctx context.Context, tenant string) (api.Erased, error) {
	roots, err := u.idle(ctx, tenant)
	if err != nil {
		return api.Erased{}, err
	}
	records, err := u.records(ctx, tenant)
	if err != nil {
		return api.Erased{}, err
	}
	if len(roots) == 0 {
		there, err := u.anything(ctx, tenant, records)
		if err != nil {
			return api.Erased{}, err
		}
		if !there {
			return api.Erased{}, nothingOf(tenant)
		}
	}
	for id := range roots {
		if err := u.runs.Retire(ctx, tenant, id); err != nil {
			return api.Erased{}, err
		}
	}
	return api.Erased{Tenant: tenant, Threads: len(roots)}, u.threads.EraseTenant(ctx, tenant, records...)
}

// idle returns the roots of all threads of a tenant. Conflict: one has a run
// under way.
func (u upkeep) idle(ctx context.Context, tenant string) (map[thread.ID]bool, error) {
	roots := map[thread.ID]bool{}
	f := keeper.Filter{Subagents: true, PageSize: 500}
	for {
		page, err := u.runs.List(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			if !r.State.Final() {
				return nil, errs.New(errs.Conflict, "the tenant %s has runs under way: %s is one", tenant, r.ID).
					WithHint("end them first: `skete cancel RUN…`, with a key of the tenant")
			}
			roots[r.Thread.Root()] = true
		}
		if f.PageToken = page.Next; f.PageToken == "" {
			return roots, nil
		}
	}
}

var errFound = errors.New("found")

// anything reports whether a tenant without runs has something else: threads,
// memories, or what an erasure that failed has left.
func (u upkeep) anything(ctx context.Context, tenant string, records []threads.Records) (bool, error) {
	tenants, err := u.threads.Tenants(ctx)
	if err != nil || slices.Contains(tenants, tenant) {
		return err == nil, err
	}
	for _, r := range records {
		err := r.Keys.List(ctx, r.Prefix, func(string, []byte, uint64) error { return errFound })
		if errors.Is(err, errFound) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}
