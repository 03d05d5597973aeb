package supervisor

import (
	"context"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// leave says that a run is over, to the sandboxes that it worked in. It comes
// before the record says so: then a server that dies in between does it again.
func (k *Supervisor) leave(ctx context.Context, e *entry, said definition.AfterRun) error {
	if k.c.Machines == nil || e.thread.Depth() > 0 { // a sub-agent's run is a part of its parent's
		return nil
	}
	err := k.c.Machines.Leave(ctx, e.tenant, e.id, e.snapshot().AfterRun(said))
	if err == nil || errs.Temporary(err) || ctx.Err() != nil {
		return err
	}
	// That its machine lives on is no reason for a run not to end.
	k.c.Log.Warn("the sandbox of a run could not be let go", "run", e.id, "err", err)
	return nil
}

// entered is a run that sandboxes take for one that is under way.
type entered struct {
	tenant string
	run    thread.RunID
}

// lookAfterSandboxes lets go of the sandboxes of runs that are over, or never
// were: the server died while it started them, or before all was written down.
func (k *Supervisor) lookAfterSandboxes(found []entered) {
	for _, x := range found {
		e, err := k.find(k.ctx, x.tenant, x.run)
		switch {
		case errs.Is(err, errs.NotFound):
			e = &entry{tenant: x.tenant, id: x.run}
		case err != nil:
			k.c.Log.Warn("the run of a sandbox could not be read", "run", x.run, "err", err)
			continue
		case !e.snapshot().State.Final():
			continue
		}
		if err := k.leave(k.ctx, e, definition.AfterRun{}); err != nil {
			k.c.Log.Warn("the sandbox of a run could not be let go", "run", x.run, "err", err)
		}
	}
}
