package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	declared "github.com/skete-dev/skete/sandbox/service"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// This file serves the services of a running sandbox: declared
// processes that its guest keeps running, and their logs.
//
// What a guest says is bounded by guest/wire, and translated here. All
// handlers are safe for concurrent use.

// servicesConfig of the routes.
type servicesConfig struct {
	Sandboxes Sandboxes
	Hub       *stream.Hub
}

type serviceRoutes struct {
	sandboxes Sandboxes
	hub       *stream.Hub
}

// registerServices adds the routes to the table.
func registerServices(t *route.Table, c servicesConfig) {
	s := &serviceRoutes{c.Sandboxes, c.Hub}
	const tag, base = "services", "/v1/sandboxes/{id}/services"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Read, ID: "list-services", Tag: tag, Summary: "List services by name",
	}, s.list)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base, Scope: key.Write, ID: "declare-service", Tag: tag, Step: route.Named(func(in *declareIn) string { return "service add " + in.Body.Name }),
		Summary: "Declare a service and start it; one that runs with another declaration is restarted",
	}, s.declare)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base + "/load", Scope: key.Write, ID: "load-services", Tag: tag, Step: route.Named(func(*loadIn) string { return "service load" }),
		Summary: "Declare what skete.yaml of the workspace says",
	}, s.load)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{name}", Scope: key.Read, ID: "get-service", Tag: tag, Summary: "Get a service as it is now",
	}, s.get)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: base + "/{name}", Scope: key.Write, ID: "remove-service", Tag: tag, Step: route.Named(func(in *ServicePath) string { return "service remove " + in.Name }),
		Summary: "Stop a service and forget it and its log",
	}, s.remove)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base + "/{name}/start", Scope: key.Write, ID: "start-service", Tag: tag, Step: route.Named(func(in *actIn) string { return "service start " + in.Name }),
		Summary: "Start a service, at once if it waits for another try",
	}, s.start)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base + "/{name}/stop", Scope: key.Write, ID: "stop-service", Tag: tag, Step: route.Named(func(in *actIn) string { return "service stop " + in.Name }), Summary: "Stop a service",
	}, s.stop)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base + "/{name}/restart", Scope: key.Write, ID: "restart-service", Tag: tag, Step: route.Named(func(in *actIn) string { return "service restart " + in.Name }), Summary: "Stop a service and start it",
	}, s.restart)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{name}/logs", Scope: key.Read, ID: "stream-service-log", Tag: tag,
		Summary: "Stream a service's log as server-sent events", Sends: route.Events[api.ServiceLogEvent](),
	}, s.logs)
}

// ServicePath names a service.
type ServicePath struct {
	SandboxPath
	Name string `path:"name" maxLength:"40" doc:"of the service"`
}

// ServiceWaiting says how long to wait for what was asked for.
type ServiceWaiting struct {
	WaitMS int64 `query:"wait_ms" minimum:"0" maximum:"600000" doc:"until it is ready, has failed or is stopped; one without a check is ready when it has run for a second; 0 = answer at once, with the state of that moment"`
}

// guest finds the guest of a caller's sandbox; release must be called.
func (s *serviceRoutes) guest(ctx context.Context, text string) (*wire.Client, func(), error) {
	id, err := sandbox.ParseID(text)
	if err != nil {
		return nil, nil, err
	}
	return s.sandboxes.Guest(ctx, auth.From(ctx).Tenant, id)
}

// still is asked whether a sandbox's machine is held still. It wakes none.
func (s *serviceRoutes) still(ctx context.Context, text string) func(context.Context) bool {
	tenant := auth.From(ctx).Tenant
	return func(ctx context.Context) bool {
		id, err := sandbox.ParseID(text)
		if err != nil {
			return false
		}
		info, err := s.sandboxes.Get(ctx, tenant, id)
		return err == nil && info.State != sandbox.Running
	}
}

type serviceOut struct{ Body api.Service }

// act makes one call of the guest. A call that may take long ends when the
// server does.
func (s *serviceRoutes) act(ctx context.Context, id string, waitMS int64, call func(context.Context, *wire.Client) (*wire.ServiceInfo, error)) (*serviceOut, error) {
	g, release, err := s.guest(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	if waitMS > 0 {
		opened, leave, err := s.hub.Open(ctx, auth.From(ctx).Owner)
		if err != nil {
			return nil, err
		}
		defer leave()
		ctx = opened
	}
	i, err := call(ctx, g)
	if err == nil && waitMS > 0 {
		i, err = declared.Verdict(ctx, g, i, time.Duration(waitMS)*time.Millisecond)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, wire.Err(err)
	}
	return &serviceOut{stream.ServiceView(i)}, nil
}

type listServicesOut struct{ Body api.ServiceList }

func (s *serviceRoutes) list(ctx context.Context, in *SandboxPath) (*listServicesOut, error) {
	g, release, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	res, err := g.Service.List(ctx, connect.NewRequest(&wire.ListServicesRequest{}))
	if err != nil {
		return nil, wire.Err(err)
	}
	out := &listServicesOut{api.ServiceList{Items: []api.Service{}}}
	for _, i := range res.Msg.GetServices() {
		out.Body.Items = append(out.Body.Items, stream.ServiceView(i))
	}
	return out, nil
}

type declareIn struct {
	SandboxPath
	ServiceWaiting
	Body api.ServiceSpec
}

func (s *serviceRoutes) declare(ctx context.Context, in *declareIn) (*serviceOut, error) {
	d, err := declared.Declaration(declared.Spec(in.Body), wire.ServiceSource_SERVICE_SOURCE_CALL)
	if err != nil {
		return nil, err
	}
	return s.act(ctx, in.ID, in.WaitMS, func(ctx context.Context, g *wire.Client) (*wire.ServiceInfo, error) {
		res, err := g.Service.Declare(ctx, connect.NewRequest(&wire.DeclareServiceRequest{Declaration: d, WaitMs: in.WaitMS}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetService(), nil
	})
}

type loadOut struct{ Body api.ServicesLoaded }

type loadIn struct {
	SandboxPath
	ServiceWaiting
}

func (s *serviceRoutes) load(ctx context.Context, in *loadIn) (*loadOut, error) {
	g, release, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := declared.Load(ctx, g)
	if err != nil {
		return nil, err
	}
	out := &loadOut{api.ServicesLoaded{Found: l.Found, Declared: append([]string{}, l.Declared...), Removed: append([]string{}, l.Removed...)}}
	if in.WaitMS == 0 {
		return out, nil
	}
	ctx, leave, err := s.hub.Open(ctx, auth.From(ctx).Owner)
	if err != nil {
		return nil, err
	}
	defer leave()
	list, err := declared.Verdicts(ctx, g, l.Declared, time.Duration(in.WaitMS)*time.Millisecond)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, wire.Err(err)
	}
	for _, i := range list {
		out.Body.Services = append(out.Body.Services, stream.ServiceView(i))
	}
	return out, nil
}

func (s *serviceRoutes) get(ctx context.Context, in *ServicePath) (*serviceOut, error) {
	return s.act(ctx, in.ID, 0, func(ctx context.Context, g *wire.Client) (*wire.ServiceInfo, error) {
		res, err := g.Service.Get(ctx, connect.NewRequest(&wire.GetServiceRequest{Name: in.Name}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetService(), nil
	})
}

func (s *serviceRoutes) remove(ctx context.Context, in *ServicePath) (*struct{}, error) {
	g, release, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	_, err = g.Service.Remove(ctx, connect.NewRequest(&wire.RemoveServiceRequest{Name: in.Name}))
	return nil, wire.Err(err)
}

type actIn struct {
	ServicePath
	ServiceWaiting
}

func (s *serviceRoutes) start(ctx context.Context, in *actIn) (*serviceOut, error) {
	return s.act(ctx, in.ID, in.WaitMS, func(ctx context.Context, g *wire.Client) (*wire.ServiceInfo, error) {
		res, err := g.Service.Start(ctx, connect.NewRequest(&wire.StartServiceRequest{Name: in.Name, WaitMs: in.WaitMS}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetService(), nil
	})
}

func (s *serviceRoutes) stop(ctx context.Context, in *actIn) (*serviceOut, error) {
	return s.act(ctx, in.ID, in.WaitMS, func(ctx context.Context, g *wire.Client) (*wire.ServiceInfo, error) {
		res, err := g.Service.Stop(ctx, connect.NewRequest(&wire.StopServiceRequest{Name: in.Name, WaitMs: in.WaitMS}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetService(), nil
	})
}

func (s *serviceRoutes) restart(ctx context.Context, in *actIn) (*serviceOut, error) {
	return s.act(ctx, in.ID, in.WaitMS, func(ctx context.Context, g *wire.Client) (*wire.ServiceInfo, error) {
		res, err := g.Service.Restart(ctx, connect.NewRequest(&wire.RestartServiceRequest{Name: in.Name, WaitMs: in.WaitMS}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetService(), nil
	})
}

type logsIn struct {
	ServicePath
	From        int64  `query:"from" doc:"byte offset; -1 = from the present end, -n = the last n-1 bytes"`
	Follow      bool   `query:"follow" default:"true" doc:"wait for more"`
	LastEventID string `header:"Last-Event-ID" maxLength:"20" doc:"the offset behind what the client has"`
}

func (s *serviceRoutes) logs(w http.ResponseWriter, r *http.Request, in *logsIn) error {
	from := in.From
	if in.LastEventID != "" {
		var err error
		if from, err = strconv.ParseInt(in.LastEventID, 10, 64); err != nil || from < 0 {
			return errs.New(errs.Invalid, "Last-Event-ID %.40q is none of this stream", in.LastEventID)
		}
	}
	g, release, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer release()
	ctx, leave, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &logFollower{&wire.LogsRequest{Name: in.Name, From: from, NoFollow: !in.Follow}}
	src := &stream.Source[wire.LogsResponse]{Still: s.still(r.Context(), in.ID), Note: l.note, End: stream.ErrEnd, Open: func(ctx context.Context) (*connect.ServerStreamForClient[wire.LogsResponse], error) {
		return g.Service.Logs(ctx, connect.NewRequest(l.req))
	}}
	defer src.Close()
	first, err := src.Once(ctx)
	if err != nil && err != stream.ErrEnd { //nolint:errorlint // it is never wrapped
		return err
	}
	sse, berr := stream.NewSSE(w)
	if berr != nil {
		return nil // the client is gone
	}
	if err != nil {
		return nil // there is nothing, and the client does not wait for more
	}
	if err := sendService(sse, first); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	return stream.Pump(ctx, cancel, sse, src.Next, func(m *wire.LogsResponse) error { return sendService(sse, m) })
}

func sendService(s *stream.SSE, m *wire.LogsResponse) error {
	switch e := m.GetEvent().(type) {
	case *wire.LogsResponse_Output:
		end := e.Output.GetOffset() + int64(len(e.Output.GetData()))
		return s.Event(strconv.FormatInt(end, 10), "log", api.ServiceLogEvent{Offset: e.Output.GetOffset(), Data: e.Output.GetData()})
	case *wire.LogsResponse_Gap:
		return s.Event(strconv.FormatInt(e.Gap.GetTo(), 10), "gap", api.ServiceLogEvent{Offset: e.Gap.GetFrom(), GapTo: e.Gap.GetTo()})
	}
	return s.Keepalive()
}

// logFollower keeps the place in a log.
type logFollower struct{ req *wire.LogsRequest }

// note moves the place at which to go on. A guest that jumps is not believed.
func (f *logFollower) note(m *wire.LogsResponse) error {
	var at, end int64
	switch e := m.GetEvent().(type) {
	case *wire.LogsResponse_Output:
		at, end = e.Output.GetOffset(), e.Output.GetOffset()+int64(len(e.Output.GetData()))
	case *wire.LogsResponse_Gap:
		at, end = e.Gap.GetFrom(), e.Gap.GetTo()
	default:
		return nil
	}
	if end < at || at < 0 || (f.req.From >= 0 && at != f.req.From) {
		return errs.New(errs.Corrupt, "the guest's log does not go on at its offset")
	}
	f.req.From = end
	return nil
}

// serviceSpecs checks what a sandbox's spec declares, so that it is refused and not
// only missing later.
func serviceSpecs(list []api.ServiceSpec) (specs []declared.Spec, err error) {
	for _, d := range list {
		s := declared.Spec(d)
		if s.Name == "" || (s.Command == "") == (len(s.Argv) == 0) {
			return nil, errs.New(errs.Invalid, "services: each has a name and either argv or a command")
		}
		if _, err := declared.Declaration(s, wire.ServiceSource_SERVICE_SOURCE_SPEC); err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	return specs, nil
}
