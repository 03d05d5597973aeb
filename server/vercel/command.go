package vercel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/inside"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// Kinds of answers with lines of JSON.
const (
	lines  = "application/x-ndjson" // clients compare it whole
	object = "application/json"
)

// superuser is as whom a command with sudo runs, in sandboxes that were granted it.
const superuser = "root"

// waitOnce is how long a client that waits hears nothing: it would give up.
const waitOnce = 30 * time.Second

// newCommand is the request to run one.
type newCommand struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Wait    bool              `json:"wait"`
	Logs    bool              `json:"logs"`
	Timeout int64             `json:"timeout"` // ms; 0 = none
}

// start is the guest's request.
func (n newCommand) start(info sandbox.Info) (*wire.StartRequest, error) {
	switch {
	case n.Command == "":
		return nil, errs.New(errs.Invalid, "command is missing")
	case n.Timeout < 0 || n.Timeout > timeoutMax.Milliseconds():
		return nil, errs.New(errs.Invalid, "timeout: %d ms is none", n.Timeout)
	case n.Logs && !n.Wait:
		return nil, errs.New(errs.Invalid, "logs are of a command that is waited for; else they have an address of their own")
	}
	in := api.StartProcess{
		Key: wire.NewKey(), Argv: append([]string{n.Command}, n.Args...), Cwd: place(cwdOf(info), "", n.Cwd), Env: n.Env,
		TimeoutMS: n.Timeout, Wait: n.Wait,
	}
	if n.Sudo {
		in.User = superuser
	}
	return stream.StartRequest(in, "", 0)
}

// commandView is a command.
type commandView struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Args       []string `json:"args"`
	Cwd        string   `json:"cwd"`
	SessionID  string   `json:"sessionId"`
	ExitCode   *int32   `json:"exitCode"` // null = it runs
	DurationMS int64    `json:"durationMs,omitempty"`
	StartedAt  int64    `json:"startedAt"`
}

// commandLine is the line of a stream, or the answer, that has a command.
type commandLine struct {
	Command commandView `json:"command"`
}

func commandOf(id sandbox.ID, p *wire.ProcessInfo) commandLine {
	started := time.Unix(0, p.GetStartedUnixNs())
	v := commandView{ID: p.GetKey(), Args: []string{}, Cwd: valid(p.GetCwd()), SessionID: string(id), StartedAt: started.UnixMilli()}
	for i, a := range p.GetArgv() {
		if i == 0 {
			v.Name = valid(a)
			continue
		}
		v.Args = append(v.Args, valid(a))
	}
	if code, ok := codeOf(p); ok {
		v.ExitCode, v.DurationMS = &code, time.Unix(0, p.GetEndedUnixNs()).Sub(started).Milliseconds()
	}
	return commandLine{v}
}

// codeOf is how a command ended, as a shell says it: by a signal it is 128 and more.
func codeOf(p *wire.ProcessInfo) (code int32, ok bool) {
	if p.GetState() != wire.ProcessState_PROCESS_STATE_EXITED || p.GetExit() == nil {
		return 0, false
	}
	return p.GetExit().GetCode(), true
}

// valid is what a string of JSON can hold.
func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// call is a request in a sandbox that runs.
type call struct {
	info    sandbox.Info
	guest   *wire.Client
	release func()
}

// inside opens the guest of a request's sandbox.
func (b *Bridge) inside(ctx context.Context, id sandbox.ID) (call, error) {
	info, err := b.there(ctx, id)
	if err != nil {
		return call{}, err
	}
	if !runs(info) {
		return call{}, notRunning(info)
	}
	guest, release, err := b.Sandboxes.Guest(ctx, info.Tenant, id)
	if err == nil {
		return call{info, guest, release}, nil
	}
	if later, gone := b.Sandboxes.Get(ctx, info.Tenant, id); gone == nil && !runs(later) {
		return call{}, notRunning(later)
	}
	return call{}, err
}

// runs reports whether a sandbox can be called: a paused one wakes.
func runs(info sandbox.Info) bool {
	return info.State == sandbox.Running || info.State == sandbox.Creating || info.State == sandbox.Paused && !info.Spec.NoWake
}

// run starts a command, and follows it if the client waits. It outlives both the client
// and the server.
func (b *Bridge) run(w http.ResponseWriter, r *http.Request) error {
	var in newCommand
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ctx := r.Context()
	c, err := b.inside(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	start, err := in.start(c.info)
	if err != nil {
		return err
	}
	step := route.Begin(ctx, "exec "+strings.Join(append([]string{in.Command}, in.Args...), " "))
	defer func() { step.Follow(inside.Ends(c.guest, start.GetKey(), b.paused(c.info))) }()
	b.Started()
	if in.Wait {
		out := stream.Start(c.guest, start)
		out.Step = step
		return startError(b.follow(w, r, c, out, in.Logs))
	}
	res, err := c.guest.Process.Start(ctx, connect.NewRequest(start))
	if err != nil {
		return startError(wire.Err(err))
	}
	return writeJSON(w, http.StatusOK, commandOf(c.info.ID, res.Msg.GetProcess()))
}

// startError is of a program or a directory that is not there: a 404 would be of the
// sandbox.
func startError(err error) error {
	if errs.Is(err, errs.NotFound) {
		return errs.Wrap(errs.Invalid, err, "%s", errs.Public(err))
	}
	return err
}

// paused reports whether the machine of a sandbox cannot answer now, and may later.
func (b *Bridge) paused(info sandbox.Info) func(context.Context) bool {
	return func(ctx context.Context) bool {
		now, err := b.Sandboxes.Get(ctx, info.Tenant, info.ID)
		return err == nil && now.State == sandbox.Paused
	}
}

// logs sends what a command has written, from its start, until it has ended.
func (b *Bridge) logs(w http.ResponseWriter, r *http.Request) error {
	c, err := b.inside(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	out := stream.Attach(c.guest, r.PathValue("command"), 0, 0, true)
	return b.follow(w, r, c, out, true)
}

// follow sends the lines of a command. Those that say what the command is are of
// commands that the request starts.
func (b *Bridge) follow(w http.ResponseWriter, r *http.Request, c call, out *stream.Output, logs bool) error {
	defer out.Close()
	ctx, release, err := b.Hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	out.Alive = func(ctx context.Context) error {
		_, release, err := b.Sandboxes.Guest(ctx, c.info.Tenant, c.info.ID)
		if err == nil {
			release()
		}
		return err
	}
	out.Still = func(ctx context.Context) bool {
		info, err := b.Sandboxes.Get(ctx, c.info.Tenant, c.info.ID)
		return err == nil && info.State != sandbox.Running
	}
	to := &lineWriter{w: w, id: c.info.ID, whole: out.Step != nil, logs: logs}
	for {
		ev, err := out.Next(ctx)
		if err != nil {
			return b.broken(r, to, c.info, err)
		}
		ended, err := to.event(ev)
		if err != nil {
			return b.broken(r, to, c.info, err)
		}
		if ended {
			out.Finish()
			return nil
		}
	}
}

// broken ends a stream before the command has: an error, or a line that says so.
func (b *Bridge) broken(r *http.Request, to *lineWriter, info sandbox.Info, err error) error {
	if later, gone := b.Sandboxes.Get(context.WithoutCancel(r.Context()), info.Tenant, info.ID); gone == nil && !runs(later) {
		err = notRunning(later)
	}
	if !to.begun {
		return err
	}
	route.Note(r, err)
	_, text, _ := refusalOf(err)
	to.line(errorLine{Stream: "error", Data: text})
	return nil
}

// logLine is a piece of output.
type logLine struct {
	Stream string `json:"stream"` // stdout, stderr
	Data   string `json:"data"`
}

// errorLine ends a stream.
type errorLine struct {
	Stream string      `json:"stream"` // error
	Data   refusalText `json:"data"`
}

// Streams of a command.
const (
	stdout = "stdout"
	stderr = "stderr"
)

// lineWriter writes the events of a command as lines of JSON.
type lineWriter struct {
	w     http.ResponseWriter
	id    sandbox.ID
	whole bool // the command's own lines too
	logs  bool
	begun bool
	parts [2]text // of stdout and stderr
	buf   bytes.Buffer
}

// event writes what happened. ended: that was the last.
func (l *lineWriter) event(ev *wire.AttachEvent) (ended bool, err error) {
	switch e := ev.GetEvent().(type) {
	case *wire.AttachEvent_Started:
		l.begin()
		if l.whole {
			l.line(commandOf(l.id, e.Started))
		}
	case *wire.AttachEvent_Output:
		l.output(e.Output)
	case *wire.AttachEvent_Gap:
		l.gap(e.Gap)
	case *wire.AttachEvent_Exited:
		for i, name := range []string{stdout, stderr} {
			l.log(name, l.parts[i].end())
		}
		if _, ok := codeOf(e.Exited); !ok {
			return false, errUnknownEnd()
		}
		if l.whole {
			l.line(commandOf(l.id, e.Exited))
		}
		return true, nil
	}
	return false, nil
}

func errUnknownEnd() error {
	return errs.New(errs.NotFound, "how the command ended cannot be known: its machine was started anew")
}

// begin sends the head of the answer.
func (l *lineWriter) begin() {
	if l.begun {
		return
	}
	l.begun = true
	l.w.Header().Set("Content-Type", lines)
	l.w.Header().Set("Cache-Control", "no-store")
	l.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(l.w).Flush()
}

func (l *lineWriter) output(o *wire.Output) {
	i, name := 0, stdout
	if o.GetStream() == wire.Stream_STREAM_STDERR {
		i, name = 1, stderr
	}
	l.log(name, l.parts[i].take(o.GetData()))
}

// gap says in the output what the sandbox had to drop: clients know of no gaps.
func (l *lineWriter) gap(g *wire.Gap) {
	name := stdout
	if g.GetStream() == wire.Stream_STREAM_STDERR {
		name = stderr
	}
	l.log(stderr, fmt.Sprintf("\n[skete: bytes %d to %d of %s were dropped]\n", g.GetFrom(), g.GetTo(), name))
}

func (l *lineWriter) log(name, data string) {
	if l.logs && data != "" {
		l.line(logLine{name, data})
	}
}

// line writes one. An error is that of a client that is gone, which the next event
// finds out by its context.
func (l *lineWriter) line(v any) {
	l.buf.Reset()
	e := json.NewEncoder(&l.buf)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return
	}
	_, _ = l.w.Write(l.buf.Bytes())
	_ = http.NewResponseController(l.w).Flush()
}

// text makes strings of pieces of a stream: what a piece has of a character at its end
// waits for the rest.
type text struct{ rest []byte }

func (t *text) take(piece []byte) string {
	whole := piece
	if len(t.rest) > 0 {
		whole = append(t.rest, piece...)
	}
	n := len(whole) - begun(whole)
	s := valid(whole[:n])
	t.rest = bytes.Clone(whole[n:])
	return s
}

// end is what waits for a rest that does not come.
func (t *text) end() string {
	s := valid(t.rest)
	t.rest = nil
	return s
}

// begun is how many bytes at the end begin a character that is not whole.
func begun(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// command answers what a command is now, or once it has ended.
func (b *Bridge) command(w http.ResponseWriter, r *http.Request) error {
	c, err := b.inside(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	key := r.PathValue("command")
	if r.URL.Query().Get("wait") == "true" {
		return b.wait(w, r, c, key)
	}
	res, err := c.guest.Process.Get(r.Context(), connect.NewRequest(&wire.GetProcessRequest{Key: key}))
	if err != nil {
		return wire.Err(err)
	}
	return writeJSON(w, http.StatusOK, commandOf(c.info.ID, res.Msg.GetProcess()))
}

// wait answers once a command has ended. A space, which is no JSON, tells a client that
// would give up that it is waited for.
func (b *Bridge) wait(w http.ResponseWriter, r *http.Request, c call, key string) error {
	ctx, release, err := b.Hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", object)
	for {
		res, err := c.guest.Process.Wait(ctx, connect.NewRequest(&wire.WaitRequest{Key: key, WaitMs: waitOnce.Milliseconds()}))
		var p *wire.ProcessInfo
		if err == nil {
			p = res.Msg.GetProcess()
		}
		_, ended := codeOf(p)
		switch {
		case err != nil && context.Cause(ctx) != nil:
			err = context.Cause(ctx)
		case err != nil:
			err = wire.Err(err)
		case ended:
			_ = json.NewEncoder(w).Encode(commandOf(c.info.ID, p))
			return nil
		case p.GetState() != wire.ProcessState_PROCESS_STATE_RUNNING:
			err = errUnknownEnd()
		}
		if err == nil {
			_, err = w.Write([]byte(" "))
			err = errors.Join(err, http.NewResponseController(w).Flush())
		}
		if err != nil && route.Wrote(r) {
			route.Note(r, err)
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
		if err != nil {
			return err
		}
	}
}

// kill signals a command.
func (b *Bridge) kill(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Signal int `json:"signal"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ctx := r.Context()
	c, err := b.inside(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	key := r.PathValue("command")
	get := func() (*wire.ProcessInfo, error) {
		res, err := c.guest.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: key}))
		if err != nil {
			return nil, wire.Err(err)
		}
		return res.Msg.GetProcess(), nil
	}
	p, err := get()
	if err == nil && p.GetState() == wire.ProcessState_PROCESS_STATE_RUNNING {
		err = stream.Signal(ctx, c.guest, key, api.SignalProcess{Signal: in.Signal})
	}
	if err == nil {
		p, err = get()
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, commandOf(c.info.ID, p))
}
