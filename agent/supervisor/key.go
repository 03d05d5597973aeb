package supervisor

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// This file holds the keys of starts: the same key is the same run.

// ids are what a key stands for.
type ids struct {
	Run    thread.RunID `json:"run"`
	Thread thread.ID    `json:"thread"`
	Asked  string       `json:"asked"` // hash of what was asked for
}

// idsOf is what a start gets that no key stands for.
func idsOf(s runs.Start) ids {
	id := ids{Run: s.Run, Thread: s.Thread}
	if s.Run == "" {
		id.Run = thread.NewRunID()
	}
	switch {
	case s.Thread != "":
	case s.Run == "":
		id.Thread = thread.NewID()
	default: // a start that was cut short is made whole on the same thread
		id.Thread = thread.ID("thr_" + strings.TrimPrefix(string(s.Run), "run_"))
	}
	return id
}

func startKey(tenant, key string) string { return keyPrefix + tenant + "/" + runs.HashName(key) }

// keyed makes a call with a key stand for one pair of ids.
func (k *Supervisor) keyed(ctx context.Context, tenant string, s runs.Start, id ids) (ids, bool, error) {
	if s.Key == "" {
		return id, false, nil
	}
	id.Asked = s.Fingerprint()
	value, _ := json.Marshal(id)
	_, err := k.c.Records.Create(ctx, startKey(tenant, s.Key), value)
	if !errs.Is(err, errs.Exists) {
		return id, false, err
	}
	known, _, err := k.known(ctx, tenant, s.Key)
	if err != nil {
		return id, false, err
	}
	if known.Asked != id.Asked {
		return id, false, errs.New(errs.Conflict, "this key was used for another run")
	}
	return known, true, nil
}

// known returns what a key stands for, and the revision of its record. NotFound: for
// nothing.
func (k *Supervisor) known(ctx context.Context, tenant, key string) (id ids, revision uint64, err error) {
	value, revision, err := k.c.Records.Get(ctx, startKey(tenant, key))
	if err != nil {
		return id, 0, err
	}
	if err := json.Unmarshal(value, &id); err != nil {
		return id, 0, errs.Wrap(errs.Corrupt, err, "the record of a key cannot be read")
	}
	return id, revision, nil
}

// Keyed returns the run that a start with a key has begun. NotFound: there is none,
// or it was cut short before its first event: the same start makes it whole.
func (k *Supervisor) Keyed(ctx context.Context, tenant, key string) (runs.Run, error) {
	id, _, err := k.known(ctx, tenant, key)
	if err != nil {
		return runs.Run{}, err
	}
	return k.Begun(ctx, tenant, id.Run)
}

// Begun returns a run whose start was not cut short before its first event. NotFound:
// there is none; the same start makes it whole.
func (k *Supervisor) Begun(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error) {
	e, err := k.begun(ctx, tenant, id)
	if err == nil && e == nil {
		err = errs.New(errs.NotFound, "no run %.40s was begun", id)
	}
	return k.view(e), err
}

// ForgetKey removes a key whose start will not be repeated: from then on it would
// start another run. It is no error if there is none.
func (k *Supervisor) ForgetKey(ctx context.Context, tenant, key string) error {
	_, revision, err := k.known(ctx, tenant, key)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.c.Records.Delete(ctx, startKey(tenant, key), revision)
}
