package sandbox

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template"
)

// Provider makes machines of one kind. It is the plug-in point of this
// package; sandboxtest holds the suite that every provider passes.
//
// The life of a machine, from the provider's side: Create boots one and
// returns when the guest answers. Dial opens streams into it. The server may
// die at any moment; the next one calls List and Attach. Destroy ends it and
// removes every host resource that Create made. All host resources have names
// derived from the ID, so that Destroy needs no memory of Create.
//
// All methods are safe for concurrent use.
type Provider interface {
	// Name is a short fixed word: "gvisor", "process", …
	Name() string
	// Capabilities are facts; during the provider's life they change at most with
	// a Probe, of what another program was too slow to tell before.
	Capabilities() Capabilities
	// Probe really boots a machine and asks it something, or returns the
	// error with a hint that an operator can act on. Unsupported: this host
	// cannot. It leaves nothing behind.
	Probe(ctx context.Context) error
	// Create boots a machine. On error nothing is left behind; if even that
	// failed, a later Destroy of the same ID finishes it. Exists: the ID is in use.
	Create(ctx context.Context, b Boot) (Machine, error)
	// Attach returns the machine that an earlier process of ours created.
	// NotFound: it does not run (any more).
	Attach(ctx context.Context, id ID) (Machine, error)
	// List says what really exists on this host, dead leftovers included, for
	// reconciliation. What it names can be given to Destroy.
	List(ctx context.Context) ([]ID, error)
	// Destroy ends the machine with this ID, running or dead or half made, and
	// removes all that it left. It is no error if there is nothing.
	Destroy(ctx context.Context, id ID) error
	// Close frees the provider's own resources; machines live on.
	Close() error
}

// Machine is one booted machine.
//
// All methods are safe for concurrent use.
type Machine interface {
	ID() ID
	// Dial opens a stream to a port of the guest (see guest/wire for what the
	// numbers mean). It is the only way in.
	Dial(ctx context.Context, port uint32) (net.Conn, error)
	// Guest is the client of the guest's protocol over Dial, one for all
	// callers: the connection on which Create had its answer is there for the
	// first command. It is of no use after Close.
	Guest() *wire.Client
	// Pause freezes the machine, Resume goes on. Pausing a paused machine is
	// no error, nor is resuming a running one. Unsupported: see Capabilities.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Snapshot freezes the machine, writes all that Boot.From needs into dir
	// (empty, 0700; memory, the root's writable layer, how to load it), calls
	// frozen while nothing in the machine moves, and lets it go on. All
	// connections into it are broken afterwards. A machine that cannot go on
	// has ended (Wait says how). On error dir is of no use. Unsupported: see
	// Capabilities.
	Snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error
	// Wait returns how the machine ended. It returns at once for a dead one,
	// and ctx's error when ctx ends first. Several may wait.
	Wait(ctx context.Context) (Exit, error)
	// Destroy is Provider.Destroy of this machine: idempotent, legal always.
	Destroy(ctx context.Context) error
	// Close lets go of the machine without ending it (the server stops).
	Close() error
}

// Exit tells how a machine ended.
type Exit struct {
	// Reason is one of the constants below.
	Reason string
	// Detail is for the operator; may be empty.
	Detail string
	Time   time.Time
}

// Reasons for the end of a machine, or of a sandbox.
const (
	ReasonExited      = "exited"        // the guest ended by itself
	ReasonOutOfMemory = "out of memory" // the host's limit was hit
	ReasonKilled      = "killed"        // its process on the host was killed
	ReasonDestroyed   = "destroyed"     // by Destroy
	ReasonLost        = "lost"          // it was gone when we looked (a reboot, a crash)
	ReasonExpired     = "expired"       // TTL
	ReasonIdle        = "idle"          // idle timeout
	ReasonStopped     = "stopped"       // on request
	ReasonRunOver     = "run over"      // the run that it was made for
	ReasonDiskQuota   = "disk quota exceeded"
	ReasonHostFull    = "the server's disk is full"                               // it grew most; it goes on when there is room
	ReasonReadOnly    = "its disk is read-only, since the server's disk was full" // a start checks it, when there is room
)

// Capabilities are plain facts about a provider, so that they survive
// decorators and JSON.
type Capabilities struct {
	Isolation        Isolation `json:"isolation"`
	Pause            bool      `json:"pause"`
	Snapshot         bool      `json:"snapshot"`
	Fork             bool      `json:"fork"`
	HostWorkspace    bool      `json:"host_workspace"` // the host sees the workspace as a directory; else it is a disk (Boot.Disk)
	RootImage        bool      `json:"root_image"`     // boots from Rootfs.Image instead of Rootfs.Dir and Binds
	Rootless         bool      `json:"rootless"`       // runs without root here
	LimitsMemory     bool      `json:"limits_memory"`
	LimitsCPU        bool      `json:"limits_cpu"`
	LimitsPids       bool      `json:"limits_pids"`
	LimitsDisk       bool      `json:"limits_disk"`
	LimitsDiskRate   bool      `json:"limits_disk_rate"` // Spec.DiskMBps and DiskIOPS; without it a spec that has them is refused
	HidesHostFiles   bool      `json:"hides_host_files"`
	HidesHostNetwork bool      `json:"hides_host_network"`
	Network          bool      `json:"network"` // Spec.HasNetwork; without it a spec that has one is refused
	// Notes say in sentences what is weaker than usual here, for doctor and users.
	Notes []string `json:"notes,omitempty"`
}

// Boot is all that a provider needs to boot one machine.
type Boot struct {
	ID   ID   // names all that the host holds
	Name ID   // what the guest shall take itself for; "" = ID
	Spec Spec // normalised
	// Rootfs is shared and read-only; the provider adds a writable layer.
	Rootfs template.Rootfs
	// Guest is the path of the skete-guest binary on the host.
	Guest string
	// Dir is an existing empty directory (0700) for all of the provider's own
	// files of this machine; the Manager removes it after Destroy.
	Dir string
	// Workspace is the host directory shown at /workspace, writable, its size
	// already bounded. The provider makes it belong to the sandbox's user.
	Workspace string
	// Disk is the workspace as an ext4 image on the host instead, for
	// providers without HostWorkspace; no other process has it open.
	Disk string
	// Forwards are places in the machine that lead to ports of the host.
	Forwards []wire.Forward
	// Network is what a machine with a network (Spec.HasNetwork) is given.
	Network *Network
	// From is a directory that Machine.Snapshot of this kind of provider has
	// filled; empty = boot cold. The machine comes up as it was frozen, with
	// this ID, on this workspace (a copy of what it was then), its commands
	// still stopped if they were: the caller calls Control.Adopt, then Thaw.
	// The directory must stay until the machine is destroyed; several may come
	// from one. ErrSnapshot (test with errors.Is): it does not load here, and
	// nothing is left behind; the caller boots cold.
	From string
}

// ServeGuest serves a stream that the machine with this ID has opened to a port
// of its host, and returns when it is over. It owns the stream and must Grant or
// Refuse it (guest/wire). The machine is hostile; how many streams it has open is
// bounded. Nothing but the ID says who it is: no machine can take another's.
type ServeGuest func(id ID, conn net.Conn, port uint32)

// For is the handler of one machine; nil for a nil ServeGuest.
func (s ServeGuest) For(id ID) func(conn net.Conn, port uint32) {
	if s == nil {
		return nil
	}
	return func(conn net.Conn, port uint32) { s(id, conn, port) }
}

// ErrSnapshot is what Create returns, wrapped, for a Boot.From that does not
// load: another version, CPU, kernel or shape, or damaged. A snapshot is a
// cache; the workspace is the truth.
var ErrSnapshot = errors.New("the snapshot does not load here")
