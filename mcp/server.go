package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// Config of a Server.
type Config struct {
	// Client makes the calls.
	Client *client.Client
	// Scopes are what its key may do; tools that need others are not listed.
	Scopes []string
	// Sandbox is meant by calls that name none; "" = the only one that runs.
	Sandbox string
	Version string
	Log     *slog.Logger // nil = none
}

// Server has the tools and resources that a key may use.
type Server struct {
	Config
	sdk *sdk.Server
}

const instructions = `skete gives you machines of your own, isolated from the host: sandboxes, in which you run commands and work on files with full control. ` +
	`sandbox_create makes one; a tool that is told no sandbox uses the only one that runs. Work in /workspace: each change there is a revision, which history_undo takes back. ` +
	`exec ends its command when the call is cancelled or its time is up; start what takes longer, or is to go on, with background, and read it by process_output. ` +
	`Output that is too long is cut, and the result says how to read the rest.`

// New returns a server.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{Config: c}
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "skete", Title: "skete: machines for agents", Version: cmp.Or(c.Version, "dev")}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
	})
	for _, t := range tools() {
		if allows(c.Scopes, t.scope) {
			s.sdk.AddTool(t.listed(), s.handler(t))
		}
	}
	s.addResources()
	s.sdk.AddReceivingMiddleware(s.refuseScope)
	return s
}

// Run serves one client until in ends or ctx does.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := s.sdk.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: requestBytesMax})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// requestBytesMax bounds one request of a client.
const requestBytesMax = 8 << 20

// Rights that tools need.
const (
	read      = "read"
	write     = "write"
	runsRead  = "runs:read"
	runsWrite = "runs:write"
)

// allows reports whether scopes hold want, as the server decides it, which has the last word.
func allows(scopes []string, want string) bool {
	enough := map[string][]string{
		read:      {read, write, "admin"},
		write:     {write, "admin"},
		runsRead:  {runsRead, runsWrite, read, write, "admin"},
		runsWrite: {runsWrite, write, "admin"},
	}
	return slices.ContainsFunc(enough[want], func(one string) bool { return slices.Contains(scopes, one) })
}

// refuseScope says what a tool needs that is there and that the key may not use.
func (s *Server) refuseScope(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if call, ok := req.(*sdk.CallToolRequest); ok {
			for _, t := range tools() {
				if t.name == call.Params.Name && !allows(s.Scopes, t.scope) {
					return failure(errs.New(errs.Denied, "this key may not use %s", t.name).WithHint("it needs the scope %s", t.scope)), nil
				}
			}
		}
		return next(ctx, method, req)
	}
}

// handler answers calls of a tool.
func (s *Server) handler(t *tool) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		defer s.progress(ctx, req, t.name)()
		return s.call(ctx, t, programOf(ctx, req), req.Params.Arguments), nil
	}
}

// call does what a tool does, for a client's program. What goes wrong is a result, for
// the model.
func (s *Server) call(ctx context.Context, t *tool, program string, args json.RawMessage) (res *sdk.CallToolResult) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("panic in a tool", "tool", t.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res = failure(errs.New(errs.Internal, "internal error in %s", t.name))
		}
	}()
	in, err := t.read(args)
	if err != nil {
		return failure(err)
	}
	ctx, stop := cancellable(client.Through(ctx, cmp.Or(program, "mcp")))
	defer stop()
	if res, err = t.run(ctx, s, in); err != nil {
		return failure(err)
	}
	return bounded(res)
}

// programOf is the name of the client.
func programOf(ctx context.Context, req *sdk.CallToolRequest) string {
	info := req.ClientInfo()
	if info == nil || info.Name == "" {
		return callOf(ctx).program
	}
	return strings.TrimSpace(info.Name + " " + info.Version)
}

// progressEvery is how often a client that asked for it hears that a call goes on.
const progressEvery = time.Second

// progress tells a client that asked for it that the call goes on, until stop.
func (s *Server) progress(ctx context.Context, req *sdk.CallToolRequest, name string) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // a client that is gone need not know
				ProgressToken: token, Progress: float64(n), Message: fmt.Sprintf("%s: %d s", name, n),
			})
		}
	}()
	return func() { cancel(); <-done }
}

// sandbox returns the one that is named, or the one that is meant.
func (s *Server) sandbox(ctx context.Context, name string) (*client.Sandbox, error) {
	if name = cmp.Or(name, s.Sandbox); name != "" {
		return s.Client.Sandbox(name), nil
	}
	running, err := client.All(s.Client.Sandboxes(ctx, client.SandboxFilter{State: "running"}))
	switch {
	case err != nil:
		return nil, err
	case len(running) == 1:
		return s.Client.Sandbox(running[0].ID), nil
	case len(running) == 0:
		return nil, errs.New(errs.NotFound, "no sandbox runs").WithHint("sandbox_create makes one, sandbox_start starts one that is stopped")
	}
	var names []string
	for _, sb := range running[:min(len(running), 20)] {
		names = append(names, cmp.Or(sb.Name, sb.ID))
	}
	return nil, errs.New(errs.Invalid, "%d sandboxes run, and the call names none: %s", len(running), strings.Join(names, ", ")).WithHint("give sandbox")
}
