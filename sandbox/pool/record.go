package pool

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Prefix is what the registry's keys of members begin with.
const Prefix = "pool/"

const (
	recordVersion  = 1
	recordBytesMax = 16 << 10
	writeTimeout   = 15 * time.Second
)

// state of a member, in the registry before it is true on the host.
type state string

const (
	making  state = "making"  // after a crash: destroyed
	warm    state = "warm"    // after a crash: attached again, if it is whole
	claimed state = "claimed" // after a crash: the sandbox's if there is one that names it, else destroyed
	ending  state = "ending"  // after a crash: destroyed
)

// record is what the registry keeps of a member.
type record struct {
	V      int        `json:"v"`
	Node   string     `json:"node"`
	ID     sandbox.ID `json:"id"`
	Shape  Shape      `json:"shape"`
	State  state      `json:"state"`
	By     sandbox.ID `json:"by,omitempty"` // the sandbox that has claimed it
	MadeAt time.Time  `json:"made_at"`
	// From is the snapshot that it was made from, whose files it needs.
	From sandbox.SnapshotID `json:"from,omitempty"`
	// Begun is the setting in which what the template is for was started; "" = it was not.
	Begun string `json:"begun,omitempty"`
}

func keyOf(id sandbox.ID) string { return Prefix + string(id) }

func decode(key string, value []byte) (record, error) {
	var r record
	if len(value) > recordBytesMax {
		return r, errs.New(errs.Corrupt, "the record %.64q is too large", key)
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record %.64q cannot be read", key)
	}
	if _, err := sandbox.ParseID(string(r.ID)); err != nil || r.V != recordVersion || keyOf(r.ID) != key {
		return r, errs.New(errs.Corrupt, "the record %.64q is of version %d or misplaced", key, r.V).
			WithHint("a newer skete may have written it")
	}
	return r, nil
}

// write stores a member's record under its revision, the first time if that
// is 0, and notes the new one. Conflict, Exists: another writer was faster.
//
// No other goroutine writes this member meanwhile.
func (p *Pool) write(ctx context.Context, m *member, r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var revision uint64
	if m.revision == 0 {
		revision, err = p.d.Registry.Create(ctx, keyOf(r.ID), value)
	} else {
		revision, err = p.d.Registry.Update(ctx, keyOf(r.ID), value, m.revision)
	}
	if err == nil {
		m.revision = revision
	}
	return err
}

// erase removes a member's record, whatever it says.
func (p *Pool) erase(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, revision, err := p.d.Registry.Get(ctx, keyOf(id))
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.d.Registry.Delete(ctx, keyOf(id), revision)
}
