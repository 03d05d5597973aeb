// Package server is the HTTP surface: JSON resources with OpenAPI 3.1, streams
// (server-sent events, WebSockets), keys, metrics. The routes are listed in
// package api.
//
//	s, err := server.New(server.Config{Sandboxes: manager, Templates: templates, Keys: kv, Log: log})
//	secret, created, err := s.EnsureAdminKey(ctx)
//	err = s.Serve(ctx, tcp, unixListener) // until ctx ends
//
// Beneath it: route is the table of all routes and what surrounds each, gate
// decides who may come in, key keeps API keys, inside serves what is inside a
// sandbox, runs serves what agents do (follow merges their streams, transcript
// tells their story), stream moves bytes, view translates between guest and
// caller, problem makes errors readable. This package has the rest: sandboxes,
// templates, keys, metrics, the life of the server.
//
// Promises. Every request has an id, an entry in the log and a count in the
// metrics. A route without a declared right cannot be registered. An error
// shows only texts written for users. Serve ends gracefully: no new requests,
// streams told why they end, requests under way finished within StopTimeout.
//
// A Server is safe for concurrent use; Serve is called once.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/envd"
	"github.com/skete-dev/skete/server/history"
	"github.com/skete-dev/skete/server/inside"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/login"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/share"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/server/workflow"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/web"
)

// Sandboxes is what the server needs of *manager.Manager.
type Sandboxes interface {
	Create(ctx context.Context, tenant string, r sandbox.CreateRequest) (sandbox.Info, error)
	Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	// Find returns the ID for an ID or a name.
	Find(ctx context.Context, tenant, name string) (sandbox.ID, error)
	List(ctx context.Context, tenant string, f sandbox.Filter) (sandbox.Page, error)
	Update(ctx context.Context, tenant string, id sandbox.ID, u sandbox.UpdateRequest) (sandbox.Info, error)
	Start(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Stop(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Pause(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Resume(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Destroy(ctx context.Context, tenant string, id sandbox.ID) error
	// Discard is Destroy without a last revision of the files.
	Discard(ctx context.Context, tenant string, id sandbox.ID) error
	Fork(ctx context.Context, tenant string, id sandbox.ID, r sandbox.ForkRequest) ([]sandbox.Info, error)
	Snapshot(ctx context.Context, tenant string, id sandbox.ID, r sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) (sandbox.Snapshot, error)
	ListSnapshots(ctx context.Context, tenant string) []sandbox.Snapshot
	DeleteSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) error
	Guest(ctx context.Context, tenant string, id sandbox.ID) (c *wire.Client, release func(), err error)
	Dial(ctx context.Context, tenant string, id sandbox.ID, port uint32) (net.Conn, error)
	Subscribe(ctx context.Context, tenant string, from uint64) (*sandbox.Subscription, error)
	Settle(ctx context.Context, s sandbox.Spec) (sandbox.Spec, error)
	Probes(ctx context.Context) []sandbox.ProbeResult
	Default(ctx context.Context) (sandbox.ProbeResult, error)
	Limits() sandbox.Limits
	Used(tenant string) sandbox.Used
	// Attaching says how many sandboxes were found at the start, and how many of
	// them are in order again.
	Attaching() (done, total int)
	Counts(ctx context.Context) map[string]sandbox.Counts
}

// Runs is what the server needs of *supervisor.Supervisor, Schedules what it needs
// of *schedule.Scheduler.
type (
	Runs      = runs.Supervisor
	Schedules = runs.Schedules
	Workflows = workflow.Workflows // of *runner.Runner
)

// Templates is what the server needs of *template.Store.
type Templates interface {
	Images
	List(ctx context.Context) ([]template.Info, error)
	Remove(ctx context.Context, name string) error
}

// Steps and Step make calls that may change files steps of a history.
type (
	Steps = route.Steps
	Step  = route.Step
)

// Limits of the surface. Zero = the built-in value.
type Limits struct {
	StreamsPerKey     int           // open streams of one key; 500
	UploadBytesMax    int64         // of a file or a tree; 64 GiB (the sandbox's disk is the real bound)
	TemplateBytesMax  int64         // of a template's tar; 64 GiB
	HeaderBytesMax    int           // 64 KiB
	ReadHeaderTimeout time.Duration // 10 s
	IdleTimeout       time.Duration // of a kept connection; 2 min
	StopTimeout       time.Duration // of the graceful end; 15 s
	WrongKeysMax      int           // that an address may send at once; 20
}

func (l *Limits) setDefaults() {
	setDefault(&l.StreamsPerKey, 500)
	setDefault(&l.UploadBytesMax, 64<<30)
	setDefault(&l.TemplateBytesMax, 64<<30)
	setDefault(&l.HeaderBytesMax, 64<<10)
	setDefault(&l.ReadHeaderTimeout, 10*time.Second)
	setDefault(&l.IdleTimeout, 2*time.Minute)
	setDefault(&l.StopTimeout, 15*time.Second)
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Config of a Server.
type Config struct {
	Sandboxes Sandboxes
	Events    event.Log // nil = the server tells of none
	Templates Templates
	Makers    Makers    // nil = the server makes no templates; its routes say so
	Runs      Runs      // nil = the server runs no agents; its routes say so
	Schedules Schedules // nil = the same
	Workflows Workflows // nil = the same
	ToolRuns  ToolRuns  // nil = the same
	Models    Models    // nil = the same
	Upkeep    Upkeep    // nil = the same
	Warm      Warm      // nil = the server keeps nothing warm
	Networks  Networks  // nil = sandboxes have no networks
	Secrets   Secrets   // nil = there are none
	Skills    Skills    // nil = there are none
	Plugins   Plugins   // nil = there are none
	// MCPServers are those whose tools agents use; nil = there are none.
	MCPServers MCPServers
	Audit      Audit // nil = nothing is kept of who did what
	// Histories opens the histories of workspaces; nil = the server keeps none; its routes say so.
	Histories history.Histories
	// Bridges keeps what SDKs of others need to work with sandboxes; nil = they cannot.
	Bridges kv.Store
	// Looked is how long the files of a tenant's sandboxes have been looked at; nil = not known.
	Looked func(tenant string) time.Duration
	// Steps makes revisions before and after calls that may change files; nil = none are made.
	Steps Steps
	// Tools are the names of all tools of agents; nil = not known.
	Tools []string
	// Covers reports whether a name can stand for a tool that is not among them; nil = none can.
	Covers func(name string) bool
	Keys   kv.Store
	// Ring has the keys of Keys; nil = one of its own.
	Ring *key.Ring
	// Logins lets browsers in; nil = none come in.
	Logins *login.Store
	// Shares are addresses at which runs can be read without a key; nil = they are kept with the keys.
	Shares *share.Store
	Issuer login.Issuer // nil = browsers show a key
	// Origins are scheme://host[:port] under which browsers know the server.
	Origins  []string
	Previews Previews // nil = the server shows none
	// Ready reports whether the store works; nil = always.
	Ready   func(context.Context) error
	Log     *slog.Logger // nil = none
	Version string
	// Hosts are names, beside loopback ones, that a client on this machine
	// may call the server by.
	Hosts  []string
	Limits Limits
}

// Server serves the API.
type Server struct {
	sandboxes  Sandboxes
	events     event.Log
	templates  Templates
	makers     Makers
	models     Models
	toolRuns   ToolRuns
	upkeep     Upkeep
	warm       Warm
	networks   Networks
	secrets    Secrets
	skills     Skills
	plugins    Plugins
	mcpServers MCPServers
	audit      Audit
	looked     func(tenant string) time.Duration
	keys       *key.Ring
	gate       *auth.Authenticator
	previews   Previews
	hub        *stream.Hub
	metrics    *metrics
	ready      func(context.Context) error
	log        *slog.Logger
	version    string
	limits     Limits

	table  *route.Table
	bridge *envd.Bridge // nil = there is none
}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	if c.Sandboxes == nil || c.Templates == nil || c.Keys == nil {
		return nil, errs.New(errs.Internal, "a server needs sandboxes, templates and a store for keys")
	}
	c.Limits.setDefaults()
	ring := c.Ring
	if ring == nil {
		ring = key.NewRing(c.Keys)
	}
	s := &Server{
		sandboxes: c.Sandboxes, events: c.Events, templates: c.Templates, makers: c.Makers, models: c.Models, toolRuns: c.ToolRuns, upkeep: c.Upkeep, warm: c.Warm, networks: c.Networks, secrets: c.Secrets, skills: c.Skills, plugins: c.Plugins, mcpServers: c.MCPServers, audit: c.Audit, looked: c.Looked, keys: ring,
		gate: auth.New(auth.Config{Keys: ring, Hosts: append(bridgeHosts(c), c.Hosts...), Logins: c.Logins, Origins: c.Origins, WrongKeysMax: c.Limits.WrongKeysMax}), previews: c.Previews,
		hub:   stream.NewHub(c.Limits.StreamsPerKey),
		ready: c.Ready, log: c.Log, version: c.Version, limits: c.Limits,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ready == nil {
		s.ready = func(context.Context) error { return nil }
	}
	if s.plugins == nil {
		s.plugins = noPlugins{}
	}
	if s.mcpServers == nil {
		s.mcpServers = noMCPServers{}
	}
	if s.warm == nil {
		s.warm = noPool{}
	}
	s.metrics = newMetrics(metricConfig{Sandboxes: s.sandboxes, Keys: s.keys, Pool: s.warm.Pool, Streams: s.hub.Count})
	routes := route.Config{Gate: s.gate, Log: s.log, Version: s.version, Steps: c.Steps, Observe: s.metrics.Request, Sandbox: s.findSandbox}
	if c.Audit != nil {
		routes.Audit = s.audited
	}
	s.table = route.New(routes)
	s.registerInfo(s.table)
	s.registerEvents(s.table)
	s.registerSandboxes(s.table)
	s.registerSnapshots(s.table)
	inside.Register(s.table, inside.Config{
		Sandboxes: s.sandboxes, Hub: s.hub, UploadBytesMax: s.limits.UploadBytesMax,
		Started: s.metrics.CommandStarted, ExecEnded: s.metrics.ExecEnded,
	})
	registerServices(s.table, servicesConfig{Sandboxes: s.sandboxes, Hub: s.hub})
	history.Register(s.table, history.Config{Histories: c.Histories, Hub: s.hub})
	told := runs.Config{Supervisor: c.Runs, Schedules: c.Schedules, Hub: s.hub, Tools: c.Tools, Covers: c.Covers}
	if c.Events != nil {
		told.Events = s.openEvents
	}
	runs.Register(s.table, told)
	if c.Shares == nil {
		c.Shares = share.New(c.Keys)
	}
	share.Register(s.table, share.Config{Shares: c.Shares, Runs: runs.NewStories(c.Runs)})
	workflow.Register(s.table, workflow.Config{Workflows: c.Workflows})
	s.registerModels(s.table)
	s.registerTools(s.table)
	s.registerPool(s.table)
	s.registerNetworks(s.table)
	s.registerSecrets(s.table)
	s.registerSkills(s.table)
	s.registerPlugins(s.table)
	s.registerMCPServers(s.table)
	s.registerAudit(s.table)
	s.registerTemplates(s.table)
	s.registerMakers(s.table)
	s.registerKeys(s.table)
	login.Register(s.table, login.PagesConfig{Store: c.Logins, Gate: s.gate, Issuer: c.Issuer})
	registerPreviews(s.table, previewsConfig{Previews: c.Previews, Sandboxes: s.sandboxes, Gate: s.gate})
	registerUI(s.table, uiConfig{Page: web.Page{Version: c.Version, Frames: previewFrames(c.Previews)}, Gate: s.gate, Logins: c.Logins != nil})
	s.registerUpkeep(s.table)
	s.registerHouse(s.table)
	s.registerBridge(c)
	s.registerMCP()
	return s, nil
}

// Streams says how many streams are open.
func (s *Server) Streams() int { return s.hub.Count() }

// Routes lists everything that is served.
func (s *Server) Routes() []route.Route { return s.table.Routes() }

// Handler returns the whole surface as one handler.
func (s *Server) Handler() http.Handler {
	return apartPreviews(s.previews, s.bridge, letSleep(s.table.Handler()))
}

// wakeHeader is "false" in requests that only look: they are refused where they would wake
// a paused sandbox.
const wakeHeader = "Skete-Wake"

// letSleep makes the contexts of such requests those of sandbox.LetSleep.
func letSleep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wakeHeader) == "false" {
			r = r.WithContext(sandbox.LetSleep(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

// EnsureAdminKey makes an admin key if there is no live one, and returns its
// secret then, to be shown this once.
func (s *Server) EnsureAdminKey(ctx context.Context) (secret key.Secret, created bool, err error) {
	return s.keys.EnsureAdmin(ctx)
}

// Serve answers on the listeners (one may be nil) until ctx ends and then
// stops gracefully. It closes the listeners. nil: it ended because of ctx.
func (s *Server) Serve(ctx context.Context, tcp, unix net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ConnContext:       s.gate.ConnContext,
		ReadHeaderTimeout: s.limits.ReadHeaderTimeout,
		IdleTimeout:       s.limits.IdleTimeout,
		MaxHeaderBytes:    s.limits.HeaderBytesMax,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 2)
	var wg sync.WaitGroup
	for _, ln := range []net.Listener{tcp, unix} {
		if ln == nil {
			continue
		}
		wg.Go(func() {
			if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.stop(srv)
	wg.Wait()
	return err
}

// stop ends streams and requests within StopTimeout, then by force.
func (s *Server) stop(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.StopTimeout)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Shutdown(ctx); err != nil {
			s.log.Warn("requests were cut off at the end", "error", err)
			_ = srv.Close()
		}
	})
	wg.Go(func() { endPreviews(s.previews) })
	wg.Go(func() {
		if err := s.hub.Close(ctx); err != nil {
			s.log.Warn("streams were cut off at the end", "error", err)
		}
	})
	wg.Wait()
}
