// Package life keeps the life of one sandbox in order: its states, its record
// in the registry, its machine, workspace and directory on the host, and when
// it expires. Package manager has many of them.
//
//	k, launch := life.New(deps, tenant, id, …)
//	info, err := k.Stop(ctx)
//	client, release, err := k.Guest()
//
// What it promises. Before anything on the host is touched, the registry knows
// of it: a record carries the plan of a change that is under way. All that the
// host holds has names derived from the ID. So a server that finds a record
// after a crash finishes or undoes its plan (Recover) without knowing how far
// the one before it came, and may itself crash while it does.
//
// Slow work on a sandbox runs one piece at a time, in a goroutine of its own;
// the same work asked for twice is done once; a destroy ends a start that is
// under way. Nothing here waits for another sandbox.
//
// All methods are safe for concurrent use.
package life

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// Kinds of slow work.
const (
	kindAttach  jobKind = "being attached"
	kindCreate  jobKind = "being created"
	kindStart   jobKind = "starting"
	kindHalt    jobKind = "stopping"
	kindFreeze  jobKind = "pausing"
	kindThaw    jobKind = "resuming"
	kindDestroy jobKind = "being destroyed"
	kindTidy    jobKind = "being cleaned up"
)

// Deps is what all sandboxes of a server share.
type Deps struct {
	Dir       string // holds a directory per sandbox
	Node      string
	Guest     string
	Registry  kv.Store
	Templates sandbox.Templates
	Volumes   sandbox.Volumes
	Disks     sandbox.Disks // nil = not watched
	Host      *quota.Host   // nil = there is always room
	Snapshots *snapshot.Store
	Selector  *selector.Selector
	Events    *sandbox.Events
	Quota     *quota.Quota
	Limits    sandbox.Limits
	Defaults  sandbox.Defaults
	Log       *slog.Logger
	Now       func() time.Time // wall clock
	// Pool has warm machines; GuestID is the name of the guest program in their
	// shapes.
	Pool    *pool.Pool
	GuestID string
	// Network is what a machine with a network is given; it may wait, and return nil: none
	// can have one.
	Network func(context.Context, sandbox.Info) *sandbox.Network
	// Boots gives turns to boot, Attaching to be attached after a start of the server.
	Boots     *admission.Gate
	Attaching *AttachProgress
	// Ctx ends when the server stops; Spawn runs a goroutine that the server
	// waits for, or returns false when it stops already.
	Ctx   context.Context
	Spawn func(func()) bool
	// Ending is called before a sandbox loses its machine or its files, with the way
	// to them: what is in no revision becomes one, or does so in Detaching. written:
	// a call may have changed the files. It returns when ctx ends; nil = no revisions
	// are made.
	Ending func(ctx context.Context, tenant string, id sandbox.ID, files sandbox.Files, written bool)
	// Detaching is called before the workspace of a host name is taken away, and
	// returns when no part of the server uses it any more; nil = none does.
	Detaching func(host sandbox.ID)
	// Forget is called when a record is deleted, Buried when a destroyed
	// sandbox has become a tombstone.
	Forget func(*Sandbox)
	// Counted is asked when the record of what was charged is stored, with its
	// revision: it refuses what other nodes have used up before. nil = there are none.
	Counted func(ctx context.Context, tenant string, added quota.Usage, revision uint64) error
	Buried  func(*Sandbox)
}

const writeTimeout = 15 * time.Second // of one write to the registry

// now is the wall clock, in the form that is stored.
func (d *Deps) now() time.Time { return d.Now().Round(0).UTC() }

// Sandbox keeps one sandbox.
//
// Lock order: write, then mu. Only write is held over slow work, and that only
// over one write to the registry. Deps' functions are called without mu,
// Spawn and Quota's excepted.
type Sandbox struct {
	d      *Deps
	id     sandbox.ID // never changes
	tenant string     // never changes

	keys *keyJournal // of its commands; never changes

	write   sync.Mutex // guards journal: orders writes of the record
	journal *journal

	mu      sync.Mutex // guards all below
	rec     registryRecord
	gone    bool // the record is deleted and the Manager has forgotten us
	work    jobQueue
	place   *admission.Place // in the line of those that are to boot; nil = none
	machine sandbox.Machine
	client  *wire.Client
	volume  sandbox.Volume
	unwatch context.CancelFunc // ends the watch over machine
	dying   string             // why the machine has ended by itself; "" = it has not

	// The server has just started, and what the record says is not brought about
	// yet: called is closed when a call waits for that, ordered when it is done.
	called, ordered chan struct{} // ordered is nil then

	measuring bool            // the disk is being looked at
	mended    bool            // the volume was checked since it became read-only
	written   bool            // a call came in that may have changed files, and it was not looked at them since: see ending
	discarded bool            // it is being destroyed, and no revision is wanted for that
	looked    sandbox.Machine // at whose end the files were looked at; nil = none

	borrows borrows // of the workspace

	from  *sandbox.Snapshot // that it is made from; never changes
	asked time.Time         // when; never changes

	uses     int
	used     time.Time // end of the last use, for idleness; monotonic
	deadline time.Time // TTL's end; monotonic; zero = none
	timer    *time.Timer
	trouble  backoff // of work that is done by itself
}

// keep makes a Sandbox of a record.
func keep(d *Deps, rec registryRecord, j *journal) *Sandbox {
	k := &Sandbox{
		d: d, id: rec.Info.ID, tenant: rec.Info.Tenant, used: time.Now(), rec: rec, journal: j,
		keys: openKeyJournal(d.keysFile(rec.Info.ID)),
	}
	k.work = jobQueue{Mu: &k.mu, Ctx: d.Ctx, Spawn: d.Spawn, Ended: func(err error) {
		k.trouble.Note(err)
		k.arm()
	}}
	return k
}

// info is what users see now.
//
// Preconditions: k.mu is held.
func (k *Sandbox) info() sandbox.Info {
	i := k.rec.Info.Clone()
	if k.place != nil && k.place.Waits() {
		i.Waiting = waiting(k.place.Ahead())
	}
	if k.attaching() {
		i.Waiting = "its machine to be attached after the server's start: " + k.d.Attaching.String()
	}
	switch {
	case k.uses > 0:
		i.LastUsedAt = time.Now().Round(0)
	case k.used.After(i.LastUsedAt):
		i.LastUsedAt = k.used.Round(0)
	}
	return i
}

func (k *Sandbox) record() registryRecord {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rec
}

// Info is the sandbox as it is now.
func (k *Sandbox) Info() sandbox.Info {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.info()
}

// usable returns nil if the guest can be called, or says why not.
//
// Preconditions: k.mu is held.
func (k *Sandbox) usable() error {
	if k.attaching() {
		return k.errAttaching()
	}
	return k.rec.Usable(k.machine != nil)
}

func errDestroyed(id sandbox.ID) error { return ErrDestroyed(id) }

// takeMachine takes the machine away, so that no other goroutine uses it.
func (k *Sandbox) takeMachine() sandbox.Machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	machine := k.machine
	k.machine, k.looked = nil, nil
	if k.unwatch != nil {
		k.unwatch()
		k.unwatch = nil
	}
	k.client = nil // the machine's own
	return machine
}

// ID names the sandbox.
func (k *Sandbox) ID() sandbox.ID { return k.id }

// Name is the sandbox's name, which is no other's; "" = it has none, or is gone.
func (k *Sandbox) Name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone || k.rec.Info.State == sandbox.Destroyed {
		return ""
	}
	return k.rec.Info.Spec.Name
}

// LastName is the name that the sandbox has, or had.
func (k *Sandbox) LastName() string { return k.record().Info.Spec.Name }

// Tenant owns the sandbox.
func (k *Sandbox) Tenant() string { return k.tenant }

func (k *Sandbox) dir() string { return filepath.Join(k.d.Dir, string(k.Host())) }

// Host names all that the host holds for the sandbox: its machine, directory
// and volume. Preconditions: k.mu is not held.
func (k *Sandbox) Host() sandbox.ID { return k.record().Host() }

// commit changes the record, in the registry first. The caller's context
// is not used: it could end a write halfway.
func (k *Sandbox) commit(change func(*registryRecord)) error {
	k.write.Lock()
	defer k.write.Unlock()
	if !k.journal.Stored() {
		return errs.New(errs.Conflict, "sandbox %s is still starting", k.id).WithHint("try again in a moment")
	}
	old := k.record()
	rec := old
	change(&rec)
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if err := k.journal.Update(ctx, rec); err != nil {
		return err
	}
	k.mu.Lock()
	k.rec = rec
	k.mu.Unlock()
	if rec.Plan == old.Plan || rec.Info.State != old.Info.State {
		k.publish(rec.Info, 0)
	}
	return nil
}

// counted asks whether what the stored record adds is within the tenant's quota
// over all nodes.
func (k *Sandbox) counted(ctx context.Context, added quota.Usage) error {
	if k.d.Counted == nil {
		return nil
	}
	k.write.Lock()
	revision := k.journal.revision
	k.write.Unlock()
	return k.d.Counted(ctx, k.tenant, added, revision)
}

// tell publishes how the sandbox was, or is, as of its stored record.
func (k *Sandbox) tell(states ...sandbox.Info) {
	k.write.Lock()
	defer k.write.Unlock()
	for _, i := range states {
		k.publish(i, 0)
	}
}

// publish tells how the sandbox is as of its stored record, or a number of
// revisions later. Precondition: k.write is held.
func (k *Sandbox) publish(i sandbox.Info, later uint64) {
	k.d.Events.Publish(k.d.now(), k.d.Node, k.journal.revision+later, i)
}

// Retell tells how the sandbox is if the newest event of it, of a revision of its
// record, is of an earlier time: a crash kept it from being told. 0 = there is no
// event; then of one that is long gone nothing is told.
func (k *Sandbox) Retell(told uint64) {
	k.write.Lock()
	defer k.write.Unlock()
	i := k.record().Info
	long := i.State == sandbox.Destroyed && k.d.now().Sub(i.EndedAt) > event.Kept
	if k.journal.revision > told && !(told == 0 && long) {
		k.publish(i, 0)
	}
}

// Release lets go of the machine, which runs on. Nothing is done to the sandbox
// any more.
func (k *Sandbox) Release() {
	k.mu.Lock()
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	if machine := k.takeMachine(); machine != nil {
		_ = machine.Close()
	}
}

// Waiters counts the callers that wait for work under way.
func (k *Sandbox) Waiters() int { return k.work.Waiters() }
