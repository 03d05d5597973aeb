package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// made lists who made what, the oldest first, without what was there at first.
func made(t *testing.T, s *Service) (list []string) {
	t.Helper()
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	revs, err := his.Revisions(t.Context())
	must(t, err)
	for _, r := range revs[1:] {
		list = append(list, r.Actor+": "+r.Label)
	}
	return list
}

// Calls one after the other are a revision each, by who called and what was
// asked for; what others changed in between is not theirs.
func TestStep(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	var want []string
	for i := range 8 {
		st := s.Step(t.Context(), tenant, id, "ci", fmt.Sprintf("exec  number\n%d", i))
		h.write(t, "a", fmt.Sprint(i))
		st.End()
		st.End()
		want = append(want, fmt.Sprintf("api:ci: exec number %d", i))
	}
	s.Step(t.Context(), tenant, id, "ci", "reads only").End()
	h.write(t, "a", "by nobody")
	st := s.Step(t.Context(), tenant, id, "local", "writes b")
	h.write(t, "b", "b")
	st.End()
	want = append(want, "outside: ", "api:local: writes b")
	if d := cmp.Diff(want, made(t, s)); d != "" {
		t.Error(d)
	}
	if n := len(s.ledgers); n > 1 { // until the next tick
		t.Errorf("%d ledgers stay", n)
	}
}

// A call that changes nothing costs no look at the files, where the kernel tells
// what changes.
func TestStep_cleanMakesNoScan(t *testing.T) {
	disk := scratch.Disk(t, 32) // one where nothing else changes
	h, s := newHouse(t)
	h.disk = disk
	must(t, os.Mkdir(filepath.Join(h.disk, "files"), 0o755))
	var scans atomic.Int32
	s.stage = func(_ sandbox.ID, name string) {
		if name == "scanned" {
			scans.Add(1)
		}
	}
	st := s.Step(t.Context(), tenant, id, "ci", "writes")
	h.write(t, "a", "new")
	st.End()
	if n, known := s.heard(id); !known || n != 0 {
		t.Skipf("the kernel does not tell here what changes (%d, %t)", n, known)
	}
	if scans.Load() == 0 {
		t.Fatal("no scan was counted when there was something to look at")
	}
	// While a history is pruned in the background a look may be made that was not
	// needed. That is soon over.
	var n int32
	for range 5 {
		before := scans.Load()
		for range 8 {
			s.Step(t.Context(), tenant, id, "ci", "reads only").End()
		}
		if n = scans.Load() - before; n == 0 {
			return
		}
	}
	t.Errorf("%d scans for calls that changed nothing", n)
}

// Calls that overlap share a revision that names them all; what the first did
// before the second began is its own.
func TestStep_overlapping(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	a := s.Step(t.Context(), tenant, id, "ci", "one")
	h.write(t, "a", "1")
	b := s.Step(t.Context(), tenant, id, "ci", "two")
	h.write(t, "a", "2")
	h.write(t, "b", "2")
	b.End()
	h.write(t, "a", "3")
	a.End()
	c := s.Step(t.Context(), tenant, id, "ci", "three")
	h.write(t, "a", "4")
	// A tool call of an agent that ends meanwhile is found by its name.
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: "agent", Run: "run_1", Call: "call_1", Text: "shell"})
	must(t, err)
	c.End()
	want := []string{"api:ci: one", "api:ci: one; two", "api:ci: one", "agent: shell; meanwhile three"}
	if d := cmp.Diff(want, made(t, s)); d != "" {
		t.Error(d)
	}
}

// What an agent's call or a person's save finds of a step that is under way is
// the step's.
func TestStep_beforeSomebodyElse(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	st := s.Step(t.Context(), tenant, id, "ci", "one")
	h.write(t, "a", "1")
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	_, _, err = his.Snapshot(t.Context(), workspace.Label{Actor: workspace.Outside, Text: "before shell"})
	must(t, err)
	h.write(t, "a", "2")
	s.Detaching(h.host())
	st.End()
	if d := cmp.Diff([]string{"api:ci: one", "api:ci: one"}, made(t, s)); d != "" {
		t.Error(d)
	}
}

// A revision names each caller once, and no more calls than a line holds.
func TestLabelOf(t *testing.T) {
	var steps []*Step
	for i := range 11 {
		steps = append(steps, &Step{who: []string{"ci", "ann", "ann"}[i%3], what: fmt.Sprint("c", i), n: i})
	}
	for n, want := range map[int]string{
		0:  "outside: ",
		1:  "api:ci: c0",
		3:  "api:ci, ann: c0; c1; c2",
		8:  "api:ci, ann: c0; c1; c2; c3; c4; c5; c6; c7",
		11: "api:ci, ann: c0; c1; c2; c3; c4; c5; c6; c7; and 3 more",
	} {
		if got := labelOf(slices.Clone(steps[:n])); got.Actor+": "+got.Text != want {
			t.Errorf("%d steps: %q, want %q", n, got.Actor+": "+got.Text, want)
		}
	}
}

// A step that goes on by itself ends where what it waits for does, and with the service.
func TestStep_goesOn(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	ended := make(chan struct{})
	st := s.Step(t.Context(), tenant, id, "ci", "in the background")
	st.Follow(func(context.Context) { <-ended })
	h.write(t, "a", "1")
	close(ended)
	s.work.Wait()
	if d := cmp.Diff([]string{"api:ci: in the background"}, made(t, s)); d != "" {
		t.Error(d)
	}
	st = s.Step(t.Context(), tenant, id, "ci", "for ever")
	st.Follow(func(ctx context.Context) { <-ctx.Done() })
	must(t, s.Close())
	s.Step(context.Background(), tenant, id, "ci", "too late").End()
}

// Many at once wait for a few looks, and each is named by one.
func TestStep_many(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			st := s.Step(t.Context(), tenant, id, "ci", "one")
			h.write(t, fmt.Sprint(i), "x")
			st.End()
		})
	}
	wg.Wait()
	revs := made(t, s)
	if slices.Contains(revs, "outside: ") {
		t.Errorf("a revision that names no call: %q", revs)
	}
}

// A step does not begin once a look has: that has its name already, and would take what
// the step does for the work of others.
func TestStep_beginsDuringALook(t *testing.T) {
	disk := scratch.Disk(t, 32) // one where nothing else changes
	h, s := newHouse(t)
	h.disk, h.empty = disk, true
	must(t, os.Mkdir(filepath.Join(h.disk, "files"), 0o755))
	first := s.Step(t.Context(), tenant, id, "ci", "one")
	h.write(t, "a", "1")
	first.End()
	if n, known := s.heard(id); !known || n != 0 {
		t.Skipf("the kernel does not tell here what changes (%d, %t)", n, known)
	}
	l := s.known(tenant, id)
	defer l.drop()
	free, err := s.each.begin(t.Context(), string(id)) // a look gets its name, and no further
	must(t, err)
	free = sync.OnceFunc(free)
	defer free()
	var calls sync.WaitGroup
	calls.Go(func() { l.look(t.Context(), time.Minute) })
	waits := func(joined int) func() bool {
		return func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.under) > 0 || l.now != nil && len(l.now.join) == joined
		}
	}
	patience.Until(t, 10*time.Second, "a look", waits(0))
	calls.Go(func() {
		st := s.Step(t.Context(), tenant, id, "ci", "two")
		h.write(t, "b", "2")
		st.End()
	})
	patience.Until(t, 10*time.Second, "a step", waits(1))
	free()
	calls.Wait()
	if d := cmp.Diff([]string{"api:ci: one", "api:ci: two"}, made(t, s)); d != "" {
		t.Error(d)
	}
}

// While an agent's call is under way no moment is quiet, and a call begins when a look
// has ended: half of its work would be a revision of others.
func TestCall(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	s.Step(t.Context(), tenant, id, "ci", "one").End()
	l := s.known(tenant, id)
	defer l.drop()
	quiet := func() bool {
		l.mu.Lock()
		l.touched, l.last, l.first = true, time.Time{}, time.Time{}
		l.mu.Unlock()
		l.tick()
		l.tick() // what is heard is what was heard before
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.touched
	}
	done := s.Call(t.Context(), tenant, id)
	h.write(t, "half", "of it")
	if quiet() {
		t.Error("a look in the middle of a call")
	}
	done()
	if !quiet() {
		t.Error("no look when it is over")
	}
	free, err := s.each.begin(t.Context(), string(id))
	must(t, err)
	var calls sync.WaitGroup
	calls.Go(func() { l.look(t.Context(), time.Minute) })
	patience.Until(t, 10*time.Second, "a look", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.now != nil
	})
	began := make(chan struct{})
	calls.Go(func() {
		defer s.Call(t.Context(), tenant, id)()
		close(began)
	})
	select {
	case <-began:
		t.Error("a call begins during a look")
	case <-time.After(50 * time.Millisecond):
	}
	free()
	calls.Wait()
	if revs := made(t, s); len(revs) != 1 || revs[0] != "outside: " {
		t.Errorf("%q", revs)
	}
	s.Call(t.Context(), "other", id)()
}

// A stopped sandbox lends its workspace for one call: what was planned in one is
// applied in the next, if the files are what they were.
func TestApply_ofAStoppedSandbox(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	defer release()
	h.write(t, "a", "old")
	first, _, err := his.Snapshot(t.Context(), workspace.Label{})
	must(t, err)
	h.write(t, "a", "new")
	plan, err := his.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	s.Detaching(h.host())
	if _, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{}); err != nil || h.read(t, "a") != "old" {
		t.Fatal(err, h.read(t, "a"))
	}
	s.Detaching(h.host())
	if _, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("an old plan: %v", err)
	}
}

// A call that names another tenant's sandbox leaves nothing behind, also while
// that has changes: neither in the way of the owner's revisions nor beside them.
func TestStep_ofAnotherTenantsSandbox(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	first := s.Step(t.Context(), tenant, id, "ci", "first")
	h.write(t, "a", "1")
	first.End()
	h.write(t, "a", "not in a revision yet")
	foreign := s.Step(t.Context(), "other", id, "mallory", "never done")
	s.Touched("other", id)
	s.Step(t.Context(), "other", "sbx_none", "mallory", "never done").End()
	s.mu.Lock()
	for of := range s.ledgers {
		if of.tenant != tenant {
			t.Errorf("a ledger of %+v", of)
		}
	}
	s.mu.Unlock()
	st := s.Step(t.Context(), tenant, id, "ci", "second")
	h.write(t, "a", "2")
	st.End()
	foreign.Follow(func(context.Context) { t.Error("it is waited for") })
	foreign.End()
	if d := cmp.Diff([]string{"api:ci: first", "outside: ", "api:ci: second"}, made(t, s)); d != "" {
		t.Error(d)
	}
}
