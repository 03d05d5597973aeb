package chaos

import (
	"maps"
	"net/rpc"
	"slices"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
	"github.com/skete-dev/skete/thread"
)

// server is one of several processes of a node on the same external log.
type server struct {
	s *store.Store
	k *supervisor.Supervisor
}

func (w *world) server(o order, url string, process int) server {
	t := w.t
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), URL: url})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	records, err := s.KV(t.Context(), "runs")
	must(t, err)
	leases, err := s.Leases(t.Context())
	must(t, err)
	o.Process, o.Guest = process, w.socket
	guest, err := rpc.Dial("unix", w.socket)
	must(t, err)
	t.Cleanup(func() { _ = guest.Close() })
	c := &child{o: o, guest: guest, store: s}
	k, err := supervisor.Open(t.Context(), supervisor.Config{
		Threads: s.Threads(), Records: records, Leases: leases, Models: models{o.Plot}, Machines: machines{c}, Definitions: agents{o.Plot},
		Tools: newTools(c), Node: "n", Patience: llm.RetryPolicy{Wait: time.Millisecond},
	})
	must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	return server{s, k}
}

// Two servers on one log: while one drives a run the other does not, although
// it is told of the run all the time. When the first one is cut off from the
// log in the middle, the other one goes on, and nothing happens twice.
func TestTwoServers_neverDriveTogether(t *testing.T) {
	url, _ := storetest.External(t)
	w := newWorld(t)
	o := order{Tenant: "t", Plot: plot{Steps: 120}}
	a, b := w.server(o, url, 1), w.server(o, url, 2)
	run, err := a.k.Start(t.Context(), o.Tenant, runs.Start{Input: []llm.Block{llm.Text("Do it.")}})
	must(t, err)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for now := run; now.Steps < 20; now, err = a.k.Get(t.Context(), o.Tenant, run.ID) {
		must(t, err)
		if now.State.Final() {
			t.Fatalf("it ended too early: %+v", now)
		}
		if now.Steps > 0 { // before that the second one may well be the first to claim it
			_, err := b.k.Resume(t.Context(), o.Tenant, run.ID, thread.Budget{}, "anna") // wakes it there
			must(t, err)
		}
		<-tick.C
	}
	w.guest.mu.Lock()
	for _, n := range []string{"2 "} {
		for attempt := range w.guest.attempts {
			if attempt[:2] == n {
				t.Errorf("the second server ran %s while the first one drove", attempt)
			}
		}
	}
	w.guest.mu.Unlock()
	must(t, a.s.Close()) // its supervisor does not know yet
	began := time.Now()
	late, cancel := patience.Context(t.Context(), 50*time.Second)
	defer cancel()
	for now := run; !now.State.Final(); now, err = b.k.Get(t.Context(), o.Tenant, run.ID) {
		must(t, err)
		select {
		case <-tick.C:
		case <-late.Done():
			t.Fatalf("nobody goes on: %+v", now)
		}
	}
	t.Logf("the other server had it done %v after the first one was cut off", time.Since(began).Round(time.Millisecond))
	l, err := b.s.Threads().Log(t.Context(), o.Tenant)
	must(t, err)
	var events []thread.Event
	claims := map[string]int{} // by process
	for e, err := range l.Load(t.Context(), run.Thread, 1) {
		must(t, err)
		events = append(events, e)
		if claimed, is := e.Body.(thread.Claimed); is {
			claims[claimed.Node]++
		}
	}
	must(t, thread.Check(events))
	if len(claims) != 2 || slices.Max(slices.Collect(maps.Values(claims))) != 1 {
		t.Errorf("it was claimed by %v", claims)
	}
	w.story(o, run.Thread, events)
	w.files(o, b.s)
}
