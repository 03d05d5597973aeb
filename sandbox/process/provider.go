package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Name of the provider.
const Name = "process"

// Time limits.
const (
	bootTimeout    = 30 * time.Second // of a Create whose context has no deadline
	destroyTimeout = 30 * time.Second
)

// mark is the environment variable that names a machine's processes.
const mark = "SKETE_MACHINE"

// Files of a machine's directory.
const (
	bootName   = "boot.json"
	recordName = "machine.json"
	socketName = "host.sock"
)

// Config of a Provider.
type Config struct {
	// Dir holds all state; it belongs to one server at a time.
	Dir string
	// Allow must be set: without it every machine is refused.
	Allow bool
	// Serve serves the streams that guests open to their host; nil refuses them.
	Serve sandbox.ServeGuest
	// Log may be nil.
	Log *slog.Logger
}

// Provider runs guests as processes. See the package comment.
type Provider struct {
	c Config

	machines *shared.Table[*machine]
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a provider whose state is in c.Dir.
//
// Denied: c.Allow is not set.
func New(c Config) (*Provider, error) {
	if !c.Allow {
		return nil, errs.New(errs.Denied, "the process provider does not isolate anything").
			WithHint("use another provider, or say --unsafe-no-isolation if commands may do all that you may")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	p := &Provider{c: c, machines: shared.NewTable[*machine]()}
	return p, os.MkdirAll(c.Dir, 0o700)
}

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements sandbox.Provider.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Isolation: sandbox.None, HostWorkspace: true, Rootless: true,
		Notes: []string{"there is no isolation: commands can do all that the server's user can", "no limit is enforced by the host"},
	}
}

// Probe implements sandbox.Provider. There is nothing that a host could lack.
func (p *Provider) Probe(context.Context) error { return nil }

func (p *Provider) dir(id sandbox.ID) string { return filepath.Join(p.c.Dir, string(id)) }

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(b.ID)); err != nil {
		return nil, err
	}
	m, err := p.machines.Create(ctx, b.ID, shared.Making[*machine]{
		Dir: p.dir(b.ID), BootTimeout: bootTimeout, ClearTimeout: destroyTimeout,
		Boot:  func(ctx context.Context) (*machine, error) { return p.boot(ctx, b) },
		Clear: func(ctx context.Context) error { return p.clear(ctx, b.ID) },
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *Provider) boot(ctx context.Context, b sandbox.Boot) (*machine, error) {
	host, err := p.prepare(b)
	if err != nil {
		return nil, err
	}
	ref, err := p.start(b)
	if err != nil {
		_ = host.Close()
		return nil, err
	}
	m, err := p.follow(b.ID, ref, host)
	if err != nil {
		_ = host.Close()
		if errors.Is(err, hostproc.ErrGone) {
			err = errs.Wrap(errs.Unavailable, err, "the guest ended at once")
		}
		return nil, err
	}
	if err := m.lifetime.AwaitGuest(ctx, m.guest); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

func (p *Provider) prepare(b sandbox.Boot) (*channel.Host, error) {
	dir := p.dir(b.ID)
	for _, d := range []string{"home", "state"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(p.bootFile(b))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, bootName), data, 0o600); err != nil {
		return nil, err
	}
	return channel.Listen(filepath.Join(dir, socketName), p.c.Serve.For(b.ID))
}

// bootFile puts the host's own user and paths in place of a machine's.
func (p *Provider) bootFile(b sandbox.Boot) wire.Boot {
	dir := p.dir(b.ID)
	f := b.BootFile()
	f.Channel = "unix:" + filepath.Join(dir, socketName)
	f.User, f.UID, f.GID = "user", uint32(os.Getuid()), uint32(os.Getgid())
	if u, err := user.Current(); err == nil {
		f.User = u.Username
	}
	f.Home, f.StateDir = filepath.Join(dir, "home"), filepath.Join(dir, "state")
	if rest, ok := strings.CutPrefix(f.Workdir, sandbox.WorkspaceDir); ok {
		f.Workdir = filepath.Join(b.Workspace, rest)
	}
	if f.Env["PATH"] == "" {
		f.Env["PATH"] = os.Getenv("PATH")
	}
	f.Env[mark] = p.mark(b.ID)
	f.MemoryBytes = 0 // the host's memory is not the machine's: nothing to guard
	return f
}

// mark names this machine of this server: two servers may not have the same ID,
// but a test's may.
func (p *Provider) mark(id sandbox.ID) string { return p.dir(id) }

func (p *Provider) start(b sandbox.Boot) (hostproc.Ref, error) {
	dir := p.dir(b.ID)
	cmd := exec.Command(b.Guest, "init", "--boot", filepath.Join(dir, bootName))
	cmd.Dir = b.Workspace
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), mark + "=" + p.mark(b.ID)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return hostproc.Ref{}, errs.Wrap(errs.Unavailable, err, "the guest program does not start")
	}
	ref, err := hostproc.Of(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Wait()
		return ref, errs.Wrap(errs.Unavailable, err, "the guest ended at once")
	}
	_ = cmd.Process.Release() // from here it is followed like anybody's child
	data, err := json.Marshal(ref)
	if err != nil {
		return ref, err
	}
	tmp := filepath.Join(dir, "."+recordName)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return ref, err
	}
	return ref, os.Rename(tmp, filepath.Join(dir, recordName))
}

func (p *Provider) record(id sandbox.ID) (hostproc.Ref, error) {
	var ref hostproc.Ref
	data, err := os.ReadFile(filepath.Join(p.dir(id), recordName))
	if err != nil {
		return ref, err
	}
	return ref, json.Unmarshal(data, &ref)
}

// Attach implements sandbox.Provider.
func (p *Provider) Attach(ctx context.Context, id sandbox.ID) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return nil, err
	}
	if m := p.machines.Known(id); m != nil && !m.lifetime.Ended() {
		return m, nil
	}
	ref, err := p.record(id)
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "no machine %s runs", id)
	}
	m, err := p.follow(id, ref, nil)
	if errors.Is(err, hostproc.ErrGone) {
		return nil, errs.Wrap(errs.NotFound, err, "the machine of %s has ended", id)
	}
	if err == nil {
		if err = m.lifetime.AwaitGuest(ctx, m.guest); err != nil {
			_ = m.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", id, err)
	}
	return m, nil
}

// List implements sandbox.Provider.
func (p *Provider) List(context.Context) ([]sandbox.ID, error) {
	entries, err := os.ReadDir(p.c.Dir)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var ids []sandbox.ID
	for _, e := range entries {
		if id, err := sandbox.ParseID(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Close implements sandbox.Provider.
func (p *Provider) Close() error { return p.machines.Close() }
