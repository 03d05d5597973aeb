package firecracker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/cgroup"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/api"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
	shared "github.com/skete-dev/skete/sandbox/machine"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// Name of the provider.
const Name = "firecracker"

// BinaryEnv names the program where Config does not; the jailer lies beside it.
const BinaryEnv = "SKETE_FIRECRACKER"

// oldest is the first version whose vsock lives through a restore.
var oldest = api.Version{Major: 1, Minor: 16, Patch: 1}

// Limits of time.
const (
	bootTimeout    = 2 * time.Minute // of a Create whose context has no deadline
	destroyTimeout = 30 * time.Second
	versionTimeout = 10 * time.Second
)

// Where each machine's user comes from if Config does not say: high above
// what /etc/subuid hands out.
const (
	FirstUID = 2_000_000_000
	UIDs     = 65_536
)

// Config of a Provider.
type Config struct {
	// Dir holds all state; it belongs to one server at a time. Templates,
	// workspaces and kernels must be on the same file system.
	Dir string
	// Binary is Firecracker; "" = $SKETE_FIRECRACKER, else what PATH finds.
	Binary string
	// Jailer is the program of the same version; "" = "jailer" beside Binary.
	Jailer string
	// Bare runs Firecracker without its jailer: as the server's own user,
	// with no control group and no root directory of its own. Only for tests
	// and for a host on which one is not root.
	Bare bool
	// Cache is for kernels and initramfs images; "" = Dir/cache.
	Cache string
	// Kernel and Modules are the operator's own; "" = the distribution's.
	Kernel, Modules string
	// FirstUID and UIDs are users that nothing else on the host has.
	FirstUID, UIDs int
	// Creates is how many machines boot at once; 0 = the number of cores.
	Creates int
	// Console lets the guest's kernel say all that it does, for diagnosis.
	Console bool
	// Serve serves the streams that guests open to their host; nil refuses them.
	Serve sandbox.ServeGuest
	// Log may be nil.
	Log *slog.Logger
}

// Provider boots machines in Firecracker. See the package comment.
type Provider struct {
	c         Config
	cgroups   *cgroup.Tree // nil: no limits by control groups
	parent    string       // control group of all our machines, relative
	version   api.Version
	cpu, host string // see savedHost
	slots     chan struct{}

	kernelMu sync.Mutex
	kernel   microvm.Kernel

	machines *shared.Table[*machine]
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a provider whose state is in c.Dir. Machines of an earlier process
// are there: see List and Attach.
//
// Unsupported: there is no Firecracker here, it is too old, or it cannot be
// jailed; the hint says what to do.
func New(c Config) (*Provider, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Creates <= 0 {
		c.Creates = max(2, runtime.NumCPU())
	}
	if c.FirstUID <= 0 {
		c.FirstUID, c.UIDs = FirstUID, UIDs
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
	if err := p.findPrograms(); err != nil {
		return nil, err
	}
	if p.cpu, p.host, err = savedHost(); err != nil {
		return nil, err
	}
	for _, dir := range []string{p.machinesDir(), p.uidsDir(), c.Cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if !c.Bare {
		if err := p.findCgroups(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// findPrograms finds both programs and asks them who they are.
func (p *Provider) findPrograms() error {
	if p.c.Binary == "" {
		p.c.Binary = os.Getenv(BinaryEnv)
	}
	if p.c.Binary == "" {
		p.c.Binary, _ = exec.LookPath("firecracker")
	}
	if p.c.Binary == "" {
		return errs.New(errs.Unsupported, "Firecracker is not installed").
			WithHint("put firecracker and jailer of release %s or newer into PATH, or set %s", oldest, BinaryEnv)
	}
	var err error
	if p.c.Binary, err = filepath.EvalSymlinks(p.c.Binary); err == nil { // the jailer does, too
		p.c.Binary, err = filepath.Abs(p.c.Binary)
	}
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "Firecracker cannot be found")
	}
	if p.version, err = versionOf(p.c.Binary); err != nil {
		return err
	}
	if !p.version.AtLeast(oldest) {
		return errs.New(errs.Unsupported, "Firecracker %s is too old", p.version).
			WithHint("install release %s or newer: before it, connections into a restored machine fail", oldest)
	}
	if p.c.Bare {
		return nil
	}
	return p.findJailer()
}

func (p *Provider) findJailer() error {
	if os.Geteuid() != 0 {
		return errs.New(errs.Unsupported, "Firecracker's jailer needs root").WithHint("run the server as root")
	}
	if p.c.Jailer == "" {
		p.c.Jailer = filepath.Join(filepath.Dir(p.c.Binary), "jailer")
	}
	v, err := versionOf(p.c.Jailer)
	if err != nil {
		return err
	}
	if v != p.version {
		return errs.New(errs.Unsupported, "the jailer is of version %s, Firecracker of %s", v, p.version).
			WithHint("install both from the same release")
	}
	return nil
}

// outputWriter keeps the beginning of what a program says.
type outputWriter struct{ data []byte }

func (w *outputWriter) Write(b []byte) (int, error) {
	w.data = append(w.data, b[:min(len(b), 4096-len(w.data))]...)
	return len(b), nil
}

func versionOf(program string) (api.Version, error) {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	var out outputWriter
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Stdout, cmd.Env, cmd.WaitDelay = &out, []string{}, time.Second
	err := cmd.Run()
	if err == nil {
		var v api.Version
		if v, err = api.ParseVersionOutput(string(out.data)); err == nil {
			return v, nil
		}
	}
	return api.Version{}, errs.Wrap(errs.Unsupported, err, "%s does not say its version", filepath.Base(program)).
		WithHint("install firecracker and jailer of release %s or newer, side by side", oldest)
}

// findCgroups refuses hosts without version 2: the jailer could not limit
// anything, and restores are slow there.
func (p *Provider) findCgroups() error {
	tree, err := cgroup.Find()
	if err == nil && !tree.V2 {
		err = errors.New("this host uses version 1")
	}
	if err == nil && !tree.Has("memory", "cpu", "pids") {
		err = errors.New("the memory, cpu or pids controller is missing")
	}
	sum := sha256.Sum256([]byte(p.c.Dir))
	p.parent = "skete-" + hex.EncodeToString(sum[:6])
	if err == nil {
		err = tree.Probe(context.Background(), "/"+p.parent+"/probe")
	}
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "Firecracker's jailer needs control groups of version 2").
			WithHint("boot the host with systemd.unified_cgroup_hierarchy=1")
	}
	p.cgroups = &tree
	return nil
}

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Version of the Firecracker that new machines run.
func (p *Provider) Version() string { return p.version.String() }

// Capabilities implements sandbox.Provider.
func (p *Provider) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{
		Isolation: sandbox.MicroVM, Pause: true, Snapshot: true, Fork: true, RootImage: true,
		Rootless: p.c.Bare && os.Geteuid() != 0,
		// Memory and disks have the sizes that the machine sees; processes are
		// counted by the guest.
		LimitsMemory: true, LimitsPids: true, LimitsDisk: true, LimitsDiskRate: true, LimitsCPU: p.cgroups != nil,
		HidesHostFiles: true, HidesHostNetwork: true, Network: true,
	}
	if p.c.Bare {
		c.Notes = append(c.Notes,
			"Firecracker runs without its jailer: if a guest breaks out of it, it is the server's user with nothing but a seccomp filter around it",
			"the cpu is limited by the number of virtual cpus alone")
	}
	return c
}

// Where things are. All names derive from the ID.

func (p *Provider) machinesDir() string          { return filepath.Join(p.c.Dir, "machines") }
func (p *Provider) uidsDir() string              { return filepath.Join(p.c.Dir, "uids") }
func (p *Provider) dir(id sandbox.ID) string     { return filepath.Join(p.machinesDir(), string(id)) }
func (p *Provider) group(id sandbox.ID) string   { return "/" + p.parent + "/" + jailID(id) }
func (p *Provider) jail(id sandbox.ID) jail.Jail { return p.jailOf(id, record{}) }

// jailID: the jailer wants no underscore.
func jailID(id sandbox.ID) string { return strings.ReplaceAll(string(id), "_", "-") }

func sandboxID(jailID string) (sandbox.ID, error) {
	return sandbox.ParseID(strings.Replace(jailID, "-", "_", 1))
}

func (p *Provider) jailOf(id sandbox.ID, rec record) jail.Jail {
	j := jail.Jail{Dir: p.dir(id), ID: jailID(id), Exec: p.c.Binary, Jailer: p.c.Jailer, UID: rec.UID, GID: rec.UID, Parent: p.parent}
	if rec.Exec != "" {
		j.Exec = rec.Exec // the server may have been started with another
	}
	return j
}

// List implements sandbox.Provider: whatever has a directory, a user or a
// control group.
func (p *Provider) List(context.Context) ([]sandbox.ID, error) {
	var ids []sandbox.ID
	add := func(id sandbox.ID, err error) {
		if err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	dirs, err := os.ReadDir(p.machinesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, d := range dirs {
		add(sandbox.ParseID(d.Name()))
	}
	owners, err := p.owners()
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, id := range owners {
		add(id, nil)
	}
	if p.cgroups != nil {
		for _, name := range p.cgroups.Group("/" + p.parent).Children() {
			add(sandboxID(name))
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
	if err == nil && rec.Process.PID == 0 {
		err = errors.New("it never ran")
	}
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
	if err := m.reconcile(ctx); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("attach %s: %w", id, err)
	}
	return m, nil
}

// Close implements sandbox.Provider.
func (p *Provider) Close() error {
	err := p.machines.Close()
	if p.cgroups != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // one attempt: not empty is no error
		_ = p.cgroups.Group("/" + p.parent).Remove(ctx)
	}
	return err
}

// Users. Each machine has its own, so that one Firecracker that was taken
// over can do nothing to another. A link from the number to the ID is made in
// one step, so it needs no journal; Destroy finds it by the ID.

func (p *Provider) takeUID(id sandbox.ID) (int, error) {
	if p.c.Bare {
		return os.Geteuid(), nil
	}
	for n := range p.c.UIDs {
		uid := p.c.FirstUID + n
		err := os.Symlink(string(id), filepath.Join(p.uidsDir(), fmt.Sprint(uid)))
		if err == nil {
			return uid, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return 0, fmt.Errorf("take a user: %w", err)
		}
	}
	return 0, errs.New(errs.Limit, "all %d users for machines are taken", p.c.UIDs)
}

// owners maps the links' names to IDs.
func (p *Provider) owners() (map[string]sandbox.ID, error) {
	entries, err := os.ReadDir(p.uidsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	owners := map[string]sandbox.ID{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(p.uidsDir(), e.Name()))
		if err != nil {
			continue // released just now
		}
		if id, err := sandbox.ParseID(target); err == nil {
			owners[e.Name()] = id
		}
	}
	return owners, nil
}

func (p *Provider) releaseUID(id sandbox.ID) error {
	owners, err := p.owners()
	if err != nil {
		return err
	}
	for name, owner := range owners {
		if owner != id {
			continue
		}
		if err := os.Remove(filepath.Join(p.uidsDir(), name)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
