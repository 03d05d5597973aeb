package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Config of a Manager.
type Config struct {
	// Dir holds a directory per sandbox, named by its ID. It belongs to one
	// Manager at a time.
	Dir string
	// Node names this server among others on the same Registry.
	Node      string
	Providers []Provider // in any order; the ladder sorts by isolation
	Templates Templates
	Volumes   Volumes
	Registry  Registry
	Leases    Leases // nil: nobody else can be this node
	Guest     string // path of the skete-guest program
	Limits    Limits
	Defaults  Defaults
	Log       *slog.Logger
	// Now is the wall clock, for the times that are stored and shown; nil =
	// time.Now. What is measured inside the process is measured by the
	// monotonic clock, so that setting the wall clock ends no sandbox.
	Now func() time.Time
}

// Limits are what a spec may ask for at most, and what a tenant may have at
// most. Zero = the built-in value (see DefaultLimits).
type Limits struct {
	CPUsMax        float64
	MemoryMBMax    int
	DiskMBMax      int
	PidsMax        int
	TTLMax         time.Duration // 0 = no bound
	IdleTimeoutMax time.Duration
	// Per tenant; 0 = no bound for the last two.
	Sandboxes      int
	TenantCPUs     float64
	TenantMemoryMB int
}

// Defaults fill what a spec leaves open. Zero = the built-in value.
type Defaults struct {
	Template    string
	Provider    string
	CPUs        float64
	MemoryMB    int
	DiskMB      int
	PidsMax     int
	TTL         time.Duration // 0 = none
	IdleTimeout time.Duration
}

const (
	writeTimeout     = 15 * time.Second // of one write to the registry
	nodeLeaseTTL     = 15 * time.Second
	tombstoneFor     = 24 * time.Hour
	tombstonesMax    = 1000 // per tenant
	diskWatchEvery   = 2 * time.Second
	shutdownGrace    = time.Second // that processes get at a stop
	reconcileAtOnce  = 16
	tenantBytesMax   = 64
	attachTries      = 3
	attachRetryAfter = 300 * time.Millisecond
)

var errClosing = errs.New(errs.Unavailable, "the server is stopping").WithHint("try again in a moment")

// Manager owns the life of all sandboxes of one node.
//
// It promises: the registry knows of a sandbox before the host does; a change
// of state that was reported survives a crash, and one that was under way is
// finished or undone at the next Open; slow work on one sandbox never waits
// for another; a tenant sees only its own.
//
// All methods are safe for concurrent use.
type Manager struct {
	c        Config
	limits   Limits
	defaults Defaults
	log      *slog.Logger
	ladder   *ladder
	events   *events
	secret   []byte        // that keyed IDs are derived with
	boots    chan struct{} // a token per machine that may boot at the same time
	lock     *os.File

	ctx    context.Context // ends when the Manager closes
	cancel context.CancelFunc

	life    sync.Mutex // guards closing; a leaf
	closing bool
	wg      sync.WaitGroup

	mu         sync.Mutex // guards all below; never held over slow work
	boxes      map[ID]*box
	used       map[string]usage // by tenant
	tombstones map[string][]ID  // by tenant, oldest first
	fenced     bool             // another server has our node
	release    func(context.Context) error
}

// Open takes over the node: what lives is attached, what a crash left half
// done is finished or undone, what nobody owns is removed.
//
// Exists: another server has the directory or the node.
func Open(ctx context.Context, c Config) (*Manager, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Manager{
		c: c, limits: c.Limits.filled(), log: c.Log,
		boots: make(chan struct{}, max(8, 4*runtime.NumCPU())),
		boxes: map[ID]*box{}, used: map[string]usage{}, tombstones: map[string][]ID{},
	}
	m.defaults = c.Defaults.filled(m.limits)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.events = newEvents(c.Now())
	m.ladder = newLadder(c.Providers, c.Log, m.spawn)
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Manager) open(ctx context.Context) error {
	if err := m.takeDir(); err != nil {
		return err
	}
	if err := m.takeNode(ctx); err != nil {
		return err
	}
	var err error
	if m.secret, err = m.loadSecret(ctx); err != nil {
		return err
	}
	if err := m.reconcile(ctx); err != nil {
		return err
	}
	m.spawn(func() { m.ladder.probes(m.ctx) }) // so that the first create need not wait
	m.spawn(m.watchDisks)
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
// often its server restarts. Nobody else has it while we hold its lock.
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
			m.log.Error("the node's lease is lost; no changes until it is back", "error", err)
			m.sleep(nodeLeaseTTL / 5)
		}
	}
}

func (m *Manager) fence(fenced bool, release func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fenced, m.release = fenced, release
}

func (m *Manager) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.ctx.Done():
	}
}

func (m *Manager) loadSecret(ctx context.Context) ([]byte, error) {
	secret, _, err := m.c.Registry.Get(ctx, secretKey)
	if !errs.Is(err, errs.NotFound) {
		return secret, err
	}
	secret = []byte(rand.Text() + rand.Text())
	_, err = m.c.Registry.Create(ctx, secretKey, secret)
	if errs.Is(err, errs.Exists) { // another node was faster
		secret, _, err = m.c.Registry.Get(ctx, secretKey)
	}
	return secret, err
}

// spawn runs f in a goroutine that Close waits for; false = closing already.
func (m *Manager) spawn(f func()) bool {
	m.life.Lock()
	defer m.life.Unlock()
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
	m.life.Lock()
	again := m.closing
	m.closing = true
	m.life.Unlock()
	m.cancel()
	m.wg.Wait()
	if again {
		return nil
	}
	m.mu.Lock()
	boxes, release := m.all(), m.release
	m.mu.Unlock()
	for _, b := range boxes {
		m.letGo(b)
	}
	var err error
	if release != nil {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		defer cancel()
		err = release(ctx)
	}
	if m.lock != nil {
		err = errors.Join(err, m.lock.Close())
	}
	return err
}

func (m *Manager) letGo(b *box) {
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	if machine := b.takeMachine(); machine != nil {
		_ = machine.Close()
	}
}

// all lists the boxes. Preconditions: m.mu is held.
func (m *Manager) all() []*box {
	boxes := make([]*box, 0, len(m.boxes))
	for _, b := range m.boxes {
		boxes = append(boxes, b)
	}
	return boxes
}

// find returns a tenant's box. One of another tenant is not found.
func (m *Manager) find(tenant string, id ID) (*box, error) {
	m.mu.Lock()
	b, fenced := m.boxes[id], m.fenced
	m.mu.Unlock()
	switch {
	case b == nil || b.tenant != tenant:
		return nil, errs.New(errs.NotFound, "no sandbox %.40s", strconv.Quote(string(id))).WithHint("`skete vm list` shows them")
	case fenced:
		return nil, errs.New(errs.Unavailable, "this server has lost its place in the cluster")
	}
	return b, nil
}

func checkTenant(tenant string) error {
	if tenant == "" || len(tenant) > tenantBytesMax || !printable(tenant) || strings.Contains(tenant, "/") {
		return errs.New(errs.Invalid, "tenant %.80q is not a name", tenant)
	}
	return nil
}

// Limits returns the limits in force.
func (m *Manager) Limits() Limits { return m.limits }

// Probes says what each provider can do on this host, strongest first.
func (m *Manager) Probes(ctx context.Context) []ProbeResult { return m.ladder.probes(ctx) }

// Default names the provider that "auto" gives now.
func (m *Manager) Default(ctx context.Context) (ProbeResult, error) {
	r, err := m.ladder.choose(ctx, Spec{Provider: ProviderAuto})
	if err != nil {
		return ProbeResult{}, err
	}
	return m.ladder.probe(ctx, r), nil
}

// commit changes a box's record, in the registry first. The caller's context
// plays no part: a write that is half done helps nobody.
func (m *Manager) commit(b *box, change func(*record)) error {
	b.write.Lock()
	defer b.write.Unlock()
	if b.revision == 0 {
		return errs.New(errs.Conflict, "sandbox %s is still starting", b.id).WithHint("try again in a moment")
	}
	old := b.record()
	rec := old
	change(&rec)
	value, err := rec.encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	rev, err := m.c.Registry.Update(ctx, recordKey(b.id), value, b.revision)
	if errs.Is(err, errs.Conflict) {
		rev, err = m.commitAgain(ctx, b, value)
	}
	if err != nil {
		return err
	}
	b.revision = rev
	b.mu.Lock()
	b.rec = rec
	b.mu.Unlock()
	if rec.Plan == old.Plan || rec.Info.State != old.Info.State {
		m.events.publish(m.now(), rec.Info)
	}
	return nil
}

// commitAgain writes after a conflict. We are the only writer of our node's
// records, so what moved the revision is an earlier write of ours that landed
// although its answer was lost.
func (m *Manager) commitAgain(ctx context.Context, b *box, value []byte) (uint64, error) {
	key := recordKey(b.id)
	stored, rev, err := m.c.Registry.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	if rec, err := decodeRecord(key, stored); err != nil || rec.Node != m.c.Node {
		return 0, errs.Wrap(errs.Conflict, err, "sandbox %s belongs to another server now", b.id)
	}
	return m.c.Registry.Update(ctx, key, value, rev)
}

// now is the wall clock, in the form that is stored.
func (m *Manager) now() time.Time { return m.c.Now().Round(0).UTC() }

func (m *Manager) dir(id ID) string { return filepath.Join(m.c.Dir, string(id)) }
