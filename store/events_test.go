package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/store"
)

var _ event.Log = (*store.Events)(nil)

func TestEvents(t *testing.T) {
	eventtest.Suite(t, func(t *testing.T) event.Log { return open(t, store.Config{}).Events() })
}

// What was appended when a server stops is there for the next, under its number,
// and a reader goes on where it was.
func TestEvents_overARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	const n = 100
	for i := range uint64(n) {
		s.Events().Append(event.Event{Tenant: "t", Kind: event.Run, ID: fmt.Sprint("r", i), State: "running", Revision: i + 1})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, store.Config{Dir: dir})
	r := eventtest.Read(t, s.Events(), "t", event.Query{From: 1})
	var last uint64
	for i := range uint64(n) {
		e := r.Next()
		if e.Revision != i+1 || e.Seq <= last {
			t.Fatalf("event %d is %+v, behind number %d", i, e, last)
		}
		last = e.Seq
	}
	s.Events().Append(event.Event{Tenant: "t", Kind: event.Run, ID: "more", State: "running", Revision: n + 1})
	if e := r.Next(); e.Seq <= last || e.ID != "more" {
		t.Errorf("after the restart: %+v", e)
	}
}

// Of one thing that changes without end the newest events are kept, and others'
// are not pushed out.
func TestEvents_oneThingIsBounded(t *testing.T) {
	l := open(t, store.Config{SyncInterval: time.Minute}).Events()
	l.Append(event.Event{Tenant: "t", Kind: event.Run, ID: "quiet", State: "running", Revision: 1})
	const n = 500
	for i := range uint64(n) {
		l.Append(event.Event{Tenant: "t", Kind: event.Run, ID: "busy", State: "running", Revision: i + 2})
	}
	r := eventtest.Read(t, l, "t", event.Query{From: 1})
	if e := r.Next(); e.ID != "quiet" {
		t.Errorf("the quiet one is gone: %+v", e)
	}
	first := r.Next()
	count := uint64(1)
	for e := first; e.Revision < n+1; count++ {
		e = r.Next()
	}
	if first.Revision == 2 || count > 100 {
		t.Errorf("%d events of one thing are kept, from revision %d on", count, first.Revision)
	}
}

// An event whose thing is too large says so without it.
func TestEvents_aLargeThing(t *testing.T) {
	l := open(t, store.Config{}).Events()
	large, err := json.Marshal(make([]byte, 200<<10))
	if err != nil {
		t.Fatal(err)
	}
	l.Append(event.Event{Tenant: "t", Kind: event.Run, ID: "r", State: "running", Revision: 1, Data: large})
	if e := eventtest.Read(t, l, "t", event.Query{From: 1}).Next(); e.Revision != 1 || e.Data != nil {
		t.Errorf("read %d bytes of revision %d", len(e.Data), e.Revision)
	}
}

func TestEvents_endWithTheStore(t *testing.T) {
	s := open(t, store.Config{})
	s.Events().Append(event.Event{Tenant: "t", Kind: event.Run, ID: "r", State: "running", Revision: 1})
	seen, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- s.Events().Follow(t.Context(), "t", event.Query{From: 1}, func(event.Event) error { seen <- struct{}{}; return nil })
	}()
	<-seen
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "follow", <-ended, errs.Unavailable)
	wantClass(t, "of a tenant without a name", s.Events().Follow(t.Context(), "", event.Query{}, nil), errs.Invalid)
}
