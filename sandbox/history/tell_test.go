package history

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// forgetful is a log that loses what is appended while it crashes.
type forgetful struct {
	*eventtest.Memory
	crashing atomic.Bool
}

func (f *forgetful) Append(e event.Event) {
	if !f.crashing.Load() {
		f.Memory.Append(e)
	}
}

// telling makes the service tell by a log.
func telling(s *Service, log event.Log) {
	s.c.Events, s.c.Node, s.retellAfter = log, "n1", time.Millisecond
	s.Recover()()
	for { // it begins in the background
		s.told.mu.Lock()
		ready := s.told.newest != nil
		s.told.mu.Unlock()
		if ready {
			return
		}
		<-time.After(time.Millisecond)
	}
}

type toldRevision struct {
	State    string
	Revision uint64
	Durable  bool
}

// toldOf returns the first n events of the workspaces of a tenant.
func toldOf(t *testing.T, log event.Log, n int) (all []toldRevision) {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	read := event.NewReader(ctx, log, tenant, event.Query{From: 1, Kind: event.Workspace})
	for range n {
		e, err := read.Next(ctx)
		must(t, err)
		var r workspace.Stored
		must(t, json.Unmarshal(e.Data, &r))
		if e.ID != string(id) || e.Tenant != tenant || e.Node != "n1" || r.N != e.Revision || r.Files == 0 && r.N > 1 {
			t.Errorf("it is told as %+v: %s", e, e.Data)
		}
		all = append(all, toldRevision{e.State, e.Revision, r.Durable})
	}
	return all
}

func open(t *testing.T, s *Service) workspace.History {
	t.Helper()
	his, release, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	t.Cleanup(release)
	return his
}

func snap(t *testing.T, his workspace.History) {
	t.Helper()
	_, _, err := his.Snapshot(t.Context(), workspace.Label{Actor: "user"})
	must(t, err)
}

func TestEvents_eachRevisionOnce(t *testing.T) {
	h, s := newHouse(t)
	log := eventtest.NewMemory()
	telling(s, log)
	h.write(t, "a", "0")
	his := open(t, s)
	snap(t, his) // the history begins with it
	h.write(t, "a", "1")
	snap(t, his)
	snap(t, his) // nothing changed
	plan, err := his.PlanRestore(t.Context(), 1, "")
	must(t, err)
	_, _, err = his.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(t, err)
	h.write(t, "a", "2")
	s.Detaching(h.host())
	want := []toldRevision{{changed, 1, true}, {changed, 2, true}, {restored, 3, true}, {changed, 4, true}}
	if d := cmp.Diff(want, toldOf(t, log, 4)); d != "" {
		t.Error(d)
	}
}

// What a crash lost the next server tells, and nothing twice.
func TestEvents_tellWhatACrashLost(t *testing.T) {
	h, s := newHouse(t)
	log := &forgetful{Memory: eventtest.NewMemory()}
	telling(s, log)
	his := open(t, s)
	for i := range 3 {
		log.crashing.Store(i == 2)
		h.write(t, "a", string(rune('0'+i)))
		snap(t, his)
	}
	must(t, s.Close())
	log.crashing.Store(false)
	next := New(s.c)
	t.Cleanup(func() { must(t, next.Close()) })
	telling(next, log)
	h.write(t, "a", "last")
	snap(t, open(t, next))
	revs, err := open(t, next).Revisions(t.Context())
	must(t, err)
	var want []toldRevision
	for _, r := range revs {
		want = append(want, toldRevision{changed, r.N, true})
	}
	if d := cmp.Diff(want, toldOf(t, log, len(want))); d != "" {
		t.Error(d)
	}
}

// A log that cannot be read at first is asked again.
func TestEvents_beginOnceTheLogIsThere(t *testing.T) {
	h, s := newHouse(t)
	log := &late{Memory: eventtest.NewMemory()}
	h.write(t, "a", "0")
	snap(t, open(t, s)) // before anything was read
	telling(s, log)
	if d := cmp.Diff([]toldRevision{{changed, 1, true}}, toldOf(t, log, 1)); d != "" {
		t.Error(d)
	}
}

// late is a log that is not there when it is asked first.
type late struct {
	*eventtest.Memory
	asked bool
}

func (l *late) Newest(ctx context.Context, kind string, visit func(event.Event) error) error {
	if !l.asked {
		l.asked = true
		return errs.New(errs.Unavailable, "not yet")
	}
	return l.Memory.Newest(ctx, kind, visit)
}

func TestEvents_goWithTheHistory(t *testing.T) {
	h, s := newHouse(t)
	log := eventtest.NewMemory()
	telling(s, log)
	h.write(t, "a", "0")
	snap(t, open(t, s))
	toldOf(t, log, 1)
	h.gone = true
	must(t, s.Delete(t.Context(), tenant, id))
	var left []sandbox.ID
	must(t, log.Newest(t.Context(), event.Workspace, func(e event.Event) error {
		left = append(left, sandbox.ID(e.ID))
		return nil
	}))
	if slices.Contains(left, id) {
		t.Error("they are kept")
	}
}
