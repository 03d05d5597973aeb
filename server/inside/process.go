package inside

import (
	"context"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// stdinBodyMax is what the guest takes in one call.
const stdinBodyMax = 1 << 20

// ProcessPath names a command of a sandbox.
type ProcessPath struct {
	SandboxPath
	Key string `path:"key" maxLength:"128" doc:"of the command"`
}

func (s *service) registerProcesses(t *route.Table) {
	const tag, base = "processes", "/v1/sandboxes/{id}/processes"
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base, Scope: key.Write, ID: "start-process", Tag: tag, Step: route.OwnStep(),
		Summary: "Start a command; its output is not read yet", Status: http.StatusCreated,
	}, s.startProcess)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Read, ID: "list-processes", Tag: tag,
		Summary: "List commands, oldest first",
	}, s.listProcesses)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/{key}", Scope: key.Read, ID: "get-process", Tag: tag,
		Summary: "Get a command as it is now",
	}, s.getProcess)
	guestJSON(s, t, route.Operation{
		Method: http.MethodDelete, Path: base + "/{key}", Scope: key.Write, ID: "forget-process", Tag: tag, Step: route.NoStep(),
		Summary: "Forget a command that has ended, its output and its key",
	}, s.forgetProcess)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/{key}/wait", Scope: key.Read, ID: "wait-process", Tag: tag,
		Summary: "Wait for the end of a command, or for some time",
	}, s.waitProcess)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/{key}/signal", Scope: key.Write, ID: "signal-process", Tag: tag, Step: route.NoStep(),
		Summary: "Signal the process group of a command",
	}, s.signalProcess)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/{key}/resize", Scope: key.Write, ID: "resize-process", Tag: tag, Step: route.NoStep(),
		Summary: "Set the size of a command's terminal",
	}, s.resizeProcess)
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: base + "/{key}/stdin", Scope: key.Write, ID: "write-stdin", Tag: tag, Step: route.NoStep(),
		Summary: "Write stdin at an offset: a repeated call never writes a byte twice", Takes: "application/octet-stream",
		Sends: route.Object[api.StdinAck]("What was accepted"),
	}, s.writeStdin)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{key}/output", Scope: key.Read, ID: "stream-output", Tag: tag,
		Summary: "Stream output as server-sent events", Sends: route.Events[api.OutputEvent](),
	}, s.streamOutput)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{key}/attach", Scope: key.Write, ID: "attach-process", Tag: tag, Step: route.NoStep(),
		Summary: "Attach to a command: a WebSocket of frames", Sends: route.Socket("Frames, see package api"),
	}, s.attachProcess)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/sandboxes/{id}/exec:run", Scope: key.Write, ID: "run-command", Tag: tag, Step: route.OwnStep(),
		Summary: "Run a command to its end and get its status and output",
	}, s.runCommand)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes/{id}/exec", Scope: key.Write, ID: "exec", Tag: tag, Step: route.OwnStep(),
		Summary: "Start a command and attach to it: a WebSocket of frames, the first of which is the request", Sends: route.Socket("Frames, see package api"),
	}, s.exec)
}

type startProcessIn struct {
	SandboxPath
	Body api.StartProcess
}

type startProcessOut struct {
	Status int
	Body   api.Process
}

type processOut struct{ Body api.Process }

func (s *service) startProcess(ctx context.Context, g guest, in *startProcessIn) (*startProcessOut, error) {
	starts, err := s.starts(ctx, g, in.Body)
	if err != nil {
		return nil, err
	}
	step := route.Begin(ctx, commandName(in.Body))
	res, err := startFirst(ctx, g, starts)
	if err != nil {
		step.End()
		return nil, err
	}
	step.Follow(s.ends(g, res.GetProcess().GetKey()))
	s.started()
	p := stream.ProcessView(res.GetProcess())
	p.Existed = res.GetExisted()
	if p.Existed {
		return &startProcessOut{http.StatusOK, p}, nil
	}
	return &startProcessOut{http.StatusCreated, p}, nil
}

// startFirst starts the first alternative whose program is there.
func startFirst(ctx context.Context, g guest, starts []*wire.StartRequest) (*wire.StartResponse, error) {
	var err error
	for _, req := range starts {
		var res *connect.Response[wire.StartResponse]
		if res, err = g.Process.Start(ctx, connect.NewRequest(req)); err == nil {
			return res.Msg, nil
		}
		if err = wire.Err(err); !errs.Is(err, errs.NotFound) {
			break
		}
	}
	return nil, err
}

// starts makes the guest's requests of a caller's, in the order to try.
func (s *service) starts(ctx context.Context, g guest, req api.StartProcess) ([]*wire.StartRequest, error) {
	language := ""
	if req.Code != "" && req.Language == "" {
		info, err := s.sandboxes.Get(ctx, g.tenant, g.id)
		if err != nil {
			return nil, err
		}
		language = info.Spec.Language
	}
	if req.Key == "" {
		req.Key = wire.NewKey()
	}
	var starts []*wire.StartRequest
	for shell := range stream.Shells(req) {
		r, err := stream.StartRequest(req, language, shell)
		if err != nil {
			return nil, err
		}
		starts = append(starts, r)
	}
	return starts, nil
}

type listProcessesIn struct {
	SandboxPath
	PageSize  int    `query:"page_size" minimum:"0" maximum:"1000"`
	PageToken string `query:"page_token" maxLength:"512"`
}

type listProcessesOut struct{ Body api.ProcessPage }

func (s *service) listProcesses(ctx context.Context, g guest, in *listProcessesIn) (*listProcessesOut, error) {
	res, err := g.Process.List(ctx, connect.NewRequest(&wire.ListProcessesRequest{PageSize: uint32(in.PageSize), PageToken: in.PageToken}))
	if err != nil {
		return nil, wire.Err(err)
	}
	page := api.ProcessPage{Items: make([]api.Process, len(res.Msg.GetProcesses())), NextPageToken: res.Msg.GetNextPageToken()}
	for i, p := range res.Msg.GetProcesses() {
		page.Items[i] = stream.ProcessView(p)
	}
	return &listProcessesOut{page}, nil
}

func (s *service) getProcess(ctx context.Context, g guest, in *ProcessPath) (*processOut, error) {
	res, err := g.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: in.Key}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &processOut{stream.ProcessView(res.Msg.GetProcess())}, nil
}

func (s *service) forgetProcess(ctx context.Context, g guest, in *ProcessPath) (*struct{}, error) {
	_, err := g.Process.Forget(ctx, connect.NewRequest(&wire.ForgetRequest{Key: in.Key}))
	return nil, wire.Err(err)
}

type waitProcessIn struct {
	ProcessPath
	WaitMS int64 `query:"wait_ms" minimum:"0" maximum:"600000" default:"30000"`
}

func (s *service) waitProcess(ctx context.Context, g guest, in *waitProcessIn) (*processOut, error) {
	ctx, release, err := s.hub.Open(ctx, auth.From(ctx).Owner) // long: it must end when the server does
	if err != nil {
		return nil, err
	}
	defer release()
	res, err := g.Process.Wait(ctx, connect.NewRequest(&wire.WaitRequest{Key: in.Key, WaitMs: in.WaitMS}))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, wire.Err(err)
	}
	return &processOut{stream.ProcessView(res.Msg.GetProcess())}, nil
}

type signalProcessIn struct {
	ProcessPath
	Body api.SignalProcess
}

func (s *service) signalProcess(ctx context.Context, g guest, in *signalProcessIn) (*struct{}, error) {
	return nil, stream.Signal(ctx, g.Client, in.Key, in.Body)
}

type resizeProcessIn struct {
	ProcessPath
	Body api.TerminalSize
}

func (s *service) resizeProcess(ctx context.Context, g guest, in *resizeProcessIn) (*struct{}, error) {
	return nil, stream.Resize(ctx, g.Client, in.Key, in.Body)
}

type writeStdinIn struct {
	ProcessPath
	Offset int64 `query:"offset" minimum:"0" required:"true" doc:"of the body's first byte"`
	EOF    bool  `query:"eof" doc:"close stdin behind the body"`
}

func (s *service) writeStdin(w http.ResponseWriter, r *http.Request, in *writeStdinIn) error {
	body, err := route.Body(w, r, stdinBodyMax)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return route.BodyError(err)
	}
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ack, err := stream.Input(r.Context(), g.Client, in.Key, in.Offset, data, in.EOF)
	if err != nil {
		return err
	}
	return route.WriteJSON(w, http.StatusOK, ack)
}

type streamOutputIn struct {
	ProcessPath
	StdoutFrom  int64  `query:"stdout_from" minimum:"-1" doc:"byte offset; -1 = from the present end"`
	StderrFrom  int64  `query:"stderr_from" minimum:"-1"`
	Follow      bool   `query:"follow" default:"true" doc:"false: what is there, then the end"`
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
}

func (s *service) streamOutput(w http.ResponseWriter, r *http.Request, in *streamOutputIn) error {
	stdout, stderr := in.StdoutFrom, in.StderrFrom
	if in.LastEventID != "" {
		var err error
		if stdout, stderr, err = stream.ParseOutputID(in.LastEventID); err != nil {
			return err
		}
	}
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	out := stream.Attach(g.Client, in.Key, stdout, stderr, in.Follow)
	out.Alive, out.Still = s.alive(g), s.still(g)
	return stream.OutputEvents(ctx, out, func() (*stream.SSE, error) { return stream.NewSSE(w) })
}

type attachIn struct {
	ProcessPath
	StdoutFrom int64 `query:"stdout_from" minimum:"-1" doc:"byte offset; -1 = from the present end"`
	StderrFrom int64 `query:"stderr_from" minimum:"-1"`
}

func (s *service) attachProcess(w http.ResponseWriter, r *http.Request, in *attachIn) error {
	return s.frames(w, r, in.ID, func(_ context.Context, _ *stream.Link, g guest) (*stream.Output, error) {
		return stream.Attach(g.Client, in.Key, in.StdoutFrom, in.StderrFrom, true), nil
	})
}

func (s *service) exec(w http.ResponseWriter, r *http.Request, in *SandboxPath) error {
	start := time.Now()
	defer func() { s.execEnded(time.Since(start)) }()
	return s.frames(w, r, in.ID, func(ctx context.Context, l *stream.Link, g guest) (*stream.Output, error) {
		req, err := l.ReadStart(ctx)
		if err != nil {
			return nil, err
		}
		starts, err := s.starts(ctx, g, req)
		if err != nil {
			return nil, err
		}
		s.started()
		out := stream.Start(g.Client, starts...)
		out.Step = route.Begin(ctx, commandName(req))
		return out, nil
	})
}

// frames serves a WebSocket of frames on the output that open returns.
func (s *service) frames(w http.ResponseWriter, r *http.Request, id string, open func(context.Context, *stream.Link, guest) (*stream.Output, error)) error {
	g, err := s.guest(r.Context(), id)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	ws, err := stream.Accept(w, r)
	if err != nil {
		return err
	}
	l := stream.NewLink(ws)
	defer l.Close()
	out, err := open(ctx, l, g)
	if err != nil {
		l.Fail(err)
		return err
	}
	out.Alive, out.Still = s.alive(g), s.still(g)
	if out.Step != nil {
		defer func() { out.Step.Follow(s.ends(g, out.Key())) }() // whose client left goes on; one that has ended does not
	}
	return stream.Frames(ctx, l, g.Client, out)
}
