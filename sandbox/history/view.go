package history

import (
	"context"
	"errors"
	"io"
	"path"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/tree"
)

// history is the history of one sandbox. Each call finds out anew where its
// files are: between two of them it may have been stopped, started, destroyed.
type history struct {
	s      *Service
	tenant string
	id     sandbox.ID
}

// with calls f with the engine, where the files are at hand.
func (h *history) with(ctx context.Context, f func(context.Context, workspace.History, sandbox.Files) error) error {
	return h.s.c.Sandboxes.Files(ctx, h.tenant, h.id, func(ctx context.Context, files sandbox.Files) error {
		engine, giveBack, err := h.s.engine(h.tenant, h.id, files)
		if err != nil {
			return err
		}
		defer giveBack()
		return f(ctx, engine, files)
	})
}

// look is with for calls that only read: what is kept can be read wherever the
// files are, and when they are gone.
func look[T any](ctx context.Context, h *history, f func(context.Context, workspace.History) (T, error)) (out T, err error) {
	asked := false
	err = h.with(ctx, func(ctx context.Context, engine workspace.History, _ sandbox.Files) error {
		asked = true
		out, err = f(ctx, engine)
		return err
	})
	if asked || !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) {
		return out, err
	}
	engine, giveBack, rerr := h.s.reader(h.id)
	if rerr != nil {
		return out, err // the first one says why
	}
	defer giveBack()
	return f(ctx, engine)
}

func (h *history) Snapshot(ctx context.Context, l workspace.Label) (rev workspace.Revision, fresh bool, err error) {
	err = h.with(ctx, func(ctx context.Context, e workspace.History, _ sandbox.Files) error {
		rev, fresh, err = e.Snapshot(ctx, l)
		return err
	})
	return rev, fresh, err
}

func (h *history) Revisions(ctx context.Context) ([]workspace.Revision, error) {
	return look(ctx, h, func(ctx context.Context, e workspace.History) ([]workspace.Revision, error) { return e.Revisions(ctx) })
}

func (h *history) PlanRestore(ctx context.Context, n uint64, path string) (workspace.Plan, error) {
	return h.plan(ctx, func(ctx context.Context, e workspace.History) (workspace.Plan, error) {
		return e.PlanRestore(ctx, n, path)
	})
}

func (h *history) PlanRevert(ctx context.Context, n uint64, choices map[string]workspace.Choice) (workspace.Plan, error) {
	return h.plan(ctx, func(ctx context.Context, e workspace.History) (workspace.Plan, error) {
		return e.PlanRevert(ctx, n, choices)
	})
}

func (h *history) plan(ctx context.Context, f func(context.Context, workspace.History) (workspace.Plan, error)) (p workspace.Plan, err error) {
	err = h.with(ctx, func(ctx context.Context, e workspace.History, _ sandbox.Files) error {
		p, err = f(ctx, e)
		return err
	})
	if err == nil {
		h.s.remember(h.id, p)
	}
	return p, err
}

// Apply stops what writes to the files meanwhile, and before it goes on sees to
// those services that hold what was replaced.
func (h *history) Apply(ctx context.Context, plan string, l workspace.Label) (rev workspace.Revision, result apply.Result, err error) {
	err = h.with(ctx, func(ctx context.Context, e workspace.History, files sandbox.Files) error {
		thaw, err := freeze(ctx, files)
		if err != nil {
			return err
		}
		defer thaw()
		rev, result, err = e.Apply(ctx, plan, l)
		if err != nil && !errors.Is(err, workspace.ErrUnlisted) {
			return err
		}
		if paths := h.s.touched(h.id, plan); files.Guest != nil && h.s.c.Applied != nil && len(paths) > 0 {
			h.s.c.Applied(ctx, h.id, files.Guest, paths)
		}
		return err
	})
	return rev, result, err
}

// thawMax bounds how long a machine is asked to let its commands go on; it does
// so by itself, later.
const thawMax = 5 * time.Second

// freeze stops what writes to the files. A machine that has its disk to itself
// does that when it applies, and holds the commands until thaw.
func freeze(ctx context.Context, files sandbox.Files) (thaw func(), err error) {
	if files.Freeze != nil {
		return files.Freeze(ctx)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawMax)
		defer cancel()
		_, _ = files.Guest.Control.Thaw(ctx, connect.NewRequest(&wire.ThawRequest{}))
	}, nil
}

func (h *history) Diff(ctx context.Context, from, to uint64, o workspace.DiffOptions) (workspace.Diff, error) {
	return look(ctx, h, func(ctx context.Context, e workspace.History) (workspace.Diff, error) {
		return e.Diff(ctx, from, to, o)
	})
}

func (h *history) Entry(ctx context.Context, n uint64, path string) (tree.Entry, error) {
	return look(ctx, h, func(ctx context.Context, e workspace.History) (tree.Entry, error) { return e.Entry(ctx, n, path) })
}

func (h *history) Content(ctx context.Context, n uint64, path string, w io.Writer) error {
	_, err := look(ctx, h, func(ctx context.Context, e workspace.History) (struct{}, error) {
		return struct{}{}, e.Content(ctx, n, path, w)
	})
	return err
}

// Export writes the history as a stream for git fast-import. Unsupported: the
// engine cannot.
func (h *history) Export(ctx context.Context, w io.Writer) error {
	_, err := look(ctx, h, func(ctx context.Context, e workspace.History) (struct{}, error) {
		x, ok := e.(interface {
			ExportGit(ctx context.Context, w io.Writer) error
		})
		if !ok {
			return struct{}{}, errs.New(errs.Unsupported, "this history cannot be exported")
		}
		return struct{}{}, x.ExportGit(ctx, w)
	})
	return err
}

// Durable returns the newest revision that survives the loss of the sandbox.
func (h *history) Durable(ctx context.Context) (uint64, error) {
	return look(ctx, h, func(ctx context.Context, e workspace.History) (uint64, error) {
		if x, ok := e.(interface{ Durable() uint64 }); ok {
			return x.Durable(), nil
		}
		all, err := e.Revisions(ctx) // an engine on the host: every one
		if err != nil || len(all) == 0 {
			return 0, err
		}
		return all[len(all)-1].N, nil
	})
}

// Close does nothing: engines belong to the Service.
func (h *history) Close() error { return nil }

// remember notes what a plan would touch, for its Apply.
func (s *Service) remember(id sandbox.ID, p workspace.Plan) {
	paths := make([][]byte, 0, min(len(p.Ops), pathsMax))
	for _, op := range p.Ops[:min(len(p.Ops), pathsMax)] {
		paths = append(paths, []byte(path.Join(sandbox.WorkspaceDir, string(op.Path))))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.desks[id]
	if d == nil {
		return
	}
	if len(d.plans) >= plansMax {
		clear(d.plans)
	}
	if d.plans == nil {
		d.plans = map[string][][]byte{}
	}
	d.plans[p.ID] = paths
}

func (s *Service) touched(id sandbox.ID, plan string) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.desks[id]; d != nil {
		return d.plans[plan]
	}
	return nil
}
