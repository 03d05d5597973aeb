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
		engine, release, err := h.s.engine(ctx, h.tenant, h.id, files)
		if err != nil {
			return err
		}
		defer release()
		return f(ctx, engine, files)
	})
}

// scan is with for calls that look at the files: a tenant has a few at a time.
func (h *history) scan(ctx context.Context, f func(context.Context, workspace.History, sandbox.Files) error) error {
	return h.with(ctx, func(ctx context.Context, engine workspace.History, files sandbox.Files) error {
		done, err := h.turn(ctx)
		if err != nil {
			return err
		}
		defer done()
		return f(ctx, engine, files)
	})
}

// turn waits for a turn to look at the files. First comes the sandbox's own: who
// waits for a slow sandbox takes no look from others.
func (h *history) turn(ctx context.Context) (done func(), err error) {
	own, err := h.s.each.begin(ctx, string(h.id))
	if err != nil {
		return nil, err
	}
	look, err := h.s.looks.begin(ctx, h.tenant)
	if err != nil {
		own()
		return nil, err
	}
	return func() { look(); own() }, nil
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
	engine, release, rerr := h.s.reader(ctx, h.id)
	if rerr != nil {
		return out, err // the first one says why
	}
	defer release()
	return f(ctx, engine)
}

func (h *history) Snapshot(ctx context.Context, l workspace.Label) (rev workspace.Revision, fresh bool, err error) {
	if l.Call == "" || l.Actor == workspace.Outside {
		h.settled(ctx)
	} else if others := h.meanwhile(); others != "" {
		l.Text += "; meanwhile " + others
	}
	return h.snapshot(ctx, l)
}

func (h *history) snapshot(ctx context.Context, l workspace.Label) (rev workspace.Revision, fresh bool, err error) {
	if err := h.s.room(h.tenant, h.id); err != nil {
		return rev, false, err
	}
	err = h.scan(ctx, func(ctx context.Context, e workspace.History, _ sandbox.Files) error {
		if rev, fresh, err = e.Snapshot(ctx, l); fresh {
			h.s.wrote(h.tenant, h.id, e)
		}
		return err
	})
	return rev, fresh, err
}

// room refuses a revision that would take what the server keeps back of its disks
// (histories are not in what sandboxes grow by, for which they are held still), and
// one of a tenant that has used up its quota.
func (s *Service) room(tenant string, id sandbox.ID) error {
	if s.c.Room != nil {
		if err := s.c.Room(); err != nil {
			return s.unlessSame(id, err)
		}
	}
	return s.within(tenant, id)
}

// within refuses a revision of a tenant that has used up its quota.
func (s *Service) within(tenant string, id sandbox.ID) error {
	if s.c.Quota == nil {
		return nil
	}
	if err := s.c.Quota(tenant); err != nil {
		return s.unlessSame(id, err)
	}
	return nil
}

// unlessSame drops a refusal where there is nothing to keep.
func (s *Service) unlessSame(id sandbox.ID, refusal error) error {
	if n, known := s.heard(id); known && n == 0 {
		return nil
	}
	return refusal
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
	h.settled(ctx)
	err = h.scan(ctx, func(ctx context.Context, e workspace.History, _ sandbox.Files) error {
		p, err = f(ctx, e)
		return err
	})
	if err == nil {
		h.s.remember(h.id, p, f)
	}
	return p, err
}

// Apply stops what writes to the files meanwhile, and before it goes on sees to
// those services that hold what was replaced.
func (h *history) Apply(ctx context.Context, plan string, l workspace.Label) (rev workspace.Revision, result apply.Result, err error) {
	err = h.scan(ctx, func(ctx context.Context, e workspace.History, files sandbox.Files) error {
		thaw, err := freeze(ctx, files)
		if err != nil {
			return err
		}
		defer thaw()
		rev, result, err = e.Apply(ctx, plan, l)
		if errs.Is(err, errs.Conflict) {
			if again, ok := h.planAgain(ctx, e, plan); ok {
				rev, result, err = e.Apply(ctx, again, l)
			}
		}
		if err != nil && !errors.Is(err, workspace.ErrUnlisted) {
			return err
		}
		h.s.wrote(h.tenant, h.id, e)
		if paths := h.s.planned(h.id, plan).paths; files.Guest != nil && h.s.c.Applied != nil && len(paths) > 0 {
			h.s.c.Applied(ctx, h.id, files.Guest, paths)
		}
		return err
	})
	return rev, result, err
}

// planAgain makes a plan anew that an engine before this one has made; false =
// it would be another one by now.
func (h *history) planAgain(ctx context.Context, e workspace.History, plan string) (again string, ok bool) {
	known := h.s.planned(h.id, plan)
	if known.again == nil {
		return "", false
	}
	p, err := known.again(ctx, e)
	return p.ID, err == nil && p.Now == known.now
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

// Unsaved looks for a moment only: who asks wants to know where the files are,
// and gets no answer rather than a late one. What is found of a sandbox that is
// stopped becomes a revision at once, for its workspace is taken away after the
// look and nothing changes it any more.
func (h *history) Unsaved(ctx context.Context) (u workspace.Unsaved, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, unsavedMax, errSlowLook)
	defer cancel()
	err = h.scan(ctx, func(ctx context.Context, e workspace.History, files sandbox.Files) error {
		if files.Alone && h.s.room(h.tenant, h.id) == nil {
			rev, fresh, err := e.Snapshot(ctx, h.s.lastLabel(h.tenant, h.id))
			if fresh {
				h.s.wrote(h.tenant, h.id, e)
			}
			u = workspace.Unsaved{Since: rev.N}
			return err
		}
		u, err = e.Unsaved(ctx)
		return err
	})
	if err != nil && errors.Is(context.Cause(ctx), errSlowLook) {
		err = errSlowLook
	}
	return u, err
}

// unsavedMax bounds how long a list of revisions waits for a look at the files.
const unsavedMax = 2 * time.Second

var errSlowLook = errs.New(errs.Unavailable, "the files could not be looked at in time")

// DiffNow implements workspace.History. Of files that are not at hand, what
// they were when they were seen last is the newest revision.
func (h *history) DiffNow(ctx context.Context, from uint64, o workspace.DiffOptions) (d workspace.Diff, to uint64, err error) {
	asked, inside := false, false
	err = h.scan(ctx, func(ctx context.Context, e workspace.History, files sandbox.Files) error {
		asked = true
		if inside = files.Volume.Path == ""; inside {
			return nil
		}
		d, to, err = e.DiffNow(ctx, from, o)
		return err
	})
	if inside && err == nil { // what the machine has is compared here, where the calls have names
		rev, _, err := h.Snapshot(ctx, workspace.Label{Actor: workspace.Outside})
		if err != nil {
			return d, 0, err
		}
		d, err = h.Diff(ctx, from, rev.N, o)
		return d, rev.N, err
	}
	if asked || !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) {
		return d, to, err
	}
	revs, rerr := h.Revisions(ctx)
	if rerr != nil || len(revs) == 0 {
		return d, 0, err
	}
	to = revs[len(revs)-1].N
	d, err = h.Diff(ctx, from, to, o)
	return d, to, err
}

func (h *history) Entry(ctx context.Context, n uint64, path string) (tree.Entry, error) {
	return look(ctx, h, func(ctx context.Context, e workspace.History) (tree.Entry, error) { return e.Entry(ctx, n, path) })
}

func (h *history) List(ctx context.Context, n uint64, path string) ([]tree.Entry, error) {
	return look(ctx, h, func(ctx context.Context, e workspace.History) ([]tree.Entry, error) { return e.List(ctx, n, path) })
}

func (h *history) Content(ctx context.Context, n uint64, path string, w io.Writer) error {
	_, err := look(ctx, h, func(ctx context.Context, e workspace.History) (struct{}, error) {
		return struct{}{}, e.Content(ctx, n, path, w)
	})
	return err
}

// Durable returns the newest revision that survives the loss of the sandbox.
func (h *history) Durable(ctx context.Context) (uint64, error) {
	return look(ctx, h, durable)
}

// durable returns the newest revision of an engine that survives the loss of the
// sandbox.
func durable(ctx context.Context, e workspace.History) (uint64, error) {
	if x, ok := e.(interface{ Durable() uint64 }); ok {
		return x.Durable(), nil
	}
	all, err := e.Revisions(ctx) // an engine on the host: every one
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1].N, nil
}

// Close does nothing: engines belong to the Service.
func (h *history) Close() error { return nil }

// remember notes what a plan would touch, for its Apply.
func (s *Service) remember(id sandbox.ID, p workspace.Plan, again func(context.Context, workspace.History) (workspace.Plan, error)) {
	paths := make([][]byte, 0, min(len(p.Ops), pathsMax))
	for _, op := range p.Ops[:min(len(p.Ops), pathsMax)] {
		paths = append(paths, []byte(path.Join(sandbox.WorkspaceDir, string(op.Path))))
	}
	d, err := s.sit(id)
	if err != nil {
		return
	}
	defer s.leave(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(d.plans) >= plansMax {
		clear(d.plans)
	}
	if d.plans == nil {
		d.plans = map[string]planned{}
	}
	d.plans[p.ID] = planned{paths, p.Now, again}
}

func (s *Service) planned(id sandbox.ID, plan string) planned {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.handles[id]; d != nil {
		return d.plans[plan]
	}
	return planned{}
}
