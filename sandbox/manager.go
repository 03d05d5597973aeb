package sandbox

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
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
	Leases    Leases // nil: nobody else can be this node (embedded store)
	Guest     string // path of the skete-guest program
	Limits    Limits
	Defaults  Defaults
	Log       *slog.Logger
	// Now is the wall clock; nil = time.Now. Durations inside the process
	// are always measured by the monotonic clock.
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

// Manager owns the life of all sandboxes of one node.
type Manager struct{}

var errSoon = errs.New(errs.Unsupported, "the manager is not built yet")

// Open takes over the node: what lives is attached, what a crash left is
// removed. Exists: another server has the directory or the node.
func Open(ctx context.Context, c Config) (*Manager, error) { return nil, errSoon }

// Close lets go of all sandboxes; they run on. May be repeated.
func (m *Manager) Close() error { return nil }

// Limits returns the limits in force.
func (m *Manager) Limits() Limits { return Limits{} }

// Create makes a sandbox and returns when its guest answers. If ctx ends
// before, nothing is left of it.
func (m *Manager) Create(ctx context.Context, tenant string, r CreateRequest) (Info, error) {
	return Info{}, errSoon
}

// Get returns one sandbox. NotFound also for one of another tenant.
func (m *Manager) Get(ctx context.Context, tenant string, id ID) (Info, error) {
	return Info{}, errSoon
}

// List returns a page of sandboxes, newest first.
func (m *Manager) List(ctx context.Context, tenant string, f Filter) (Page, error) {
	return Page{}, errSoon
}

// Update changes settings of a sandbox.
func (m *Manager) Update(ctx context.Context, tenant string, id ID, u UpdateRequest) (Info, error) {
	return Info{}, errSoon
}

// Start boots a machine for a stopped or failed sandbox; its workspace is as
// it was. No error for a running one.
func (m *Manager) Start(ctx context.Context, tenant string, id ID) (Info, error) {
	return Info{}, errSoon
}

// Stop ends the machine and keeps the workspace. No error for a stopped one.
func (m *Manager) Stop(ctx context.Context, tenant string, id ID) (Info, error) {
	return Info{}, errSoon
}

// Pause freezes the machine. No error for a paused one.
func (m *Manager) Pause(ctx context.Context, tenant string, id ID) (Info, error) {
	return Info{}, errSoon
}

// Resume goes on after Pause. No error for a running one.
func (m *Manager) Resume(ctx context.Context, tenant string, id ID) (Info, error) {
	return Info{}, errSoon
}

// Destroy ends a sandbox for good, from every state. May be repeated.
func (m *Manager) Destroy(ctx context.Context, tenant string, id ID) error { return errSoon }

// Guest returns the client of a running sandbox. Until release is called the
// sandbox counts as used.
func (m *Manager) Guest(ctx context.Context, tenant string, id ID) (c *wire.Client, release func(), err error) {
	return nil, nil, errSoon
}

// Dial opens a TCP port (1..65535) inside a running sandbox, loopback
// included. Until the connection is closed the sandbox counts as used.
func (m *Manager) Dial(ctx context.Context, tenant string, id ID, port uint32) (net.Conn, error) {
	return nil, errSoon
}

// Probes says what each provider can do on this host, strongest first.
func (m *Manager) Probes(ctx context.Context) []ProbeResult { return nil }

// Default names the provider that "auto" gives now.
func (m *Manager) Default(ctx context.Context) (ProbeResult, error) { return ProbeResult{}, errSoon }

// Subscription reads a tenant's events.
type Subscription struct{}

// Subscribe reads the tenant's events from sequence number from on; 0 = from
// now. Numbers grow over restarts too.
func (m *Manager) Subscribe(tenant string, from uint64) *Subscription { return nil }

// Next waits for the next event.
func (s *Subscription) Next(ctx context.Context) (Event, error) { return Event{}, errSoon }
