package supervisor

import (
	"context"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
)

// office is the Keeper as those who start sub-agents need it.
type office struct{ k *Supervisor }

// Logs implements subagent.Office.
func (o office) Logs(ctx context.Context, tenant string) (thread.Log, thread.Blobs, error) {
	return o.k.logOf(ctx, tenant)
}

// Wake implements subagent.Office.
func (o office) Wake(tenant string, id thread.ID) { o.k.wake(threadKey{tenant, id}) }

// Enter implements subagent.Office.
func (o office) Enter(ctx context.Context, log thread.Log, run runs.Run, after uint64, bodies []thread.Body) error {
	_, err := o.k.enter(ctx, log, run, after, bodies)
	return err
}

// Write implements subagent.Office.
func (o office) Write(ctx context.Context, tenant string, id thread.ID, look func(*runs.State) ([]thread.Body, error)) (uint64, error) {
	return o.k.external(ctx, threadKey{tenant, id}, look)
}

// Beneath implements subagent.Office.
func (o office) Beneath(tenant string, id thread.ID) []thread.ID {
	var list []thread.ID
	for _, t := range o.k.beneath(threadKey{tenant, id}) {
		list = append(list, t.id)
	}
	return list
}
