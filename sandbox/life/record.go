package life

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Keys in the registry.
const (
	recordPrefix = "sandbox/"
)

const (
	recordVersion  = 1
	recordBytesMax = 60 << 10 // the store's bound less some room
)

// plan is a change under way that the registry knows of before anything on
// the host is touched. A server that finds one after a crash finishes it.
type plan string

const (
	planNone    plan = ""
	planCreate  plan = "create"  // ends Running; after a crash: nothing is left of it
	planStart   plan = "start"   // ends Running; after a crash: Failed, the workspace is kept
	planHalt    plan = "halt"    // ends in PlanState
	planDestroy plan = "destroy" // ends Destroyed
)

// record is what the registry keeps of a sandbox: what users see, and the
// journal.
type record struct {
	V    int          `json:"v"`
	Node string       `json:"node"`
	Info sandbox.Info `json:"info"`
	Plan plan         `json:"plan,omitempty"`
	// PlanState and PlanReason are where a halt or destroy leads.
	PlanState  sandbox.State `json:"plan_state,omitempty"`
	PlanReason string        `json:"plan_reason,omitempty"`
	// Request tells a repeated keyed create from a different one.
	Request string `json:"request,omitempty"`
}

func recordKey(id sandbox.ID) string { return recordPrefix + string(id) }

func (r record) encode() ([]byte, error) {
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

func decodeRecord(key string, value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record %.64q cannot be read", key)
	}
	if r.V != recordVersion || recordKey(r.Info.ID) != key {
		return r, errs.New(errs.Corrupt, "the record %.64q is of version %d or misplaced", key, r.V).
			WithHint("a newer skete may have written it")
	}
	return r, nil
}

// alive reports whether a machine should be there.
func (r record) alive() bool {
	return r.Plan == planNone && (r.Info.State == sandbox.Running || r.Info.State == sandbox.Paused)
}

// fingerprint is equal for equal specs.
func fingerprint(s sandbox.Spec) string {
	b, _ := json.Marshal(s) // maps are sorted; no field can fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
