// Package manager owns all sandboxes of one server.
//
//	m, err := manager.Open(ctx, manager.Config{…})
//	defer m.Close() // they run on
//	info, err := m.Create(ctx, tenant, sandbox.CreateRequest{Spec: spec, Key: key})
//	client, release, err := m.Guest(ctx, tenant, info.ID)
//
// What it promises. The registry knows of a sandbox before the host does; a
// change of state that was reported survives a crash, and one that was under
// way is finished or undone at the next Open. Slow work on one sandbox never
// waits for another. A tenant sees only its own, and has no more than its
// quota. What one sandbox goes through is package life's.
//
// All methods are safe for concurrent use.
package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// Config of a Manager.
type Config struct {
	// Dir holds a directory per sandbox, named by its ID. It belongs to one
	// Manager at a time.
	Dir string
	// Snapshots holds a directory per snapshot; empty = Dir/snapshots.
	Snapshots string
	// Node names this server among others on the same Registry. Formerly are
	// names that it had: records with one of them become its own.
	Node      string
	Formerly  []string
	Providers []sandbox.Provider // in any order; the selector sorts by isolation
	Templates sandbox.Templates
	Volumes   sandbox.Volumes
	Disks     sandbox.Disks // nil: what volumes cost the host is not watched
	Host      *quota.Host   // the disks that sandboxes fill; nil: there is always room
	Registry  kv.Store
	Events    event.Log      // that sandboxes are told by; nil = none
	Warm      pool.Config    // what is kept warm
	Leases    sandbox.Leases // nil: no other server can be this node
	Guest     string         // path of the skete-guest program
	Networks  Networks       // nil: machines have none
	// Ending and Detaching are those of life.Deps: Ending is called before a sandbox
	// loses its machine or its files, to keep what was written last.
	Ending func(ctx context.Context, tenant string, id sandbox.ID, files sandbox.Files, written bool)
	// Detaching is called before the workspace of a host name is taken away,
	// and returns when no part of the server uses it any more; nil = none does.
	Detaching func(host sandbox.ID)
	// Histories is how many bytes of the host's disk a tenant's histories take, at
	// once: it is asked again and again. nil = none.
	Histories func(tenant string) int64
	Limits    sandbox.Limits
	Defaults  sandbox.Defaults
	Log       *slog.Logger
	// Now is the wall clock, for the times that are stored and shown; nil =
	// time.Now. What is measured inside the process is measured by the
	// monotonic clock, so that setting the wall clock ends no sandbox.
	Now func() time.Time
}

const (
	nodeLeaseTTL   = 15 * time.Second
	releaseTimeout = 5 * time.Second
	tombstonesMax  = 1000 // per tenant
)

// Manager owns all sandboxes of one node.
type Manager struct {
	c         Config
	deps      life.Deps
	secret    []byte                // that keyed IDs are derived with
	keyed     keylock.Locks[string] // of requests for many things, or for a snapshot
	elsewhere *elsewhere
	lock      *os.File

	swept chan struct{} // closed when what has no owner is removed

	ctx    context.Context // ends when the Manager closes
	cancel context.CancelFunc

	closer  sync.Mutex // guards closing; a leaf
	closing bool
	wg      sync.WaitGroup

	// mu guards all below; never held over slow work. A life's own lock may
	// be taken under it, never the other way round.
	mu         sync.Mutex
	lives      map[sandbox.ID]*life.Sandbox
	naming     map[string]sandbox.ID      // names that are being given, by the keys of their claims
	tombstones map[string][]*life.Sandbox // by tenant, oldest first
	sweeping   map[sandbox.ID]bool        // what there is on the host of no sandbox, and is being removed
	chores     map[chore]bool             // what the watch over the disks does now
	looked     map[string]looked          // what tenants held at the last look; see Within
	fenced     bool                       // another server has our node
	release    func(context.Context) error
}

// Open takes over the node and returns when it knows all sandboxes. In the
// background what lives is attached, what a crash left half done is finished or
// undone, what has no owner is removed: see Settled. A call waits for the sandbox
// that it needs, and for no other.
//
// Exists: another server has the directory or the node.
func Open(ctx context.Context, c Config) (*Manager, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Events == nil {
		c.Events = event.Discard{}
	}
	m := &Manager{c: c, lives: map[sandbox.ID]*life.Sandbox{}, naming: map[string]sandbox.ID{}, tombstones: map[string][]*life.Sandbox{}, sweeping: map[sandbox.ID]bool{}, chores: map[chore]bool{}, looked: map[string]looked{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.deps = m.shared()
	m.elsewhere = newElsewhere(c.Node, m.deps.Quota)
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// shared is what all lives share.
func (m *Manager) shared() life.Deps {
	c, limits := m.c, m.c.Limits.Filled()
	return life.Deps{
		Node: c.Node, Guest: c.Guest, Network: m.network, Registry: c.Registry, Templates: c.Templates, Volumes: c.Volumes, Disks: c.Disks, Host: c.Host,
		Selector: selector.New(c.Providers, c.Log, m.spawn), Events: sandbox.NewEvents(c.Events, m.ctx.Done()),
		Quota: quota.New(limits), Limits: limits, Defaults: c.Defaults.Filled(limits),
		Log: c.Log, Now: c.Now, Boots: admission.New(0), Attaching: life.NewAttachProgress(),
		Ctx: m.ctx, Spawn: m.spawn, Forget: m.forget, Buried: m.buried, Counted: m.counted, Ending: c.Ending, Detaching: c.Detaching,
	}
}

func (m *Manager) open(ctx context.Context) error {
	if err := m.takeDir(); err != nil {
		return err
	}
	m.deps.Dir = m.c.Dir
	if m.c.Snapshots == "" {
		m.c.Snapshots = filepath.Join(m.c.Dir, "snapshots")
	}
	m.deps.Snapshots = snapshot.New(snapshot.Config{
		Dir: m.c.Snapshots, Node: m.c.Node, Registry: m.c.Registry, Volumes: m.c.Volumes,
		Max: m.deps.Limits.Snapshots, Log: m.c.Log, Now: m.c.Now,
	})
	if err := m.takeNode(ctx); err != nil {
		return err
	}
	var err error
	if m.secret, err = m.loadSecret(ctx); err != nil {
		return err
	}
	m.openPool()
	if err := m.renameNode(ctx); err != nil {
		return err
	}
	if err := m.reconcile(ctx); err != nil {
		return err
	}
	m.spawn(func() { m.deps.Selector.Probes(m.ctx) }) // so that the first create need not wait
	m.spawn(m.watchDisks)
	if m.c.Leases != nil { // other servers may write to the store
		m.spawn(m.followNodes)
	}
	m.spawn(m.watchHost)
	return nil
}

// takeDir makes the directory ours until we die.
func (m *Manager) takeDir() error {
	err := os.MkdirAll(m.c.Dir, 0o711)
	if err == nil {
		m.c.Dir, err = filepath.Abs(m.c.Dir)
	}
	if err == nil {
		m.c.Dir, err = filepath.EvalSymlinks(m.c.Dir) // as the kernel lists mounts
	}
	if err != nil {
		return errs.Wrap(errs.Internal, err, "cannot make the directory of sandboxes")
	}
	f, err := os.OpenFile(filepath.Join(m.c.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "cannot lock the directory of sandboxes")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return errs.Wrap(errs.Exists, err, "another server has these sandboxes").WithHint("stop it first")
	}
	m.lock = f
	return nil
}

// holder names us as the holder of the node's lease: this directory, however
// often its server restarts. No other server has it while we hold its lock.
func (m *Manager) holder() (string, error) {
	file := filepath.Join(m.c.Dir, "holder")
	b, err := os.ReadFile(file)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	name := rand.Text()
	return name, os.WriteFile(file, []byte(name), 0o600)
}

func (m *Manager) takeNode(ctx context.Context) error {
	if m.c.Leases == nil {
		return nil
	}
	holder, err := m.holder()
	if err != nil {
		return errs.Wrap(errs.Internal, err, "cannot keep the node's identity")
	}
	lost, release, err := m.c.Leases.Hold(ctx, "node/"+m.c.Node, holder, nodeLeaseTTL)
	if errs.Is(err, errs.Exists) {
		return errs.Wrap(errs.Exists, err, "another server is the node %q", m.c.Node).
			WithHint("give each server on one store a node name of its own")
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.release = release
	m.mu.Unlock()
	m.spawn(func() { m.keepNode(holder, lost, release) })
	return nil
}

// keepNode refuses changes while the node's lease is not ours, and tries to
// get it back.
func (m *Manager) keepNode(holder string, lost <-chan struct{}, release func(context.Context) error) {
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-lost:
		}
		m.fence(true, nil)
		_ = release(m.ctx)
		for m.ctx.Err() == nil {
			var err error
			if lost, release, err = m.c.Leases.Hold(m.ctx, "node/"+m.c.Node, holder, nodeLeaseTTL); err == nil {
				m.fence(false, release)
				break
			}
			m.c.Log.Error("the node's lease is lost; no changes until it is back", "error", err)
			_ = sleep.For(m.ctx, nodeLeaseTTL/5)
		}
	}
}

func (m *Manager) fence(fenced bool, release func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fenced, m.release = fenced, release
}

func (m *Manager) loadSecret(ctx context.Context) ([]byte, error) {
	secret, _, err := m.c.Registry.Get(ctx, "secret")
	if !errs.Is(err, errs.NotFound) {
		return secret, err
	}
	secret = []byte(rand.Text() + rand.Text())
	_, err = m.c.Registry.Create(ctx, "secret", secret)
	if errs.Is(err, errs.Exists) { // another node was faster
		secret, _, err = m.c.Registry.Get(ctx, "secret")
	}
	return secret, err
}

// spawn runs f in a goroutine that Close waits for; false = closing already.
func (m *Manager) spawn(f func()) bool {
	m.closer.Lock()
	defer m.closer.Unlock()
	if m.closing {
		return false
	}
	m.wg.Go(f)
	return true
}

// Close lets go of all sandboxes; they run on. Sandboxes that are being
// created are undone; stops and destroys under way are finished. It may be
// repeated.
func (m *Manager) Close() error {
	m.closer.Lock()
	again := m.closing
	m.closing = true
	m.closer.Unlock()
	m.cancel()
	m.wg.Wait()
	if again {
		return nil
	}
	m.closePool()
	m.mu.Lock()
	lives, release := m.all(), m.release
	m.mu.Unlock()
	for _, k := range lives {
		k.Release()
	}
	var err error
	if release != nil {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		err = release(ctx)
	}
	if m.lock != nil {
		err = errors.Join(err, m.lock.Close())
	}
	return err
}

// all lists the lives. Preconditions: m.mu is held.
func (m *Manager) all() []*life.Sandbox {
	ks := make([]*life.Sandbox, 0, len(m.lives))
	for _, k := range m.lives {
		ks = append(ks, k)
	}
	return ks
}

func (m *Manager) everyone() []*life.Sandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all()
}

// find returns a tenant's life. One of another tenant is not found.
func (m *Manager) find(tenant string, id sandbox.ID) (*life.Sandbox, error) {
	m.mu.Lock()
	k, fenced := m.lives[id], m.fenced
	m.mu.Unlock()
	if k == nil {
		if node, ok := m.elsewhere.find(tenant, id); ok {
			return nil, errs.OnNode("sandbox "+string(id), node)
		}
	}
	switch {
	case k == nil || k.Tenant() != tenant:
		return nil, errs.New(errs.NotFound, "no sandbox %.40s", strconv.Quote(string(id))).WithHint("`skete vm list` shows them")
	case fenced:
		return nil, errFenced
	}
	return k, nil
}

var errFenced = errs.New(errs.Unavailable, "this server has lost its place in the cluster")

// Limits returns the limits in force.
func (m *Manager) Limits() sandbox.Limits { return m.deps.Limits }

// Used returns what a tenant has of what it may have.
func (m *Manager) Used(tenant string) sandbox.Used {
	u := m.deps.Quota.Used(tenant)
	return sandbox.Used{Sandboxes: u.Sandboxes, CPUs: u.CPUs, MemoryMB: u.MemoryMB, DiskMB: u.DiskMB, DiskHeldMB: m.holds(tenant).mb()}
}

// Probes says what each provider can do on this host, strongest first.
func (m *Manager) Probes(ctx context.Context) []sandbox.ProbeResult {
	return m.deps.Selector.Probes(ctx)
}

// Counts sums what the machines' monitors count, warm ones' included, by
// provider; see package selector. Those that do not answer before ctx ends are as
// they were last time.
func (m *Manager) Counts(ctx context.Context) map[string]sandbox.Counts {
	return m.deps.Selector.Counts(ctx)
}

// Default names the provider that "auto" gives now.
func (m *Manager) Default(ctx context.Context) (sandbox.ProbeResult, error) {
	r, err := m.deps.Selector.Choose(ctx, sandbox.Spec{Provider: sandbox.ProviderAuto})
	if err != nil {
		return sandbox.ProbeResult{}, err
	}
	return m.deps.Selector.Probe(ctx, r), nil
}

// Subscribe reads the tenant's events until ctx ends, from sequence number from
// on; 0 = from now. Numbers grow over restarts too; a number that is not known
// (any more) gives an Event with Resync first.
func (m *Manager) Subscribe(ctx context.Context, tenant string, from uint64) (*sandbox.Subscription, error) {
	return m.deps.Events.Subscribe(ctx, tenant, from)
}
