// Package key keeps API keys: it makes them, checks them, revokes them.
//
//	ring := key.NewRing(kv)
//	secret, rec, err := ring.Create(ctx, key.Request{Name: "ci", Tenant: "default", Scopes: key.Scopes{key.Read}})
//	rec, err := ring.Check(ctx, secret) // Denied: unknown or revoked
//	err = ring.Revoke(ctx, "default", rec.ID)
//
// A key is "e2b_" and 40 hex digits: 160 random bits. It is kept as its
// SHA-256 and never in clear. A slow hash (bcrypt, argon2) protects secrets
// that people choose, by making each guess dear; 2^160 equally likely secrets
// need no such help, and a slow hash on every request would be a way to stop
// the server. The id is the head of the hash, so that a check is one lookup;
// it gives away 80 of 256 bits of the hash and nothing of the secret.
//
// A Ring is safe for concurrent use. Revoke takes effect at once in this
// process and within cacheFor in other processes on the same store.
package key

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// Scope is a right of a key.
type Scope string

const (
	// Read allows everything that changes nothing.
	Read Scope = "read"
	// Write allows to make, use and end sandboxes.
	Write Scope = "write"
	// Admin allows to manage keys and templates, of all tenants.
	Admin Scope = "admin"
	// RunsRead allows to watch runs of agents, and nothing else.
	RunsRead Scope = "runs:read"
	// RunsWrite allows to start, steer and end them, and to decide for people.
	RunsWrite Scope = "runs:write"
)

// all lists every scope.
var all = []Scope{Read, Write, Admin, RunsRead, RunsWrite}

// Scopes is a set of rights.
type Scopes []Scope

// Allow reports whether the set holds want. Admin includes the others, a right
// to write that to read, and Read and Write include those to runs.
func (s Scopes) Allow(want Scope) bool {
	has := func(scopes ...Scope) bool {
		return slices.ContainsFunc(scopes, func(one Scope) bool { return slices.Contains(s, one) })
	}
	if has(want, Admin) {
		return true
	}
	switch want {
	case Read, RunsWrite:
		return has(Write)
	case RunsRead:
		return has(Read, Write, RunsWrite)
	}
	return false
}

// DefaultTenant owns what is made through the unix socket.
const DefaultTenant = "default"

const (
	secretPrefix = "e2b_"
	secretBytes  = 20
	secretLen    = len(secretPrefix) + 2*secretBytes
	idPrefix     = "key_"
	idHexLen     = 20
	nameLenMax   = 64
	tenantLenMax = 32
	cacheFor     = 5 * time.Second
	cacheMax     = 4096
	// listMax bounds how many keys are looked at in one listing.
	listMax = 10000
)

// Secret is an API key in clear. It prints as ***.
type Secret string

func (Secret) String() string   { return "***" }
func (Secret) GoString() string { return "***" }

// MarshalJSON hides the secret; Reveal shows it.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// Reveal returns the text, for the one time that it is shown.
func (s Secret) Reveal() string { return string(s) }

// Record is what is kept of a key.
type Record struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Tenant    string    `json:"tenant"`
	Scopes    Scopes    `json:"scopes"`
	Hash      string    `json:"hash"` // SHA-256 of the secret, hex
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// prefix keeps the ring's records apart from others in the same kv.Store.
const prefix = "key/"

// Ring holds all keys of a server.
type Ring struct {
	kv  kv.Store
	now func() time.Time

	mu    sync.Mutex
	cache map[string]cached // by id
	// epoch grows with each revocation, so that a check that read the store
	// before it does not put the old record back into the cache.
	epoch uint64
}

type cached struct {
	rec   Record
	until time.Time
}

// NewRing returns a ring on kv.
func NewRing(kv kv.Store) *Ring {
	return &Ring{kv: kv, now: time.Now, cache: map[string]cached{}}
}

// Request asks for a key.
type Request struct {
	Name   string
	Tenant string
	Scopes Scopes // empty: Read and Write
}

// Create makes a key and returns its secret, this once.
func (r *Ring) Create(ctx context.Context, req Request) (Secret, Record, error) {
	if err := req.normalise(); err != nil {
		return "", Record{}, err
	}
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	secret := Secret(secretPrefix + hex.EncodeToString(b[:]))
	rec := Record{
		ID: idOf(hashOf(secret)), Name: req.Name, Tenant: req.Tenant, Scopes: req.Scopes,
		Hash: hashOf(secret), CreatedAt: r.now().UTC(),
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return "", Record{}, err
	}
	if _, err := r.kv.Create(ctx, prefix+rec.ID, data); err != nil {
		return "", Record{}, fmt.Errorf("create key: %w", err)
	}
	return secret, rec, nil
}

func (req *Request) normalise() error {
	if len(req.Scopes) == 0 {
		req.Scopes = Scopes{Read, Write}
	}
	for _, s := range req.Scopes {
		if !slices.Contains(all, s) {
			return errs.New(errs.Invalid, "%.40q is not a scope", string(s)).WithHint("scopes are read, write, admin, runs:read and runs:write")
		}
	}
	req.Scopes = slices.Compact(slices.Sorted(slices.Values(req.Scopes)))
	if req.Name == "" || len(req.Name) > nameLenMax || strings.ContainsFunc(req.Name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return errs.New(errs.Invalid, "a key's name has 1 to %d bytes and no control characters", nameLenMax)
	}
	if !TenantOK(req.Tenant) {
		return errs.New(errs.Invalid, "%.40q is not a tenant", req.Tenant).WithHint("1 to %d of a-z, 0-9 and hyphens", tenantLenMax)
	}
	return nil
}

// TenantOK reports whether s may name a tenant.
func TenantOK(s string) bool {
	if s == "" || len(s) > tenantLenMax || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// errUnknown is one error for malformed, unknown and revoked keys alike: a
// caller without a key learns nothing about keys.
func errUnknown() error {
	return errs.New(errs.Denied, "the API key is not valid").
		WithHint("give one in SKETE_KEY; `skete key create` on the server's machine makes one")
}

// Check returns the record of the key, or Denied when there is none or it is
// revoked. Any other error is the store's.
func (r *Ring) Check(ctx context.Context, secret Secret) (Record, error) {
	if !formOK(secret) {
		return Record{}, errUnknown()
	}
	hash := hashOf(secret)
	rec, err := r.lookup(ctx, idOf(hash))
	if errs.Is(err, errs.NotFound) {
		return Record{}, errUnknown()
	}
	if err != nil {
		return Record{}, err
	}
	if subtle.ConstantTimeCompare([]byte(rec.Hash), []byte(hash)) != 1 || !rec.RevokedAt.IsZero() {
		return Record{}, errUnknown()
	}
	return rec, nil
}

// Live returns the record of a key by its id, as Check does by its secret: it
// is for what was let in by the key and must end with it.
func (r *Ring) Live(ctx context.Context, id string) (Record, error) {
	if !idOK(id) {
		return Record{}, errUnknown()
	}
	rec, err := r.lookup(ctx, id)
	if errs.Is(err, errs.NotFound) || err == nil && !rec.RevokedAt.IsZero() {
		return Record{}, errUnknown()
	}
	return rec, err
}

// ScopeOK reports whether s is a right.
func ScopeOK(s Scope) bool { return slices.Contains(all, s) }

// Form reports whether s has the form of an API key.
func Form(s string) bool { return formOK(Secret(s)) }

func (r *Ring) lookup(ctx context.Context, id string) (Record, error) {
	r.mu.Lock()
	c, ok := r.cache[id]
	epoch := r.epoch
	r.mu.Unlock()
	if ok && r.now().Before(c.until) {
		return c.rec, nil
	}
	rec, _, err := r.get(ctx, id)
	if err != nil {
		return Record{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch != epoch {
		return rec, nil
	}
	if len(r.cache) >= cacheMax {
		clear(r.cache) // rare and cheap to fill again
	}
	r.cache[id] = cached{rec, r.now().Add(cacheFor)}
	return rec, nil
}

func (r *Ring) get(ctx context.Context, id string) (Record, uint64, error) {
	data, rev, err := r.kv.Get(ctx, prefix+id)
	if err != nil {
		return Record{}, 0, err
	}
	rec, err := parse(id, data)
	return rec, rev, err
}

func parse(id string, data []byte) (Record, error) {
	var rec Record
	if err := json.Unmarshal(data, &rec); err != nil || rec.ID != id {
		return Record{}, errs.Wrap(errs.Corrupt, err, "the record of key %.40q is damaged", id)
	}
	return rec, nil
}

// Revoke ends a key for ever. Revoking a revoked key is no error. NotFound:
// no such key in the tenant; an empty tenant means any.
func (r *Ring) Revoke(ctx context.Context, tenant, id string) (Record, error) {
	if !idOK(id) {
		return Record{}, errs.New(errs.Invalid, "%.40q is not a key id", id).WithHint("ids look like key_1a2b…; `skete key list` shows them")
	}
	for {
		rec, rev, err := r.get(ctx, id)
		if errs.Is(err, errs.NotFound) || err == nil && tenant != "" && rec.Tenant != tenant {
			return Record{}, errs.New(errs.NotFound, "no key %s", id)
		}
		if err != nil {
			return Record{}, err
		}
		if rec.RevokedAt.IsZero() {
			rec.RevokedAt = r.now().UTC()
			data, err := json.Marshal(rec)
			if err != nil {
				return Record{}, err
			}
			_, err = r.kv.Update(ctx, prefix+id, data, rev)
			if errs.Is(err, errs.Conflict) {
				continue // another call revoked it: read again
			}
			if err != nil {
				return Record{}, fmt.Errorf("revoke key %s: %w", id, err)
			}
		}
		r.mu.Lock()
		r.epoch++
		delete(r.cache, id)
		r.mu.Unlock()
		return rec, nil
	}
}

// List returns the tenant's keys, revoked ones too, oldest first; an empty
// tenant means all.
func (r *Ring) List(ctx context.Context, tenant string) ([]Record, error) {
	recs := []Record{}
	err := r.kv.List(ctx, prefix, func(key string, value []byte, _ uint64) error {
		rec, err := parse(strings.TrimPrefix(key, prefix), value)
		if err != nil {
			return err
		}
		if tenant == "" || rec.Tenant == tenant {
			recs = append(recs, rec)
		}
		if len(recs) > listMax {
			return errs.New(errs.Limit, "there are more than %d keys", listMax)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	slices.SortFunc(recs, func(a, b Record) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return recs, nil
}

// EnsureAdmin makes an admin key of the default tenant if there is no live
// admin key, and returns its secret then.
func (r *Ring) EnsureAdmin(ctx context.Context) (secret Secret, created bool, err error) {
	recs, err := r.List(ctx, "")
	if err != nil {
		return "", false, err
	}
	for _, rec := range recs {
		if rec.RevokedAt.IsZero() && rec.Scopes.Allow(Admin) {
			return "", false, nil
		}
	}
	secret, _, err = r.Create(ctx, Request{Name: "first admin key", Tenant: DefaultTenant, Scopes: Scopes{Admin}})
	return secret, err == nil, err
}

func hashOf(s Secret) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func idOf(hash string) string { return idPrefix + hash[:idHexLen] }

func formOK(s Secret) bool {
	return len(s) == secretLen && strings.HasPrefix(string(s), secretPrefix) &&
		strings.Trim(string(s[len(secretPrefix):]), "0123456789abcdef") == ""
}

func idOK(id string) bool {
	return len(id) == len(idPrefix)+idHexLen && strings.HasPrefix(id, idPrefix) &&
		strings.Trim(id[len(idPrefix):], "0123456789abcdef") == ""
}
