package gvisor

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
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
	"github.com/skete-dev/skete/sandbox/gvisor/binary"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Name of the provider.
const Name = "gvisor"

// Time limits.
const (
	bootTimeout    = 60 * time.Second // of a Create whose context has no deadline
	destroyTimeout = 30 * time.Second
	commandTimeout = 20 * time.Second // of one call of runsc but run, checkpoint and restore
	saveTimeout    = 2 * time.Minute  // of writing a machine's memory
)

// Config of a Provider.
type Config struct {
	// Dir holds all state; it belongs to one server at a time.
	Dir string
	// Exe is a program that calls Main first; empty = this one. It plays the
	// guest of a probe, and, if it can, gVisor where Runsc does not.
	Exe string
	// Runsc is a program that is gVisor and little else (see cmd/skete-runsc):
	// a machine starts it three times, and it starts faster. Empty = Exe. What
	// package binary has put beside it and no machine uses is removed.
	Runsc string
	// Creates is how many machines boot at once; 0 = the number of cores,
	// since more of them only wait for each other.
	Creates int
	// Serve serves the streams that guests open to their host; nil refuses them.
	Serve sandbox.ServeGuest
	// Log may be nil.
	Log *slog.Logger
}

// Provider boots machines in gVisor. See the package comment.
type Provider struct {
	c        Config
	cgroups  *cgroup.Tree // nil: no limits by control groups
	noGroups string       // why
	parent   string       // control group of all our machines
	slots    chan struct{}

	fallsBack bool // Exe can be gVisor too

	machines *shared.Table[*machine]

	mu      sync.Mutex
	program string // what new machines run
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a provider whose state is in c.Dir. Machines of an earlier
// process are there: see List and Attach.
//
// Unsupported: the program cannot be re-executed as gVisor, or plays no gVisor
// (see PlaysItself) and no Runsc is named.
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
	if strings.ContainsAny(c.Dir, ",:\n") { // gVisor's flags have no way to quote them
		return nil, errs.New(errs.Invalid, "the state directory's path has a comma, a colon or a newline in it")
	}
	fallsBack := c.Exe != "" || PlaysItself
	if c.Exe == "" {
		if c.Exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if c.Runsc == "" && !fallsBack {
		return nil, errs.New(errs.Unsupported, "this skete cannot play gVisor's part itself, and has no program that does")
	}
	if c.Runsc == "" {
		c.Runsc = c.Exe
	}
	for _, program := range []string{c.Exe, c.Runsc} {
		if err := checkStatic(program); err != nil {
			return nil, err
		}
	}
	p := &Provider{
		c: c, slots: make(chan struct{}, c.Creates), program: c.Runsc, fallsBack: fallsBack,
		machines: shared.NewTable[*machine](),
	}
	for _, dir := range []string{p.runscDir(), p.machinesDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	p.findCgroups()
	p.prune()
	return p, nil
}

// prune removes programs of earlier versions that no machine runs.
func (p *Provider) prune() {
	if p.c.Runsc == p.c.Exe {
		return
	}
	used := []string{p.c.Runsc}
	ids, err := p.List(context.Background())
	for _, id := range ids {
		rec, rerr := readRecord(p.dir(id))
		if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		used = append(used, rec.Program)
	}
	if err == nil {
		err = binary.Prune(filepath.Dir(p.c.Runsc), func(path string) bool { return slices.Contains(used, path) })
	}
	if err != nil {
		p.c.Log.Warn("gvisor: old programs are kept", "error", err)
	}
}

// Program returns what new machines run as gVisor, and whether that is a
// program for this alone; else it is skete itself, which starts more slowly.
func (p *Provider) Program() (path string, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.program, p.program != p.c.Exe
}

// checkStatic refuses a program that needs a dynamic loader: gVisor's sentry
// starts in an empty root directory and would die without a word.
func checkStatic(exe string) error {
	f, err := elf.Open(exe)
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "the program to run as gVisor cannot be read").
			WithHint("name a static build of skete as the program")
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errs.New(errs.Unsupported, "this skete is dynamically linked and cannot run gVisor").
				WithHint("build it with CGO_ENABLED=0, as `make build` does")
		}
	}
	return nil
}

// findCgroups decides whether limits can be set. The group of our machines is
// named by the state directory, so that two servers never take each other's.
func (p *Provider) findCgroups() {
	sum := sha256.Sum256([]byte(p.c.Dir))
	p.parent = "/skete-" + hex.EncodeToString(sum[:6])
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
		p.c.Log.Warn("gvisor: limits of memory, cpu and processes are not enforced by the host", "error", err)
		return
	}
	p.cgroups = &tree
}

func (p *Provider) rootless() bool { return os.Geteuid() != 0 }

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements sandbox.Provider.
func (p *Provider) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{
		Isolation: sandbox.UserKernel, Pause: true, HostWorkspace: true,
		Rootless: p.rootless(),
		// Processes are counted by the guest, the root's writable layer by the
		// sentry, the workspace by its volume.
		LimitsPids: true, LimitsDisk: true,
		LimitsMemory: p.cgroups != nil, LimitsCPU: p.cgroups != nil,
		HidesHostFiles: true, HidesHostNetwork: true, Network: true,
		Snapshot: !p.rootless(), Fork: !p.rootless(),
	}
	if p.cgroups == nil {
		c.Notes = append(c.Notes,
			"limits of memory and cpu are not enforced by the host: "+p.noGroups,
			"the bound on processes is kept by the guest alone")
	}
	if p.rootless() {
		c.Notes = append(c.Notes,
			"without root, gVisor saves and restores no memory: no snapshots, no forks but of the disk",
			"without root, all files in the workspace belong to the sandbox's user, and so do the template's own: commands may change them in their own layer")
	}
	return c
}

// Where things are. All names derive from the ID.

func (p *Provider) runscDir() string                   { return filepath.Join(p.c.Dir, "runsc") }
func (p *Provider) machinesDir() string                { return filepath.Join(p.c.Dir, "machines") }
func (p *Provider) dir(id sandbox.ID) string           { return filepath.Join(p.machinesDir(), string(id)) }
func (p *Provider) bootDir(id sandbox.ID) string       { return filepath.Join(p.dir(id), "boot") }
func (p *Provider) group(id sandbox.ID) cgroup.Group   { return p.cgroups.Group(p.groupPath(id)) }
func (p *Provider) groupPath(id sandbox.ID) string     { return p.parent + "/" + string(id) }
func (p *Provider) controlSocket(id sandbox.ID) string { return "runsc-" + string(id) + ".sock" }

// List implements sandbox.Provider: whatever has a directory, a runsc state
// file or a control group.
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
	states, err := os.ReadDir(p.runscDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, s := range states {
		if _, name, ok := strings.Cut(s.Name(), "_sandbox:"); ok { // sbx_x_sandbox:sbx_x.state
			add(strings.TrimSuffix(strings.TrimSuffix(name, ".state"), ".lock"))
		}
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
	if where := p.original(id, rec); where != "" {
		p.c.Log.Warn("gvisor: this data directory is a copy; the machine runs for the original and is left alone", "id", id, "original", where)
		return nil, errs.New(errs.NotFound, "the machine of %s belongs to the data directory that this one was copied from", id)
	}
	if rec.Saving != "" {
		if rec, err = p.recover(ctx, id, rec); err != nil {
			return nil, fmt.Errorf("attach %s: %w", id, err)
		}
	}
	m, err := p.follow(id, rec, nil)
	if errors.Is(err, hostproc.ErrGone) {
		return nil, errs.Wrap(errs.NotFound, err, "the machine of %s has ended", id)
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", id, err)
	}
	if !rec.Paused && !rec.Suspended { // a paused guest cannot answer, and need not
		if err := m.lifetime.AwaitGuest(ctx, m.guest); err != nil {
			_ = m.Close()
			return nil, fmt.Errorf("attach %s: %w", id, err)
		}
	}
	return m, nil
}

// Close implements sandbox.Provider.
func (p *Provider) Close() error { return errors.Join(p.machines.Close(), p.release()) }

// release removes what the machines share: the mount of an empty network
// namespace that runsc keeps for its gofers (those that run hold it
// themselves; concurrent starts may have stacked several), and the control
// group if it is empty.
func (p *Provider) release() error {
	path := filepath.Join(p.runscDir(), "null-netns")
	for unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if p.cgroups != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // one attempt: not empty is no error
		_ = p.cgroups.Group(p.parent).Remove(ctx)
	}
	return err
}
