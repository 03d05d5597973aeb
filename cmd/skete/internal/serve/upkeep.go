package serve

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
)

// This file is what operators do to all that a server keeps for a tenant:
// check it, and erase it.

// Runs are those of agents; *supervisor.Supervisor.
type Runs interface {
	List(ctx context.Context, tenant string, f runs.Filter) (runs.Page, error)
	Retire(ctx context.Context, tenant string, id thread.ID) error
}

// Schedules start runs; *schedule.Scheduler.
type Schedules interface {
	Erase(ctx context.Context, tenant string) error
}

// Histories are those of workspaces; *history.Service.
type Histories interface {
	// Check visits those of a tenant's sandboxes, "" = of all.
	Check(ctx context.Context, tenant string, visit func(history.Checked) error) error
	Any(tenant string) (bool, error)
	Erase(tenant string) (int, error)
}

// Machines are a tenant's sandboxes and snapshots; *manager.Manager.
type Machines interface {
	List(ctx context.Context, tenant string, f sandbox.Filter) (sandbox.Page, error)
	Discard(ctx context.Context, tenant string, id sandbox.ID) error
	ListSnapshots(ctx context.Context, tenant string) []sandbox.Snapshot
	DeleteSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) error
}

// upkeep looks after what the store keeps. It is a server.Upkeep.
type upkeep struct {
	Threads   *store.Threads
	Runs      Runs
	Schedules Schedules
	Secrets   *secret.Store
	Skills    *skill.Store
	Records   func(ctx context.Context, tenant string) ([]store.ThreadRecords, error)
	Histories Histories
	Machines  Machines
	Events    event.Log
	Grants    []store.ThreadKeys // of previews, shares and bridges: records that name a tenant
	Pending   *store.KV          // erasures that were begun, by tenant
	Log       *slog.Logger
}

// problemsTold bounds an answer.
const problemsTold = 1000

// Check implements server.Upkeep.
func (u upkeep) Check(ctx context.Context, tenant string) (api.Checked, error) {
	tenants, err := u.Threads.Tenants(ctx)
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
		c, err := u.Threads.Fsck(ctx, name)
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
	err = u.Histories.Check(ctx, tenant, func(c history.Checked) error {
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

// Erase implements server.Upkeep. That it was begun is noted first, so that the
// next start ends what a death or a failure has left. A run that starts while
// this goes on loses its log, and fails by that.
func (u upkeep) Erase(ctx context.Context, tenant string) (api.Erased, error) {
	roots, err := u.roots(ctx, tenant, true)
	if err != nil {
		return api.Erased{}, err
	}
	if len(roots) == 0 {
		there, err := u.anything(ctx, tenant)
		if err != nil {
			return api.Erased{}, err
		}
		if !there {
			return api.Erased{}, nothingOf(tenant)
		}
	}
	if _, err := u.Pending.Put(ctx, tenant, []byte("{}")); err != nil {
		return api.Erased{}, err
	}
	return u.erase(context.WithoutCancel(ctx), tenant, roots) // who asked may go away
}

// Resume ends the erasures that were begun; the server does not take requests
// yet. What fails is tried again at the next start.
func (u upkeep) Resume(ctx context.Context) {
	var tenants []string
	err := u.Pending.List(ctx, "", func(key string, _ []byte, _ uint64) error {
		tenants = append(tenants, key)
		return nil
	})
	if err != nil {
		u.Log.Error("cannot see which tenants are to be erased", "error", err)
	}
	for _, tenant := range tenants {
		roots, err := u.roots(ctx, tenant, false)
		if err == nil {
			_, err = u.erase(ctx, tenant, roots)
		}
		if err != nil {
			u.Log.Error("a tenant's erasure is not finished", "tenant", tenant, "error", err)
			continue
		}
		u.Log.Warn("a tenant's erasure was interrupted, and is finished", "tenant", tenant)
	}
}

// erase removes all that there is of a tenant but its keys. Schedules go first, so
// that nothing is started any more, and secrets, so that none is sent any more; then
// sandboxes: when it fails in between, the
// records that name the others are still there for the next attempt.
func (u upkeep) erase(ctx context.Context, tenant string, roots map[thread.ID]bool) (e api.Erased, err error) {
	e = api.Erased{Tenant: tenant, Threads: len(roots)}
	if err := u.Schedules.Erase(ctx, tenant); err != nil {
		return e, err
	}
	if err := u.Secrets.Erase(ctx, tenant); err != nil {
		return e, err
	}
	if err := u.Skills.Erase(ctx, tenant); err != nil {
		return e, err
	}
	for id := range roots {
		if err := u.Runs.Retire(ctx, tenant, id); err != nil {
			return e, err
		}
	}
	if e.Sandboxes, e.Snapshots, err = u.eraseMachines(ctx, tenant); err != nil {
		return e, err
	}
	if e.Histories, err = u.Histories.Erase(tenant); err != nil { // of sandboxes that are long gone too
		return e, err
	}
	for _, grants := range u.Grants {
		if err := eraseGrants(ctx, grants, tenant); err != nil {
			return e, err
		}
	}
	records, err := u.Records(ctx, tenant)
	if err != nil {
		return e, err
	}
	if err := u.Threads.EraseTenant(ctx, tenant, records...); err != nil {
		return e, err
	}
	if err := u.Events.Forget(ctx, tenant, "", ""); err != nil {
		return e, err
	}
	_, revision, err := u.Pending.Get(ctx, tenant)
	if err == nil {
		err = u.Pending.Delete(ctx, tenant, revision)
	}
	return e, err
}

// eraseMachines destroys a tenant's sandboxes, whichever user made them, with
// their volumes, and deletes its snapshots.
func (u upkeep) eraseMachines(ctx context.Context, tenant string) (sandboxes, snapshots int, err error) {
	living, err := u.living(ctx, tenant)
	if err != nil {
		return 0, 0, err
	}
	for _, id := range living {
		if err := u.Machines.Discard(ctx, tenant, id); err != nil && !errs.Is(err, errs.NotFound) {
			return sandboxes, 0, err
		}
		sandboxes++
	}
	for _, snap := range u.Machines.ListSnapshots(ctx, tenant) {
		if err := u.Machines.DeleteSnapshot(ctx, tenant, snap.ID); err != nil && !errs.Is(err, errs.NotFound) {
			return sandboxes, snapshots, err
		}
		snapshots++
	}
	return sandboxes, snapshots, nil
}

// living lists a tenant's sandboxes that are not destroyed.
func (u upkeep) living(ctx context.Context, tenant string) (ids []sandbox.ID, err error) {
	f := sandbox.Filter{}
	for {
		page, err := u.Machines.List(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		for _, i := range page.Items {
			ids = append(ids, i.ID)
		}
		if f.PageToken = page.Next; f.PageToken == "" {
			return ids, nil
		}
	}
}

// eraseGrants removes codes, visits and public links to a tenant's previews, what it
// shares of its runs, and what was kept of its sandboxes for SDKs of others.
func eraseGrants(ctx context.Context, grants store.ThreadKeys, tenant string) error {
	theirs := map[string]uint64{}
	err := grants.List(ctx, "", func(key string, value []byte, revision uint64) error {
		var g struct {
			Tenant string `json:"tenant"`
		}
		if json.Unmarshal(value, &g) == nil && g.Tenant == tenant {
			theirs[key] = revision
		}
		return nil
	})
	for key, revision := range theirs {
		if err == nil {
			err = grants.Delete(ctx, key, revision)
		}
		if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Conflict) { // it was used or revoked meanwhile
			err = nil
		}
	}
	return err
}

// roots returns the roots of all threads of a tenant that has runs. Conflict:
// all must be over, and one is under way.
func (u upkeep) roots(ctx context.Context, tenant string, over bool) (map[thread.ID]bool, error) {
	roots := map[thread.ID]bool{}
	f := runs.Filter{Subagents: true, PageSize: 500}
	for {
		page, err := u.Runs.List(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			if over && !r.State.Final() {
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
// memories, secrets, sandboxes, histories, or what an erasure that failed has left.
func (u upkeep) anything(ctx context.Context, tenant string) (bool, error) {
	tenants, err := u.Threads.Tenants(ctx)
	if err != nil || slices.Contains(tenants, tenant) {
		return err == nil, err
	}
	if living, err := u.living(ctx, tenant); err != nil || len(living) > 0 || len(u.Machines.ListSnapshots(ctx, tenant)) > 0 {
		return err == nil, err
	}
	if there, err := u.Histories.Any(tenant); err != nil || there {
		return there, err
	}
	if len(u.Secrets.List(tenant)) > 0 {
		return true, nil
	}
	if skills, err := u.Skills.Own(ctx, tenant); err != nil || len(skills) > 0 {
		return err == nil, err
	}
	if _, _, err := u.Pending.Get(ctx, tenant); err == nil {
		return true, nil
	}
	records, err := u.Records(ctx, tenant)
	if err != nil {
		return false, err
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

// erasuresBucket of the store.
const erasuresBucket = "erasures"

func (r *running) openUpkeep(ctx context.Context) (upkeep, error) {
	grants, err := r.store.KV(ctx, previewsBucket)
	if err != nil {
		return upkeep{}, err
	}
	bridges, err := r.store.KV(ctx, bridgesBucket)
	if err != nil {
		return upkeep{}, err
	}
	pending, err := r.store.KV(ctx, erasuresBucket)
	return upkeep{
		Threads: r.store.Threads(), Runs: r.supervisor, Schedules: starters{r.schedules, r.workflows}, Secrets: r.secrets, Skills: r.skills, Records: r.records, Histories: r.histories, Machines: r.manager, Events: r.store.Events(),
		Grants: []store.ThreadKeys{grants, bridges}, Pending: pending, Log: r.c.Log,
	}, err
}
