package schedule_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

const tenant = "acme"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func text(s string) []llm.Block { return []llm.Block{llm.Text(s)} }

func wantClass(t testing.TB, what string, err error, class errs.Class) {
	t.Helper()
	if !errs.Is(err, class) {
		t.Errorf("%s: %v, want %s", what, err, class)
	}
}

// house is all that outlives a server: the records, and the runs. It is used within a
// bubble, whose clock passes only when all wait.
type house struct {
	t       testing.TB
	records *kvtest.Memory

	mu     sync.Mutex
	length time.Duration // of a run; 0 = for ever
	refuse error         // keeps runs from starting
	put    time.Duration // by which the host's clock was put forward
	calls  int           // of the store and of the supervisor
	deadAt int           // from this call on the server is dead; 0 = it lives
	runs   []*run
	keys   map[string]*run // nil = the key is known, and its run is not there yet
	asked  []runs.Start
}

type run struct {
	runs.Run
	ends time.Time // zero = it does not end by itself
}

func newHouse(t testing.TB) *house {
	h := &house{t: t, records: kvtest.NewMemory(), length: time.Second, keys: map[string]*run{}}
	h.records.Fail = func(string, string) error { return h.call() }
	return h
}

// open starts a server, which is alive.
func (h *house) open() *schedule.Scheduler {
	h.t.Helper()
	return h.openNode("n")
}

func (h *house) openNode(node string) *schedule.Scheduler {
	h.t.Helper()
	h.dieAt(0)
	s, err := schedule.Open(h.t.Context(), schedule.Config{Records: h.records, Runs: h, Node: node, Now: h.now, Max: 3})
	must(h.t, err)
	h.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (h *house) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.put)
}

// putClock changes the host's clock.
func (h *house) putClock(by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put += by
}

// dieAt kills the server n calls from now on: what it does before that is done, and
// nothing after it.
func (h *house) dieAt(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadAt = 0
	if n > 0 {
		h.deadAt = h.calls + n
	}
}

// refuseAll keeps runs from starting; nil = they start again.
func (h *house) refuseAll(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = err
}

// take is how long the runs take that start from now on; 0 = for ever.
func (h *house) take(length time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.length = length
}

// called is how many calls there were.
func (h *house) called() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// dead reports whether it was killed.
func (h *house) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadAt > 0 && h.calls >= h.deadAt
}

func (h *house) call() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if h.deadAt > 0 && h.calls >= h.deadAt {
		return errs.New(errs.Unavailable, "the server is dead")
	}
	return nil
}

// MayStart implements schedule.Runs.
func (h *house) MayStart(_ context.Context, _ string, s runs.Start) error {
	if s.Agent == "nobody" {
		return errs.New(errs.NotFound, "no agent %q", s.Agent)
	}
	return s.Check()
}

// Start implements schedule.Runs. As in the supervisor, the key is known before the
// run is there.
func (h *house) Start(_ context.Context, tenant string, s runs.Start) (runs.Run, error) {
	if err := h.call(); err != nil {
		return runs.Run{}, err
	}
	key := tenant + " " + s.Key
	h.mu.Lock()
	if _, known := h.keys[key]; s.Key != "" && !known {
		h.keys[key] = nil
	}
	h.mu.Unlock()
	if err := h.call(); err != nil {
		return runs.Run{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.keys[key]; r != nil {
		return r.now(), nil
	}
	if h.refuse != nil {
		return runs.Run{}, h.refuse
	}
	r := &run{Run: runs.Run{
		ID: thread.NewRunID(), Thread: s.Thread, Tenant: tenant, Labels: s.Labels, By: s.By, State: thread.RunRunning, Created: time.Now(),
	}}
	if r.Thread == "" {
		r.Thread = thread.NewID()
	}
	if h.length > 0 {
		r.ends = time.Now().Add(h.length)
	}
	h.runs = append(h.runs, r)
	h.asked = append(h.asked, s)
	if s.Key != "" {
		h.keys[key] = r
	}
	return r.now(), nil
}

func (r *run) now() runs.Run {
	v := r.Run
	if !r.ends.IsZero() && !time.Now().Before(r.ends) && !v.State.Final() {
		v.State = thread.RunSucceeded
	}
	return v
}

// Keyed implements schedule.Runs.
func (h *house) Keyed(_ context.Context, tenant, key string) (runs.Run, error) {
	if err := h.call(); err != nil {
		return runs.Run{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.keys[tenant+" "+key]; r != nil {
		return r.now(), nil
	}
	return runs.Run{}, errs.New(errs.NotFound, "no run of this key")
}

// ForgetKey implements schedule.Runs.
func (h *house) ForgetKey(_ context.Context, tenant, key string) error {
	if err := h.call(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.keys, tenant+" "+key)
	return nil
}

// Get implements schedule.Runs.
func (h *house) Get(_ context.Context, tenant string, id thread.RunID) (runs.Run, error) {
	if err := h.call(); err != nil {
		return runs.Run{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		if r.ID == id && r.Tenant == tenant {
			return r.now(), nil
		}
	}
	return runs.Run{}, errs.New(errs.NotFound, "no run %s", id)
}

// List implements schedule.Runs.
func (h *house) List(_ context.Context, tenant string, f runs.Filter) (runs.Page, error) {
	if err := h.call(); err != nil {
		return runs.Page{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var page runs.Page
	for _, r := range h.runs {
		if v := r.now(); r.Tenant == tenant && f.Wants(v) {
			page.Runs = append(page.Runs, v)
		}
	}
	return f.Page(page.Runs), nil
}

// end makes the newest run one that is over, or what else a test says of it.
func (h *house) end(change func(*runs.Run)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.runs[len(h.runs)-1].Run)
}

// started are all runs, the oldest first.
func (h *house) started() []runs.Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []runs.Run
	for _, r := range h.runs {
		list = append(list, r.now())
	}
	return list
}

// firstAsked is what the first run was asked for.
func (h *house) firstAsked() runs.Start {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[0]
}

// fired are the times whose runs were started, in the order of their start.
func (h *house) fired() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, r := range h.runs {
		list = append(list, r.Labels[schedule.LabelDue])
	}
	return list
}

// once fails if a time started two runs.
func (h *house) once() {
	h.t.Helper()
	all := h.fired()
	if distinct := slices.Compact(slices.Sorted(slices.Values(all))); len(distinct) != len(all) {
		h.t.Errorf("a time was fired twice: %q", all)
	}
}

// knownKeys are the keys that are kept.
func (h *house) knownKeys() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.keys))
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }

// minutely makes a schedule that is due every minute.
func minutely(t testing.TB, s *schedule.Scheduler, name string) schedule.Schedule {
	t.Helper()
	made, err := s.Add(t.Context(), tenant, schedule.New{Name: name, When: schedule.When{Cron: "* * * * *"}, Start: runs.Start{Input: text("look"), By: "anna"}})
	must(t, err)
	return made
}

func get(t testing.TB, s *schedule.Scheduler, name string) schedule.Schedule {
	t.Helper()
	known, err := s.Get(t.Context(), tenant, name)
	must(t, err)
	return known
}

// clock is a time of the first day of a bubble.
func clock(hour, minute int) string { return fmt.Sprintf("2000-01-01T%02d:%02d:00Z", hour, minute) }
