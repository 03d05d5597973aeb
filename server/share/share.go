// Package share shows runs to people who have no key: at an address with a secret in it, one
// run can be read, until the address expires or is taken back.
//
//	s := share.New(kv)
//	token, rec, err := s.Create(ctx, share.Record{Tenant: tenant, Run: run, By: by}, 0)
//	rec, err = s.Find(ctx, token)              // NotFound: there is none, or not any more
//	err = s.End(ctx, tenant, run, rec.ID)
//	share.Register(table, share.Config{Shares: s, Runs: stories})
//
// What is shown is a page without scripts, made anew from the run's log for each reader: what
// was said and done, each text and output by its beginning. It is no door: the secret admits to no
// route of the API.
//
// A secret has 130 random bits and is kept as its SHA-256 alone; see package key for why that
// needs no slow hash. All methods are safe for concurrent use.
package share

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/thread"
)

const (
	prefix      = "share/"
	idPrefix    = "shr_"
	idHexLen    = 20
	secretLen   = 26 // of rand.Text
	secretChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

	lastsDefault = 7 * 24 * time.Hour
	lastsMin     = time.Minute
	lastsMax     = 90 * 24 * time.Hour
	// liveMax bounds how many of a tenant can be read at one time.
	liveMax = 1000
)

// Record is what is kept of a share.
type Record struct {
	ID        string       `json:"id"`
	Hash      string       `json:"hash"` // SHA-256 of the secret, hex
	Tenant    string       `json:"tenant"`
	Run       thread.RunID `json:"run"`
	By        string       `json:"by"`
	ByName    string       `json:"by_name,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	ExpiresAt time.Time    `json:"expires_at"`
}

// Store keeps shares.
type Store struct {
	kv  kv.Store
	now func() time.Time
}

// New returns a Store on kv, whose keys that begin with "share/" are its own.
func New(kv kv.Store) *Store { return &Store{kv: kv, now: time.Now} }

// Create shares a run of a tenant, which the caller may see; lasts 0 = 7 days. Of rec, Tenant, Run,
// By and ByName count. The secret is returned this once. Limit: the tenant has too many.
func (s *Store) Create(ctx context.Context, rec Record, lasts time.Duration) (secret string, made Record, err error) {
	lasts = cmp.Or(lasts, lastsDefault)
	if lasts < lastsMin || lasts > lastsMax {
		return "", made, errs.New(errs.Invalid, "a share lasts from a minute to 90 days, not %s", lasts)
	}
	n := 0
	if err := s.each(ctx, func(r Record, _ uint64) {
		if r.Tenant == rec.Tenant && s.now().Before(r.ExpiresAt) {
			n++
		}
	}); err != nil {
		return "", made, err
	}
	if n >= liveMax {
		return "", made, errs.New(errs.Limit, "%d runs are shared already", n).WithHint("end some of these shares first")
	}
	secret = rand.Text()
	rec.Hash = hashOf(secret)
	rec.ID = idOf(rec.Hash)
	rec.CreatedAt = s.now().UTC().Truncate(time.Microsecond)
	rec.ExpiresAt = rec.CreatedAt.Add(lasts)
	data, err := json.Marshal(rec)
	if err != nil {
		return "", made, err
	}
	if _, err := s.kv.Create(ctx, prefix+rec.ID, data); err != nil {
		return "", made, fmt.Errorf("store a share: %w", err)
	}
	return secret, rec, nil
}

// Find returns the share that a secret is of. NotFound: it is of none, or of none any more.
func (s *Store) Find(ctx context.Context, secret string) (Record, error) {
	gone := errs.New(errs.NotFound, "nothing is shared at this address, or not any more")
	if len(secret) != secretLen || strings.Trim(secret, secretChars) != "" {
		return Record{}, gone
	}
	hash := hashOf(secret)
	data, _, err := s.kv.Get(ctx, prefix+idOf(hash))
	if errs.Is(err, errs.NotFound) {
		return Record{}, gone
	}
	if err != nil {
		return Record{}, err
	}
	rec, err := parse(data)
	if err != nil {
		return Record{}, err
	}
	if subtle.ConstantTimeCompare([]byte(rec.Hash), []byte(hash)) != 1 || !s.now().Before(rec.ExpiresAt) {
		return Record{}, gone
	}
	return rec, nil
}

// List returns the shares of a run that can be read, the newest first.
func (s *Store) List(ctx context.Context, tenant string, run thread.RunID) ([]Record, error) {
	var list []Record
	err := s.each(ctx, func(r Record, _ uint64) {
		if r.Tenant == tenant && r.Run == run && s.now().Before(r.ExpiresAt) {
			list = append(list, r)
		}
	})
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list, err
}

// End takes a share of a run back. NotFound: the run has none of this id.
func (s *Store) End(ctx context.Context, tenant string, run thread.RunID, id string) error {
	none := errs.New(errs.NotFound, "the run has no share %.40q", id)
	hexa, ok := strings.CutPrefix(id, idPrefix)
	if !ok || len(hexa) != idHexLen || strings.Trim(hexa, "0123456789abcdef") != "" {
		return none
	}
	data, rev, err := s.kv.Get(ctx, prefix+id)
	if errs.Is(err, errs.NotFound) {
		return none
	}
	if err != nil {
		return err
	}
	rec, err := parse(data)
	if err != nil {
		return err
	}
	if rec.Tenant != tenant || rec.Run != run {
		return none
	}
	return s.kv.Delete(ctx, prefix+id, rev)
}

// Sweep removes what has expired; it is called now and then.
func (s *Store) Sweep(ctx context.Context) error {
	gone := map[string]uint64{}
	err := s.each(ctx, func(r Record, rev uint64) {
		if !s.now().Before(r.ExpiresAt) {
			gone[r.ID] = rev
		}
	})
	for id, rev := range gone {
		if err == nil {
			err = s.kv.Delete(ctx, prefix+id, rev)
		}
	}
	return err
}

// each visits all records that can be read.
func (s *Store) each(ctx context.Context, visit func(Record, uint64)) error {
	err := s.kv.List(ctx, prefix, func(_ string, value []byte, rev uint64) error {
		if rec, err := parse(value); err == nil { // one that is damaged is not in the way of the others
			visit(rec, rev)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list shares: %w", err)
	}
	return nil
}

func parse(data []byte) (rec Record, err error) {
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, errs.Wrap(errs.Corrupt, err, "the record of a share is damaged")
	}
	return rec, nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func idOf(hash string) string { return idPrefix + hash[:idHexLen] }
