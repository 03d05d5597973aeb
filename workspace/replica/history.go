package replica

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/compare"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/transfer"
	"github.com/skete-dev/skete/workspace/tree"
)

// pullMax bounds one stream of revisions.
const pullMax = 10 * time.Minute

// Config of a History.
type Config struct {
	Dir string // of the copy; made if need be
	// Guest of the machine; nil: it does not run, and only what is here is answered.
	Guest *wire.Client
	// BytesMax bounds the copy; 0 = 5 GiB.
	BytesMax int64
	// Empty: the workspace was empty when it was made, whatever is in it by
	// now. A history that has no revision, here or in the machine, begins with
	// one of that, by this label. nil = it begins with the first Snapshot.
	Empty *workspace.Label
	// Hold: an Apply that did something leaves the machine's commands stopped,
	// for who has something to do before they go on (guest.v1, Control.Thaw);
	// left alone they go on within a minute.
	Hold bool
}

// History is a workspace.History of a machine that keeps its own.
type History struct {
	guest *wire.Client
	here  *copied
	empty *workspace.Label
	hold  bool
	turn  chan struct{} // holds one: calls that change something come one after the other

	mu     sync.Mutex // guards all below
	agreed bool       // the machine's history is ours, as far as we know
	local  []workspace.Revision
	behind error // why local is not empty
}

var _ workspace.History = (*History)(nil)

// Open opens the copy. The caller closes it, and it is the only one that has
// dir open. Corrupt: the copy is damaged.
func Open(c Config) (*History, error) {
	here, err := openCopied(c.Dir, c.BytesMax)
	if err != nil {
		return nil, err
	}
	return &History{guest: c.Guest, here: here, empty: c.Empty, hold: c.Hold, turn: make(chan struct{}, 1)}, nil
}

// OpenHistory is Open with the default bound, for who knows workspace.History
// only; empty is Config.Empty. Its Apply holds the commands.
func OpenHistory(dir string, guest *wire.Client, empty *workspace.Label) (workspace.History, error) {
	h, err := Open(Config{Dir: dir, Guest: guest, Empty: empty, Hold: true})
	if err != nil {
		return nil, err // not h: an interface that holds nil is not nil
	}
	return h, nil
}

// Close lets go of the copy, when the call under way has ended.
func (h *History) Close() error {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	return h.here.close()
}

// Durable is the number of the last revision that is here, with all that it
// needs; 0 = none. Later ones that Revisions lists are in the machine only.
func (h *History) Durable() uint64 { return h.here.last().N }

// Behind says why there are revisions that only the machine has; nil: there
// are none that we know of.
func (h *History) Behind() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.behind
}

// begin waits for the turn of a call that needs the machine.
func (h *History) begin(ctx context.Context) (end func(), err error) {
	if h.guest == nil {
		return nil, errs.New(errs.Unavailable, "the machine does not run").WithHint("start the sandbox")
	}
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Snapshot implements workspace.History. Where the copy is full the revision
// stays local, and that is no error: see Durable and Behind.
func (h *History) Snapshot(ctx context.Context, l workspace.Label) (rev workspace.Revision, fresh bool, err error) {
	end, err := h.begin(ctx)
	if err != nil {
		return rev, false, err
	}
	defer end()
	err = h.agreeing(ctx, func() error {
		res, err := h.guest.History.Snapshot(ctx, connect.NewRequest(&wire.SnapshotRequest{Label: labelOf(l)}))
		if err != nil {
			return wire.Err(err)
		}
		fresh = res.Msg.Fresh
		rev, err = h.made(ctx, res.Msg.Revision)
		return err
	})
	return rev, fresh, err
}

func labelOf(l workspace.Label) *wire.RevisionLabel {
	return &wire.RevisionLabel{Thread: l.Thread, Run: l.Run, Call: l.Call, Actor: l.Actor, Text: l.Text, Step: int64(l.Step), Jump: l.Jump}
}

// made takes over what the machine says that it has just made.
func (h *History) made(ctx context.Context, text []byte) (workspace.Revision, error) {
	rev, err := transfer.ParseRevision(text)
	if err != nil {
		return rev, err
	}
	if !same(rev, h.here.last()) {
		if err := h.pull(ctx); errs.Is(err, errs.Limit) {
			h.stays(rev, err)
			return rev, nil
		} else if err != nil {
			return rev, err
		}
	}
	kept, ok := h.here.revision(rev.N)
	if !ok || !same(kept, rev) {
		return rev, errs.New(errs.Corrupt, "the machine did not send revision %d as it said", rev.N)
	}
	return kept, nil
}

func same(a, b workspace.Revision) bool {
	return a.N == b.N && a.Root == b.Root && a.Time.Equal(b.Time)
}

// localMax is how many revisions are listed that are not here.
const localMax = 1000

// stays remembers a revision that only the machine has.
func (h *History) stays(rev workspace.Revision, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.behind = why
	if n := len(h.local); rev.N > h.here.last().N && n < localMax && (n == 0 || h.local[n-1].N < rev.N) {
		h.local = append(h.local, rev)
	}
}

// Revisions implements workspace.History: what is here, and what only the
// machine has.
func (h *History) Revisions(context.Context) ([]workspace.Revision, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	revs := h.here.revisions()
	last := h.here.last().N
	for _, r := range h.local {
		if r.N > last {
			revs = append(revs, r)
		}
	}
	return revs, nil
}

// reading returns the tree of a revision that is here, which stays until done
// is called; 0 is the empty one.
func (h *History) reading(n uint64) (root object.Hash, done func(), err error) {
	if n == 0 {
		return object.Hash{}, func() {}, nil
	}
	if root, done, ok := h.here.pin(n); ok {
		return root, done, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(h.local, func(r workspace.Revision) bool { return r.N == n }) {
		return object.Hash{}, nil, errs.Wrap(errs.Unavailable, h.behind, "revision %d is in the machine only", n)
	}
	return object.Hash{}, nil, errs.New(errs.NotFound, "there is no revision %d", n).WithHint("`skete history` lists them")
}

// Diff implements workspace.History.
func (h *History) Diff(ctx context.Context, from, to uint64, o workspace.DiffOptions) (workspace.Diff, error) {
	before, done, err := h.reading(from)
	if err != nil {
		return workspace.Diff{}, err
	}
	defer done()
	after, done, err := h.reading(to)
	if err != nil {
		return workspace.Diff{}, err
	}
	defer done()
	for _, n := range []uint64{from, to} {
		if r, ok := h.here.revision(n); ok && r.Thin {
			o.Without = capture.DefaultRules().Derived
		}
	}
	return compare.Trees(ctx, h.here.objects, before, after, o)
}

// Entry implements workspace.History.
func (h *History) Entry(_ context.Context, n uint64, path string) (tree.Entry, error) {
	root, done, err := h.reading(n)
	if err != nil {
		return tree.Entry{}, err
	}
	defer done()
	return compare.At(h.here.objects, root, path)
}

// List implements workspace.History.
func (h *History) List(_ context.Context, n uint64, path string) ([]tree.Entry, error) {
	root, done, err := h.reading(n)
	if err != nil {
		return nil, err
	}
	defer done()
	return compare.List(h.here.objects, root, path)
}

// Content implements workspace.History.
func (h *History) Content(ctx context.Context, n uint64, path string, w io.Writer) error {
	root, done, err := h.reading(n)
	if err != nil {
		return err
	}
	defer done()
	e, err := compare.At(h.here.objects, root, path)
	if err != nil {
		return err
	}
	return compare.Content(ctx, h.here.objects, e, w)
}

// PlanRestore implements workspace.History.
func (h *History) PlanRestore(ctx context.Context, n uint64, path string) (workspace.Plan, error) {
	return h.plan(ctx, []uint64{n}, func() (planStream, error) {
		return h.guest.History.PlanRestore(ctx, connect.NewRequest(&wire.PlanRestoreRequest{N: n, Path: []byte(path)}))
	})
}

// PlanRevert implements workspace.History.
func (h *History) PlanRevert(ctx context.Context, n uint64, choices map[string]workspace.Choice) (workspace.Plan, error) {
	req := &wire.PlanRevertRequest{N: n}
	for path, c := range choices {
		req.Choices = append(req.Choices, &wire.PlanChoice{Path: []byte(path), Choice: string(c)})
	}
	needs := []uint64{n}
	if n > 1 {
		needs = []uint64{n - 1, n}
	}
	return h.plan(ctx, needs, func() (planStream, error) {
		return h.guest.History.PlanRevert(ctx, connect.NewRequest(req))
	})
}

// plan has a plan made in the machine. It may have dropped the revisions that
// the plan needs; then they are given back to it.
func (h *History) plan(ctx context.Context, needs []uint64, ask func() (planStream, error)) (p workspace.Plan, err error) {
	end, err := h.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	for _, n := range needs { // they stay until the machine has them
		if _, done, ok := h.here.pin(n); ok {
			defer done()
		}
	}
	err = h.agreeing(ctx, func() error {
		p, err = readPlan(ask())
		if errs.Is(err, errs.NotFound) && h.release(ctx, needs) {
			p, err = readPlan(ask())
		}
		return err
	})
	if err != nil {
		return p, err
	}
	if err := h.pull(ctx); err != nil && !errs.Is(err, errs.Limit) { // what was there becomes a revision first
		return p, err
	}
	return p, nil
}

// Apply implements workspace.History. The machine stops the sandbox's commands
// meanwhile. What it has done and we could not keep is in an error with
// workspace.ErrUnlisted.
func (h *History) Apply(ctx context.Context, plan string, l workspace.Label) (rev workspace.Revision, result apply.Result, err error) {
	end, err := h.begin(ctx)
	if err != nil {
		return rev, result, err
	}
	defer end()
	res, err := h.guest.History.Apply(ctx, connect.NewRequest(&wire.ApplyRequest{Plan: plan, Label: labelOf(l), Hold: h.hold}))
	if err != nil {
		return rev, result, wire.Err(err)
	}
	for _, path := range res.Msg.Kept {
		result.Kept = append(result.Kept, string(path))
	}
	if rev, err = h.made(ctx, res.Msg.Revision); err != nil {
		err = errs.Wrap(errs.Of(err), errors.Join(workspace.ErrUnlisted, err), "the files are what was planned, but the host does not have that revision yet: %s", errs.Public(err)).
			WithHint("do not do it again: the next revision has it, and what was before is in the one before")
	}
	return rev, result, err
}
