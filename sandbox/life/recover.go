package life

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/quota"
)

// RecordPrefix is what the registry's keys of sandboxes begin with.
const RecordPrefix = recordPrefix

// RecordID returns the sandbox of a key in the registry; false = it is no record
// of a sandbox.
func RecordID(key string) (sandbox.ID, bool) {
	id, ok := strings.CutPrefix(key, recordPrefix)
	return sandbox.ID(id), ok
}

// Peek reads the node that owns a record, and how its sandbox is.
func Peek(value []byte) (node string, info sandbox.Info, err error) {
	var r registryRecord
	err = json.Unmarshal(value, &r)
	return r.Node, r.Info, err
}

// Load makes the Sandbox of a stored record; nil = it is another node's.
// Nothing is done to the host before Recover. Corrupt: the record cannot be read.
func Load(d *Deps, key string, value []byte, revision uint64) (*Sandbox, error) {
	rec, err := decodeRecord(key, value)
	if err != nil || rec.Node != d.Node {
		return nil, err
	}
	k := keep(d, rec, openJournal(d.Registry, d.Node, rec.Info.ID, revision))
	if rec.Held != "" {
		d.Snapshots.Rehold(rec.Held, k.id)
	}
	if at := rec.Info.ExpiresAt; !at.IsZero() {
		// A wall clock that went backwards must not lengthen a life.
		k.deadline = time.Now().Add(min(at.Sub(d.now()), rec.Info.Spec.TTL))
	}
	if at := rec.Info.LastUsedAt; !rec.Alive() && !at.IsZero() {
		k.used = k.used.Add(-max(0, d.now().Sub(at))) // a restart is no use
	}
	k.written = rec.Alive() // the server before this one may have let calls in
	d.Quota.Set(k.tenant, k.id, quota.Of(rec.Info))
	return k, nil
}

// Sweep destroys the machine of a provider that the record does not want, unless
// something else is being done to the sandbox.
func (k *Sandbox) Sweep(ctx context.Context, p sandbox.Provider) error {
	stray := func() bool {
		s := k.rec.Info.State
		return k.rec.Plan == planNone && k.machine == nil && (s == sandbox.Stopped || s == sandbox.Failed || s == sandbox.Destroyed)
	}
	k.mu.Lock()
	is := stray() && k.work.Kind() == ""
	k.mu.Unlock()
	if !is {
		return nil
	}
	return k.work.Do(ctx, job{
		Kind: kindTidy, Mortal: true,
		Ready: func() error {
			if !stray() {
				return errDone
			}
			return nil
		},
		Run: func(ctx context.Context) error {
			k.d.Log.Info("removing a machine that its sandbox does not want", "id", k.id, "provider", p.Name())
			return p.Destroy(ctx, k.Host())
		},
	})
}
