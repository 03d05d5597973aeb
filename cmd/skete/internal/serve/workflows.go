package serve

import (
	"context"
	"sync/atomic"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/cowork/runner"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const workflowsBucket = "workflows"

// workflowsRun hears of runs' ends from before there is a runner on.
type workflowsRun struct{ r atomic.Pointer[runner.Runner] }

// ended is called by the supervisor.
func (w *workflowsRun) ended(run runs.Run, end *thread.RunEnded) {
	if r := w.r.Load(); r != nil {
		r.RunEnded(run, end)
	}
}

// openWorkflows goes on with the runs of workflows that are under way.
func (r *running) openWorkflows(ctx context.Context, threads runner.Threads, ends *workflowsRun) error {
	records, err := r.store.KV(ctx, workflowsBucket)
	if err != nil {
		return err
	}
	c := runner.Config{
		Threads: threads, Records: records, Runs: r.supervisor, Machines: nodeMachines{machines{r.manager, r.histories, nil, nil}},
		Dir: r.workflowDir(), Node: r.node.ID, Log: r.c.Log,
	}
	if r.store.External() {
		if c.Leases, err = r.store.Leases(ctx); err != nil {
			return err
		}
	}
	if r.workflows, err = runner.Open(ctx, c); err != nil {
		return err
	}
	ends.r.Store(r.workflows)
	r.onClose(r.workflows.Close)
	return nil
}

// workflowDir is the folder of workflows' files.
func (r *running) workflowDir() string {
	if r.c.Workflows.Dir != "" {
		return r.c.Workflows.Dir
	}
	return r.in("workflows")
}

// starters are what starts runs by itself.
type starters struct {
	schedules *schedule.Scheduler
	workflows *runner.Runner
}

// Erase implements Schedules.
func (s starters) Erase(ctx context.Context, tenant string) error {
	s.workflows.Halt(tenant)
	return s.schedules.Erase(ctx, tenant)
}

// nodeMachines are the sandboxes of workflows' nodes. It is a runner.Machines.
type nodeMachines struct{ machines }

// Make implements runner.Machines.
func (x nodeMachines) Make(ctx context.Context, tenant, key string, spec map[string]any) (string, error) {
	s, err := specOf(spec)
	if err != nil {
		return "", err
	}
	info, err := x.m.Create(ctx, tenant, sandbox.CreateRequest{Spec: s, Key: key})
	return string(info.ID), err
}

// Files implements runner.Machines.
func (x nodeMachines) Files(ctx context.Context, tenant, id string) (tool.Files, string, func(), error) {
	m, release, err := x.Open(ctx, tenant, id)
	return m.Files, sandbox.WorkspaceDir, release, err
}

// Stop implements runner.Machines. A sandbox that is gone is no error.
func (x nodeMachines) Stop(ctx context.Context, tenant, id string) error {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return err
	}
	_, err = x.m.Stop(ctx, tenant, sid)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
