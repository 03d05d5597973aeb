package serve

import (
	"context"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
)

// openHistories comes before the manager, which tells the histories when it
// takes a workspace away, and whom they ask for it once it is there.
func (r *running) openHistories() {
	r.histories = history.New(history.Config{Dir: r.in("history"), Sandboxes: managed{r}, Log: r.c.Log})
	r.onClose(r.histories.Close)
}

// managed is the manager, which is opened later.
type managed struct{ r *running }

func (m managed) Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	return m.r.manager.Get(ctx, tenant, id)
}

func (m managed) Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	return m.r.manager.Files(ctx, tenant, id, f)
}
