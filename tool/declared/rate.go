package declared

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/tool"
)

// Bounds of rates.
const (
	countsMax = 64 // entries of a record
	triesMax  = 100
)

// RatesPrefix begins the keys of rates, before the tenant.
const RatesPrefix = "rate/"

// rates count calls in records, which all servers of a store share and which outlive them.
type rates struct {
	kv   kv.Store // nil = no call is counted
	mine keylock.Locks[string]
}

// counted are calls at a time, or until then.
type counted struct {
	At int64  `json:"at"` // Unix time in ms
	N  int    `json:"n"`
	ID string `json:"id,omitempty"` // of the call, if it is one
}

// take counts a call before it is made, or says how long it has to wait. One that goes on
// after a crash was counted when it began, unless the crash came before; it never waits.
func (r *rates) take(ctx context.Context, tenant, name string, limit Rate, req tool.Request, now time.Time) (wait time.Duration, err error) {
	if limit.Calls == 0 || r.kv == nil {
		return 0, nil
	}
	key := RatesPrefix + tenant + "/" + name
	defer r.mine.Lock(key)()
	for range triesMax {
		wait, err = r.try(ctx, key, limit, req, now)
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Exists) { // another server counts too
			return wait, err
		}
	}
	return 0, err
}

func (r *rates) try(ctx context.Context, key string, limit Rate, req tool.Request, now time.Time) (time.Duration, error) {
	value, revision, err := r.kv.Get(ctx, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return 0, err
	}
	list := live(value, now.Add(-limit.Per), now)
	id := short(req.Key)
	if req.Again && slices.ContainsFunc(list, func(c counted) bool { return c.ID == id }) {
		return 0, nil
	}
	if free := freeAt(list, limit); !req.Again && free > 0 {
		return max(time.UnixMilli(free).Add(limit.Per).Sub(now), time.Second), nil
	}
	value, err = json.Marshal(joined(append(list, counted{At: now.UnixMilli(), N: 1, ID: id})))
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		_, err = r.kv.Create(ctx, key, value)
	} else {
		_, err = r.kv.Update(ctx, key, value, revision)
	}
	return 0, err
}

// live are the calls of a record that count. A record that cannot be read counts none: it is
// of another version. What a clock that was set back has left in the future counts from now.
func live(value []byte, from, now time.Time) (list []counted) {
	var all []counted
	if json.Unmarshal(value, &all) != nil {
		return nil
	}
	for _, c := range all {
		c.At = min(c.At, now.UnixMilli())
		if c.N > 0 && c.At > from.UnixMilli() {
			list = append(list, c)
		}
	}
	return list
}

// freeAt is the time of the calls that have to be over before another one is made; 0 = it may
// be made now.
func freeAt(list []counted, limit Rate) int64 {
	n := 0
	for _, c := range slices.Backward(list) { // the newest first
		if n += c.N; n >= limit.Calls {
			return c.At
		}
	}
	return 0
}

// joined is a list that is not too long: calls that are close to each other count until the
// last of them does not, so that none is made too early.
func joined(list []counted) []counted {
	for len(list) > countsMax {
		at := 1
		for i := 2; i < len(list)-1; i++ { // the newest one keeps its ID
			if list[i].At-list[i-1].At < list[at].At-list[at-1].At {
				at = i
			}
		}
		list[at] = counted{At: list[at].At, N: list[at].N + list[at-1].N}
		list = slices.Delete(list, at-1, at)
	}
	return list
}
