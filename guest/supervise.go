package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/history"
	"github.com/skete-dev/skete/guest/process"
	"github.com/skete-dev/skete/guest/service"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of the control server.
const (
	headerBytesMax = 64 << 10
	headerTimeout  = 10 * time.Second
	idleTimeout    = 10 * time.Minute
	stopTimeout    = time.Second
)

// Config of supervise.
type Config struct {
	Boot wire.Boot
	// InitFD is the descriptor of the pair to init.
	InitFD int
	// Own: the machine has a root file system (and perhaps a kernel) of its
	// own, so that its clock and its names may be changed.
	Own bool
	// Build is the version of the program, for Hello.
	Build string
	// Log takes one line an event.
	Log io.Writer
	// Stage is for tests: see workspace.Config.
	Stage func(name string)
}

// Supervise serves the host until ctx ends or init is gone.
func Supervise(ctx context.Context, cfg Config) error {
	if cfg.Own { // when memory is short, a kernel shall not begin with us; commands are init's children and inherit nothing
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	}
	host, err := newTransport(cfg.Boot.Channel, cfg.Boot.Token)
	if err != nil {
		return err
	}
	pc := process.Config{Boot: cfg.Boot, InitFD: cfg.InitFD, Log: cfg.Log}
	if cfg.Boot.Mounts {
		pc.Settle = syncWorkspace
	}
	core, err := process.New(pc)
	if err != nil {
		return fmt.Errorf("take over the processes: %w", err)
	}
	defer core.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-core.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	files, err := newFiles(cfg.Boot)
	if err != nil {
		return err
	}
	defer files.Close()
	initBoot := core.Boot().ID
	who, err := openIdentity(cfg.Boot, initBoot)
	if err != nil {
		return fmt.Errorf("read who this machine is: %w", err)
	}
	past, err := openHistory(cfg, core)
	if err != nil {
		logf(cfg.Log, "%v", err)
	}
	if past != nil {
		defer past.Close()
	}
	ctl := &control{cfg: cfg, core: core, files: files, who: who, past: past}
	ctl.apply(who.now())
	if ctl.services, err = newServices(cfg, core, who, initBoot); err != nil {
		return fmt.Errorf("take over the services: %w", err)
	}
	defer ctl.services.Close()
	if ctl.network, err = openNetwork(cfg, host); err != nil { // the machine goes on: nothing leaves it
		logf(cfg.Log, "%v", err)
	}
	if ctl.network != nil {
		defer ctl.network.Close()
	}
	ln := newListener(ctx)
	srv := newServer(cfg, ctl)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	forwards := forwardToHost(ctx, cfg, host)
	agents := newAgents(cfg, srv.Handler)
	host.serve(ctx, func(conn net.Conn, p uint32) { route(ctx, ln, agents, conn, p) })
	forwards.Wait()
	agents.Close()
	_ = ctl.services.Close() // ends what streams of it
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancelStop()
	if srv.Shutdown(stop) != nil {
		_ = srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newServices takes over the services, under the name that the machine has now.
func newServices(cfg Config, core *process.Core, who *identity, initBoot string) (*service.Manager, error) {
	boot, _ := who.now()
	return service.New(service.Config{Core: core, Boot: boot, InitBoot: initBoot, Log: cfg.Log})
}

// openHistory returns who keeps the workspace's history, nil where the host
// does. What an undo that died has left is finished before anybody can start a
// command; if that fails, the machine goes on, and each call says why.
func openHistory(cfg Config, core *process.Core) (*history.Service, error) {
	c := history.Config{Disk: wire.DiskDir, Commands: core, Stage: cfg.Stage}
	switch k := cfg.Boot.Keep; {
	case k != nil:
		c.Disk, c.Files = k.Dir, k.Workspace
	case !cfg.Boot.Mounts || !history.Has(wire.DiskDir):
		return nil, nil
	}
	h := history.New(c)
	return h, h.Recover()
}

// route hands a stream that the host opened to who serves its port.
func route(ctx context.Context, ln *listener, agents *agents, conn net.Conn, p uint32) {
	switch {
	case p == wire.ControlPort:
		if wire.Grant(conn, p) != nil || !ln.offer(conn) {
			conn.Close()
		}
	case p == wire.AgentPort:
		agents.serve(ctx, conn)
	case p <= wire.TCPPortMax:
		forwardPort(ctx, conn, p)
	default:
		_ = wire.Refuse(conn, errs.New(errs.NotFound, "no port %d", p))
		conn.Close()
	}
}

func newServer(cfg Config, ctl *control) *http.Server {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(wire.MessageBytesMax),
		connect.WithSendMaxBytes(wire.MessageBytesMax),
		connect.WithCompression("gzip", nil, nil), // the channel is faster than any compression
		connect.WithRecover(func(_ context.Context, s connect.Spec, _ http.Header, p any) error {
			logf(cfg.Log, "%s: panic: %v", s.Procedure, p)
			return wire.ToConnect(errs.New(errs.Internal, "the guest has a bug"))
		}),
	}
	if cfg.Boot.Mounts {
		opts = append(opts, connect.WithInterceptors(durable{}))
	}
	mux := http.NewServeMux()
	mux.Handle(wire.NewControlHandler(ctl, opts...))
	mux.Handle(wire.NewProcessHandler(ctl.core.Service(), opts...))
	mux.Handle(wire.NewFileHandler(ctl.files, opts...))
	mux.Handle(wire.NewPortHandler(newPortService(ctl.network.Listens), opts...))
	mux.Handle(wire.NewServiceHandler(ctl.services, opts...))
	if ctl.past != nil {
		mux.Handle(wire.NewHistoryHandler(ctl.past, opts...))
	} else {
		mux.Handle(wire.NewHistoryHandler(wire.UnimplementedHistoryHandler{}, opts...))
	}
	return &http.Server{
		Handler: mux, MaxHeaderBytes: headerBytesMax, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // what a peer sent wrong is its own affair
	}
}

func logf(w io.Writer, format string, args ...any) {
	if w != nil {
		_, _ = fmt.Fprintf(w, "supervise: "+format+"\n", args...)
	}
}
