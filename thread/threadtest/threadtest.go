// Package threadtest is the suite that every thread.Log and thread.Blobs
// passes.
//
//	threadtest.Suite(t, func(t *testing.T) threadtest.Store { … })
//
// The suite uses ids of its own, so one store may serve all of its tests.
package threadtest

import (
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// patience bounds every wait of the suite.
const patience = 30 * time.Second

// Store is what the suite tests.
type Store struct {
	// Log and Blobs return those of a tenant.
	Log   func(t *testing.T, tenant string) thread.Log
	Blobs func(t *testing.T, tenant string) thread.Blobs
	// Fail makes the next append of the tenant fail in a way; nil = the
	// implementation cannot.
	Fail func(t *testing.T, tenant string, f Fault)
}

// Fault is a way in which an append fails so that its outcome is not known.
type Fault string

// Faults.
const (
	Lost  Fault = "the append never arrives"
	Mute  Fault = "the append happens, its answer is lost"
	Later Fault = "the append arrives after the caller was told Unavailable"
)

// Suite runs all tests.
func Suite(t *testing.T, open func(t *testing.T) Store) {
	s := open(t)
	tests := []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"append numbers without gaps and tells the truth at once", appendNumbers},
		{"what Append hands back is what Load yields", appendSettles},
		{"the wrong end is a conflict and changes nothing", conflict},
		{"bounds", bounds},
		{"bad ids", badIDs},
		{"an append is whole or not at all", atomicity},
		{"of writers with the same idea of the end one wins", writers},
		{"faults never lose and never double", faults},
		{"load from anywhere", loadFrom},
		{"load can be left", loadLeft},
		{"10,000 events in order", huge},
		{"unknown events stay as they are", unknown},
		{"watch yields what was and what comes", watch},
		{"many watchers, some slow", watchers},
		{"watch ends with its context", watchEnds},
		{"watch of a deleted thread ends", watchDeleted},
		{"list", list},
		{"a deleted thread stays deleted", deleted},
		{"tenants never see each other", tenants},
		{"blobs", blobs},
		{"a cancelled context", cancelled},
	}
	for _, c := range tests {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) { c.run(t, s) })
	}
}

const tenant = "suite"

func text(s string) thread.Input {
	return thread.Input{From: "user", Blocks: []llm.Block{llm.Text(s)}}
}

func events(texts ...string) (es []thread.Event) {
	for _, s := range texts {
		es = append(es, thread.New("", text(s)))
	}
	return es
}

func opened(t *testing.T, log thread.Log, id thread.ID, texts ...string) uint64 {
	t.Helper()
	es := append([]thread.Event{thread.New("", thread.Opened{Agent: json.RawMessage(`{}`), Name: "a"})}, events(texts...)...)
	seq, err := log.Append(t.Context(), id, 0, es...)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(len(es)); seq != want {
		t.Fatalf("opened at %d, want %d", seq, want)
	}
	return seq
}

func collect(seq iter.Seq2[thread.Event, error]) (es []thread.Event, err error) {
	for e, err := range seq {
		if err != nil {
			return es, err
		}
		es = append(es, e)
	}
	return es, nil
}

// load reads a thread and checks its numbering.
func load(t *testing.T, log thread.Log, id thread.ID, from uint64) []thread.Event {
	t.Helper()
	es, err := collect(log.Load(t.Context(), id, from))
	if err != nil {
		t.Fatalf("load %s from %d: %v", id, from, err)
	}
	for i, e := range es {
		if want := max(from, 1) + uint64(i); e.Seq != want {
			t.Fatalf("load %s from %d: event %d has number %d", id, from, want, e.Seq)
		}
	}
	return es
}

// said returns the texts of the inputs.
func said(es []thread.Event) (texts []string) {
	for _, e := range es {
		if in, ok := e.Body.(thread.Input); ok {
			texts = append(texts, in.Blocks[0].Text)
		}
	}
	return texts
}

func wantSaid(t *testing.T, log thread.Log, id thread.ID, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, said(load(t, log, id, 1))); d != "" {
		t.Errorf("%s (-want +got):\n%s", id, d)
	}
}

func wantClass(t *testing.T, what string, err error, want errs.Class) {
	t.Helper()
	if errs.Of(err) != want {
		t.Errorf("%s: %v (class %q), want class %q", what, err, errs.Of(err), want)
	}
}
