// Package serve wires a server together from its parts and runs it.
//
//	err := serve.Run(ctx, serve.Config{Home: home, Config: c, Log: log, Say: os.Stderr})
//
// Run returns when ctx ended and everything was let go in order, or when
// something kept the server from starting. Sandboxes live on: the next server
// of the same data directory finds them. A data directory has one server.
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/cowork/runner"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/guest/binary"
	"github.com/skete-dev/skete/internal/volume"
	mcpclient "github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/plugin"
	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	runsc "github.com/skete-dev/skete/sandbox/gvisor/binary"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/sandbox/process"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/declared"
)

// Config of a server.
type Config struct {
	config.Config
	Home    string
	Version string
	Log     *slog.Logger
	// ServeGuest serves what machines ask their host for; nil = nothing.
	ServeGuest sandbox.ServeGuest
	// Say is for people: the admin key of the first start goes there and
	// nowhere else.
	Say io.Writer
}

// Facts is what server.json in the data directory says of a running server.
type Facts struct {
	PID       int       `json:"pid"`
	URL       string    `json:"url,omitempty"` // "" = the unix socket alone
	Socket    string    `json:"socket"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
}

// FactsPath is where a server of home says how to reach it.
func FactsPath(home string) string { return filepath.Join(home, "server.json") }

// running is a server with all its parts. Parts are closed in reverse order.
type running struct {
	c          Config
	closers    []func() error
	store      *store.Store
	node       node
	tcp        net.Listener
	manager    *manager.Manager
	managed    chan struct{} // closed when there is the manager
	histories  *history.Service
	previews   atomic.Pointer[preview.Previews] // an undo may be done before there are any
	templates  templates
	tools      *tool.Registry
	toolFolder *declared.Folder // of the operator's own
	toolRuns   toolRuns
	covers     func(name string) bool // see definition.Checker
	audit      *audit.Log
	events     event.Log // those of the store, told to the audit log too
	networks   *network.Service
	secrets    *secret.Store
	skills     *skill.Store
	tokens     *secret.Tokens
	gateway    *gateway.Gateway
	supervisor *supervisor.Supervisor
	refused    atomic.Pointer[supervisor.Supervisor] // the same, for machines that send before there is one
	schedules  *schedule.Scheduler
	workflows  *runner.Runner
	models     modelList
	plugins    *plugin.Host

	mcp            *mcpclient.Source // nil = no servers
	pluginMachines *pluginMachines
	server         *server.Server
	still          *time.Timer // says what the start waits for
}

// Run starts a server and serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	// What our parent left open is not for machines and tools that we start
	// (a shell's descriptors once made a build of a template fail).
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := prepare(c.Home); err != nil {
		return err
	}
	r := &running{c: c}
	r.onClose(func() error {
		r.doing("")
		return nil
	})
	err := r.open(ctx)
	if err == nil {
		err = r.serve(ctx)
	}
	return errors.Join(err, r.close())
}

// prepare makes the data directory ours alone: it holds the socket through
// which root's and our own calls need no key.
func prepare(home string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return errs.Wrap(errs.Invalid, err, "cannot make the data directory").WithHint("set SKETE_HOME to a directory that is yours")
	}
	info, err := os.Stat(home)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "cannot look at the data directory")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return errs.New(errs.Denied, "others may write into the data directory %s", home).WithHint("chmod 700 %s", home)
	}
	return nil
}

func (r *running) onClose(f func() error) { r.closers = append(r.closers, f) }

func (r *running) close() error {
	var all error
	for _, f := range slices.Backward(r.closers) {
		all = errors.Join(all, f())
	}
	r.closers = nil
	return all
}

// open makes all parts. The store comes first: it holds the lock of the data
// directory.
func (r *running) open(ctx context.Context) error {
	var err error
	r.doing("opening the store")
	r.store, err = store.Open(ctx, store.Config{
		Dir: r.in("store"), URL: r.c.Store.URL, SyncInterval: time.Duration(r.c.Store.SyncInterval),
		StoreBytesMax: r.c.Store.BytesMax, MemoryBytesMax: r.c.Store.MemoryMax, Replicas: r.c.Store.Replicas, Log: r.c.Log,
	})
	if err != nil {
		return err
	}
	r.onClose(r.store.Close)
	if r.node, err = identity(r.c.Home); err != nil {
		return err
	}
	if r.store.External() {
		if err := ownStore(ctx, r.store, r.node); err != nil {
			return err
		}
	}
	if err := r.openAudit(ctx); err != nil {
		return err
	}
	if err := r.listenTCP(ctx); err != nil {
		return err
	}
	r.doing("preparing templates and providers")
	templates, err := r.openTemplates()
	if err != nil {
		return err
	}
	r.templates = templates
	if err := r.openManager(ctx, templates); err != nil {
		return err
	}
	r.histories.Recover()
	r.openPlugins(ctx)
	if err := r.openSkills(ctx); err != nil {
		return err
	}
	r.doing("reading the runs")
	if err := r.openAgents(ctx); err != nil {
		return err
	}
	r.doing("opening the API")
	return r.openServer(ctx, templates)
}

func (r *running) in(name string) string { return filepath.Join(r.c.Home, name) }

func (r *running) openManager(ctx context.Context, templates templates) error {
	guest, err := Guest(r.c.Guest, r.c.Home)
	if err != nil {
		return err
	}
	if err := r.openNetworks(ctx); err != nil {
		return err
	}
	providers, err := r.providers(ctx)
	if err != nil {
		return err
	}
	disks, err := volume.Open(cmp.Or(r.c.Volumes, r.in("volumes")))
	if err != nil {
		return err
	}
	host, home, err := r.host(disks)
	if err != nil {
		return err
	}
	registry, err := r.store.KV(ctx, "sandboxes")
	if err != nil {
		return err
	}
	r.openHistories(home.GoOn)
	if r.c.Defaults.DiskMB == 0 && host.MostMB() < sandbox.DefaultDefaults().DiskMB {
		r.c.Defaults.DiskMB = host.MostMB()
	}
	mc := manager.Config{
		Dir: r.in("sandboxes"), Node: r.node.ID, Formerly: []string{formerNode}, Providers: providers, Templates: templates, Volumes: volumes{disks}, Disks: disks, Host: host,
		Registry: registry, Events: r.events, Guest: guest, Limits: limits(r.c.Limits), Defaults: defaults(r.c.Defaults), Log: r.c.Log,
		Warm: warmConfig(r.c.Config), Ending: r.histories.Ending, Detaching: r.detaching, Networks: withModels{r.networks, r.gateway, r.tokens}, Histories: r.histories.Held,
	}
	if r.store.External() {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		mc.Formerly = append(mc.Formerly, name) // as it was called on an external store
		if mc.Leases, err = r.store.Leases(ctx); err != nil {
			return err
		}
	}
	r.doing("reading the sandboxes")
	if r.manager, err = manager.Open(ctx, mc); err != nil {
		return err
	}
	close(r.managed)
	r.onClose(r.manager.Close)
	templates.Guard(r.manager.InUse)
	return nil
}

// providers makes those that are configured and can be made here.
func (r *running) providers(ctx context.Context) ([]sandbox.Provider, error) {
	names := r.c.Providers
	if r.c.UnsafeNoIsolation && !slices.Contains(names, process.Name) {
		names = append(slices.Clone(names), process.Name)
	}
	var list []sandbox.Provider
	var reasons error
	for _, name := range names {
		p, err := Provider(ctx, r.c, name, r.c.Home)
		if err != nil {
			say := r.c.Log.Warn
			if slices.Equal(r.c.Providers, config.Builtin().Providers) {
				say = r.c.Log.Info // the built-in list, not the operator's choice
			}
			say("a provider cannot be used", "provider", name, "error", err, "hint", errs.Hint(err))
			reasons = errors.Join(reasons, err)
			continue
		}
		list = append(list, p)
		r.onClose(p.Close)
	}
	if len(list) == 0 {
		return nil, reasons
	}
	return list, nil
}

// Guest returns the path of the guest program: the named one, or the embedded
// one, which is put into home.
func Guest(named, home string) (string, error) {
	if named == "" {
		return binary.Install(filepath.Join(home, "guest"))
	}
	path, err := filepath.Abs(named)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "", errs.Wrap(errs.Invalid, err, "the guest program that SKETE_GUEST names cannot be run").
			WithHint("`go build -o PATH ./cmd/skete-guest` with CGO_ENABLED=0 makes one")
	}
	return path, nil
}

// Runsc returns the path of the embedded program that is gVisor alone, which is
// put into home; "" = skete must play the part itself, and the log says why.
// Unsupported: skete cannot (see gvisor.PlaysItself).
func Runsc(ctx context.Context, home string, log *slog.Logger) (string, error) {
	path, err := runsc.Install(ctx, filepath.Join(home, "runsc"))
	switch {
	case err == nil:
		log.Info("gVisor is run by a program of its own", "program", path)
		return path, nil
	case !gvisor.PlaysItself:
		return "", err
	}
	log.Warn("skete itself will run as gVisor; machines start more slowly so", "error", err, "hint", errs.Hint(err))
	return "", nil
}

func limits(l config.Limits) sandbox.Limits {
	return sandbox.Limits{
		CPUsMax: l.CPUs, MemoryMBMax: l.MemoryMB, DiskMBMax: l.DiskMB, PidsMax: l.Pids,
		TTLMax: time.Duration(l.TTL), IdleTimeoutMax: time.Duration(l.IdleTimeout),
		Sandboxes: l.Sandboxes, Snapshots: l.Snapshots, TenantDiskMB: l.TenantDiskMB, TenantCPUs: l.TenantCPUs, TenantMemoryMB: l.TenantMemoryMB,
	}
}

func defaults(d config.Defaults) sandbox.Defaults {
	return sandbox.Defaults{
		Template: d.Template, Network: d.Network, Provider: d.Provider, CPUs: d.CPUs, MemoryMB: d.MemoryMB, DiskMB: d.DiskMB, PidsMax: d.Pids,
		TTL: time.Duration(d.TTL), IdleTimeout: time.Duration(d.IdleTimeout), PausedTimeout: time.Duration(d.PausedTimeout),
	}
}

func (r *running) openServer(ctx context.Context, templates templates) error {
	keys, err := r.store.KV(ctx, keysBucket)
	if err != nil {
		return err
	}
	makers, err := r.openMakers(templates)
	if err != nil {
		return err
	}
	tenants, err := r.openUpkeep(ctx)
	if err != nil {
		return err
	}
	tenants.Resume(ctx)
	c := server.Config{
		Sandboxes: noticing{r.manager, r.histories}, Histories: r.histories, Looked: r.histories.Took, Events: r.events, Templates: templates, Makers: makers, Keys: keys, Ready: r.store.Healthy,
		Warm: warm{r.manager}, Networks: r.networks, Secrets: r.secrets, Skills: r.skills, Plugins: r.pluginMachines, Runs: r.supervisor, Schedules: r.schedules, Workflows: r.workflows, ToolRuns: r.toolRuns, Models: r.models, Upkeep: tenants, Tools: r.tools.Names(), Covers: r.covers,
		Audit: r.audit, Log: r.c.Log, Version: r.c.Version, Hosts: r.c.Hosts,
	}
	if r.mcp != nil {
		c.MCPServers = mcpServers{r.mcp}
	}
	if c.Bridges, err = r.store.KV(ctx, bridgesBucket); err != nil {
		return err
	}
	if r.c.History.Steps {
		c.Steps = steps{r.histories}
	}
	if err := r.browse(ctx, &c); err != nil {
		return err
	}
	if r.server, err = server.New(c); err != nil {
		return err
	}
	r.sweep(r.server.Sweep)
	secret, created, err := r.server.EnsureAdminKey(ctx)
	if err != nil {
		return err
	}
	if created {
		fmt.Fprintf(r.c.Say, "skete: the admin key, shown this once (the local socket needs none):\n  %s\n", secret.Reveal())
	}
	return nil
}

// listenTCP takes the port early, so that a taken one ends the start at once.
func (r *running) listenTCP(ctx context.Context) error {
	if r.c.Listen == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.c.Listen)
	if err != nil {
		return errs.Wrap(errs.Conflict, err, "cannot listen on %s", r.c.Listen).
			WithHint("another program has the port? choose another with --listen or `listen:`; --listen '' uses the unix socket alone")
	}
	r.tcp = l
	r.onClose(func() error {
		_ = l.Close() // closed already when the server ran
		return nil
	})
	return nil
}

// listenUnix replaces the socket that a dead server left; the lock of the data
// directory is ours.
func (r *running) listenUnix(ctx context.Context) (net.Listener, error) {
	path := client.SocketPath(r.c.Home)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var l net.Listener
	err := client.WithShortPath(path, func(short string) error {
		var err error
		l, err = (&net.ListenConfig{}).Listen(ctx, "unix", short)
		return err
	})
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot listen on the unix socket")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by its real path, below
	r.onClose(func() error {
		_ = l.Close()
		_ = os.Remove(path)
		return nil
	})
	return l, os.Chmod(path, 0o600)
}

func (r *running) serve(ctx context.Context) error {
	unix, err := r.listenUnix(ctx)
	if err != nil {
		return err
	}
	if err := r.writeFacts(); err != nil {
		return err
	}
	ctx, stop := r.whileAtHome(ctx)
	defer stop()
	r.doing("")
	tell, told := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { r.tellAttaching(tell) })
	defer teller.Wait()
	defer told()
	r.c.Log.Info("skete serves", "version", r.c.Version, "home", r.c.Home, "url", r.url())
	r.notify("READY=1")
	err = r.server.Serve(ctx, r.tcp, unix)
	r.notify("STOPPING=1")
	if cause := context.Cause(ctx); errors.Is(cause, errHomeless) {
		err = errors.Join(err, cause)
	}
	r.c.Log.Info("skete stops; sandboxes live on")
	return err
}

func (r *running) url() string {
	if r.tcp == nil {
		return ""
	}
	return "http://" + r.tcp.Addr().String()
}

func (r *running) writeFacts() error {
	data, err := json.Marshal(Facts{
		PID: os.Getpid(), URL: r.url(), Socket: client.SocketPath(r.c.Home), Version: r.c.Version, StartedAt: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	path := FactsPath(r.c.Home)
	r.onClose(func() error {
		_ = os.Remove(path)
		return nil
	})
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
