// Package eventtest has what every event.Log must do, as a suite, and one that
// lives in memory for tests.
//
//	eventtest.Suite(t, func(t *testing.T) event.Log { return opened })
package eventtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/event"
)

// Suite runs the suite; open returns an empty log.
func Suite(t *testing.T, open func(t *testing.T) event.Log) {
	for name, test := range map[string]func(*testing.T, event.Log){
		"what was appended is read in its order": testOrder,
		"from now on":                            testFromNow,
		"go on behind a number":                  testResume,
		"a number of another log":                testResync,
		"tenants and kinds apart":                testApart,
		"the newest of each":                     testNewest,
		"forget":                                 testForget,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func sample(tenant, kind, id string, revision uint64) event.Event {
	return event.Event{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Tenant: tenant, Node: "one", Kind: kind, ID: id, State: "running", Revision: revision,
		Data: json.RawMessage(fmt.Sprintf(`{"id":%q,"n":%d}`, id, revision)),
	}
}

// Reader reads a tenant's events in the background.
type Reader struct {
	t testing.TB
	r *event.Reader
	// Stop ends it.
	Stop context.CancelFunc
}

// Read begins to follow; it ends with the test.
func Read(t testing.TB, log event.Log, tenant string, q event.Query) *Reader {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &Reader{t, event.NewReader(ctx, log, tenant, q), cancel}
}

// Next waits for the next event.
func (r *Reader) Next() event.Event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := r.r.Next(ctx)
	if err != nil {
		r.t.Fatal("no event comes:", err)
	}
	return e
}

// want wants the next event to be one, whatever its number, and returns that.
func (r *Reader) want(want event.Event) uint64 {
	r.t.Helper()
	got := r.Next()
	want.Seq = got.Seq
	if diff := cmp.Diff(want, got); diff != "" || got.Seq == 0 {
		r.t.Fatalf("number %d (-want +got)\n%s", got.Seq, diff)
	}
	return got.Seq
}

func testOrder(t *testing.T, log event.Log) {
	const n = 200
	r := Read(t, log, "t", event.Query{From: 1})
	for i := range uint64(n) {
		log.Append(sample("t", event.Sandbox, fmt.Sprint("s", i%7), i+1))
	}
	last := uint64(0)
	for i := range uint64(n) {
		seq := r.want(sample("t", event.Sandbox, fmt.Sprint("s", i%7), i+1))
		if seq <= last {
			t.Fatalf("number %d follows %d", seq, last)
		}
		last = seq
	}
	r.Stop()
	if _, err := r.r.Next(context.Background()); !errors.Is(err, context.Canceled) {
		t.Errorf("with its context it ends with %v", err)
	}
	enough := errors.New("enough")
	if err := log.Follow(t.Context(), "t", event.Query{From: 1}, func(event.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("with a failing visit: %v", err)
	}
}

func testFromNow(t *testing.T, log event.Log) {
	log.Append(sample("t", event.Sandbox, "s", 1))
	from, err := log.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log.Append(sample("t", event.Sandbox, "s", 2))
	r := Read(t, log, "t", event.Query{From: from})
	if seq := r.want(sample("t", event.Sandbox, "s", 2)); seq < from {
		t.Errorf("the event has number %d, before %d", seq, from)
	}
	log.Append(sample("t", event.Sandbox, "s", 3))
	r.want(sample("t", event.Sandbox, "s", 3))
}

func testResume(t *testing.T, log event.Log) {
	for i := range uint64(3) {
		log.Append(sample("t", event.Sandbox, "s", i+1))
	}
	r := Read(t, log, "t", event.Query{From: 1})
	r.want(sample("t", event.Sandbox, "s", 1))
	at := r.want(sample("t", event.Sandbox, "s", 2))
	r.want(sample("t", event.Sandbox, "s", 3))
	r.Stop()
	again := Read(t, log, "t", event.Query{From: at + 1})
	if seq := again.want(sample("t", event.Sandbox, "s", 3)); seq <= at {
		t.Errorf("it goes on at %d, behind %d", seq, at)
	}
	log.Append(sample("t", event.Sandbox, "s", 4))
	again.want(sample("t", event.Sandbox, "s", 4))
}

func testResync(t *testing.T, log event.Log) {
	log.Append(sample("t", event.Sandbox, "s", 1))
	last := Read(t, log, "t", event.Query{From: 1}).want(sample("t", event.Sandbox, "s", 1))
	r := Read(t, log, "t", event.Query{From: last + 1000})
	if e := r.Next(); !e.Resync || e.Seq != last {
		t.Errorf("from a number that is yet to come: %+v, want a resync at %d", e, last)
	}
	log.Append(sample("t", event.Sandbox, "s", 2))
	r.want(sample("t", event.Sandbox, "s", 2))
}

func testApart(t *testing.T, log event.Log) {
	mine, runs := Read(t, log, "t", event.Query{From: 1}), Read(t, log, "t", event.Query{From: 1, Kind: event.Run})
	log.Append(sample("other", event.Sandbox, "s", 1))
	log.Append(sample("t", event.Sandbox, "s", 2))
	log.Append(sample("other", event.Run, "r", 3))
	log.Append(sample("t", event.Run, "r", 4))
	mine.want(sample("t", event.Sandbox, "s", 2))
	mine.want(sample("t", event.Run, "r", 4))
	runs.want(sample("t", event.Run, "r", 4))
	odd := sample("a b.*/>", event.Run, "x.>", 5)
	weird := Read(t, log, odd.Tenant, event.Query{From: 1})
	log.Append(odd)
	weird.want(odd)
}

// newest returns the revisions of the newest events of a kind, by tenant and id.
func newest(t *testing.T, log event.Log, kind string) map[string]uint64 {
	t.Helper()
	got, last := map[string]uint64{}, uint64(0)
	err := log.Newest(t.Context(), kind, func(e event.Event) error {
		if e.Kind != kind || e.Seq <= last {
			t.Errorf("%+v behind number %d", e, last)
		}
		last = e.Seq
		got[e.Tenant+" "+e.ID] = e.Revision
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func testNewest(t *testing.T, log event.Log) {
	if got := newest(t, log, event.Sandbox); len(got) != 0 {
		t.Errorf("of an empty log: %v", got)
	}
	for _, e := range []event.Event{
		sample("t", event.Sandbox, "s", 3), sample("t", event.Sandbox, "s2", 4), sample("t", event.Sandbox, "s", 9),
		sample("t", event.Run, "s", 11), sample("other", event.Sandbox, "s", 13),
	} {
		log.Append(e) // Newest knows of it at once
	}
	want := map[string]uint64{"t s": 9, "t s2": 4, "other s": 13}
	if diff := cmp.Diff(want, newest(t, log, event.Sandbox)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	enough := errors.New("enough")
	if err := log.Newest(t.Context(), event.Sandbox, func(event.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("with a failing visit: %v", err)
	}
}

func testForget(t *testing.T, log event.Log) {
	for _, e := range []event.Event{
		sample("t", event.Sandbox, "s", 1), sample("t", event.Run, "s", 2), sample("t", event.Run, "r", 3), sample("other", event.Run, "r", 4),
	} {
		log.Append(e)
	}
	if err := log.Forget(t.Context(), "t", event.Run, "r"); err != nil {
		t.Fatal(err)
	}
	r := Read(t, log, "t", event.Query{From: 1})
	log.Append(sample("t", event.Run, "end", 5))
	for _, e := range []event.Event{sample("t", event.Sandbox, "s", 1), sample("t", event.Run, "s", 2), sample("t", event.Run, "end", 5)} {
		got := r.Next()
		if got.Resync { // a log may not know what is missing at its beginning
			got = r.Next()
		}
		if e.Seq = got.Seq; cmp.Diff(e, got) != "" {
			t.Errorf("read %+v, want %+v", got, e)
		}
	}
	r.Stop()
	if err := log.Forget(t.Context(), "t", "", ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]uint64{"other r": 4}, newest(t, log, event.Run)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := newest(t, log, event.Sandbox); len(got) != 0 {
		t.Errorf("sandboxes: %v", got)
	}
}
