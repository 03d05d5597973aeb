// Package workspace keeps the history of a directory: every change a revision,
// whatever made it, and ways back that work when all else is dead.
//
//	w, err := workspace.Open(workspace.Config{Dir: dir, Staging: beside, Store: history})
//	rev, err := w.Snapshot(ctx, workspace.Label{Actor: "agent", Run: run, Step: 3})
//	plan, err := w.PlanRestore(ctx, 2, "")     // shows what would happen
//	rev, err = w.Apply(ctx, plan.ID, label)    // and does just that
//
// A revision is the tree of the directory at one moment (package capture,
// objects in package object), kept in a list (package revlog). Going back is a
// plan made of two trees (package apply): what is on disk now, which is looked
// at first, and the target. It is itself a step, so going back can be gone
// back. Opening a workspace finishes what a crash left half done.
//
// A Workspace is safe for concurrent use; its methods run one at a time.
package workspace

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/retain"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/tree"
)

// Revision is the state of a workspace at one moment.
type Revision = revlog.Revision

// Stored is a revision and whether it survives the loss of the sandbox: what an
// event tells.
type Stored struct {
	Revision
	Durable bool `json:"durable,omitempty"`
}

// Config of a Workspace.
type Config struct {
	Dir     string // the directory
	Staging string // a path on the same file system, outside Dir; ours alone
	Store   string // the directory of the history, on any file system
	// BytesMax bounds the history; 0 = none.
	BytesMax int64
	// SegmentBytes is the size of the history's files; 0 = 64 MiB.
	SegmentBytes int64
	// Policy lets the history prune itself while revisions are made; nil = it
	// grows until the caller calls Prune, or to BytesMax. Pruned is told what came
	// of it; it may be nil.
	Policy  *Policy
	Pruned  func(Pruned, error)
	Capture capture.Config
	// Now is what revisions are stamped with, and may be wrong; nil = time.Now.
	Now func() time.Time
	// Elapsed is the time since some moment of this process, whatever becomes of
	// the clock; what is too old goes by it. nil = the kernel's monotonic clock.
	Elapsed func() time.Duration
	// First makes a revision of what is there, by this label, when a history is
	// opened that has none: what then changes first can be undone too. nil =
	// the first Snapshot makes it, and what was before that is not known.
	First *Label
	// Empty: the directory was made for this history and was empty, whatever is
	// in it by now; First is a revision of that.
	Empty bool
	// Stage is for tests: see apply.Config.
	Stage func(name string)
}

// Label says who made a revision, and of what it is the result.
type Label struct {
	Thread, Run, Call, Actor, Text string
	Step                           int
	// Jump marks a going back to what the caller named: undo takes it back as a
	// whole. Without it, it moves along the way of undo and redo.
	Jump bool
}

// Workspace is an open history.
type Workspace struct {
	c Config

	mu      sync.Mutex // guards all below; held over all work
	objects *object.Store
	log     *revlog.Log
	revs    []Revision
	capture *capture.Capture
	plans   map[string]Plan
	pending *pending            // a plan was carried out, and no revision says so yet
	pins    map[object.Hash]int // roots that are being read without the lock
	closed  bool

	scanned     object.Hash // the last tree that capture has seen, on which it builds
	halfScanned bool        // it builds on something else: a scan failed, or there was none yet
	skipped     []capture.Skip
	skippedMore int
	clock       retain.Clock
	pruned      time.Duration // when last, by clock
	background  bool          // it prunes, or is about to

	hears atomic.Bool // what the last Heard found out: the kernel reports changes

	pruning sync.Mutex         // held by Prune, and taken before mu
	readers sync.WaitGroup     // who works without the lock; Close waits
	life    context.Context    // ends with Close
	end     context.CancelFunc // ends it
}

// Open opens the history of a directory, making it if need be, and finishes
// what a restore that died has left. The caller closes it. Corrupt: a part of
// the history is damaged.
func Open(c Config) (w *Workspace, err error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	w = &Workspace{c: c, halfScanned: true, plans: map[string]Plan{}, pins: map[object.Hash]int{}}
	w.life, w.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.objects, err = object.Open(filepath.Join(c.Store, "objects"), object.Config{BytesMax: c.BytesMax, SegmentBytes: c.SegmentBytes}); err != nil {
		return w, err
	}
	if w.log, w.revs, err = revlog.Open(filepath.Join(c.Store, revlog.Name)); err != nil {
		return w, err
	}
	w.setClock()
	w.pruned = w.clock.Now() - pruneEvery
	recovered, err := apply.Recover(w.applying())
	if err != nil {
		return w, err
	}
	seen := c.Capture
	seen.State = cmp.Or(seen.State, filepath.Join(c.Store, "seen"))
	if w.capture, err = capture.Open(c.Dir, w.objects, seen); err != nil {
		return w, err
	}
	if recovered != nil {
		err = w.finished(*recovered)
	}
	if err != nil {
		return w, err
	}
	if c.First != nil && len(w.revs) == 0 {
		err = w.first(*c.First)
	}
	return w, err
}

// first makes the revision that the first change is undone to.
func (w *Workspace) first(l Label) error {
	if w.c.Empty {
		data, err := tree.Encode(nil)
		if err != nil {
			return err
		}
		root, err := w.objects.Put(object.Tree, data)
		if err != nil {
			return err
		}
		_, err = w.commit(context.Background(), capture.Result{Root: root}, l.on(Revision{}))
		return err
	}
	_, _, err := w.snapshot(context.Background(), l)
	return err
}

// note is kept in the journal while a plan is carried out, until the revision
// that says so is on disk: who finishes it makes exactly that one, once.
type note struct {
	Label Label
	back
	N    uint64 // of the revision; 0 = unknown, in journals of before
	Plan string // its id
}

// pending is a plan that was carried out, or is being, without a revision.
type pending struct {
	note   note
	result apply.Result
	begun  bool // not all of it is known to be done
}

// back says what a revision goes back to; the zero back is for one that does not.
type back struct {
	Target uint64
	Whole  bool // with all files; see revlog.Revision
}

// finished makes the revision of a restore that died and is now done. Where
// there is no room for it the history opens all the same, and the next one to
// ask for a revision makes it.
func (w *Workspace) finished(r apply.Recovered) error {
	var n note
	if err := json.Unmarshal(r.Note, &n); err != nil {
		return errs.Wrap(errs.Corrupt, err, "the journal of an undo cannot be read")
	}
	w.pending = &pending{note: n, result: r.Result}
	if err := w.settle(context.Background()); !errs.Is(err, errs.Limit) {
		return err
	}
	return nil
}

// settle makes the revision of what was carried out and has none: first of all,
// for the files are that by now. Preconditions: w.mu is held.
func (w *Workspace) settle(ctx context.Context) error {
	p := w.pending
	if p == nil {
		return nil
	}
	if p.begun {
		r, err := apply.Recover(w.applying())
		if err != nil {
			return err
		}
		if r == nil { // the journal is not there: no later start goes on with it
			w.pending = nil
			return nil
		}
		p.result, p.begun = r.Result, false
	}
	if last, _ := w.last(); p.note.N == 0 || last.N < p.note.N {
		r, err := w.look(ctx)
		if err != nil {
			return err
		}
		rev := p.note.Label.on(Revision{Undoes: p.note.Target, Whole: p.note.Whole, Plan: p.note.Plan, Kept: someOf(p.result.Kept)})
		if _, err := w.commit(ctx, r, rev); err != nil {
			return err
		}
	}
	w.pending = nil
	_ = apply.Done(w.applying()) // what stays of it is found to have its revision
	return nil
}

// keptBytesMax bounds the paths that a revision names as kept.
const keptBytesMax = 16 << 10

// someOf are the first of some paths.
func someOf(paths []string) (some [][]byte) {
	size := 0
	for _, p := range paths {
		if size += len(p) + 16; size > keptBytesMax {
			break
		}
		some = append(some, []byte(p))
	}
	return some
}

// carriedOut returns the revision that a plan has become. Preconditions: w.mu
// is held.
func (w *Workspace) carriedOut(plan string) (rev Revision, result apply.Result, ok bool) {
	for _, r := range slices.Backward(w.revs) {
		if r.Plan != plan {
			continue
		}
		for _, p := range r.Kept {
			result.Kept = append(result.Kept, string(p))
		}
		return r, result, true
	}
	return rev, result, false
}

func (w *Workspace) applying() apply.Config {
	return apply.Config{Dir: w.c.Dir, Staging: w.c.Staging, Journal: journal(w.c.Store), Stage: w.c.Stage}
}

// Close waits for who reads and closes the files.
func (w *Workspace) Close() error {
	w.end()
	w.mu.Lock()
	var err error
	if w.capture != nil {
		err = w.capture.Close()
	}
	if w.log != nil {
		err = errors.Join(err, w.log.Close())
	}
	w.capture, w.log, w.closed = nil, nil, true // no call begins any more
	w.mu.Unlock()
	w.readers.Wait()
	if w.objects != nil {
		err = errors.Join(err, w.objects.Close())
	}
	return err
}

// Snapshot looks at the directory and makes a revision of it, which is on disk
// when Snapshot returns. If nothing changed it returns the last one, and fresh
// is false; but the moment of a person's turn (a label with a run and no call),
// and a name that a person gives (retain.HasName), are kept by a revision of
// their own, unless the last one is that already.
func (w *Workspace) Snapshot(ctx context.Context, l Label) (rev Revision, fresh bool, err error) {
	err = w.withRoom(ctx, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		rev, fresh, err = w.snapshot(ctx, l)
		return err
	})
	return rev, fresh, err
}

// snapshot makes a revision. Preconditions: w.mu is held.
func (w *Workspace) snapshot(ctx context.Context, l Label) (Revision, bool, error) {
	if w.closed {
		return Revision{}, false, errClosed()
	}
	if err := w.settle(ctx); err != nil {
		return Revision{}, false, err
	}
	r, err := w.look(ctx)
	if err != nil {
		return Revision{}, false, err
	}
	last, any := w.last()
	if any && last.Root == r.Root && !names(l, last) {
		return last, false, nil
	}
	rev, err := w.commit(ctx, r, l.on(Revision{}))
	return rev, err == nil, err
}

// look scans the directory. Preconditions: w.mu is held, and it is not closed.
func (w *Workspace) look(ctx context.Context) (capture.Result, error) {
	w.objects.Retry()
	r, err := w.capture.Scan(ctx)
	if err != nil {
		w.halfScanned = true
		return r, err
	}
	w.scanned, w.halfScanned = r.Root, false
	w.skipped, w.skippedMore = r.Skipped, r.SkippedMore
	w.stage("scanned")
	return r, nil
}

// Heard is how many changes the kernel has reported since the last look; 0 =
// none, but for what is stored into mapped files. It costs microseconds, and
// waits for nothing: while other work is under way it is at least 1. known is
// false where only a Snapshot finds out.
func (w *Workspace) Heard() (n uint64, known bool) {
	if !w.mu.TryLock() { // held over all work, which a large scan makes long
		if w.hears.Load() {
			return 1, true
		}
		return 0, false
	}
	defer w.mu.Unlock()
	if w.closed {
		return 0, false
	}
	n, known = w.capture.Heard()
	w.hears.Store(known)
	if last, _ := w.last(); known && (w.halfScanned || last.Root != w.scanned) {
		n++ // what was reported did not become a revision
	}
	return n, known
}

// names reports whether a label marks a moment, or gives the files a name, and
// the last revision, of the same files, does not.
func names(l Label, last Revision) bool {
	r := l.on(Revision{})
	if isTurn(r) {
		return !isTurn(last) || last.Run != r.Run || last.Thread != r.Thread
	}
	return retain.HasName(r) && !(retain.HasName(last) && last.Label == r.Label)
}

// on labels a revision.
func (l Label) on(r Revision) Revision {
	r.Thread, r.Run, r.Step, r.Call, r.Actor, r.Label, r.Jump = l.Thread, l.Run, l.Step, l.Call, l.Actor, l.Text, l.Jump
	return r
}

// commit makes a revision of what a scan found; rev says who made it, and what
// it goes back to. Preconditions: w.mu is held.
func (w *Workspace) commit(ctx context.Context, r capture.Result, rev Revision) (Revision, error) {
	if err := w.objects.Sync(); err != nil { // before a revision names them
		w.capture.Forget() // it believes in what may not be there
		return Revision{}, err
	}
	w.stage("objects")
	last, any := w.last()
	rev.N, rev.Root, rev.Time, rev.Files, rev.Bytes, rev.Torn = last.N+1, r.Root, w.c.Now().UTC(), r.Files, r.Bytes, r.Torn
	rev.Clock = w.clock.Stamp(last)
	rev.Aside = any && w.aside(ctx, r.Root, last.Root)
	if err := w.log.Append(rev); err != nil {
		return Revision{}, err
	}
	w.stage("listed")
	w.revs = append(w.revs, rev)
	w.prune()
	return rev, nil
}

// setClock lets the history's clock go on where the last revision has it.
func (w *Workspace) setClock() {
	last, _ := w.last()
	w.clock = retain.NewClock(w.c.Elapsed, last, w.c.Now())
}

// aside reports whether nothing would be done to go from a tree to the one
// before it. Who cannot say so has a change like any other.
func (w *Workspace) aside(ctx context.Context, root, before object.Hash) bool {
	moves, err := apply.Moves(ctx, w.objects, root, before)
	return err == nil && !moves
}

func (w *Workspace) last() (Revision, bool) {
	if len(w.revs) == 0 {
		return Revision{}, false
	}
	return w.revs[len(w.revs)-1], true
}

// Revisions lists all, the oldest first.
func (w *Workspace) Revisions(context.Context) ([]Revision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.revs), nil
}

// Revision returns one. NotFound: there is none of this number (any more).
func (w *Workspace) Revision(n uint64) (Revision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision(n)
}

func (w *Workspace) revision(n uint64) (Revision, error) {
	i, ok := slices.BinarySearchFunc(w.revs, n, func(r Revision, n uint64) int {
		switch {
		case r.N < n:
			return -1
		case r.N > n:
			return 1
		}
		return 0
	})
	if !ok {
		return Revision{}, errs.New(errs.NotFound, "there is no revision %d", n).WithHint("`skete history` lists them")
	}
	return w.revs[i], nil
}

// Plan is what a restore would do. It is valid as long as the directory is as
// it was when the plan was made.
type Plan struct {
	ID     string
	Target uint64
	Now    object.Hash // the directory, when the plan was made
	Ops    []apply.Op
	// Conflicts are paths of a revert for which the caller has not chosen.
	Conflicts []Conflict
	// Left differs from the target and stays as it is: what git keeps in a .git,
	// with the commits in it, unless the plan is for a path in there.
	Left []apply.Left
	// Skipped is what the history does not keep, and so does not touch;
	// SkippedMore how much there is beyond what is listed.
	Skipped     []capture.Skip
	SkippedMore int

	tree  object.Hash // what it is to become, but for what is left
	whole bool        // of all files
}

func (p Plan) back() back { return back{p.Target, p.whole} }

// plansMax is how many plans are remembered.
const plansMax = 16

// PlanRestore plans to make the directory, or one path in it, what it was at a
// revision. The directory is looked at first; what no revision holds yet becomes
// one, so nothing that is on disk now can be lost.
func (w *Workspace) PlanRestore(ctx context.Context, target uint64, path string) (p Plan, err error) {
	err = w.withRoom(ctx, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		p, err = w.planRestore(ctx, target, path)
		return err
	})
	return p, err
}

func (w *Workspace) planRestore(ctx context.Context, target uint64, path string) (Plan, error) {
	to, err := w.revision(target)
	if err != nil {
		return Plan{}, err
	}
	now, _, err := w.snapshot(ctx, Label{Actor: Outside})
	if err != nil {
		return Plan{}, err
	}
	ops, left, err := apply.Plan(ctx, w.objects, now.Root, to.Root, w.filter(to, path))
	if err != nil {
		return Plan{}, err
	}
	return w.remember(Plan{Target: target, Now: now.Root, Ops: ops, Left: left, tree: to.Root, whole: path == ""}), nil
}

// filter is for a way to a revision.
func (w *Workspace) filter(to Revision, path string) apply.Filter {
	f := apply.Filter{Path: path}
	if to.Thin {
		f.Spare = w.derived()
	}
	return f
}

// derived are the names of directories that can be made again.
func (w *Workspace) derived() []string {
	if r := w.c.Capture.Rules; r != nil {
		return r.Derived
	}
	return capture.DefaultRules().Derived
}

func (w *Workspace) remember(p Plan) Plan {
	if len(w.plans) >= plansMax {
		clear(w.plans)
	}
	p.Skipped, p.SkippedMore = w.skipped, w.skippedMore
	// No two have the same: a revision names the one that it comes of, and the
	// same way may be gone twice.
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	p.ID = hex.EncodeToString(id[:])
	w.plans[p.ID] = p
	return p
}

// Apply does what was planned and makes a revision of it; asked again, it
// answers with that one. Conflict: the directory is not any more what it was.
// ErrUnlisted: it is done, without the revision. The caller has frozen what
// writes to the directory.
func (w *Workspace) Apply(ctx context.Context, id string, l Label) (rev Revision, result apply.Result, err error) {
	begun := false
	err = w.withRoom(ctx, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return errClosed()
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		var there bool
		if rev, result, there = w.carriedOut(id); there {
			return nil
		}
		if begun, err = w.apply(ctx, id, l); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx) // who leaves now would leave it without a revision
		result = w.pending.result
		if err := w.settle(ctx); err != nil {
			return err
		}
		rev, _ = w.last()
		return nil
	})
	if begun && err != nil {
		err = w.unlisted(err)
	}
	return rev, result, err
}

// unlisted says how far a plan has come that was begun.
func (w *Workspace) unlisted(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending != nil && w.pending.begun {
		return errs.Wrap(errs.Of(err), err, "the files could not all be changed: %s", errs.Public(err)).
			WithHint("the rest of it is done as soon as that is possible; ask for the same plan again")
	}
	return errs.Wrap(errs.Of(err), errors.Join(ErrUnlisted, err), "the files are what was planned, but no revision says so yet: %s", errs.Public(err)).
		WithHint("the same plan again makes only the revision, and so does whatever asks for one next; what was before is in the one before")
}

// ErrUnlisted is in an error of Apply that has done all of it: only the
// revision that it makes could not be kept.
var ErrUnlisted = errors.New("applied, but not listed")

// apply does what was planned; once begun it is pending. Preconditions: w.mu is
// held.
func (w *Workspace) apply(ctx context.Context, id string, l Label) (begun bool, err error) {
	p, ok := w.plans[id]
	if !ok {
		return false, errs.New(errs.Conflict, "there is no such plan (any more)").WithHint("look at the plan again")
	}
	if n := len(p.Conflicts); n > 0 {
		return false, errs.New(errs.Conflict, "%d paths were changed since; the first is %q: %s", n, p.Conflicts[0].Path, p.Conflicts[0].Why).
			WithHint("choose for each: keep what is now, take what was before, or write both with markers")
	}
	now, _, err := w.snapshot(ctx, Label{Actor: Outside})
	if err != nil {
		return false, err
	}
	if now.Root != p.Now {
		return false, errs.New(errs.Conflict, "the workspace changed since the plan was made").WithHint("look at the plan again")
	}
	last, _ := w.last()
	n := note{Label: l, back: p.back(), N: last.N + 1, Plan: id}
	c := w.applying()
	if c.Note, err = json.Marshal(n); err != nil {
		return false, err
	}
	result, begun, err := apply.Run(ctx, c, w.objects, p.Ops)
	if begun {
		w.pending = &pending{note: n, result: result, begun: err != nil}
		delete(w.plans, id)
	}
	return begun, err
}
