package docker

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
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Name of the provider.
const Name = "docker"

// Time limits.
const (
	bootTimeout    = 60 * time.Second // of a Create whose context has no deadline
	destroyTimeout = 30 * time.Second
	clearTimeout   = 15 * time.Second // of what a Create that failed clears away
	giveUp         = 5 * time.Second  // after a Create's time is up, until a request under way is dropped
	lookTimeout    = 3 * time.Second  // for a first look at the engine, when the server starts
)

// Labels by which our containers and images are known.
const (
	labelServer  = "skete.server"  // whose: a hash of the state directory
	labelSandbox = "skete.sandbox" // the ID
	labelRoot    = "skete.root"    // of an image: the hash of what it holds
)

// Config of a Provider.
type Config struct {
	// Dir holds all state; it belongs to one server at a time. The engine must
	// see it under the same path.
	Dir string
	// Host is the engine's socket, "unix:///path"; "" = DOCKER_HOST, or the
	// first of the usual places where there is one.
	Host string
	// Guest is the path of the skete-guest program, for Probe.
	Guest string
	// Creates is how many machines boot at once; 0 = twice the number of
	// cores: much of a boot is waiting for the engine.
	Creates int
	// Serve serves the streams that guests open to their host; nil refuses them.
	Serve sandbox.ServeGuest
	// Log may be nil.
	Log *slog.Logger
}

// Provider boots machines as containers. See the package comment.
type Provider struct {
	c      Config
	engine *engine.Client
	server string // the label's value
	slots  chan struct{}
	roots  *roots

	mu     sync.Mutex // guards both below
	caps   sandbox.Capabilities
	unable error // why this engine is not for us; nil = it may be

	clearing keylock.Locks[sandbox.ID] // a Destroy at a time

	machines *shared.Table[*machine]
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a provider whose state is in c.Dir. Machines of an earlier
// process are there: see List and Attach. The engine is looked at, but need
// not answer.
//
// Unsupported: the engine's address is not a socket of this host.
func New(c Config) (*Provider, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Creates <= 0 {
		c.Creates = 2 * runtime.NumCPU()
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	if c.Host == "" {
		c.Host = findHost()
	}
	client, err := engine.Open(c.Host)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(c.Dir))
	p := &Provider{
		c: c, engine: client, server: hex.EncodeToString(sum[:6]), slots: make(chan struct{}, c.Creates),
		machines: shared.NewTable[*machine](),
	}
	if err := os.MkdirAll(p.machinesDir(), 0o700); err != nil {
		return nil, err
	}
	scratch, err := volume.Open(filepath.Join(c.Dir, "scratch"))
	if err != nil {
		return nil, err
	}
	p.roots = newRoots(p, scratch)
	p.look()
	return p, nil
}

// findHost returns the address of the engine's socket: DOCKER_HOST, or the
// first that is there of Docker's and Podman's usual places, or Docker's.
func findHost() string {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return host
	}
	places := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		places = append(places, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman/podman.sock"))
	}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
			return "unix://" + path
		}
	}
	return "unix://" + places[0]
}

// look learns what this engine can do.
func (p *Provider) look() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	info, err := p.engine.Info(ctx)
	if err != nil {
		p.c.Log.Debug("docker: the engine does not answer", "error", err)
	}
	p.learn(info, err)
}

// learn keeps what an engine says of itself; err: it did not answer.
func (p *Provider) learn(info engine.Info, err error) {
	caps := judge(info, err)
	p.roots.describe(&caps)
	if err == nil {
		err = unfit(info)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caps, p.unable = caps, err
}

// judge says what an engine's words are worth to us; err: it did not speak.
func judge(i engine.Info, err error) sandbox.Capabilities {
	c := sandbox.Capabilities{
		Isolation: sandbox.Container, Pause: true, HostWorkspace: true,
		LimitsMemory: i.MemoryLimit, LimitsCPU: i.CPUCfsQuota, LimitsPids: i.PidsLimit,
		HidesHostFiles: true, HidesHostNetwork: true, Network: true,
		Notes: []string{"containers share the host's kernel: a hole in it is a hole in every sandbox"},
	}
	if err != nil {
		c.Notes = append(c.Notes, "the container engine does not answer; nothing is known of its limits")
		return c
	}
	for what, ok := range map[string]bool{"memory": c.LimitsMemory, "cpu": c.LimitsCPU, "processes": c.LimitsPids} {
		if !ok {
			c.Notes = append(c.Notes, "the container engine does not limit "+what+" here")
		}
	}
	if c.LimitsMemory && !i.SwapLimit {
		c.Notes = append(c.Notes, "the container engine does not limit swap here: a sandbox may use it beyond its memory")
	}
	if !hasOption(i, "seccomp") {
		c.Notes = append(c.Notes, "the container engine filters no system calls (seccomp) here")
	}
	slices.Sort(c.Notes)
	return c
}

// unfit refuses engines that would not do what we ask.
func unfit(i engine.Info) error {
	switch {
	case i.OSType != "" && i.OSType != "linux":
		return errs.New(errs.Unsupported, "the container engine runs %.20q containers, not Linux ones", i.OSType)
	case i.Rootless || hasOption(i, "rootless"):
		return errs.New(errs.Unsupported, "the container engine runs without root, so it maps users in a way that the workspace's files would not survive").
			WithHint("use the system's engine (run the server as root), or the gvisor provider, which needs no root")
	case hasOption(i, "userns"):
		return errs.New(errs.Unsupported, "the container engine maps users (userns-remap), and the workspace's files would have no owner").
			WithHint("start a second engine without userns-remap and name its socket in DOCKER_HOST")
	}
	return nil
}

// hasOption looks for "name=option" in an engine's security options.
func hasOption(i engine.Info, option string) bool {
	return slices.ContainsFunc(i.SecurityOptions, func(s string) bool {
		return slices.Contains(strings.Split(s, ","), "name="+option)
	})
}

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements sandbox.Provider. They are what the engine said last:
// one that is slow to start is asked again by each Probe.
func (p *Provider) Capabilities() sandbox.Capabilities {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.caps
	c.Notes = slices.Clone(c.Notes)
	return c
}

// Where things are. All names derive from the ID.

func (p *Provider) machinesDir() string { return filepath.Join(p.c.Dir, "machines") }

func (p *Provider) dir(id sandbox.ID) string       { return filepath.Join(p.machinesDir(), string(id)) }
func (p *Provider) bootDir(id sandbox.ID) string   { return filepath.Join(p.dir(id), "boot") }
func (p *Provider) container(id sandbox.ID) string { return "skete-" + p.server + "-" + string(id) }
func (p *Provider) labels(id sandbox.ID) map[string]string {
	return map[string]string{labelServer: p.server, labelSandbox: string(id)}
}

// List implements sandbox.Provider: whatever has a directory or a container.
// Every container of ours had a directory first; so where there is none and
// no engine either, there is nothing.
func (p *Provider) List(ctx context.Context) ([]sandbox.ID, error) {
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
	names, err := p.roots.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, name := range names {
		add(name)
	}
	containers, err := p.engine.List(ctx, labelServer+"="+p.server)
	if err != nil && (len(ids) > 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, c := range containers {
		add(c.Labels[labelSandbox])
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
	d, err := p.engine.Inspect(ctx, p.container(id))
	if errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap(errs.NotFound, err, "no machine %s runs", id)
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", id, err)
	}
	if !d.State.Running {
		return nil, errs.New(errs.NotFound, "the machine of %s has ended", id)
	}
	m, err := p.follow(id, d.ID, nil)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", id, err)
	}
	if !d.State.Paused { // a paused guest cannot answer, and need not
		if err := m.lifetime.AwaitGuest(ctx, m.guest); err != nil {
			_ = m.Close()
			return nil, fmt.Errorf("attach %s: %w", id, err)
		}
	}
	return m, nil
}

// Close implements sandbox.Provider.
func (p *Provider) Close() error {
	err := p.machines.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	if e := p.roots.sweep(ctx); e != nil { // they are small, and labelled: the next Close tries again
		p.c.Log.Debug("docker: images are left in the engine", "error", e)
	}
	p.engine.Close()
	return err
}
