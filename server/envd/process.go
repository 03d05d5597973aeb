package envd

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/envd/protocol"
	"github.com/skete-dev/skete/server/inside"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// Bounds of commands.
const (
	inputBytesMax = 1 << 20 // of one call of the guest
	tagBytesMax   = 48
	tagPrefix     = "tag." // of keys that carry a tag
	reapMax       = time.Second
	reasonKilled  = "killed" // what the signal says already
)

// processService is the service Process.
type processService struct{ *Bridge }

// refusedBy turns an error into one of Connect.
func refusedBy(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time of the request is up"))
	}
	if errors.Is(err, context.Canceled) {
		return connect.NewError(connect.CodeCanceled, err)
	}
	if ce, ok := err.(*connect.Error); ok { //nolint:errorlint // those of the guest are within ours
		return ce
	}
	if hint := errs.Hint(err); hint != "" {
		err = errs.Wrap(errs.Of(err), err, "%s. Hint: %s", errs.Public(err), hint)
	}
	return wire.ToConnect(err)
}

// List implements protocol.ProcessHandler.
func (s processService) List(ctx context.Context, _ *connect.Request[protocol.ListRequest]) (*connect.Response[protocol.ListResponse], error) {
	all, err := commands(ctx, callOf(ctx).guest)
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	out := &protocol.ListResponse{}
	for _, p := range all {
		if p.GetState() == wire.ProcessState_PROCESS_STATE_RUNNING {
			out.Processes = append(out.Processes, processView(p))
		}
	}
	return connect.NewResponse(out), nil
}

// commands lists all that a guest knows, oldest first.
func commands(ctx context.Context, guest *wire.Client) (all []*wire.ProcessInfo, err error) {
	for token := ""; ; {
		res, err := guest.Process.List(ctx, connect.NewRequest(&wire.ListProcessesRequest{PageSize: 1000, PageToken: token}))
		if err != nil {
			return nil, wire.Err(err)
		}
		all = append(all, res.Msg.GetProcesses()...)
		if token = res.Msg.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

func processView(p *wire.ProcessInfo) *protocol.ProcessInfo {
	c := &protocol.ProcessConfig{}
	for i, a := range p.GetArgv() {
		text := strings.ToValidUTF8(string(a), "\uFFFD")
		if i == 0 {
			c.Cmd = text
			continue
		}
		c.Args = append(c.Args, text)
	}
	cwd := strings.ToValidUTF8(string(p.GetCwd()), "\uFFFD")
	c.Cwd = &cwd
	v := &protocol.ProcessInfo{Config: c, Pid: p.GetPid()}
	if tag, ok := tagOf(p.GetKey()); ok {
		v.Tag = &tag
	}
	return v
}

var tagText = base32.HexEncoding.WithPadding(base32.NoPadding)

// keyOf makes the key of a command. A tag stands in it, so that it is known for as
// long as the command is.
func keyOf(tag string) (string, error) {
	k := wire.NewKey()
	if tag == "" {
		return k, nil
	}
	if len(tag) > tagBytesMax {
		return "", errs.New(errs.Invalid, "a tag has at most %d bytes", tagBytesMax)
	}
	return tagPrefix + tagText.EncodeToString([]byte(tag)) + "." + k[max(0, len(k)-26):], nil
}

func tagOf(key string) (tag string, ok bool) {
	rest, ok := strings.CutPrefix(key, tagPrefix)
	text, _, dotted := strings.Cut(rest, ".")
	raw, err := tagText.DecodeString(text)
	return string(raw), ok && dotted && err == nil
}

// selected finds a command; of those that have had the same number or tag it is the newest.
func selected(ctx context.Context, guest *wire.Client, by *protocol.ProcessSelector) (*wire.ProcessInfo, error) {
	all, err := commands(ctx, guest)
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	for _, p := range all {
		switch by.GetSelector().(type) {
		case *protocol.ProcessSelector_Pid:
			if p.GetPid() == by.GetPid() {
				return p, nil
			}
		case *protocol.ProcessSelector_Tag:
			if tag, ok := tagOf(p.GetKey()); ok && tag == by.GetTag() {
				return p, nil
			}
		default:
			return nil, errs.New(errs.Invalid, "a process is selected by its pid or its tag")
		}
	}
	return nil, errs.New(errs.NotFound, "there is no such process")
}

// running is selected, of one that has not ended.
func running(ctx context.Context, guest *wire.Client, by *protocol.ProcessSelector) (*wire.ProcessInfo, error) {
	p, err := selected(ctx, guest, by)
	if err == nil && p.GetState() != wire.ProcessState_PROCESS_STATE_RUNNING {
		err = errs.New(errs.NotFound, "the process has ended")
	}
	return p, err
}

// Start implements protocol.ProcessHandler. The command outlives the stream.
func (s processService) Start(ctx context.Context, req *connect.Request[protocol.StartRequest], to *connect.ServerStream[protocol.StartResponse]) error {
	c := callOf(ctx)
	starts, err := c.starts(ctx, req)
	if err != nil {
		return refusedBy(ctx, err)
	}
	ctx, release, err := s.Hub.Open(ctx, auth.From(ctx).Owner)
	if err != nil {
		return refusedBy(ctx, err)
	}
	defer release()
	if s.Started != nil {
		s.Started()
	}
	out := stream.Start(c.guest, starts...)
	step := route.Begin(ctx, nameOf(req.Msg))
	out.Step = step
	// One whose client left goes on; one that has ended does not.
	defer func() { step.Follow(inside.Ends(c.guest, out.Key(), s.paused(c.record))) }()
	err = s.follow(ctx, c, out, req.Msg.GetPty() != nil, func(ev *protocol.ProcessEvent) error {
		return to.Send(&protocol.StartResponse{Event: ev})
	})
	if errs.Is(err, errs.NotFound) { // the program, or the working directory
		err = errs.Wrap(errs.Invalid, err, "%s", errs.Public(err))
	}
	return refusedBy(ctx, err)
}

// nameOf says in the history what was run.
func nameOf(req *protocol.StartRequest) string {
	p := req.GetProcess()
	line := strings.Join(append([]string{p.GetCmd()}, p.GetArgs()...), " ")
	if script, ok := scriptOf(p); ok {
		line = script
	}
	if req.GetPty() != nil {
		return "terminal " + line
	}
	return "exec " + line
}

const bash = "/bin/bash"

// scriptOf is the command line of a shell that SDKs run it by.
func scriptOf(p *protocol.ProcessConfig) (script string, ok bool) {
	a := p.GetArgs()
	if p.GetCmd() != bash || len(a) != 3 || a[0] != "-l" || a[1] != "-c" {
		return "", false
	}
	return a[2], true
}

// starts makes the guest's requests of a client's, in the order to try.
func (c call) starts(ctx context.Context, req *connect.Request[protocol.StartRequest]) ([]*wire.StartRequest, error) {
	m := req.Msg
	p := m.GetProcess()
	if p.GetCmd() == "" {
		return nil, errs.New(errs.Invalid, "process.cmd is missing")
	}
	cwd, err := c.path(ctx, p.GetCwd())
	if err != nil {
		return nil, err
	}
	timeout, err := timeoutOfHeader(req.Header())
	if err != nil {
		return nil, err
	}
	k, err := keyOf(m.GetTag())
	if err != nil {
		return nil, err
	}
	in := api.StartProcess{
		Key: k, Argv: append([]string{p.GetCmd()}, p.GetArgs()...), Cwd: cwd, User: c.user, Env: c.env(p.GetEnvs()),
		Stdin: m.Stdin == nil || m.GetStdin(), TimeoutMS: timeout, Wait: true,
	}
	if m.GetPty() != nil {
		in.Terminal = &api.TerminalSize{Cols: int(m.GetPty().GetSize().GetCols()), Rows: int(m.GetPty().GetSize().GetRows())}
	}
	first, err := stream.StartRequest(in, "", 0)
	if err != nil {
		return nil, err
	}
	starts := []*wire.StartRequest{first}
	if _, ok := scriptOf(p); ok { // for templates without bash
		in.Argv[0] = "/bin/sh"
		second, err := stream.StartRequest(in, "", 0)
		if err != nil {
			return nil, err
		}
		starts = append(starts, second)
	}
	return starts, nil
}

// env is what a client's commands may expect, and what was asked for.
func (c call) env(asked map[string]string) map[string]string {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": clientID(c.Sandbox), "E2B_TEMPLATE_ID": c.Template}
	maps.Copy(env, asked)
	return env
}

// timeoutOfHeader is after how many milliseconds a command is ended; 0 = never.
func timeoutOfHeader(h http.Header) (int64, error) {
	text := h.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 0 || len(text) > 10 {
		return 0, errs.New(errs.Invalid, "Connect-Timeout-Ms: %.20q is no time", text)
	}
	return ms, nil
}

// paused reports whether the machine of a sandbox cannot answer now, and may later.
func (s processService) paused(rec record) func(context.Context) bool {
	return func(ctx context.Context) bool {
		info, err := s.Sandboxes.Get(ctx, rec.Tenant, rec.Sandbox)
		return err == nil && info.State == sandbox.Paused
	}
}

// Connect implements protocol.ProcessHandler.
func (s processService) Connect(ctx context.Context, req *connect.Request[protocol.ConnectRequest], to *connect.ServerStream[protocol.ConnectResponse]) error {
	c := callOf(ctx)
	p, err := selected(ctx, c.guest, req.Msg.GetProcess())
	if err != nil {
		return refusedBy(ctx, err)
	}
	ctx, release, err := s.Hub.Open(ctx, auth.From(ctx).Owner)
	if err != nil {
		return refusedBy(ctx, err)
	}
	defer release()
	out := stream.Attach(c.guest, p.GetKey(), -1, -1, true)
	return refusedBy(ctx, s.follow(ctx, c, out, p.GetPty(), func(ev *protocol.ProcessEvent) error {
		return to.Send(&protocol.ConnectResponse{Event: ev})
	}))
}

// follow sends the events of a command until it has ended.
func (s processService) follow(ctx context.Context, c call, out *stream.Output, pty bool, send func(*protocol.ProcessEvent) error) error {
	defer out.Close()
	out.Alive = func(ctx context.Context) error {
		_, release, err := s.Sandboxes.Guest(ctx, c.Tenant, c.Sandbox)
		if err == nil {
			release()
		}
		return err
	}
	out.Still = func(ctx context.Context) bool {
		info, err := s.Sandboxes.Get(ctx, c.Tenant, c.Sandbox)
		return err == nil && info.State != sandbox.Running
	}
	for {
		ev, err := out.Next(ctx)
		if err != nil {
			return err
		}
		view, err := eventView(ev, pty)
		if err != nil {
			return err
		}
		if err := send(view); err != nil {
			return err
		}
		if view.GetEnd() != nil {
			out.Finish()
			return nil
		}
	}
}

// eventView shows an event of a command. What the sandbox had to drop ends the
// stream: clients do not know of gaps.
func eventView(ev *wire.AttachEvent, pty bool) (*protocol.ProcessEvent, error) {
	switch e := ev.GetEvent().(type) {
	case *wire.AttachEvent_Started:
		return &protocol.ProcessEvent{Event: &protocol.ProcessEvent_Start{Start: &protocol.ProcessEvent_StartEvent{Pid: e.Started.GetPid()}}}, nil
	case *wire.AttachEvent_Output:
		return &protocol.ProcessEvent{Event: &protocol.ProcessEvent_Data{Data: dataView(e.Output, pty)}}, nil
	case *wire.AttachEvent_Gap:
		return nil, errs.New(errs.Corrupt, "bytes %d to %d of the output were dropped: they were read too slowly", e.Gap.GetFrom(), e.Gap.GetTo()).
			WithHint("the command goes on; connect to it again")
	case *wire.AttachEvent_Exited:
		end, err := endView(e.Exited)
		return &protocol.ProcessEvent{Event: &protocol.ProcessEvent_End{End: end}}, err
	}
	return &protocol.ProcessEvent{Event: &protocol.ProcessEvent_Keepalive{Keepalive: &protocol.ProcessEvent_KeepAlive{}}}, nil
}

func dataView(o *wire.Output, pty bool) *protocol.ProcessEvent_DataEvent {
	switch {
	case pty:
		return &protocol.ProcessEvent_DataEvent{Output: &protocol.ProcessEvent_DataEvent_Pty{Pty: o.GetData()}}
	case o.GetStream() == wire.Stream_STREAM_STDERR:
		return &protocol.ProcessEvent_DataEvent{Output: &protocol.ProcessEvent_DataEvent_Stderr{Stderr: o.GetData()}}
	}
	return &protocol.ProcessEvent_DataEvent{Output: &protocol.ProcessEvent_DataEvent_Stdout{Stdout: o.GetData()}}
}

// endView says how a command ended in the words that clients know: by a signal the
// code is -1.
func endView(p *wire.ProcessInfo) (*protocol.ProcessEvent_EndEvent, error) {
	x := p.GetExit()
	if p.GetState() != wire.ProcessState_PROCESS_STATE_EXITED || x == nil {
		return nil, errs.New(errs.Unavailable, "how the command ended cannot be known: its machine was started anew")
	}
	end := &protocol.ProcessEvent_EndEvent{ExitCode: x.GetCode(), Exited: true, Status: fmt.Sprintf("exit status %d", x.GetCode())}
	if sig := x.GetSignal(); sig != 0 {
		end.ExitCode, end.Exited, end.Status = -1, false, "signal: "+syscall.Signal(sig).String()
	}
	if x.GetReason() != "" && x.GetReason() != reasonKilled {
		end.Status += " (" + x.GetReason() + ")"
	}
	if end.ExitCode != 0 {
		why := end.Status
		end.Error = &why
	}
	return end, nil
}

// Update implements protocol.ProcessHandler: it sets the size of a terminal.
func (s processService) Update(ctx context.Context, req *connect.Request[protocol.UpdateRequest]) (*connect.Response[protocol.UpdateResponse], error) {
	c := callOf(ctx)
	p, err := running(ctx, c.guest, req.Msg.GetProcess())
	if size := req.Msg.GetPty().GetSize(); err == nil && req.Msg.GetPty() != nil {
		err = stream.Resize(ctx, c.guest, p.GetKey(), api.TerminalSize{Cols: int(size.GetCols()), Rows: int(size.GetRows())})
	}
	return connect.NewResponse(&protocol.UpdateResponse{}), refusedBy(ctx, err)
}

// SendInput implements protocol.ProcessHandler.
func (s processService) SendInput(ctx context.Context, req *connect.Request[protocol.SendInputRequest]) (*connect.Response[protocol.SendInputResponse], error) {
	c := callOf(ctx)
	p, err := running(ctx, c.guest, req.Msg.GetProcess())
	if err == nil {
		err = s.input(ctx, c, p, req.Msg.GetInput(), false)
	}
	return connect.NewResponse(&protocol.SendInputResponse{}), refusedBy(ctx, err)
}

// StreamInput implements protocol.ProcessHandler.
func (s processService) StreamInput(ctx context.Context, from *connect.ClientStream[protocol.StreamInputRequest]) (*connect.Response[protocol.StreamInputResponse], error) {
	c := callOf(ctx)
	var p *wire.ProcessInfo
	for from.Receive() {
		var err error
		switch e := from.Msg().GetEvent().(type) {
		case *protocol.StreamInputRequest_Start:
			p, err = running(ctx, c.guest, e.Start.GetProcess())
		case *protocol.StreamInputRequest_Data:
			if p == nil {
				err = errs.New(errs.Invalid, "the stream begins with the process that it is for")
				break
			}
			err = s.input(ctx, c, p, e.Data.GetInput(), false)
		}
		if err != nil {
			return nil, refusedBy(ctx, err)
		}
	}
	if err := from.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&protocol.StreamInputResponse{}), nil
}

// CloseStdin implements protocol.ProcessHandler.
func (s processService) CloseStdin(ctx context.Context, req *connect.Request[protocol.CloseStdinRequest]) (*connect.Response[protocol.CloseStdinResponse], error) {
	c := callOf(ctx)
	p, err := running(ctx, c.guest, req.Msg.GetProcess())
	switch {
	case err != nil:
	case p.GetPty():
		err = errs.New(errs.Invalid, "the stdin of a terminal cannot be closed").WithHint("send Ctrl+D, the byte 4")
	default:
		err = s.input(ctx, c, p, nil, true)
	}
	return connect.NewResponse(&protocol.CloseStdinResponse{}), refusedBy(ctx, err)
}

// input writes behind what was written before. Clients know no offsets, so one
// call writes at a time.
func (s processService) input(ctx context.Context, c call, p *wire.ProcessInfo, in *protocol.ProcessInput, eof bool) error {
	if _, terminal := in.GetInput().(*protocol.ProcessInput_Pty); in.GetInput() != nil && terminal != p.GetPty() {
		return errs.New(errs.Invalid, "stdin is for commands, pty for terminals")
	}
	data := append(in.GetStdin(), in.GetPty()...)
	defer s.inputs.Lock(string(c.Sandbox) + "/" + p.GetKey())()
	res, err := c.guest.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: p.GetKey()}))
	if err != nil {
		return wire.Err(err)
	}
	for at := res.Msg.GetProcess().GetStdinAcked(); ; {
		part := data[:min(len(data), inputBytesMax)]
		data = data[len(part):]
		ack, err := stream.Input(ctx, c.guest, p.GetKey(), at, part, eof && len(data) == 0)
		if err != nil || len(data) == 0 {
			return err
		}
		at = ack.Acked
	}
}

// SendSignal implements protocol.ProcessHandler. After a KILL the process is gone
// when it answers.
func (s processService) SendSignal(ctx context.Context, req *connect.Request[protocol.SendSignalRequest]) (*connect.Response[protocol.SendSignalResponse], error) {
	c := callOf(ctx)
	sig := req.Msg.GetSignal()
	if sig != protocol.Signal_SIGNAL_SIGKILL && sig != protocol.Signal_SIGNAL_SIGTERM {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("signals are SIGNAL_SIGTERM and SIGNAL_SIGKILL"))
	}
	p, err := running(ctx, c.guest, req.Msg.GetProcess())
	if err == nil {
		err = stream.Signal(ctx, c.guest, p.GetKey(), api.SignalProcess{Signal: int(sig), LeaderOnly: true})
	}
	if err == nil && sig == protocol.Signal_SIGNAL_SIGKILL {
		_, err = c.guest.Process.Wait(ctx, connect.NewRequest(&wire.WaitRequest{Key: p.GetKey(), WaitMs: reapMax.Milliseconds()}))
		err = wire.Err(err)
	}
	return connect.NewResponse(&protocol.SendSignalResponse{}), refusedBy(ctx, err)
}
