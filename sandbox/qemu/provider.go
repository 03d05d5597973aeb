package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/cgroup"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// Name of the provider.
const Name = "qemu"

// Time limits.
const (
	bootTimeout    = 90 * time.Second // of a Create whose context has no deadline
	destroyTimeout = 30 * time.Second
	commandTimeout = 10 * time.Second // of one command to QEMU
	saveTimeout    = 5 * time.Minute  // of QEMU's part of a snapshot
)

// Config of a Provider.
type Config struct {
	// Dir holds all state; it belongs to one server at a time.
	Dir string
	// Cache holds kernels and what is made of them; servers may share it.
	// Empty = a directory in Dir.
	Cache string
	// QEMU is the program; empty = qemu-system-x86_64 in PATH.
	QEMU string
	// Guest is the guest program for Probe.
	Guest string
	// Vmlinux and Modules are the operator's own kernel, both or none; see
	// microvm.KernelConfig.
	Vmlinux, Modules string
	// Accel is "auto" (or empty), "kvm" or "tcg".
	Accel string
	// Creates is how many machines boot at once; 0 = the number of cores.
	Creates int
	// Serve serves the streams that guests open to their host; nil refuses them.
	Serve sandbox.ServeGuest
	// Log may be nil.
	Log *slog.Logger
}

// Provider boots machines in QEMU. See the package comment.
type Provider struct {
	c        Config
	program  program
	hidden   bool // QEMU can live in namespaces of its own
	accel    string
	noKVM    error        // why accel is tcg
	cgroups  *cgroup.Tree // nil: the host limits nothing
	noGroups string       // why
	parent   string       // control group of all our machines
	slots    chan struct{}
	images   savedImages
	machines *shared.Table[*machine]
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a provider whose state is in c.Dir. Machines of an earlier
// process are there: see List and Attach. Where KVM looks as if it worked, New
// boots a machine with it before it says so.
//
// Unsupported: there is no QEMU that can do this; the hint says what to install.
func New(c Config) (*Provider, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Creates <= 0 {
		c.Creates = max(2, runtime.NumCPU())
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	if c.Cache == "" {
		c.Cache = filepath.Join(c.Dir, "cache")
	}
	p := &Provider{
		c: c, slots: make(chan struct{}, c.Creates),
		machines: shared.NewTable[*machine](),
	}
	for _, dir := range []string{p.machinesDir(), c.Cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	if p.program, err = findProgram(ctx, c.QEMU); err != nil {
		return nil, err
	}
	p.hidden = canDropPrivileges(ctx)
	p.findCgroups()
	return p, p.chooseAccel(ctx)
}

// findCgroups decides whether limits can be set. The group of our machines is
// named by the state directory, so that two servers never take each other's.
func (p *Provider) findCgroups() {
	sum := sha256.Sum256([]byte(p.c.Dir))
	p.parent = "/skete-qemu-" + hex.EncodeToString(sum[:6])
	if p.rootless() {
		p.noGroups = "without root there are no control groups"
		return
	}
	tree, err := cgroup.Find()
	if err == nil {
		err = tree.Probe(context.Background(), p.parent+"/probe")
	}
	if err == nil && !tree.Has("memory", "cpu", "pids") {
		err = errors.New("the memory, cpu or pids controller is missing")
	}
	if err != nil {
		p.noGroups = "control groups cannot be used here"
		p.c.Log.Warn("qemu: the share of cpu is not limited by the host", "error", err)
		return
	}
	p.cgroups = &tree
}

// chooseAccel believes in KVM when a machine has booted with it: a device
// that opens proves nothing, and neither do a few instructions.
func (p *Provider) chooseAccel(ctx context.Context) error {
	p.accel = accelTCG
	switch p.c.Accel {
	case accelTCG:
		p.noKVM = errors.New("the configuration says so")
		return nil
	case accelKVM, "", "auto":
	default:
		return errs.New(errs.Invalid, "accel %.20q is neither auto, kvm nor tcg", p.c.Accel)
	}
	p.noKVM = microvm.ProbeKVM(ctx)
	if p.noKVM == nil {
		p.accel = accelKVM
		if p.noKVM = p.tryOut(ctx); p.noKVM != nil {
			p.accel = accelTCG
		}
	}
	if p.noKVM != nil && p.c.Accel == accelKVM {
		return errs.Wrap(errs.Unsupported, p.noKVM, "KVM does not work on this host").
			WithHint("leave accel at \"auto\" to have machines on an emulated cpu, which is slow")
	}
	return nil
}

func (p *Provider) rootless() bool { return os.Geteuid() != 0 }

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements sandbox.Provider.
func (p *Provider) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{
		Isolation: sandbox.MicroVM, Pause: true, Snapshot: true, Fork: true,
		RootImage: true, Rootless: p.rootless(),
		// Memory and disks are as large as the virtual hardware; processes are
		// counted by the guest.
		LimitsMemory: true, LimitsPids: true, LimitsDisk: true, LimitsDiskRate: true,
		LimitsCPU:      p.cgroups != nil,
		HidesHostFiles: true, HidesHostNetwork: true, Network: true,
	}
	if p.accel == accelTCG {
		c.Isolation = sandbox.MicroVMEmulated
		c.Notes = append(c.Notes, "slow: the cpu is emulated, programs take 11 to 20 times as long as on the host")
	}
	if p.cgroups == nil {
		c.Notes = append(c.Notes, "fractions of a cpu are not enforced by the host: "+p.noGroups)
	}
	if _, ok := ownUser(""); !ok {
		c.Notes = append(c.Notes, "all machines' QEMU processes run as the server's own user")
	}
	return c
}

// Where things are. All names derive from the ID.

func (p *Provider) machinesDir() string { return filepath.Join(p.c.Dir, "machines") }

func (p *Provider) dir(id sandbox.ID) string       { return filepath.Join(p.machinesDir(), string(id)) }
func (p *Provider) groupPath(id sandbox.ID) string { return p.parent + "/" + string(id) }

func (p *Provider) group(id sandbox.ID) cgroup.Group { return p.cgroups.Group(p.groupPath(id)) }

// List implements sandbox.Provider: whatever has a directory or a control group.
func (p *Provider) List(context.Context) ([]sandbox.ID, error) {
	var ids []sandbox.ID
	add := func(name string) {
		if id, err := sandbox.ParseID(name); err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	dirs, err := os.ReadDir(p.machinesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, d := range dirs {
		add(d.Name())
	}
	if p.cgroups != nil {
		for _, name := range p.cgroups.Group(p.parent).Children() {
			add(name)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Attach implements sandbox.Provider.
func (p *Provider) Attach(ctx context.Context, id sandbox.ID) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return nil, err
	}
	if m := p.machines.Known(id); m != nil && !m.lifetime.Ended() {
		return m, nil
	}
	rec, err := readRecord(p.dir(id))
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "no machine %s runs", id)
	}
	m, err := p.follow(id, rec)
	if errors.Is(err, hostproc.ErrGone) {
		return nil, errs.Wrap(errs.NotFound, err, "the machine of %s has ended", id)
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", id, err)
	}
	if rec.Paused { // a paused guest cannot answer, and need not
		return m, nil
	}
	if err = m.revive(ctx); err == nil {
		err = m.awaitGuest(ctx)
	}
	if err == nil {
		return m, nil
	}
	ended := m.lifetime.Ended()
	_ = m.Close()
	if ended {
		return nil, errs.Wrap(errs.NotFound, err, "the machine of %s has ended", id)
	}
	return nil, fmt.Errorf("attach %s: %w", id, err)
}

// Close implements sandbox.Provider.
func (p *Provider) Close() error {
	err := p.machines.Close()
	p.images.Close()
	if p.cgroups != nil && len(p.cgroups.Group(p.parent).Children()) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.cgroups.Group(p.parent).Remove(ctx) // another server of ours may have made a machine
	}
	return err
}
