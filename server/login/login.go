// Package login lets browsers in: a user shows an API key once, or comes from an
// identity provider, and gets a cookie.
//
//	store := login.New(login.Config{KV: kv, Keys: ring})
//	cookie, err := store.Start(ctx, identity)
//	id, err := store.Find(ctx, cookie.Value)   // Denied: not logged in, or not any more
//	err = store.End(ctx, cookie.Value)
//
// The cookie is 130 random bits; the store has its SHA-256. It is Secure,
// HttpOnly, SameSite=Strict and has the prefix __Host-, so no other host can
// read it or put one in its place; what may be done with it is up to auth. A
// login has its key's tenant and rights and ends with the key, by being ended,
// and after Lasts: at once in every server on the store, but for the key, which
// others notice within seconds.
//
// A Store is safe for concurrent use.
package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
)

const (
	prefix      = "login/"
	idPrefix    = "lgn_"
	idHexLen    = 20
	secretLen   = 26 // rand.Text
	secretChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	// Lasts is how long a login is good.
	Lasts = 12 * time.Hour
)

// Config of a Store.
type Config struct {
	KV   kv.Store
	Keys *key.Ring
}

// Store keeps logins.
type Store struct {
	kv   kv.Store
	keys *key.Ring
	now  func() time.Time
}

// New returns a Store.
func New(c Config) *Store { return &Store{kv: c.KV, keys: c.Keys, now: time.Now} }

// record is what is kept of a login.
type record struct {
	ID     string `json:"id"`
	Hash   string `json:"hash"` // SHA-256 of the cookie's value, hex
	Tenant string `json:"tenant"`
	// Key is the one that was shown; "" = an identity provider vouches, for Scopes.
	Key       string     `json:"key,omitempty"`
	Scopes    key.Scopes `json:"scopes,omitempty"`
	User      string     `json:"user"`
	Name      string     `json:"name,omitempty"` // of the user, for people; that of a key is looked up
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
}

// Start lets a browser in as id: by the key that is its owner, or, without a
// key, with id's own scopes.
func (d *Store) Start(ctx context.Context, id auth.Identity) (*http.Cookie, error) {
	if id.Tenant == "" || id.User == "" {
		return nil, errs.New(errs.Internal, "a login needs a tenant and a user")
	}
	secret := rand.Text()
	hash := hashOf(secret)
	rec := record{
		ID: idOf(hash), Hash: hash, Tenant: id.Tenant, User: id.User,
		CreatedAt: d.now().UTC(), ExpiresAt: d.now().Add(Lasts).UTC(),
	}
	if strings.HasPrefix(id.Owner, "key_") {
		rec.Key = id.Owner
	} else {
		rec.Scopes, rec.Name = id.Scopes, id.Name
		if id.Owner == "local" {
			rec.Name = id.Owner
		}
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	if _, err := d.kv.Create(ctx, prefix+rec.ID, data); err != nil {
		return nil, fmt.Errorf("store a login: %w", err)
	}
	return cookie(secret, int(Lasts/time.Second)), nil
}

// cookie is a login's; maxAge -1 takes it away.
func cookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: auth.LoginCookie, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

func errLoggedOut() error {
	return errs.New(errs.Denied, "you are not logged in, or not any more").WithHint("log in at /login")
}

// Find implements auth.Logins. A Store that is nil refuses every cookie.
func (d *Store) Find(ctx context.Context, value string) (auth.Identity, error) {
	if d == nil || len(value) != secretLen || strings.Trim(value, secretChars) != "" {
		return auth.Identity{}, errLoggedOut()
	}
	hash := hashOf(value)
	rec, _, err := d.get(ctx, idOf(hash))
	if err != nil {
		return auth.Identity{}, err
	}
	if subtle.ConstantTimeCompare([]byte(rec.Hash), []byte(hash)) != 1 {
		return auth.Identity{}, errLoggedOut()
	}
	return d.identity(ctx, rec)
}

// identity is who a login is of, now.
func (d *Store) identity(ctx context.Context, rec record) (auth.Identity, error) {
	if !d.now().Before(rec.ExpiresAt) {
		return auth.Identity{}, errLoggedOut()
	}
	id := auth.Identity{Tenant: rec.Tenant, Owner: rec.User, Scopes: rec.Scopes, Login: rec.ID, User: rec.User, Name: rec.Name}
	if rec.Key == "" {
		return id, nil
	}
	k, err := d.keys.Live(ctx, rec.Key)
	if errs.Is(err, errs.Denied) {
		return auth.Identity{}, errLoggedOut()
	}
	id.Owner, id.Scopes, id.Name = k.ID, k.Scopes, k.Name
	return id, err
}

func (d *Store) get(ctx context.Context, id string) (record, uint64, error) {
	data, rev, err := d.kv.Get(ctx, prefix+id)
	if errs.Is(err, errs.NotFound) {
		return record{}, 0, errLoggedOut()
	}
	if err != nil {
		return record{}, 0, err
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil || rec.ID != id {
		return record{}, 0, errs.Wrap(errs.Corrupt, err, "the record of login %.40q is damaged", id)
	}
	return rec, rev, nil
}

// Good says whether an owner of something that outlives a request, a preview's
// visit for one, is still let in: a login, a key, or the local socket's user.
// Denied: it is not.
func (d *Store) Good(ctx context.Context, owner string) error {
	switch {
	case owner == "local":
		return nil
	case strings.HasPrefix(owner, idPrefix):
		rec, _, err := d.get(ctx, owner)
		if err == nil {
			_, err = d.identity(ctx, rec)
		}
		return err
	}
	_, err := d.keys.Live(ctx, owner)
	return err
}

// End ends a login. One that is not there is no error.
func (d *Store) End(ctx context.Context, value string) error {
	_, rev, err := d.get(ctx, idOf(hashOf(value)))
	if errs.Is(err, errs.Denied) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.kv.Delete(ctx, prefix+idOf(hashOf(value)), rev)
}

// Sweep removes logins and codes that have expired; it is called now and then.
func (d *Store) Sweep(ctx context.Context) error {
	gone := map[string]uint64{}
	note := func(key string, value []byte, rev uint64) error {
		var rec struct {
			ExpiresAt time.Time `json:"expires_at"`
		}
		if json.Unmarshal(value, &rec) == nil && !d.now().Before(rec.ExpiresAt) {
			gone[key] = rev
		}
		return nil
	}
	err := errors.Join(d.kv.List(ctx, prefix, note), d.kv.List(ctx, codePrefix, note))
	for key, rev := range gone {
		if err == nil {
			err = d.kv.Delete(ctx, key, rev)
		}
	}
	if err != nil {
		return fmt.Errorf("sweep logins: %w", err)
	}
	return nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func idOf(hash string) string { return idPrefix + hash[:idHexLen] }
