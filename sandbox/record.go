package sandbox

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/skete-dev/skete/errs"
)

// Keys in the registry.
const (
	recordPrefix = "sandbox/"
	secretKey    = "secret"
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
	V    int    `json:"v"`
	Node string `json:"node"`
	Info Info   `json:"info"`
	Plan plan   `json:"plan,omitempty"`
	// PlanState and PlanReason are where a halt or destroy leads.
	PlanState  State  `json:"plan_state,omitempty"`
	PlanReason string `json:"plan_reason,omitempty"`
	// Request tells a repeated keyed create from a different one.
	Request string `json:"request,omitempty"`
}

func recordKey(id ID) string { return recordPrefix + string(id) }

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
	return r.Plan == planNone && (r.Info.State == Running || r.Info.State == Paused)
}

// clone shares no map with i, so that a caller may change what it got.
func (i Info) clone() Info {
	i.Spec.Env = maps.Clone(i.Spec.Env)
	i.Spec.Metadata = maps.Clone(i.Spec.Metadata)
	i.Notes = slices.Clone(i.Notes)
	return i
}

// fingerprint is equal for equal requests.
func (s Spec) fingerprint() string {
	b, _ := json.Marshal(s) // maps are sorted; no field can fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// keyedID derives an ID from a tenant's idempotency key: the same for ever,
// and not to be guessed by who knows the key but not the secret.
func keyedID(secret []byte, tenant, key string) ID {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(tenant))
	h.Write([]byte{0})
	h.Write([]byte(key))
	return idOf(h.Sum(nil))
}
