// Package inside serves what is inside a running sandbox: commands, files,
// ports, metrics. Each request finds its guest, asks it, and translates.
//
//	inside.Register(table, inside.Config{Sandboxes: manager, Hub: hub})
//
// A guest is hostile: its answers are bounded by guest/wire, checked and
// translated by view; nothing of it reaches a header unchecked. All handlers
// are safe for concurrent use.
package inside

import (
	"context"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// Sandboxes is what is needed of *manager.Manager.
type Sandboxes interface {
	Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Guest(ctx context.Context, tenant string, id sandbox.ID) (c *wire.Client, release func(), err error)
	Dial(ctx context.Context, tenant string, id sandbox.ID, port uint32) (net.Conn, error)
}

// Config of the routes.
type Config struct {
	Sandboxes Sandboxes
	Hub       *stream.Hub
	// UploadBytesMax bounds the body of a file or tree.
	UploadBytesMax int64
	// Started is told of every command that is asked for, ExecEnded of how
	// long an exec lasted.
	Started   func()
	ExecEnded func(time.Duration)
}

type service struct {
	sandboxes      Sandboxes
	hub            *stream.Hub
	uploadBytesMax int64
	started        func()
	execEnded      func(time.Duration)
}

// Register adds the routes to the table.
func Register(t *route.Table, c Config) {
	s := &service{c.Sandboxes, c.Hub, c.UploadBytesMax, c.Started, c.ExecEnded}
	s.registerProcesses(t)
	s.registerFiles(t)
	s.registerTrees(t)
	s.registerPorts(t)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes/{id}/metrics", Scope: key.Read, ID: "get-sandbox-metrics", Tag: "sandboxes",
		Summary: "Get what the guest measures of itself",
	}, s.sandboxMetrics)
}

// SandboxPath names a sandbox. It is exported because the JSON layer looks
// only into exported embedded fields.
type SandboxPath struct {
	ID string `path:"id" doc:"of the sandbox, sbx_…, the beginning of it, or its name"`
}

func (p SandboxPath) sandboxID() string { return p.ID }

// of is a request that names a sandbox.
type of[I any] interface {
	*I
	sandboxID() string
}

// guestJSON registers a route that asks the guest of a sandbox and answers JSON.
func guestJSON[I, O any, P of[I]](s *service, t *route.Table, o route.Operation, fn func(context.Context, guest, *I) (*O, error)) {
	route.JSON(t, o, func(ctx context.Context, in *I) (*O, error) {
		g, err := s.guest(ctx, P(in).sandboxID())
		if err != nil {
			return nil, err
		}
		defer g.release()
		return fn(ctx, g, in)
	})
}

// guestRaw registers a route that asks the guest of a sandbox and answers by itself.
func guestRaw[I any, P of[I]](s *service, t *route.Table, o route.Operation, fn func(http.ResponseWriter, *http.Request, guest, *I) error) {
	route.Raw(t, o, func(w http.ResponseWriter, r *http.Request, in *I) error {
		g, err := s.guest(r.Context(), P(in).sandboxID())
		if err != nil {
			return err
		}
		defer g.release()
		return fn(w, r, g, in)
	})
}

type metricsOut struct{ Body api.Metrics }

func (s *service) sandboxMetrics(ctx context.Context, g guest, in *SandboxPath) (*metricsOut, error) {
	res, err := g.Control.Metrics(ctx, connect.NewRequest(&wire.MetricsRequest{}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &metricsOut{stream.MetricsView(res.Msg)}, nil
}

// guest is a running sandbox's client. release must be called.
type guest struct {
	*wire.Client
	id      sandbox.ID
	tenant  string
	release func()
}

// guest finds the guest of a caller's sandbox.
func (s *service) guest(ctx context.Context, text string) (guest, error) {
	id, err := sandbox.ParseID(text)
	if err != nil {
		return guest{}, err
	}
	tenant := auth.From(ctx).Tenant
	c, release, err := s.sandboxes.Guest(ctx, tenant, id)
	if err != nil {
		return guest{}, err
	}
	return guest{c, id, tenant, release}, nil
}

// alive reports whether the sandbox still has a guest to talk to.
func (s *service) alive(g guest) func(context.Context) error {
	return func(ctx context.Context) error {
		_, release, err := s.sandboxes.Guest(ctx, g.tenant, g.id)
		if err == nil {
			release()
		}
		return err
	}
}

// still reports whether a sandbox's machine is held still, so that its guest
// cannot answer. It wakes none.
func (s *service) still(g guest) func(context.Context) bool {
	return func(ctx context.Context) bool {
		info, err := s.sandboxes.Get(ctx, g.tenant, g.id)
		return err == nil && info.State != sandbox.Running
	}
}

// hangUp ends a stream of the guest that may have more to say: closing alone
// would first read on.
func hangUp(cancel context.CancelFunc, closeStream func() error) {
	cancel()
	_ = closeStream()
}
