package sandbox

import (
	"crypto/rand"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// SnapshotID names a snapshot: "snp_" and 20 characters of a–z, 2–7.
type SnapshotID string

const snapshotPrefix = "snp_"

// NewSnapshotID returns a random SnapshotID.
func NewSnapshotID() SnapshotID {
	var b [13]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return SnapshotID(snapshotPrefix + idEncoding.EncodeToString(b[:])[:20])
}

// ParseSnapshotID checks the form of s.
func ParseSnapshotID(s string) (SnapshotID, error) {
	bad := len(s) != idLen || !strings.HasPrefix(s, snapshotPrefix) ||
		strings.Trim(s[len(snapshotPrefix):], "abcdefghijklmnopqrstuvwxyz234567") != ""
	if bad {
		return "", errs.New(errs.Invalid, "%.40q is not a snapshot id", s).
			WithHint("ids look like snp_k3j5…; `skete vm snapshots` shows them")
	}
	return SnapshotID(s), nil
}

// Snapshot is a sandbox as it was: its files, and its memory where the
// provider can save it.
type Snapshot struct {
	ID      SnapshotID `json:"id"`
	Tenant  string     `json:"tenant"`
	Name    string     `json:"name,omitempty"` // for people; need not be unique
	Sandbox ID         `json:"sandbox"`        // that it was taken of
	// Spec and the next three are the sandbox's.
	Spec       Spec      `json:"spec"`
	Provider   string    `json:"provider"`
	Isolation  Isolation `json:"isolation"`
	RootfsHash string    `json:"rootfs_hash,omitempty"`
	// Memory: it has the memory too; else only the files of the workspace.
	Memory    bool      `json:"memory"`
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"` // that it takes on the host
}

// SnapshotRequest asks for a snapshot of a sandbox.
type SnapshotRequest struct {
	Name string
	// DiskOnly leaves the memory out: for providers that cannot save it, and
	// where the files are all that is wanted.
	DiskOnly bool
	// Key makes it repeatable: the same key gives the same snapshot, as long as
	// that is not deleted. "" = each request makes one.
	Key string
	// ID is what the snapshot is called; "" = anything new. For a Manager, which
	// derives it from a key.
	ID SnapshotID
}

// Check refuses what is absurd.
func (r SnapshotRequest) Check() error {
	var p problems
	p.name("name", r.Name)
	return errors.Join(p.err(), checkKey(r.Key))
}

func checkKey(key string) error {
	if key == "" {
		return nil
	}
	return CheckKey(key)
}

// ForkRequest asks for sandboxes that go on from where another one is.
type ForkRequest struct {
	Count int // 0 = 1; at most ForkMax
	// DiskOnly copies the files alone and boots; see SnapshotRequest.
	DiskOnly bool
	// Key makes it repeatable: the same key gives the same sandboxes, as long as
	// they are known. "" = each request makes new ones.
	Key string
	Changes
}

// ForkMax is how many sandboxes one request may fork.
const ForkMax = 100

// Changes are what may differ in a sandbox that is made from a snapshot; the
// rest is as it was in the sandbox that it was taken of. Its environment is
// not taken over: it may hold secrets that were given to that one alone.
type Changes struct {
	Name     string
	Env      map[string]string
	Metadata map[string]string
	// TTL and IdleTimeout: 0 = as it was.
	TTL         time.Duration
	IdleTimeout time.Duration
	// Persist: also where it did not; Ephemeral: not even where it did.
	Persist, Ephemeral bool
}

// Apply returns the spec with the changes.
func (c Changes) Apply(s Spec) Spec {
	s.Name, s.Env, s.Metadata = c.Name, c.Env, c.Metadata
	s.Persist, s.Ephemeral = c.Persist || s.Persist && !c.Ephemeral, c.Ephemeral
	if c.TTL != 0 {
		s.TTL = c.TTL
	}
	if c.IdleTimeout != 0 {
		s.IdleTimeout = c.IdleTimeout
	}
	return s
}

// Covers reports whether the spec asks for nothing else.
func (c Changes) Covers(s Spec) bool {
	return reflect.DeepEqual(s, Spec{
		Name: c.Name, Env: c.Env, Metadata: c.Metadata, TTL: c.TTL, IdleTimeout: c.IdleTimeout, Persist: c.Persist, Ephemeral: c.Ephemeral,
	})
}

// NameOf is the name of the i-th of the sandboxes, from 0: where there are many,
// they are numbered from 1.
func (r ForkRequest) NameOf(i int) string {
	if r.Name == "" || r.Count <= 1 {
		return r.Name
	}
	return r.Name + "-" + strconv.Itoa(i+1)
}

// Check refuses what is absurd.
func (r ForkRequest) Check() error {
	var p problems
	p.number("count", r.Count, 0, ForkMax)
	p.ownName("name", r.NameOf(max(1, r.Count)-1))
	p.env(r.Env)
	p.metadata(r.Metadata)
	return errors.Join(p.err(), checkKey(r.Key))
}

// NewestFirst sorts snapshots for a list.
func NewestFirst(all []Snapshot) {
	slices.SortFunc(all, func(a, b Snapshot) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
}
