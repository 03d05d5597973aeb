// Package pool keeps machines that are booted already, so that a sandbox need
// not wait for one.
//
//	p := pool.New(deps, pool.Config{Sizes: []pool.Size{{Spec: spec, Size: 5}}})
//	err := p.Load(ctx)                  // what an earlier server left; nothing is touched
//	p.Recover(ctx, used)                // attach what is whole, destroy the rest
//	p.Start()                           // refills from here on
//	m := p.Claim(ctx, shape, sandboxID, Setting(boot)) // nil: none is warm; boot one
//	p.Taken(m.ID)                       // the sandbox's record names the machine now
//
// A member is a complete machine of no tenant, with an ID, a workspace and a
// directory of its own. Everything that the host holds for it is named by its
// ID, also after a sandbox has it.
//
// What it promises. The registry knows of a member before the host does. A
// claim is a compare-and-set: a member is given away once, and when Claim has
// returned it no crash makes it warm again. Who claims adopts the machine
// (Control.Adopt) only after that, so that no member ever holds what was a
// tenant's. A member has adopted itself once and run a command before it is
// warm: a guest that cannot is an error in the log, not a slow create. What a
// kernel does not let the guest change stays the member's: its host name, under
// gVisor. After a crash, members that are warm are attached again; those that
// were being made, or were claimed by a sandbox that there is not, are
// destroyed. Close destroys all members: a pool without a server only costs
// memory.
//
// It makes members in the background, few at a time, not while sandboxes are
// being booted or claimed, and not while memory is short: then it gives up a
// quarter of what it has at a time. A member of a template or guest that has
// changed, an old one and one that does not answer are replaced.
//
// Where a provider can save memory and booting is slow, the first member of a
// shape is saved when it has done all of that, and the others go on from there
// (ADR 0023). The snapshot is the pool's own, and a cache: one that does not
// load, does not pay, is of a shape that is not wanted, or takes the last of the
// disk is removed, and members boot. It outlives the server.
//
// What a template starts is started in a member too, and is ready when it is warm: for
// a sandbox whose commands have the same environment, directory and network as it
// had, so that nothing differs from its being started later. What the latest sandbox of
// a shape had decides whether that is done; what does not get ready so is left to the
// sandbox, as is all where a sandbox is not to start it.
//
// All methods are safe for concurrent use. A nil *Pool has nothing.
package pool

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

// Size is how many members of one kind are kept.
type Size struct {
	// Spec says what kind: template, language, provider, cpus, memory, disk,
	// pids, root and network count.
	Spec sandbox.Spec
	// Size is kept always, Max at most when there is demand; Max below Size
	// means Size.
	Size, Max int
}

// Config of a Pool. The zero value keeps none.
type Config struct {
	Sizes []Size
	// DemandMax is how many members a kind of sandbox that is not configured may
	// get: one for ten minutes after a create, more when it is created often, and
	// only while the host has room for them; 0 = none. Machines with an emulated
	// CPU get none.
	DemandMax int
	// MembersMax bounds all members; 0 = 256.
	MembersMax int
	// AtOnce is how many are made at the same time; 0 = half of the cores.
	AtOnce int
	// AgeMax is when a member is replaced; 0 = 1 h.
	AgeMax time.Duration
	Refill Refill
}

// enabled reports whether there is anything to do.
func (c Config) enabled() bool {
	return c.DemandMax > 0 || slices.ContainsFunc(c.Sizes, func(s Size) bool { return s.Size > 0 || s.Max > 0 })
}

// Deps is what the pool needs from the server.
type Deps struct {
	Node  string
	Guest string // path of the guest program
	// Network is what a machine with a network is given; nil: none can have one. What it
	// is told of mirrors it is told anew when it is claimed.
	Network  func(context.Context, sandbox.Info) *sandbox.Network
	GuestID  string // names what it is
	Registry kv.Store
	Volumes  sandbox.Volumes
	// Snapshots keeps the pool's own; it is loaded. nil: members boot.
	Snapshots *snapshot.Store
	// DiskShort reports that snapshots must go; nil = Snapshots.Short.
	DiskShort func() bool
	// Provider finds one by name.
	Provider func(name string) (sandbox.Provider, bool)
	// Resolve returns what a create of the spec would use now.
	Resolve func(ctx context.Context, s sandbox.Spec) (Shape, template.Rootfs, error)
	// FreshDir makes the machine's directory, RemoveDir removes it.
	FreshDir  func(id sandbox.ID) (string, error)
	RemoveDir func(id sandbox.ID) error
	// Boots gives turns to boot; what callers wait for goes first. nil = a gate
	// of its own.
	Boots *admission.Gate
	// Host is how the host is off; nil = LookAtHost.
	Host func() Host
	Log  *slog.Logger
	Now  func() time.Time // wall clock
	// Ctx ends when the server stops; Spawn runs a goroutine that the server
	// waits for, or returns false when it stops already.
	Ctx   context.Context
	Spawn func(func()) bool
}

// claimsAtOnce bounds who adopts a machine at the same time. In a burst that
// keeps all cores busy, who came first is served first; else all would wait for
// the last.
var claimsAtOnce = max(4, 2*runtime.NumCPU())

const (
	membersMax = 256
	ageMax     = time.Hour
)

// Pool keeps warm machines.
type Pool struct {
	d    Deps
	c    Config
	wake chan struct{} // holds one token
	in   chan struct{} // a token for each claim until it is Taken or Discarded

	mu        sync.Mutex // guards all below; never held over slow work
	members   map[sandbox.ID]*member
	taken     []sandbox.ID        // claimed, and their records not yet removed; forget takes from it
	alien     map[sandbox.ID]bool // records that cannot be read, or are another node's
	kinds     map[Shape]*kind
	sources   map[Shape]*source
	over      []sandbox.SnapshotID // sources that were given up
	claimedAt time.Time            // last claim or miss
	tight     bool                 // memory is short
	shrunkAt  time.Time            // for that
	closed    bool
}

// member is one machine. Its fields but state are set before it is warm and do
// not change then; revision is for the goroutine that has taken it out of warm.
type member struct {
	rec       record
	revision  uint64
	state     state // as rec's, or further
	machine   sandbox.Machine
	volume    sandbox.Volume
	setting   string // of its commands until it is claimed
	unwatch   context.CancelFunc
	saves     bool      // a snapshot is to be taken of it when it is made
	compares  bool      // it is booted to see whether the snapshot pays
	finishing bool      // it is being destroyed
	checkedAt time.Time // or of the last attempt to destroy it
}

// kind is what is known of one shape.
type kind struct {
	size, max  int
	configured bool
	demand     demand
	emulated   bool
	makeMS     float64 // of the last
	bootMS     float64 // of the last that was booted
	restoreMS  float64 // of the last that came from a snapshot
	claims     uint64
	misses     uint64
	replaced   uint64
	failures   int
	notUntil   time.Time
	// Of what the template starts; see ahead.
	begun         string // the setting in which it was started last
	plain         bool   // the latest sandbox had another one
	notAheadUntil time.Time
	// Of its snapshot; see source.
	saving       bool // a member is being made that it is to be taken of
	saveFailures int
	notSaveUntil time.Time
	note         string // why there is none
}

// Member is a machine that was claimed.
type Member struct {
	ID      sandbox.ID
	Machine sandbox.Machine
	Volume  sandbox.Volume
	// From is the snapshot whose files the machine needs; "" = none. Until Taken
	// or Discard the pool holds it.
	From sandbox.SnapshotID
	// Begun: what the template is for was started, and was ready then.
	Begun bool
}

// New returns a pool that does nothing before Load, Recover and Start. One that
// keeps no members still clears up after an earlier server that did.
func New(d Deps, c Config) *Pool {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Host == nil {
		d.Host = LookAtHost
	}
	if d.Boots == nil {
		d.Boots = admission.New(0)
	}
	if d.Network == nil {
		d.Network = func(context.Context, sandbox.Info) *sandbox.Network { return nil }
	}
	if d.DiskShort == nil && d.Snapshots != nil {
		d.DiskShort = d.Snapshots.Short
	}
	if c.MembersMax <= 0 {
		c.MembersMax = membersMax
	}
	if c.AtOnce <= 0 {
		c.AtOnce = max(1, runtime.NumCPU()/2)
	}
	if c.AgeMax <= 0 {
		c.AgeMax = ageMax
	}
	return &Pool{
		d: d, c: c, wake: make(chan struct{}, 1), in: make(chan struct{}, claimsAtOnce),
		members: map[sandbox.ID]*member{}, alien: map[sandbox.ID]bool{}, kinds: map[Shape]*kind{},
		sources: map[Shape]*source{},
	}
}

// Claim gives a warm machine of the shape to a sandbox; nil: there is none, and
// the caller boots one. When it returns the claim is durable, and what was the
// pool's is the caller's: it calls Taken when the sandbox's record names the
// machine, or Discard. It waits while many claims are between here and there.
//
// setting is that of the sandbox's commands; "": what the template is for must not have
// been started.
func (p *Pool) Claim(ctx context.Context, s Shape, by sandbox.ID, setting string) *Member {
	if p == nil || !p.c.enabled() {
		return nil
	}
	for {
		m, useless := p.pick(s, setting)
		if useless != nil {
			p.end(useless)
		}
		if m == nil {
			return nil
		}
		select {
		case p.in <- struct{}{}:
		case <-ctx.Done():
			p.end(m)
			return nil
		}
		r := m.rec
		r.State, r.By = claimed, by
		if err := p.write(context.WithoutCancel(ctx), m, r); err != nil {
			<-p.in
			p.d.Log.Warn("a warm machine could not be claimed", "id", r.ID, "error", err)
			p.end(m)
			continue
		}
		p.mu.Lock()
		m.rec = r
		p.kinds[s].claims++
		p.mu.Unlock()
		p.nudge()
		return &Member{ID: r.ID, Machine: m.machine, Volume: m.volume, From: r.From, Begun: r.Begun != ""}
	}
}

// pick takes the oldest warm member of a shape that is of use out of the pool, and counts.
// If there is none, one that is of no use goes too: another takes its place.
func (p *Pool) pick(s Shape, setting string) (best, useless *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	k := p.kind(s)
	now := time.Now()
	p.claimedAt = now
	if !k.emulated { // one costs the host's processors more than its boot does, also when it idles
		k.demand.add(now)
	}
	if k.begun != "" {
		k.plain = setting != k.begun
	}
	best, other := p.oldest(s, setting)
	if best == nil {
		k.misses++
		if other != nil {
			other.state = ending
			other.unwatch()
		}
		return nil, other
	}
	best.state = claimed
	best.unwatch()
	return best, nil
}

// kind returns what is known of a shape. Preconditions: p.mu is held.
func (p *Pool) kind(s Shape) *kind {
	k := p.kinds[s]
	if k == nil {
		k = &kind{emulated: p.emulated(s)}
		p.kinds[s] = k
	}
	return k
}

// emulated reports whether a shape's machines have an emulated CPU.
func (p *Pool) emulated(s Shape) bool {
	provider, ok := p.d.Provider(s.Provider)
	return ok && provider.Capabilities().Isolation == sandbox.MicroVMEmulated
}

// Taken forgets a claimed member: the sandbox's record names its machine now.
// The member's own record goes when there was no claim for a moment: the
// writes of a burst are for those who wait. What stays of it after a crash is
// found at the next start to be the sandbox's.
func (p *Pool) Taken(id sandbox.ID) {
	<-p.in
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = append(p.taken, id)
	if len(p.taken) == 1 {
		p.d.Spawn(p.forget)
	}
}

// forget removes the records of all who were taken. Preconditions: there are
// some, and it does not run already.
func (p *Pool) forget() {
	p.calm(p.d.Ctx)
	for more := true; more; {
		p.mu.Lock()
		id := p.taken[0]
		p.mu.Unlock()
		err := p.erase(context.WithoutCancel(p.d.Ctx), id)
		if err != nil {
			p.d.Log.Warn("the record of a claimed machine stays until the next start", "id", id, "error", err)
		}
		p.mu.Lock()
		p.taken = p.taken[1:]
		more = len(p.taken) > 0
		m := p.members[id]
		if err == nil {
			delete(p.members, id)
		}
		p.mu.Unlock()
		if m != nil { // the sandbox holds it too
			p.release(p.d.Ctx, m.rec)
		}
	}
}

// Discard destroys a claimed member whose claimer has failed before its record
// named it.
func (p *Pool) Discard(id sandbox.ID) {
	<-p.in
	p.mu.Lock()
	m := p.members[id]
	p.mu.Unlock()
	if m != nil {
		p.end(m)
	}
}

// Owns reports whether the host's resources of this ID are the pool's.
func (p *Pool) Owns(id sandbox.ID) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[id] != nil || p.alien[id]
}

// Uses reports whether a member runs, or will, from the root file system with
// this hash. A claimed one is its sandbox's to speak for.
func (p *Pool) Uses(rootfs string) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.state != claimed && m.rec.Shape.Rootfs == rootfs {
			return true
		}
	}
	return false
}

// Kind is the pool's state for one shape.
type Kind struct {
	Shape    Shape
	Size     int // kept always
	Max      int // kept at most
	Target   int // wanted now
	Warm     int
	Making   int
	Ending   int
	Claims   uint64  // sandboxes that got one
	Misses   uint64  // sandboxes that had to boot
	Replaced uint64  // members that were stale, old or broken
	MakeMS   float64 // to make the last one
	// Snapshot: further members are made from one, which takes so many bytes on
	// the disk; BootMS and RestoreMS are what booting and making one from it
	// take, 0 = not known. Note says why there is none.
	Snapshot      bool
	SnapshotBytes int64
	BootMS        float64
	RestoreMS     float64
	Note          string
}

// Refill says how further members are made now: RefillSnapshot or RefillBoot.
func (k Kind) Refill() Refill {
	if k.Snapshot {
		return RefillSnapshot
	}
	return RefillBoot
}

// Status is the pool's state.
type Status struct {
	Kinds []Kind
	// Tight: memory is short, and the pool gets smaller.
	Tight bool
}

// Status returns what the pool has.
func (p *Pool) Status() Status {
	if p == nil {
		return Status{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	byShape := map[Shape]*Kind{}
	for s, k := range p.kinds {
		byShape[s] = &Kind{
			Shape: s, Size: k.size, Max: k.max, Target: k.target(now, p.c.DemandMax),
			Claims: k.claims, Misses: k.misses, Replaced: k.replaced, MakeMS: k.makeMS,
			BootMS: k.bootMS, RestoreMS: k.restoreMS, Note: k.note,
		}
		if src := p.sources[s]; src != nil {
			byShape[s].Snapshot, byShape[s].SnapshotBytes = true, src.bytes
			byShape[s].BootMS = cmp.Or(k.bootMS, src.bootMS)
		}
	}
	for _, m := range p.members {
		k := byShape[m.rec.Shape]
		if k == nil {
			k = &Kind{Shape: m.rec.Shape}
			byShape[m.rec.Shape] = k
		}
		switch m.state {
		case warm:
			k.Warm++
		case making:
			k.Making++
		case ending:
			k.Ending++
		}
	}
	st := Status{Tight: p.tight}
	for _, k := range byShape {
		st.Kinds = append(st.Kinds, *k)
	}
	slices.SortFunc(st.Kinds, func(a, b Kind) int { return a.Shape.compare(b.Shape) })
	return st
}

// target is how many members a kind should have.
func (k *kind) target(now time.Time, demandMax int) int {
	most := max(k.size, k.max)
	if !k.configured {
		most = demandMax
	}
	return min(max(k.size, k.demand.members(now)), most)
}

// nudge makes the loop look again.
func (p *Pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Load reads the members of this node that an earlier server left. Nothing on
// the host is touched. Snapshots are loaded before.
func (p *Pool) Load(ctx context.Context) error {
	p.loadSources()
	return p.d.Registry.List(ctx, Prefix, func(key string, value []byte, revision uint64) error {
		r, err := decode(key, value)
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case err != nil:
			p.d.Log.Error("a warm machine's record cannot be read; it is left alone", "key", key, "error", err)
			if id, err := sandbox.ParseID(key[len(Prefix):]); err == nil {
				p.alien[id] = true
			}
		case r.Node == p.d.Node:
			m := &member{rec: r, revision: revision, state: r.State, unwatch: func() {}}
			if m.state == warm {
				m.state = making // until it is attached, it is not given away
			}
			p.members[r.ID] = m
			if r.From != "" && p.d.Snapshots != nil {
				p.d.Snapshots.Rehold(r.From, r.ID)
			}
		}
		return nil
	})
}

// errBroken says why a member was not attached.
var errBroken = errs.New(errs.Unavailable, "the machine is not whole")
