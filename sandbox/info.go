package sandbox

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress"
)

// Info is a sandbox as it is now.
type Info struct {
	ID     ID     `json:"id"`
	Tenant string `json:"tenant"`
	Spec   Spec   `json:"spec"` // normalised: every default filled in
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is stopped, failed or destroyed
	// Waiting is what a sandbox that is being created or started waits for, for
	// people; "" = nothing. It is never stored.
	Waiting   string    `json:"waiting,omitempty"`
	Provider  string    `json:"provider"`
	Isolation Isolation `json:"isolation"` // what really separates it from the host
	// Notes say what is weaker than usual on this host.
	Notes      []string  `json:"notes,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	StartedAt  time.Time `json:"started_at,omitzero"` // last start
	EndedAt    time.Time `json:"ended_at,omitzero"`   // of the machine
	ExpiresAt  time.Time `json:"expires_at,omitzero"` // zero: no end
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	// BootMS is the time from the request to an answering guest.
	BootMS float64 `json:"boot_ms,omitempty"`
	// RootfsHash names the root file system that the machine runs from; it
	// must not be deleted while there is one.
	RootfsHash string `json:"rootfs_hash,omitempty"`
	// From is the snapshot that it was made from.
	From SnapshotID `json:"from,omitempty"`
	// Deaths are the ends of its machines that were not asked for, the newest
	// last; only so many are kept.
	Deaths []Death `json:"deaths,omitempty"`
	// ForRun ties it to the run that it was made for.
	ForRun ForRun `json:"for_run,omitzero"`
}

// Death is the end of a machine that was not asked for.
type Death struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
}

// deathsMax is how many deaths are kept.
const deathsMax = 5

// Died reports whether the end of a machine for this reason is one that was
// not asked for.
func Died(reason string) bool {
	switch reason {
	case ReasonExited, ReasonOutOfMemory, ReasonKilled, ReasonLost:
		return true
	}
	return false
}

// AddDeath notes a death. What was there stays as it is in copies of i.
func (i *Info) AddDeath(d Death) {
	i.Deaths = append(slices.Clone(i.Deaths), d)
	i.Deaths = i.Deaths[max(len(i.Deaths)-deathsMax, 0):]
}

// CreateRequest asks for a sandbox.
type CreateRequest struct {
	Spec Spec
	// Key makes the request safe to repeat: the same tenant and key give the
	// same sandbox, also after a restart. Empty: each request makes a new one.
	Key string
	// From is a snapshot to go on from. What can then be asked for is Changes;
	// the rest of the spec must be empty, and is as it was.
	From SnapshotID
	// Run is the run of an agent that it is for, and is under way; "" = none.
	Run   string
	Agent string // of Run
	// Keep is after what time without use it is removed, running or stopped, if it is for no
	// run; 0 = never.
	Keep time.Duration
	// Own are added to the metadata: what the server itself knows the sandbox by. Their keys
	// begin with OwnPrefix, which no client's may.
	Own map[string]string
}

// OwnPrefix begins the keys of metadata that are the server's own.
const OwnPrefix = "skete."

// WithOwn returns metadata with what the server adds; metadata itself is not changed.
func WithOwn(metadata, own map[string]string) map[string]string {
	if len(own) == 0 {
		return metadata
	}
	all := maps.Clone(metadata)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, own)
	return all
}

// ownOf is the part of metadata that is the server's own.
func ownOf(metadata map[string]string) map[string]string {
	own := maps.Clone(metadata)
	maps.DeleteFunc(own, func(key, _ string) bool { return !strings.HasPrefix(key, OwnPrefix) })
	return own
}

// UpdateRequest changes what may change in a sandbox; nil leaves a field.
type UpdateRequest struct {
	// TTL counts from now; 0 = no end but the server's maximum.
	TTL         *time.Duration
	IdleTimeout *time.Duration // 0 = the default
	Metadata    map[string]string
	Name        *string // "" = none
	// Network is another policy; see Spec.Policy. Unsupported: the machine was made
	// without a network.
	Network *egress.Policy
	// Models is what its programs may use from now on; of no models it is none.
	// Unsupported: as with Network.
	Models *ModelGrant
}

// Apply changes i. The request has been checked.
func (u UpdateRequest) Apply(i *Info, now time.Time, l Limits, d Defaults) {
	if u.TTL != nil {
		i.Spec.TTL = *u.TTL
		if i.Spec.TTL == 0 {
			i.Spec.TTL = l.TTLMax
		}
		i.ExpiresAt = time.Time{}
		if i.Spec.TTL > 0 {
			i.ExpiresAt = now.Add(i.Spec.TTL)
		}
	}
	if u.IdleTimeout != nil {
		i.Spec.IdleTimeout = *u.IdleTimeout
		if i.Spec.IdleTimeout == 0 {
			i.Spec.IdleTimeout = d.IdleTimeout
		}
	}
	if u.Name != nil {
		i.Spec.Name = *u.Name
	}
	if u.Metadata != nil {
		i.Spec.Metadata = WithOwn(maps.Clone(u.Metadata), ownOf(i.Spec.Metadata))
	}
	if p := u.Network; p != nil {
		i.Spec.Network = cmp.Or(p.Profile, egress.None)
		i.Spec.Egress = &egress.Policy{Allow: slices.Clone(p.Allow), Deny: slices.Clone(p.Deny)}
	}
	if u.Models != nil {
		i.Spec.GrantModels(*u.Models, i.ID)
	}
}

// Filter selects and pages sandboxes.
type Filter struct {
	// States to show; empty = all but Destroyed.
	States []State
	// Metadata that a sandbox must have, all of it.
	Metadata  map[string]string
	PageSize  int    // 0 = 100; at most 1,000
	PageToken string // from the page before, with the same filter
}

// Page is a part of a list, newest first.
type Page struct {
	Items []Info
	Next  string // token of the next page; "" = this was the last
}

// Event tells that a sandbox changed its state, or its settings, or what it
// waits for.
type Event struct {
	Seq  uint64 // 0 = what it waits for, which is told once and not kept
	Time time.Time
	Info Info
	// Resync: events before this one are gone (they are too old, or the number
	// asked for is of another log): list again. Info is empty then.
	Resync bool
}

// ProbeResult says whether a provider works on this host.
type ProbeResult struct {
	Name         string
	Capabilities Capabilities
	Err          error // nil: it booted a machine; else the hint says what to do
	At           time.Time
}

// Clone shares no map with i, so that a caller may change what it got.
func (i Info) Clone() Info {
	i.Spec.Env = maps.Clone(i.Spec.Env)
	i.Spec.Metadata = maps.Clone(i.Spec.Metadata)
	i.Notes = slices.Clone(i.Notes)
	i.Deaths = slices.Clone(i.Deaths)
	i.ForRun.Active = slices.Clone(i.ForRun.Active)
	return i
}
