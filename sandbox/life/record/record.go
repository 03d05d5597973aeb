// Package record keeps what the registry knows of one sandbox: what users see
// of it, and the journal of the change under way.
//
//	j := record.NewJournal(registry, node, id)
//	err := j.Create(ctx, rec)
//	err = j.Update(ctx, rec) // compare-and-set
//
// A Journal is for one goroutine at a time.
package record

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Prefix is what the registry's keys of sandboxes begin with.
const Prefix = "sandbox/"

const (
	version  = 1
	bytesMax = 60 << 10 // the store's bound less some room
)

// Plan is a change under way that the registry knows of before anything on
// the host is touched. A server that finds one after a crash finishes it.
type Plan string

// Plans.
const (
	None     Plan = ""
	Create   Plan = "create"   // ends Running; after a crash: nothing is left of it
	Start    Plan = "start"    // ends Running; after a crash: Failed, the workspace is kept
	Snapshot Plan = "snapshot" // ends as it began; after a crash: the machine runs on, or is lost
	Halt     Plan = "halt"     // ends in PlanState
	Destroy  Plan = "destroy"  // ends Destroyed
)

// Record is what the registry keeps of a sandbox.
type Record struct {
	V    int          `json:"v"`
	Node string       `json:"node"`
	Info sandbox.Info `json:"info"`
	Plan Plan         `json:"plan,omitempty"`
	// PlanState and PlanReason are where a halt or destroy leads.
	PlanState  sandbox.State `json:"plan_state,omitempty"`
	PlanReason string        `json:"plan_reason,omitempty"`
	// Request tells a repeated keyed create from a different one.
	Request string `json:"request,omitempty"`
	// Machine names all that the host holds for the sandbox, if it was given a
	// machine that was warm; "" = the sandbox's own ID.
	Machine sandbox.ID `json:"machine,omitempty"`
	// Held is the snapshot whose files the machine needs.
	Held sandbox.SnapshotID `json:"held,omitempty"`
}

// New returns the first record of a sandbox that is to be made.
func New(node, request string, info sandbox.Info) Record {
	return Record{V: version, Node: node, Plan: Create, Request: request, Info: info}
}

func keyOf(id sandbox.ID) string { return Prefix + string(id) }

// Encode writes a record. Invalid: it is too large.
func (r Record) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	if b.Len() > bytesMax {
		return nil, errs.New(errs.Invalid, "env and metadata: too large together (%d bytes of %d)", b.Len(), bytesMax)
	}
	return b.Bytes(), nil
}

// Decode reads a record at a key. Corrupt: it cannot be read.
func Decode(key string, value []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(value, &r); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record %.64q cannot be read", key)
	}
	if r.V != version || keyOf(r.Info.ID) != key {
		return r, errs.New(errs.Corrupt, "the record %.64q is of version %d or misplaced", key, r.V).
			WithHint("a newer skete may have written it")
	}
	return r, nil
}

// Host names all that the host holds for the sandbox.
func (r Record) Host() sandbox.ID {
	if r.Machine != "" {
		return r.Machine
	}
	return r.Info.ID
}

// Alive reports whether a machine should be there.
func (r Record) Alive() bool {
	return (r.Plan == None || r.Plan == Snapshot) && (r.Info.State == sandbox.Running || r.Info.State == sandbox.Paused)
}

// Fingerprint is equal for equal requests.
func Fingerprint(request any) string {
	b, _ := json.Marshal(request) // maps are sorted; no field can fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Journal writes one sandbox's record.
type Journal struct {
	r        sandbox.Registry
	node     string
	key      string
	revision uint64
}

// NewJournal returns the journal of a record that is not there yet.
func NewJournal(r sandbox.Registry, node string, id sandbox.ID) *Journal {
	return &Journal{r: r, node: node, key: keyOf(id)}
}

// OpenJournal returns the journal of a record that was read.
func OpenJournal(r sandbox.Registry, node string, id sandbox.ID, revision uint64) *Journal {
	return &Journal{r: r, node: node, key: keyOf(id), revision: revision}
}

// Stored reports whether the record is known to be there.
func (j *Journal) Stored() bool { return j.revision != 0 }

// Create writes the first record. Exists: there is one.
func (j *Journal) Create(ctx context.Context, rec Record) error {
	value, err := rec.Encode()
	if err == nil {
		j.revision, err = j.r.Create(ctx, j.key, value)
	}
	return err
}

// Update replaces the record. Conflict: it belongs to another node.
func (j *Journal) Update(ctx context.Context, rec Record) error {
	value, err := rec.Encode()
	if err != nil {
		return err
	}
	rev, err := j.r.Update(ctx, j.key, value, j.revision)
	if errs.Is(err, errs.Conflict) {
		rev, err = j.again(ctx, value)
	}
	if err == nil {
		j.revision = rev
	}
	return err
}

// again writes after a conflict. We are the only writer of our node's
// records, so what moved the revision is an earlier write of ours that landed
// although its answer was lost.
func (j *Journal) again(ctx context.Context, value []byte) (uint64, error) {
	stored, rev, err := j.r.Get(ctx, j.key)
	if err != nil {
		return 0, err
	}
	if rec, err := Decode(j.key, stored); err != nil || rec.Node != j.node {
		return 0, errs.Wrap(errs.Conflict, err, "the sandbox belongs to another server now")
	}
	return j.r.Update(ctx, j.key, value, rev)
}

// Delete removes the record; no error if there is none.
func (j *Journal) Delete(ctx context.Context) error {
	err := j.r.Delete(ctx, j.key, j.revision)
	if errs.Is(err, errs.Conflict) { // an earlier write of ours landed unseen
		return j.Erase(ctx)
	}
	return err
}

// Erase removes a record that may be there, whatever it says.
func (j *Journal) Erase(ctx context.Context) error {
	_, rev, err := j.r.Get(ctx, j.key)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return j.r.Delete(ctx, j.key, rev)
}
