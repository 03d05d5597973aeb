// Package event is what happened to the sandboxes, workspaces and runs of a server, in one
// durable sequence that others may follow: users, pages, workflows.
//
//	log.Append(event.Event{Tenant: "t", Kind: event.Sandbox, ID: "sbx_…", State: "running", Revision: 17, Data: json})
//	err := log.Follow(ctx, "t", event.Query{From: last + 1}, func(e event.Event) error { … })
//
// store.Events is the Log of a server; eventtest has the suite, and one in memory
// for tests.
package event

import (
	"context"
	"encoding/json"
	"time"
)

// Kept is for how long events are kept.
const Kept = 7 * 24 * time.Hour

// Kinds of what events are about.
const (
	Sandbox   = "sandbox"
	Run       = "run"
	Workspace = "workspace" // of which each revision is told; ID is that of its sandbox, Revision the number
	Network   = "network"   // of a sandbox, with its ID: a connection or a request that was allowed or refused
	Models    = "models"    // of a sandbox, with its ID: a call of a program in it to a model is over
)

// Event tells how something is since a moment: it carries all of it, so that the
// newest event is enough to know it.
type Event struct {
	// Seq is its place in the log, from 1 on. Numbers grow, with gaps, over
	// restarts too.
	Seq    uint64
	Time   time.Time
	Tenant string
	Node   string // that owns the thing
	Kind   string // Sandbox, …
	ID     string // of the sandbox, the run, …
	State  string // that it is in: "running", …; of a workspace what happened to it
	// Revision is that of its record: of two events of one thing the one with the
	// larger revision is the newer one.
	Revision uint64
	// Data is the thing itself, as its package writes it.
	Data json.RawMessage
	// Resync: events before this one are gone, or the number asked for is of
	// another log: list again. All but Seq and Time is empty.
	Resync bool
}

// Type is what programs tell events apart by: "sandbox.running".
func (e Event) Type() string { return e.Kind + "." + e.State }

// Query chooses events.
type Query struct {
	// From is the first sequence number to read; 0 = of what is appended from now on.
	From uint64
	Kind string // "" = every kind
}

// Log keeps events of all tenants: the newest of each thing for days, some of the
// earlier ones. Safe for concurrent use.
type Log interface {
	// Append adds an event to be stored, after those of earlier calls, and does
	// not wait for it. Seq is ignored. What a crash loses, and what cannot be
	// stored for long, is told anew by its owner: see Newest.
	Append(e Event)
	// Newest visits the newest event of each thing of a kind, of all tenants, in
	// the order of their numbers: so that an owner finds what was not told.
	Newest(ctx context.Context, kind string, visit func(Event) error) error
	// Next returns the number from which on events have their place that are
	// appended from now on.
	Next(ctx context.Context) (uint64, error)
	// Follow visits a tenant's events, those that are there and those that come,
	// in their order. What was appended before the call is not "from now". It
	// returns the error of visit or of ctx. Unavailable: the log was closed.
	Follow(ctx context.Context, tenant string, q Query, visit func(Event) error) error
	// Forget removes all events of a thing, or with an empty id and kind all of a
	// tenant.
	Forget(ctx context.Context, tenant, kind, id string) error
}

// Reader reads a log one event at a time. It is for one goroutine at a time.
type Reader struct {
	events chan Event
	ended  chan error
}

// NewReader begins to follow; it ends with ctx.
func NewReader(ctx context.Context, log Log, tenant string, q Query) *Reader {
	r := &Reader{make(chan Event), make(chan error, 1)}
	go func() {
		r.ended <- log.Follow(ctx, tenant, q, func(e Event) error {
			select {
			case r.events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return r
}

// Next waits for the next event; an error is that of Follow, or of ctx.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	select {
	case e := <-r.events:
		return e, nil
	case err := <-r.ended:
		r.ended <- err // for the next call
		return Event{}, err
	case <-ctx.Done():
		return Event{}, ctx.Err()
	}
}

// Discard keeps nothing: of a server whose events nothing follows.
type Discard struct{}

// Append implements Log.
func (Discard) Append(Event) {}

// Newest implements Log.
func (Discard) Newest(context.Context, string, func(Event) error) error { return nil }

// Next implements Log.
func (Discard) Next(context.Context) (uint64, error) { return 1, nil }

// Follow implements Log.
func (Discard) Follow(ctx context.Context, _ string, _ Query, _ func(Event) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Forget implements Log.
func (Discard) Forget(context.Context, string, string, string) error { return nil }
