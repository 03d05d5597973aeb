package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Name of the provider whose service speaks E2B's API.
const Name = "remote"

// Time limits.
const (
	bootTimeout    = 3 * time.Minute // of a Create whose context has no deadline
	destroyTimeout = time.Minute
	makeTimeout    = 2 * time.Minute // of the service's own part, which is not broken off
	probeKeep      = 2 * time.Minute // of a probe's machine that we cannot end
	keepDefault    = 15 * time.Minute
	keepMin        = 2 * time.Second
)

// Labels of our machines at the service.
const (
	labelServer  = "skete_server"
	labelSandbox = "skete_sandbox"
)

// Files.
const (
	recordName = "machine.json"
	serverName = "server"
)

// Config of a Provider.
type Config struct {
	// Name of the provider.
	Name string
	// Dir holds all state; it belongs to one server at a time.
	Dir     string
	Service Service
	// Keep is after which time a machine ends by itself that we do not ask for any more,
	// and so for how long the service may be silent before its machines are lost; 0 = a
	// quarter of an hour.
	Keep time.Duration
	// Guest is the path of the skete-guest program, for Probe.
	Guest string
	// Log may be nil.
	Log *slog.Logger
}

// Provider has machines made elsewhere. See the package comment.
type Provider struct {
	c      Config
	server string // whose machines are ours

	machines *shared.Table[*machine]
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a provider whose state is in c.Dir, and owns c.Service. Nothing is asked of
// the service.
func New(c Config) (*Provider, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Keep == 0 {
		c.Keep = keepDefault
	}
	if c.Keep < keepMin {
		return nil, errs.New(errs.Invalid, "the time after which a machine elsewhere ends by itself is less than %s", keepMin)
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	p := &Provider{c: c, machines: shared.NewTable[*machine]()}
	if err := os.MkdirAll(filepath.Join(c.Dir, "machines"), 0o700); err != nil {
		return nil, err
	}
	p.server, err = serverID(filepath.Join(c.Dir, serverName))
	return p, err
}

// serverID returns the name by which the service knows us, which is made up once: two
// servers that have the same directories on two hosts are two.
func serverID(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && plain(strings.TrimSpace(string(data)), 64) {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := strings.ToLower(rand.Text())
	return id, writeFile(path, []byte(id+"\n"))
}

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return p.c.Name }

// Capabilities implements sandbox.Provider.
func (p *Provider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Isolation: sandbox.Remote, Rootless: true, Pause: p.c.Service.CanPause(),
		Notes: append([]string{
			"the machine is elsewhere: what isolates it, and what limits it, is what its service says, and not verified",
			"its service sees all that is in it; it is given no secret, no model and no network of this server",
			"commands cannot become root, and can reach the guest program, which runs as their own user",
			"stopped, it is gone: its files come back from their history when it is started",
		}, p.c.Service.Notes()...),
	}
}

func (p *Provider) dir(id sandbox.ID) string { return filepath.Join(p.c.Dir, "machines", string(id)) }

func (p *Provider) labels(id sandbox.ID) map[string]string {
	return map[string]string{labelServer: p.server, labelSandbox: string(id)}
}

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(b.ID)); err != nil {
		return nil, err
	}
	if b.From != "" {
		return nil, fmt.Errorf("create %s: %w", b.ID, errors.Join(sandbox.ErrSnapshot, p.errNoSnapshot()))
	}
	if err := p.refuses(b); err != nil {
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

// refuses says what of a boot cannot be had elsewhere.
func (p *Provider) refuses(b sandbox.Boot) error {
	switch {
	case b.Spec.Root:
		return errs.New(errs.Unsupported, "commands of a machine elsewhere cannot be granted root by this server").
			WithHint("leave root out, or name another provider")
	case b.Spec.HasNetwork():
		return errs.New(errs.Unsupported, "a machine elsewhere has no network of this server, and gets none of its secrets and models").
			WithHint("leave the network and models out, or name another provider")
	case len(b.Forwards) > 0:
		return errs.New(errs.Unsupported, "a machine elsewhere reaches no port of this host")
	}
	return nil
}

func (p *Provider) errNoSnapshot() error {
	return errs.New(errs.Unsupported, "provider %s cannot snapshot", p.c.Name).WithHint("stop the sandbox; the history of its files is kept")
}

// record is what is kept of a machine.
type record struct {
	Place
	Token   string `json:"token"` // ours, for the guest's port
	Port    int    `json:"port"`
	Program string `json:"program,omitempty"` // "" = the guest was not started
}

func (p *Provider) write(id sandbox.ID, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(p.dir(id), recordName), data)
}

func (p *Provider) read(id sandbox.ID) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(p.dir(id), recordName))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record of the machine of %s cannot be read", id)
	}
	return r, nil
}

// writeFile writes a file at once or not at all, durably.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Attach implements sandbox.Provider. A service that does not answer may still have the
// machine: it is taken over then, and its calls say how it is.
func (p *Provider) Attach(ctx context.Context, id sandbox.ID) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return nil, err
	}
	if m := p.machines.Known(id); m != nil && !m.lifetime.Ended() {
		return m, nil
	}
	r, err := p.read(id)
	if err != nil || r.ID == "" || r.Program == "" {
		return nil, errs.Wrap(errs.NotFound, err, "no machine %s runs", id)
	}
	asked, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	paused, err := p.c.Service.Look(asked, r.Place)
	if errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap(errs.NotFound, err, "the machine of %s has ended", id)
	}
	m := p.follow(id, r, paused)
	if err != nil || paused {
		return m, nil
	}
	if err := m.lifetime.AwaitGuest(asked, m.guest); err != nil {
		select {
		case <-m.lifetime.Gone():
			_ = m.Close()
			return nil, errs.Wrap(errs.NotFound, err, "the machine of %s has ended", id)
		default:
			p.c.Log.Warn("a machine elsewhere does not answer yet", "id", id, "error", err)
		}
	}
	return m, nil
}

// attachTimeout is how long a machine is waited for that an earlier process has made.
const attachTimeout = 10 * time.Second

// List implements sandbox.Provider: what has a directory. Each machine had one before
// the service was asked for it.
func (p *Provider) List(context.Context) ([]sandbox.ID, error) {
	entries, err := os.ReadDir(filepath.Join(p.c.Dir, "machines"))
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

// Destroy implements sandbox.Provider.
func (p *Provider) Destroy(ctx context.Context, id sandbox.ID) error {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return err
	}
	return p.machines.Destroy(ctx, id, destroyTimeout, func(ctx context.Context) error { return p.clear(ctx, id) })
}

// clear ends the machine and removes its directory. A machine that the service made
// while we died has no record, but labels.
func (p *Provider) clear(ctx context.Context, id sandbox.ID) error {
	m := p.machines.Known(id)
	if m != nil {
		m.lifetime.Doom(true)
	}
	if _, err := os.Lstat(p.dir(id)); errors.Is(err, fs.ErrNotExist) && m == nil {
		return nil
	}
	if err := p.kill(ctx, id); err != nil {
		return err
	}
	if m != nil {
		m.end(sandbox.ReasonKilled, "its service was asked to end it")
		_ = m.Close()
	}
	return os.RemoveAll(p.dir(id))
}

func (p *Provider) kill(ctx context.Context, id sandbox.ID) error {
	r, err := p.read(id)
	if err == nil && r.ID != "" {
		return p.c.Service.Kill(ctx, r.ID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.c.Log.Warn("a machine elsewhere is looked for by its labels", "id", id, "error", err)
	}
	if _, err := os.Stat(filepath.Join(p.dir(id), askedName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ids, err := p.c.Service.Find(ctx, p.labels(id))
	for _, id := range ids {
		err = errors.Join(err, p.c.Service.Kill(ctx, id))
	}
	return err
}

// Close implements sandbox.Provider.
func (p *Provider) Close() error {
	err := p.machines.Close()
	p.c.Service.Close()
	return err
}
