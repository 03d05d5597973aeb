package envd

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
)

// Keys and bounds of records.
const (
	seedKey       = "seed"
	sandboxPrefix = "sandbox/"
	ownersMax     = 8
	cacheFor      = 5 * time.Second
	cacheMax      = 4096
	recordTries   = 8
)

// record is what is kept of a sandbox that has an access token.
type record struct {
	Tenant  string     `json:"tenant"`
	Sandbox sandbox.ID `json:"sandbox"`
	// Owners are the keys and logins that asked for the token, the newest last.
	Owners []owner `json:"owners"`
	// Template as the client named it; "" = the sandbox was not made by such a client.
	Template string `json:"template,omitempty"`
	// Internet is what the client said of it.
	Internet *bool    `json:"internet,omitempty"`
	Network  *network `json:"network,omitempty"`
}

// owner of an access token.
type owner struct {
	ID   string `json:"id"` // a key's, or a login's
	Name string `json:"name,omitempty"`
}

// records keeps them. Safe for concurrent use.
type records struct {
	kv kv.Store
	*recordCache
}

// recordCache is what is known of them here. A store has one server, so all is that is
// loaded once; what else removes records, such as the erasure of a tenant, leaves none
// but of sandboxes that are gone.
type recordCache struct {
	mu     sync.Mutex
	seed   []byte
	cache  map[sandbox.ID]cached
	all    map[sandbox.ID]record // once it is loaded
	loaded bool
}

type cached struct {
	record record
	at     time.Time
}

func newRecords(kv kv.Store) records {
	return records{kv, &recordCache{cache: map[sandbox.ID]cached{}, all: map[sandbox.ID]record{}}}
}

// get returns the record of a sandbox. NotFound: it has none.
func (r records) get(ctx context.Context, id sandbox.ID) (record, error) {
	r.mu.Lock()
	c, ok := r.cache[id]
	r.mu.Unlock()
	if ok && now().Sub(c.at) < cacheFor {
		return c.record, nil
	}
	rec, _, err := r.read(ctx, id)
	if err != nil {
		return record{}, err
	}
	r.keep(rec)
	return rec, nil
}

func (r records) read(ctx context.Context, id sandbox.ID) (rec record, revision uint64, err error) {
	value, revision, err := r.kv.Get(ctx, sandboxPrefix+string(id))
	if err != nil {
		return record{}, 0, err
	}
	if err := json.Unmarshal(value, &rec); err != nil || rec.Sandbox != id || rec.Tenant == "" {
		return record{}, 0, errs.New(errs.Corrupt, "the record of %s for clients of envd cannot be read", id)
	}
	return rec, revision, nil
}

func (r records) keep(rec record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cache) >= cacheMax {
		clear(r.cache)
	}
	r.cache[rec.Sandbox] = cached{rec, now()}
	r.all[rec.Sandbox] = rec
}

func (r records) forget(id sandbox.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cache, id)
	delete(r.all, id)
}

// known lists all records. It reads the store once: who asks has shown nothing yet.
func (r records) known(ctx context.Context) ([]record, error) {
	r.mu.Lock()
	loaded := r.loaded
	r.mu.Unlock()
	if !loaded {
		var list []record
		if err := r.each(ctx, func(rec record) error { list = append(list, rec); return nil }); err != nil {
			return nil, err
		}
		r.mu.Lock()
		for _, rec := range list {
			if _, newer := r.all[rec.Sandbox]; !newer {
				r.all[rec.Sandbox] = rec
			}
		}
		r.loaded = true
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.all)), nil
}

// note keeps that an owner asked for the token of a sandbox; fresh is what a record
// that is made for it says.
func (r records) note(ctx context.Context, fresh record, by owner) (record, error) {
	for range recordTries {
		rec, revision, err := r.read(ctx, fresh.Sandbox)
		there := err == nil
		if err != nil && !errs.Is(err, errs.NotFound) {
			return record{}, err
		}
		if !there {
			rec = fresh
		}
		if n := len(rec.Owners); n > 0 && rec.Owners[n-1] == by {
			r.keep(rec)
			return rec, nil
		}
		rec.Owners = append(slices.DeleteFunc(slices.Clone(rec.Owners), func(o owner) bool { return o.ID == by.ID }), by)
		rec.Owners = rec.Owners[max(0, len(rec.Owners)-ownersMax):]
		value, err := json.Marshal(rec)
		if err != nil {
			return record{}, err
		}
		if there {
			_, err = r.kv.Update(ctx, sandboxPrefix+string(rec.Sandbox), value, revision)
		} else {
			_, err = r.kv.Create(ctx, sandboxPrefix+string(rec.Sandbox), value)
		}
		switch {
		case err == nil:
			r.keep(rec)
			return rec, nil
		case !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Exists):
			return record{}, err
		}
	}
	return record{}, errs.New(errs.Unavailable, "others ask for the token of %s at the same time", fresh.Sandbox)
}

// setNetwork keeps what a client says of the network from now on.
func (r records) setNetwork(ctx context.Context, id sandbox.ID, n *network) error {
	for range recordTries {
		rec, revision, err := r.read(ctx, id)
		if err != nil {
			return err
		}
		rec.Network, rec.Internet = n, n.AllowInternet
		value, err := json.Marshal(rec)
		if err == nil {
			_, err = r.kv.Update(ctx, sandboxPrefix+string(id), value, revision)
		}
		if err == nil {
			r.keep(rec)
			return nil
		}
		if !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return errs.New(errs.Unavailable, "others ask for the token of %s at the same time", id)
}

// remove forgets a sandbox.
func (r records) remove(ctx context.Context, id sandbox.ID) error {
	r.forget(id)
	_, revision, err := r.kv.Get(ctx, sandboxPrefix+string(id))
	if err == nil {
		err = r.kv.Delete(ctx, sandboxPrefix+string(id), revision)
	}
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Conflict) {
		return nil
	}
	return err
}

// sweep removes the records of sandboxes that are gone.
func (r records) sweep(ctx context.Context, gone func(tenant string, id sandbox.ID) bool, forget func(record) error) error {
	var all []record
	err := r.each(ctx, func(rec record) error {
		if gone(rec.Tenant, rec.Sandbox) {
			all = append(all, rec)
		}
		return nil
	})
	for _, rec := range all {
		if failed := forget(rec); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, r.remove(ctx, rec.Sandbox))
	}
	return err
}

func (r records) each(ctx context.Context, visit func(record) error) error {
	return r.kv.List(ctx, sandboxPrefix, func(_ string, value []byte, _ uint64) error {
		var rec record
		if json.Unmarshal(value, &rec) != nil || rec.Tenant == "" {
			return nil
		}
		return visit(rec)
	})
}

// token returns the access token of a sandbox.
func (r records) token(ctx context.Context, rec record) (string, error) {
	return r.derived(ctx, rec.Tenant, string(rec.Sandbox))
}

// traffic returns the token for ports of a sandbox.
func (r records) traffic(ctx context.Context, rec record) (string, error) {
	return r.derived(ctx, rec.Tenant, string(rec.Sandbox), "ports")
}

func (r records) derived(ctx context.Context, parts ...string) (string, error) {
	seed, err := r.secret(ctx)
	if err != nil {
		return "", err
	}
	m := hmac.New(sha256.New, seed)
	for _, part := range parts {
		m.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(m.Sum(nil)), nil
}

// secret is what all tokens are derived from. It is made when it is first needed.
func (r records) secret(ctx context.Context) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seed != nil {
		return r.seed, nil
	}
	seed, _, err := r.kv.Get(ctx, seedKey)
	if errs.Is(err, errs.NotFound) {
		seed = make([]byte, 32)
		_, _ = rand.Read(seed)                                                   // never fails, see crypto/rand
		if _, err = r.kv.Create(ctx, seedKey, seed); errs.Is(err, errs.Exists) { // another server was faster
			seed, _, err = r.kv.Get(ctx, seedKey)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(seed) != 32 {
		return nil, errs.New(errs.Corrupt, "the secret of access tokens has %d bytes", len(seed))
	}
	r.seed = seed
	return seed, nil
}

// tokenOK reports whether a token is that of the sandbox.
func (r records) tokenOK(ctx context.Context, rec record, token string) (bool, error) {
	want, err := r.token(ctx, rec)
	return err == nil && same(want, token), err
}

// trafficOK reports whether a token is the one for ports of the sandbox.
func (r records) trafficOK(ctx context.Context, rec record, token string) (bool, error) {
	want, err := r.traffic(ctx, rec)
	return err == nil && same(want, token), err
}

func same(want, token string) bool {
	return subtle.ConstantTimeCompare([]byte(want), []byte(token)) == 1
}

// signature signs the address of a file, as clients do it themselves: a hash that
// ends in the token.
func signature(path, operation, user, token, expires string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
