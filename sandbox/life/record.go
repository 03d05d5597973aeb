package life

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
)

// This file keeps what the registry knows of one sandbox: what users see
// of it, and the journal of the change under way.
//
// A journal is for one goroutine at a time.

// recordPrefix is what the registry's keys of sandboxes begin with.
const recordPrefix = "sandbox/"

const (
	recordVersion  = 1
	recordBytesMax = 60 << 10 // the store's bound less some room
)

// plan is a change under way that the registry knows of before anything on
// the host is touched. A server that finds one after a crash finishes it.
type plan string

// Plans.
const (
	planNone     plan = ""
	planCreate   plan = "create"   // ends Running; after a crash: nothing is left of it
	planStart    plan = "start"    // ends Running; after a crash: Failed, the workspace is kept
	planSnapshot plan = "snapshot" // ends as it began; after a crash: the machine runs on, or is lost
	planHalt     plan = "halt"     // ends in PlanState
	planDestroy  plan = "destroy"  // ends Destroyed
)

// registryRecord is what the registry keeps of a sandbox.
type registryRecord struct {
	V    int          `json:"v"`
	Node string       `json:"node"`
	Info sandbox.Info `json:"info"`
	Plan plan         `json:"plan,omitempty"`
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

// newRecord returns the first record of a sandbox that is to be made.
func newRecord(node, request string, info sandbox.Info) registryRecord {
	return registryRecord{V: recordVersion, Node: node, Plan: planCreate, Request: request, Info: info}
}

func recordKey(id sandbox.ID) string { return recordPrefix + string(id) }

// Encode writes a record. Invalid: it is too large.
func (r registryRecord) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	if b.Len() > recordBytesMax {
		return nil, errs.New(errs.Invalid, "env and metadata: too large together (%d bytes of %d)", b.Len(), recordBytesMax)
	}
	return b.Bytes(), nil
}

// decodeRecord reads a record at a key. Corrupt: it cannot be read.
func decodeRecord(key string, value []byte) (registryRecord, error) {
	var r registryRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record %.64q cannot be read", key)
	}
	if r.V != recordVersion || recordKey(r.Info.ID) != key {
		return r, errs.New(errs.Corrupt, "the record %.64q is of version %d or misplaced", key, r.V).
			WithHint("a newer skete may have written it")
	}
	return r, nil
}

// Host names all that the host holds for the sandbox.
func (r registryRecord) Host() sandbox.ID {
	if r.Machine != "" {
		return r.Machine
	}
	return r.Info.ID
}

// Alive reports whether a machine should be there.
func (r registryRecord) Alive() bool {
	return (r.Plan == planNone || r.Plan == planSnapshot) && (r.Info.State == sandbox.Running || r.Info.State == sandbox.Paused)
}

// requestFingerprint is equal for equal requests.
func requestFingerprint(request any) string {
	b, _ := json.Marshal(request) // maps are sorted; no field can fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// journal writes one sandbox's record.
type journal struct {
	r        kv.Store
	node     string
	key      string
	revision uint64
}

// newJournal returns the journal of a record that is not there yet.
func newJournal(r kv.Store, node string, id sandbox.ID) *journal {
	return &journal{r: r, node: node, key: recordKey(id)}
}

// openJournal returns the journal of a record that was read.
func openJournal(r kv.Store, node string, id sandbox.ID, revision uint64) *journal {
	return &journal{r: r, node: node, key: recordKey(id), revision: revision}
}

// Stored reports whether the record is known to be there.
func (j *journal) Stored() bool { return j.revision != 0 }

// Create writes the first record. Exists: there is one.
func (j *journal) Create(ctx context.Context, rec registryRecord) error {
	value, err := rec.Encode()
	if err == nil {
		j.revision, err = j.r.Create(ctx, j.key, value)
	}
	return err
}

// Update replaces the record. Conflict: it belongs to another node.
func (j *journal) Update(ctx context.Context, rec registryRecord) error {
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
func (j *journal) again(ctx context.Context, value []byte) (uint64, error) {
	stored, rev, err := j.r.Get(ctx, j.key)
	if err != nil {
		return 0, err
	}
	if rec, err := decodeRecord(j.key, stored); err != nil || rec.Node != j.node {
		return 0, errs.Wrap(errs.Conflict, err, "the sandbox belongs to another server now")
	}
	return j.r.Update(ctx, j.key, value, rev)
}

// Delete removes the record; no error if there is none.
func (j *journal) Delete(ctx context.Context) error {
	err := j.r.Delete(ctx, j.key, j.revision)
	if errs.Is(err, errs.Conflict) { // an earlier write of ours landed unseen
		return j.Erase(ctx)
	}
	return err
}

// Erase removes a record that may be there, whatever it says.
func (j *journal) Erase(ctx context.Context) error {
	_, rev, err := j.r.Get(ctx, j.key)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return j.r.Delete(ctx, j.key, rev)
}
