package serve

import (
	"context"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/service"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/workspace/replica"
)

// openHistories comes before the manager, which tells the histories when it
// takes a workspace away, and whom they ask for it once it is there.
func (r *running) openHistories(room func() error) {
	managed := managed{r}
	r.histories = history.New(history.Config{
		Dir: r.in("history"), Node: r.node.ID, Events: r.events, Sandboxes: managed, Log: r.c.Log, Copy: replica.Copy,
		Remote: replica.OpenHistory, Room: room, Quota: managed.Within,
		Applied: func(ctx context.Context, id sandbox.ID, guest *wire.Client, paths [][]byte) {
			r.restartHolders(ctx, id, guest, paths)
			if p := r.previews.Load(); p != nil {
				p.Changed(string(id))
			}
		},
	})
	r.onClose(r.histories.Close)
}

// restartHolders restarts the services that hold what an undo has replaced. A
// guest of an earlier version has no services.
func (r *running) restartHolders(ctx context.Context, id sandbox.ID, guest *wire.Client, paths [][]byte) {
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = string(p)
	}
	res, err := service.AfterRestore(ctx, guest, names, false)
	if err != nil { // also when skete.yaml came back as one that is wrong
		r.c.Log.Warn("not all that is due in a sandbox after an undo could be done", "id", id, "error", err)
	}
	for _, s := range res.GetRestarted() {
		r.c.Log.Info("a service starts again after an undo", "id", id, "service", s.Name, "reason", s.Reason)
	}
}

// managed is the manager, which is opened later.
type managed struct{ r *running }

func (m managed) Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	return m.r.manager.Get(ctx, tenant, id)
}

func (m managed) Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	return m.r.manager.Files(ctx, tenant, id, f)
}

func (m managed) Within(tenant string) error { return m.r.manager.Within(tenant) }

// steps makes revisions before and after calls from outside.
type steps struct{ histories *history.Service }

// Begin implements route.Steps.
func (s steps) Begin(ctx context.Context, tenant, id, who, what string) server.Step {
	return s.histories.Step(ctx, tenant, sandbox.ID(id), who, what)
}

// noticing is the manager for those who use sandboxes from outside: what was
// there before them is a revision, and what they may have changed becomes one
// once it is quiet.
type noticing struct {
	*manager.Manager
	histories *history.Service
}

func (n noticing) Guest(ctx context.Context, tenant string, id sandbox.ID) (*wire.Client, func(), error) {
	c, release, err := n.Manager.Guest(ctx, tenant, id)
	if err != nil {
		return nil, nil, err
	}
	n.histories.Begin(ctx, tenant, id)
	return c, func() {
		release()
		n.histories.Touched(tenant, id)
	}, nil
}
