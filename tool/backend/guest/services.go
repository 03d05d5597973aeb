package guest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox/service"
	"github.com/skete-dev/skete/tool"
)

const (
	serviceWaitMax = 10 * time.Minute // the guest's own bound
	servicesMax    = 1000             // of a list
)

// Services are the services of one machine. Safe for concurrent use.
type Services struct {
	c *wire.Client
}

// NewServices returns the services of the machine that the client speaks to.
func NewServices(c *wire.Client) *Services { return &Services{c: c} }

var restartPolicies = map[string]wire.RestartPolicy{
	"": wire.RestartPolicy_RESTART_POLICY_ALWAYS, "always": wire.RestartPolicy_RESTART_POLICY_ALWAYS,
	"on-failure": wire.RestartPolicy_RESTART_POLICY_ON_FAILURE, "never": wire.RestartPolicy_RESTART_POLICY_NEVER,
}

func declaration(s tool.ServiceSpec) (*wire.ServiceDeclaration, error) {
	restart, ok := restartPolicies[s.Restart]
	if !ok {
		return nil, errs.New(errs.Invalid, "a service is restarted always, on-failure or never")
	}
	d := &wire.ServiceDeclaration{
		Name: s.Name, Command: []byte(s.Command), Workdir: []byte(s.Dir), Restart: restart, Source: wire.ServiceSource_SERVICE_SOURCE_CALL,
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return nil, errs.New(errs.Invalid, "%.40q is no environment variable", k)
		}
		if d.Env == nil {
			d.Env = map[string][]byte{}
		}
		d.Env[k] = []byte(v)
	}
	for _, p := range append([]int{s.ReadyHTTP, s.ReadyTCP}, s.Ports...) {
		if p < 0 || p > int(wire.TCPPortMax) {
			return nil, errs.New(errs.Invalid, "%d is no port", p)
		}
	}
	for _, p := range s.Ports {
		d.Ports = append(d.Ports, uint32(p))
	}
	var err error
	d.Readiness, err = readiness(s)
	return d, err
}

func readiness(s tool.ServiceSpec) (*wire.Readiness, error) {
	r := &wire.Readiness{TimeoutMs: s.ReadyTimeout.Milliseconds()}
	asked := 0
	if s.ReadyHTTP > 0 {
		asked++
		r.Probe = &wire.Readiness_Http{Http: &wire.HttpReadiness{Port: uint32(s.ReadyHTTP), Path: s.ReadyPath}}
	}
	if s.ReadyTCP > 0 {
		asked++
		r.Probe = &wire.Readiness_Tcp{Tcp: &wire.TcpReadiness{Port: uint32(s.ReadyTCP)}}
	}
	if s.ReadyLog != "" {
		asked++
		r.Probe = &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: s.ReadyLog}}
	}
	switch {
	case asked > 1:
		return nil, errs.New(errs.Invalid, "a service is ready by HTTP, TCP or a line of its log, not by several")
	case s.ReadyPath != "" && s.ReadyHTTP == 0:
		return nil, errs.New(errs.Invalid, "a path is for readiness by HTTP")
	}
	return r, nil
}

// waitMS bounds a wait as the guest does.
func waitMS(d time.Duration) int64 { return min(max(d, 0), serviceWaitMax).Milliseconds() }

// answer is what the calls that return a service have in common.
type answer interface{ GetService() *wire.ServiceInfo }

func told[T any, P interface {
	*T
	answer
}](res *connect.Response[T], err error) (*wire.ServiceInfo, error) {
	if err != nil {
		return nil, wire.Err(err)
	}
	return P(res.Msg).GetService(), nil
}

// judged is what a model is told of a service that was just started: that it
// works, only when it is known.
func (g *Services) judged(ctx context.Context, i *wire.ServiceInfo, err error, wait time.Duration) (tool.Service, error) {
	if err == nil && wait > 0 {
		if i, err = service.Verdict(ctx, g.c, i, wait); err != nil {
			err = wire.Err(err)
		}
	}
	if err != nil {
		return tool.Service{}, err
	}
	return serviceOf(i), nil
}

// Declare implements tool.Services. The guest takes the same twice as once.
func (g *Services) Declare(ctx context.Context, s tool.ServiceSpec, wait time.Duration) (tool.Service, error) {
	d, err := declaration(s)
	if err != nil {
		return tool.Service{}, err
	}
	var i *wire.ServiceInfo
	err = retry(ctx, func() (err error) {
		i, err = told(g.c.Service.Declare(ctx, connect.NewRequest(&wire.DeclareServiceRequest{Declaration: d, WaitMs: waitMS(wait)})))
		return err
	})
	return g.judged(ctx, i, err, wait)
}

// Start implements tool.Services.
func (g *Services) Start(ctx context.Context, name string, wait time.Duration) (tool.Service, error) {
	var i *wire.ServiceInfo
	err := retry(ctx, func() (err error) {
		i, err = told(g.c.Service.Start(ctx, connect.NewRequest(&wire.StartServiceRequest{Name: name, WaitMs: waitMS(wait)})))
		return err
	})
	return g.judged(ctx, i, err, wait)
}

// Stop implements tool.Services.
func (g *Services) Stop(ctx context.Context, name string, wait time.Duration) (tool.Service, error) {
	var i *wire.ServiceInfo
	err := retry(ctx, func() (err error) {
		i, err = told(g.c.Service.Stop(ctx, connect.NewRequest(&wire.StopServiceRequest{Name: name, WaitMs: waitMS(wait)})))
		return err
	})
	return g.judged(ctx, i, err, 0)
}

// Restart implements tool.Services. It is not tried again by itself: twice is
// not once.
func (g *Services) Restart(ctx context.Context, name string, wait time.Duration) (tool.Service, error) {
	i, err := told(g.c.Service.Restart(ctx, connect.NewRequest(&wire.RestartServiceRequest{Name: name, WaitMs: waitMS(wait)})))
	return g.judged(ctx, i, err, wait)
}

// Service implements tool.Services.
func (g *Services) Service(ctx context.Context, name string) (tool.Service, error) {
	var i *wire.ServiceInfo
	err := retry(ctx, func() (err error) {
		i, err = told(g.c.Service.Get(ctx, connect.NewRequest(&wire.GetServiceRequest{Name: name})))
		return err
	})
	return g.judged(ctx, i, err, 0)
}

// Services implements tool.Services.
func (g *Services) Services(ctx context.Context) ([]tool.Service, error) {
	var res *connect.Response[wire.ListServicesResponse]
	err := retry(ctx, func() (err error) {
		res, err = g.c.Service.List(ctx, connect.NewRequest(&wire.ListServicesRequest{}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	all := res.Msg.GetServices()
	list := make([]tool.Service, 0, min(len(all), servicesMax))
	for _, i := range all[:min(len(all), servicesMax)] {
		list = append(list, serviceOf(i))
	}
	return list, nil
}

// Log implements tool.Services.
func (g *Services) Log(ctx context.Context, name string, from int64, most int) (l tool.ServiceLog, err error) {
	now, err := g.Service(ctx, name)
	if err != nil {
		return l, err
	}
	if from < 0 {
		from = max(now.LogBytes+from, 0)
	}
	err = retry(ctx, func() error {
		l = tool.ServiceLog{From: from, Size: now.LogBytes}
		return g.read(ctx, name, &l, most)
	})
	if err != nil {
		return l, fmt.Errorf("read a service's log: %w", err)
	}
	l.Size = max(l.Size, l.From+int64(len(l.Data)))
	return l, nil
}

// read appends what is there until it is enough, or to the next gap.
func (g *Services) read(ctx context.Context, name string, l *tool.ServiceLog, most int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := g.c.Service.Logs(ctx, connect.NewRequest(&wire.LogsRequest{Name: name, From: l.From, NoFollow: true}))
	if err != nil {
		return err
	}
	defer st.Close()
	for len(l.Data) < most && st.Receive() {
		switch e := st.Msg().Event.(type) {
		case *wire.LogsResponse_Gap:
			if len(l.Data) > 0 {
				return nil
			}
			if e.Gap.GetFrom() != l.From || e.Gap.GetTo() < e.Gap.GetFrom() {
				return errs.New(errs.Internal, "the guest's offsets make no sense")
			}
			l.Gone += e.Gap.GetTo() - e.Gap.GetFrom()
			l.From = e.Gap.GetTo()
		case *wire.LogsResponse_Output:
			data := e.Output.GetData()
			if e.Output.GetOffset() != l.From+int64(len(l.Data)) {
				return errs.New(errs.Internal, "the guest's offsets make no sense")
			}
			l.Data = append(l.Data, data[:min(len(data), most-len(l.Data))]...)
		}
	}
	if len(l.Data) == most {
		return nil
	}
	return st.Err()
}

var serviceStates = map[wire.ServiceState]string{
	wire.ServiceState_SERVICE_STATE_STOPPED: "stopped", wire.ServiceState_SERVICE_STATE_STARTING: "starting",
	wire.ServiceState_SERVICE_STATE_READY: "ready", wire.ServiceState_SERVICE_STATE_UNREADY: "unready",
	wire.ServiceState_SERVICE_STATE_BACKOFF: "backoff", wire.ServiceState_SERVICE_STATE_CRASH_LOOP: "crash-loop",
	wire.ServiceState_SERVICE_STATE_FAILED: "failed",
}

func serviceOf(i *wire.ServiceInfo) tool.Service {
	d := i.GetDeclaration()
	s := tool.Service{
		Name: valid(d.GetName()), Command: valid(string(d.GetCommand())), State: serviceStates[i.GetState()], Reason: valid(i.GetReason()),
		PID: int(i.GetPid()), Run: valid(i.GetProcessKey()), Restarts: i.GetRestarts(), LogBytes: max(i.GetLogSize(), 0), Source: "call",
	}
	if s.State == "" {
		s.State = "failed"
	}
	if argv := d.GetArgv(); len(argv) > 0 {
		words := make([]string, len(argv))
		for n, a := range argv {
			words[n] = valid(string(a))
		}
		s.Command = strings.Join(words, " ")
	}
	for _, p := range d.GetPorts() {
		s.Ports = append(s.Ports, int(p))
	}
	switch d.GetSource() {
	case wire.ServiceSource_SERVICE_SOURCE_FILE:
		s.Source = "file"
	case wire.ServiceSource_SERVICE_SOURCE_SPEC:
		s.Source = "spec"
	}
	if e := i.GetLastExit(); e != nil {
		code := int(e.GetCode())
		s.Exit = &code
	}
	return s
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
