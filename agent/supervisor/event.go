package supervisor

import (
	"context"
	"encoding/json"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/thread"
)

// publish tells how a run is by its record of a revision. What it said and
// returned stays out: a thread's log has it, and is deleted with the thread.
func (k *Supervisor) publish(run runs.Run, revision uint64) {
	run.Text, run.Result, run.Todos = "", nil, nil
	data, err := json.Marshal(run)
	if err != nil {
		k.c.Log.Error("a run cannot be told", "run", run.ID, "err", err)
		return
	}
	k.c.Events.Append(event.Event{
		Time: k.c.Now().UTC(), Tenant: run.Tenant, Node: k.c.Node, Kind: event.Run, ID: string(run.ID), State: string(run.State),
		Revision: revision, Data: data,
	})
}

// over tells that a run is over, as its record says; end is nil if its log does not say so.
func (k *Supervisor) over(e *entry, end *thread.RunEnded) {
	if k.c.Ended != nil {
		k.c.Ended(e.snapshot(), end)
	}
}

// retell tells what a crash kept from being told.
func (k *Supervisor) retell(ctx context.Context) error {
	told := map[runKey]uint64{}
	err := k.c.Events.Newest(ctx, event.Run, func(e event.Event) error {
		told[runKey{e.Tenant, thread.RunID(e.ID)}] = e.Revision
		return nil
	})
	if err != nil {
		return err
	}
	untold := k.index.of(k.c.Node, func(r *listed) bool {
		revision, known := told[runKey{r.tenant, r.id}]
		long := r.state.Final() && k.c.Now().Sub(r.ended) > event.Kept // its events have gone by themselves
		return revision < r.revision && (known || !long)
	})
	for _, r := range untold {
		value, revision, err := k.c.Records.Get(ctx, recordKey(r.tenant, r.id))
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if e, err := parseRecord(value, revision); err == nil {
			k.publish(e.run, revision)
		}
	}
	return nil
}
