package server

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/gate"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/server/view"
)

// stdinBodyMax is what the guest takes in one call.
const stdinBodyMax = 1 << 20

type processPath struct {
	sandboxPath
	Key string `path:"key" maxLength:"128" doc:"of the command"`
}

func (s *Server) registerProcesses() {
	const tag, base = "processes", "/v1/sandboxes/{id}/processes"
	handle(s, operation{method: http.MethodPost, path: base, scope: key.Write, id: "start-process", tag: tag,
		summary: "Start a command; nobody reads its output yet", status: http.StatusCreated}, s.startProcess)
	handle(s, operation{method: http.MethodGet, path: base, scope: key.Read, id: "list-processes", tag: tag,
		summary: "List commands, oldest first"}, s.listProcesses)
	handle(s, operation{method: http.MethodGet, path: base + "/{key}", scope: key.Read, id: "get-process", tag: tag,
		summary: "Get a command as it is now"}, s.getProcess)
	handle(s, operation{method: http.MethodDelete, path: base + "/{key}", scope: key.Write, id: "forget-process", tag: tag,
		summary: "Forget a command that has ended, its output and its key"}, s.forgetProcess)
	handle(s, operation{method: http.MethodGet, path: base + "/{key}/wait", scope: key.Read, id: "wait-process", tag: tag,
		summary: "Wait for the end of a command, or for some time"}, s.waitProcess)
	handle(s, operation{method: http.MethodPost, path: base + "/{key}/signal", scope: key.Write, id: "signal-process", tag: tag,
		summary: "Signal the process group of a command"}, s.signalProcess)
	handle(s, operation{method: http.MethodPost, path: base + "/{key}/resize", scope: key.Write, id: "resize-process", tag: tag,
		summary: "Set the size of a command's terminal"}, s.resizeProcess)
	handleRaw(s, operation{method: http.MethodPost, path: base + "/{key}/stdin", scope: key.Write, id: "write-stdin", tag: tag,
		summary: "Write stdin at an offset: a repeated call never writes a byte twice", change: func(op *huma.Operation) {
			takes(op, "application/octet-stream")
			answers(op, "200", "What was accepted", "application/json", schemaOf[api.StdinAck](s))
		}}, s.writeStdin)
	handleRaw(s, operation{method: http.MethodGet, path: base + "/{key}/output", scope: key.Read, id: "stream-output", tag: tag,
		summary: "Stream output as server-sent events", change: eventStream[api.OutputEvent](s)}, s.streamOutput)
	handleRaw(s, operation{method: http.MethodGet, path: base + "/{key}/attach", scope: key.Write, id: "attach-process", tag: tag,
		summary: "Attach to a command: a WebSocket of frames", change: webSocket}, s.attachProcess)
	handleRaw(s, operation{method: http.MethodGet, path: "/v1/sandboxes/{id}/exec", scope: key.Write, id: "exec", tag: tag,
		summary: "Start a command and attach to it: a WebSocket of frames, the first of which is the request", change: webSocket}, s.exec)
}

// eventStream describes a route that sends server-sent events.
func eventStream[T any](s *Server) func(*huma.Operation) {
	return func(op *huma.Operation) {
		answers(op, "200", "Server-sent events; the data of each is an object of this schema", "text/event-stream", schemaOf[T](s))
	}
}

func webSocket(op *huma.Operation) {
	answers(op, "101", "A WebSocket of binary messages", "", nil)
}

func schemaOf[T any](s *Server) *huma.Schema {
	t := reflect.TypeFor[T]()
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

type startProcessIn struct {
	sandboxPath
	Body api.StartProcess
}

type startProcessOut struct {
	Status int
	Body   api.Process
}

type processOut struct{ Body api.Process }

func (s *Server) startProcess(ctx context.Context, in *startProcessIn) (*startProcessOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	starts, err := s.starts(ctx, g, in.Body)
	if err != nil {
		return nil, err
	}
	res, err := startFirst(ctx, g, starts)
	if err != nil {
		return nil, err
	}
	s.metrics.commands.Inc()
	p := view.Process(res.GetProcess())
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
func (s *Server) starts(ctx context.Context, g guest, req api.StartProcess) ([]*wire.StartRequest, error) {
	language := ""
	if req.Code != "" && req.Language == "" {
		info, err := s.sandboxes.Get(ctx, g.tenant, g.id)
		if err != nil {
			return nil, err
		}
		language = info.Spec.Language
	}
	if req.Key == "" {
		req.Key = stream.NewKey()
	}
	var starts []*wire.StartRequest
	for shell := range view.Shells(req) {
		r, err := view.Start(req, language, shell)
		if err != nil {
			return nil, err
		}
		starts = append(starts, r)
	}
	return starts, nil
}

type listProcessesIn struct {
	sandboxPath
	PageSize  int    `query:"page_size" minimum:"0" maximum:"1000"`
	PageToken string `query:"page_token" maxLength:"512"`
}

type listProcessesOut struct{ Body api.ProcessPage }

func (s *Server) listProcesses(ctx context.Context, in *listProcessesIn) (*listProcessesOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	res, err := g.Process.List(ctx, connect.NewRequest(&wire.ListProcessesRequest{PageSize: uint32(in.PageSize), PageToken: in.PageToken}))
	if err != nil {
		return nil, wire.Err(err)
	}
	page := api.ProcessPage{Items: make([]api.Process, len(res.Msg.GetProcesses())), NextPageToken: res.Msg.GetNextPageToken()}
	for i, p := range res.Msg.GetProcesses() {
		page.Items[i] = view.Process(p)
	}
	return &listProcessesOut{page}, nil
}

func (s *Server) getProcess(ctx context.Context, in *processPath) (*processOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	res, err := g.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: in.Key}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &processOut{view.Process(res.Msg.GetProcess())}, nil
}

func (s *Server) forgetProcess(ctx context.Context, in *processPath) (*struct{}, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	_, err = g.Process.Forget(ctx, connect.NewRequest(&wire.ForgetRequest{Key: in.Key}))
	return nil, wire.Err(err)
}

type waitProcessIn struct {
	processPath
	WaitMS int64 `query:"wait_ms" minimum:"0" maximum:"600000" default:"30000"`
}

func (s *Server) waitProcess(ctx context.Context, in *waitProcessIn) (*processOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	ctx, release, err := s.hub.Open(ctx, gate.From(ctx).Owner) // long: it must end when the server does
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
	return &processOut{view.Process(res.Msg.GetProcess())}, nil
}

type signalProcessIn struct {
	processPath
	Body api.SignalProcess
}

func (s *Server) signalProcess(ctx context.Context, in *signalProcessIn) (*struct{}, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	return nil, stream.Signal(ctx, g.Client, in.Key, in.Body)
}

type resizeProcessIn struct {
	processPath
	Body api.TerminalSize
}

func (s *Server) resizeProcess(ctx context.Context, in *resizeProcessIn) (*struct{}, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	return nil, stream.Resize(ctx, g.Client, in.Key, in.Body)
}

type writeStdinIn struct {
	processPath
	Offset int64 `query:"offset" minimum:"0" required:"true" doc:"of the body's first byte"`
	EOF    bool  `query:"eof" doc:"close stdin behind the body"`
}

func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request, in *writeStdinIn) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, stdinBodyMax))
	if err != nil {
		return bodyError(err)
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
	return writeJSON(w, http.StatusOK, ack)
}

// bodyError says why a body could not be read.
func bodyError(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return problem.At(http.StatusRequestEntityTooLarge, errs.New(errs.Invalid, "the body is larger than %d bytes", large.Limit))
	}
	return errs.Wrap(errs.Invalid, err, "the body ended before it was whole")
}

// openStream admits a long answer.
func (s *Server) openStream(w http.ResponseWriter, r *http.Request) (context.Context, func(), error) {
	if r.Method == http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		return nil, nil, problem.At(http.StatusMethodNotAllowed, errs.New(errs.Invalid, "a stream has no HEAD"))
	}
	return s.hub.Open(r.Context(), ownerOf(r))
}

// accept turns a request into a WebSocket. The gate has looked at its origin.
func accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	if err := checkUpgrade(r); err != nil {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		return nil, problem.At(http.StatusUpgradeRequired, err)
	}
	return websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
}

// checkUpgrade refuses, as a problem, what websocket.Accept would refuse as text.
func checkUpgrade(r *http.Request) error {
	ok := r.ProtoAtLeast(1, 1) && r.Header.Get("Sec-Websocket-Version") == "13" &&
		headerHas(r.Header, "Connection", "upgrade") && headerHas(r.Header, "Upgrade", "websocket")
	if challenge, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key")); !ok || err != nil || len(challenge) != 16 {
		return errs.New(errs.Invalid, "this route speaks WebSocket (RFC 6455, version 13)")
	}
	return nil
}

func headerHas(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

type streamOutputIn struct {
	processPath
	StdoutFrom  int64  `query:"stdout_from" minimum:"-1" doc:"byte offset; -1 = from the present end"`
	StderrFrom  int64  `query:"stderr_from" minimum:"-1"`
	Follow      bool   `query:"follow" default:"true" doc:"false: what is there, then the end"`
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
}

func (s *Server) streamOutput(w http.ResponseWriter, r *http.Request, in *streamOutputIn) error {
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
	ctx, release, err := s.openStream(w, r)
	if err != nil {
		return err
	}
	defer release()
	out := stream.Attach(g.Client, in.Key, stdout, stderr, in.Follow)
	out.Alive = s.alive(g)
	return stream.OutputEvents(ctx, out, func() (*stream.SSE, error) { return stream.NewSSE(w) })
}

type attachIn struct {
	processPath
	StdoutFrom int64 `query:"stdout_from" minimum:"-1" doc:"byte offset; -1 = from the present end"`
	StderrFrom int64 `query:"stderr_from" minimum:"-1"`
}

func (s *Server) attachProcess(w http.ResponseWriter, r *http.Request, in *attachIn) error {
	return s.frames(w, r, in.ID, func(_ context.Context, _ *stream.Link, g guest) (*stream.Output, error) {
		return stream.Attach(g.Client, in.Key, in.StdoutFrom, in.StderrFrom, true), nil
	})
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request, in *sandboxPath) error {
	start := time.Now()
	defer func() { s.metrics.execSeconds.Observe(time.Since(start).Seconds()) }()
	return s.frames(w, r, in.ID, func(ctx context.Context, l *stream.Link, g guest) (*stream.Output, error) {
		req, err := l.ReadStart(ctx)
		if err != nil {
			return nil, err
		}
		starts, err := s.starts(ctx, g, req)
		if err != nil {
			return nil, err
		}
		s.metrics.commands.Inc()
		return stream.Start(g.Client, starts...), nil
	})
}

// frames serves a WebSocket of frames on the output that open returns.
func (s *Server) frames(w http.ResponseWriter, r *http.Request, id string, open func(context.Context, *stream.Link, guest) (*stream.Output, error)) error {
	g, err := s.guest(r.Context(), id)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, release, err := s.openStream(w, r)
	if err != nil {
		return err
	}
	defer release()
	ws, err := accept(w, r)
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
	out.Alive = s.alive(g)
	return stream.Frames(ctx, l, g.Client, out)
}
