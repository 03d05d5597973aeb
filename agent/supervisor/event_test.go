package supervisor_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// A run is told from its start to its end, without what it said; with its thread
// its events go.
func TestEvents_ofARun(t *testing.T) {
	h := newHouse(t)
	log := eventtest.NewMemory()
	h.events = log
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) {
		return respond(llm.Text("the secret word"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("say it")})
	must(t, err)
	r := eventtest.Read(t, log, tenant, event.Query{From: 1})
	last := uint64(0)
	for state := ""; !thread.RunState(state).Final(); {
		e := r.Next()
		if state = e.State; e.ID != string(run.ID) || e.Revision <= last || e.Node != "n" || strings.Contains(string(e.Data), "secret") {
			t.Fatalf("behind revision %d: %+v %s", last, e, e.Data)
		}
		var told runs.Run
		must(t, json.Unmarshal(e.Data, &told))
		if told.Thread != run.Thread || string(told.State) != state {
			t.Errorf("%+v", told)
		}
		last = e.Revision
	}
	await(t, k, run.ID, over)
	must(t, k.Delete(t.Context(), tenant, run.Thread))
	must(t, log.Newest(t.Context(), event.Run, func(e event.Event) error {
		t.Errorf("after the thread is deleted there is %+v", e)
		return nil
	}))
}

// What a crash kept from being told is told by the next server, once; not what
// ended so long ago that its events have gone.
func TestEvents_lostInACrash(t *testing.T) {
	h := newHouse(t)
	m, log := kvtest.NewMemory(), eventtest.NewMemory()
	h.records, h.events = m, log
	ended := func(n int, ago time.Duration) runs.Run {
		run := elsewhere(tenant, n, thread.RunSucceeded)
		run.Node, run.Ended = "n", time.Now().Add(-ago)
		return run
	}
	lost, old, far, told := ended(1, time.Hour), ended(2, 2*event.Kept), elsewhere(tenant, 3, thread.RunSucceeded), ended(4, time.Hour)
	for _, run := range []runs.Run{lost, old, far, told} {
		write(t, m, run)
	}
	_, revision, err := m.Get(t.Context(), "run/"+tenant+"/"+string(told.ID))
	must(t, err)
	log.Append(event.Event{Tenant: tenant, Node: "n", Kind: event.Run, ID: string(told.ID), State: "succeeded", Revision: revision})
	log.Append(event.Event{Tenant: tenant, Node: "n", Kind: event.Run, ID: string(lost.ID), State: "running", Revision: 0})
	next, err := log.Next(t.Context())
	must(t, err)
	for range 2 {
		must(t, h.open(idle).Close())
	}
	log.Append(event.Event{Tenant: tenant, Kind: event.Run, ID: "end", State: "running", Revision: 1})
	r := eventtest.Read(t, log, tenant, event.Query{From: next})
	if e := r.Next(); e.ID != string(lost.ID) || e.State != "succeeded" {
		t.Errorf("told %+v, want the end of %s", e, lost.ID)
	}
	if e := r.Next(); e.ID != "end" {
		t.Errorf("told %+v too", e)
	}
}

// A log that does not answer keeps no server from starting.
func TestEvents_noLog(t *testing.T) {
	h := newHouse(t)
	h.events = brokenLog{eventtest.NewMemory()}
	must(t, h.open(idle).Close())
}

type brokenLog struct{ event.Log }

func (brokenLog) Newest(context.Context, string, func(event.Event) error) error {
	return errs.New(errs.Unavailable, "the events are away")
}
