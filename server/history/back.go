package history

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/workspace"
)

type snapshotIn struct {
	SandboxPath
	Body api.MakeRevision
}

type snapshotOut struct {
	Status int
	Body   api.Revision
}

func (s *service) snapshot(ctx context.Context, in *snapshotIn) (*snapshotOut, error) {
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	rev, fresh, err := h.Snapshot(ctx, workspace.Label{Actor: actor(ctx), Text: in.Body.Label})
	if err != nil {
		return nil, err
	}
	durable, err := h.durable(ctx)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if fresh {
		status = http.StatusCreated
	}
	return &snapshotOut{status, revisionView(rev, durable)}, nil
}

// actor names a caller in the history: by the key's id, which is no secret, and by what the
// key is called now, for people.
func actor(ctx context.Context) string {
	who := auth.From(ctx)
	return strings.TrimSpace(byUser + who.Owner + " " + who.Name)
}

type planIn struct {
	SandboxPath
	Body api.PlanChange
}

type planOut struct{ Body api.ChangePlan }

func (s *service) plan(ctx context.Context, in *planIn) (*planOut, error) {
	b := in.Body
	if err := checkPlan(b); err != nil {
		return nil, err
	}
	path, err := place(exact(b.Path, b.PathBytes))
	if err != nil {
		return nil, err
	}
	choices, err := choicesOf(b.Choices)
	if err != nil {
		return nil, err
	}
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	p, err := makePlan(ctx, h, b, path, choices)
	if err != nil {
		return nil, err
	}
	v := planView(p)
	v.Do = b.Do
	v.ID = token{b.Do, p.Target, p.ID}.String()
	return &planOut{v}, nil
}

// checkPlan refuses fields that would have no meaning, so that no client
// believes that they had one.
func checkPlan(b api.PlanChange) error {
	undo, goes := b.Do == api.PlanUndo, b.Do == api.PlanRestore || b.Do == api.PlanRevert
	switch {
	case goes && b.N == 0:
		return errs.New(errs.Invalid, "a %s needs n, the number of a revision", b.Do)
	case !goes && b.N != 0:
		return errs.New(errs.Invalid, "an undo and a redo find their revision; n is of a restore or a revert")
	case !undo && (b.Scope != "" || b.Run != "" || b.Step != 0 || b.Call != "" || b.Thread != ""):
		return errs.New(errs.Invalid, "scope, thread, run, step and call are of an undo")
	case b.Do != api.PlanRestore && (b.Path != "" || len(b.PathBytes) > 0):
		return errs.New(errs.Invalid, "path is of a restore")
	case b.Do != api.PlanRevert && len(b.Choices) > 0:
		return errs.New(errs.Invalid, "choices are of a revert")
	}
	return nil
}

var choiceNames = map[string]workspace.Choice{"keep": workspace.KeepNow, "take": workspace.TakeBefore, "markers": workspace.Markers}

func choicesOf(list []api.RevertChoice) (map[string]workspace.Choice, error) {
	choices := map[string]workspace.Choice{}
	for _, c := range list {
		path, err := place(exact(c.Path, c.PathBytes))
		if err != nil {
			return nil, err
		}
		if _, twice := choices[path]; twice {
			return nil, errs.New(errs.Invalid, "there are two choices for %.200q", path)
		}
		choices[path] = choiceNames[c.Choice]
	}
	return choices, nil
}

func makePlan(ctx context.Context, h opened, b api.PlanChange, path string, choices map[string]workspace.Choice) (workspace.Plan, error) {
	n := b.N
	if b.Do == api.PlanRevert {
		return h.PlanRevert(ctx, n, choices)
	}
	if b.Do != api.PlanRestore {
		var err error
		if n, err = target(ctx, h, b); err != nil {
			return workspace.Plan{}, err
		}
	}
	return h.PlanRestore(ctx, n, path)
}

// token is a plan's id: what was asked for stands in front, so that the
// revision that comes of it can be named without remembering anything.
type token struct {
	do string
	n  uint64
	id string
}

func (t token) String() string { return fmt.Sprintf("%s-%d-%s", t.do, t.n, t.id) }

var tokenForm = pattern.Lazy(`^(undo|redo|restore|revert)-([0-9]{1,20})-([0-9a-zA-Z_.:-]{1,200})$`)

func parseToken(s string) (token, error) {
	m := tokenForm().FindStringSubmatch(s)
	if m == nil {
		return token{}, errs.New(errs.Invalid, "%.40q is no plan", s)
	}
	n, err := strconv.ParseUint(m[2], 10, 64)
	if err != nil {
		return token{}, errs.New(errs.Invalid, "%.40q is no plan", s)
	}
	if t := (token{m[1], n, m[3]}); t.String() == s { // answers are remembered by it
		return t, nil
	}
	return token{}, errs.New(errs.Invalid, "%.40q is no plan", s)
}

// label says in the history what was done.
func (t token) label() string {
	switch t.do {
	case api.PlanRestore:
		return fmt.Sprintf("restore of %d", t.n)
	case api.PlanRevert:
		return fmt.Sprintf("revert of %d", t.n)
	}
	return fmt.Sprintf("%s to %d", t.do, t.n)
}

type applyIn struct {
	SandboxPath
	Body api.ApplyPlan
}

type applyOut struct{ Body api.Applied }

func (s *service) apply(ctx context.Context, in *applyIn) (*applyOut, error) {
	t, err := parseToken(in.Body.Plan)
	if err != nil {
		return nil, err
	}
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	k := applyKey{h.tenant, h.id, in.Body.Plan}
	defer s.applying.Lock(k)()
	if done, ok := s.applied.get(k); ok {
		return &applyOut{done}, nil
	}
	// Who leaves must not leave half of it: the engine goes on to the end.
	ctx = context.WithoutCancel(ctx)
	rev, result, err := h.Apply(ctx, t.id, workspace.Label{Actor: actor(ctx), Text: t.label(), Jump: t.do == api.PlanRestore})
	if err != nil {
		return nil, err
	}
	done, err := h.appliedView(ctx, rev, result.Kept)
	if err != nil {
		return nil, err
	}
	s.applied.put(k, done)
	return &applyOut{done}, nil
}

// appliedView says what became of each path, from the trees before and after.
func (o opened) appliedView(ctx context.Context, rev workspace.Revision, kept []string) (api.Applied, error) {
	durable, err := o.durable(ctx)
	if err != nil {
		return api.Applied{}, err
	}
	v := api.Applied{Revision: revisionView(rev, durable), Files: []api.PathResult{}}
	revs, err := o.Revisions(ctx)
	if err != nil {
		return v, err
	}
	_, before, err := find(revs, rev.N)
	if err != nil {
		return v, err
	}
	d, err := o.Diff(ctx, before.N, rev.N, workspace.DiffOptions{FilesMax: filesMax})
	if err != nil {
		return v, err
	}
	v.Cut = d.Cut
	left := map[string]bool{}
	for _, p := range kept {
		left[p] = true
	}
	for _, c := range diffView(d) {
		result := "done"
		if p := exact(c.Path, c.PathBytes); left[p] {
			result = "kept"
			delete(left, p)
		}
		v.Files = append(v.Files, api.PathResult{PathChange: c, Result: result})
	}
	for _, p := range kept {
		if !left[p] {
			continue
		}
		if v.Cut = v.Cut || len(v.Files) >= 2*filesMax; v.Cut {
			break
		}
		c := api.PathResult{PathChange: api.PathChange{Action: "change"}, Result: "kept"}
		c.Path, c.PathBytes = named(p)
		v.Files = append(v.Files, c)
	}
	return v, nil
}

// sortPaths sorts by the elements of paths: what is in a directory follows it.
func sortPaths(paths []string) {
	slices.SortFunc(paths, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
}

type applyKey struct {
	tenant string
	id     sandbox.ID
	plan   string
}

// rememberedMax is how many answers are kept for who asks again.
const rememberedMax = 256

// memory keeps the answers of the last applies, so that one that is repeated
// after a broken connection is not refused. The zero value is ready.
type memory struct {
	mu    sync.Mutex
	done  map[applyKey]api.Applied
	order []applyKey
}

func (m *memory) get(k applyKey) (api.Applied, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.done[k]
	return v, ok
}

func (m *memory) put(k applyKey, v api.Applied) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done == nil {
		m.done = map[applyKey]api.Applied{}
	}
	if len(m.order) >= rememberedMax {
		delete(m.done, m.order[0])
		m.order = m.order[1:]
	}
	m.done[k] = v
	m.order = append(m.order, k)
}
