package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
)

func (s *Sandbox) processPath(key, rest string) string {
	return s.path("/processes/" + url.PathEscape(key) + rest)
}

// StartProcess starts a command and does not wait for it; its output is not read
// yet. With a key in p the call is Repeatable: the same key never runs twice.
// Command.Start is the one with streams.
func (s *Sandbox) StartProcess(ctx context.Context, p api.StartProcess) (api.Process, error) {
	if err := checkStart(p); err != nil {
		return api.Process{}, err
	}
	k := transport.Call{Method: http.MethodPost, Path: s.path("/processes"), Query: s.changing(nil), Repeatable: p.Key != ""}
	return transport.Fetch[api.Process](ctx, s.c.t, k.WithJSON(p))
}

// Result is what came of a command that was run in one call, with its output
// as it was written.
type Result struct {
	api.CommandResult
	Out, Err []byte
}

// RunCommand runs a command to its end and returns what came of it, whatever
// its status. A broken connection is repeated: the same key never runs twice.
// When ctx ends the command is killed, unless r has a key to ask for it again.
// Command is the one with streams.
func (s *Sandbox) RunCommand(ctx context.Context, r api.RunCommand) (Result, error) {
	if err := checkStart(api.StartProcess{Argv: r.Argv, Command: r.Command, Code: r.Code, Env: r.Env, Cwd: r.Cwd}); err != nil {
		return Result{}, err
	}
	if !utf8.ValidString(r.Stdin) {
		r.Stdin, r.StdinBase64 = "", []byte(r.Stdin)
	}
	if r.Key == "" {
		r.Key = newKey()
	}
	k := transport.Call{Method: http.MethodPost, Path: s.path("/exec:run"), Query: s.changing(nil), Repeatable: true}
	v, err := transport.Fetch[api.CommandResult](ctx, s.c.t, k.WithJSON(r))
	if err != nil {
		return Result{}, err
	}
	res := Result{CommandResult: v}
	if res.Out, err = bytesOf(v.Stdout, v.StdoutEncoding); err == nil {
		res.Err, err = bytesOf(v.Stderr, v.StderrEncoding)
	}
	return res, err
}

func bytesOf(text, encoding string) ([]byte, error) {
	if encoding != "base64" {
		return []byte(text), nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "the server's base64 is none")
	}
	return b, nil
}

// newKey makes a key of a form that servers know: no user chose it.
func newKey() string { return "cmd-" + rand.Text() }

// Processes goes through the commands of the sandbox, oldest first, ended ones
// included until they are forgotten.
func (s *Sandbox) Processes(ctx context.Context) iter.Seq2[api.Process, error] {
	return pages(ctx, url.Values{}, func(q url.Values) ([]api.Process, string, error) {
		p, err := transport.Fetch[api.ProcessPage](ctx, s.c.t, transport.Get(s.path("/processes"), q))
		return p.Items, p.NextPageToken, err
	})
}

// Process returns one command as it is now.
func (s *Sandbox) Process(ctx context.Context, key string) (api.Process, error) {
	return transport.Fetch[api.Process](ctx, s.c.t, transport.Get(s.processPath(key, ""), nil))
}

// waitSlice is how long one request waits for the end of a command.
const waitSlice = 30 * time.Second

// WaitProcess waits for the end of a command without reading its output.
func (s *Sandbox) WaitProcess(ctx context.Context, key string) (api.Process, error) {
	q := url.Values{"wait_ms": {strconv.FormatInt(waitSlice.Milliseconds(), 10)}}
	for {
		p, err := transport.Fetch[api.Process](ctx, s.c.t, transport.Get(s.processPath(key, "/wait"), q))
		if err != nil || p.State != "running" {
			return p, err
		}
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
	}
}

// SignalProcess signals the process group of a command.
func (s *Sandbox) SignalProcess(ctx context.Context, key string, sig syscall.Signal) error {
	k := transport.Call{Method: http.MethodPost, Path: s.processPath(key, "/signal")}
	return s.c.t.Send(ctx, k.WithJSON(api.SignalProcess{Signal: int(sig)}))
}

// ResizeProcess sets the size of a command's terminal.
func (s *Sandbox) ResizeProcess(ctx context.Context, key string, size api.TerminalSize) error {
	k := transport.Call{Method: http.MethodPost, Path: s.processPath(key, "/resize"), Repeatable: true}
	return s.c.t.Send(ctx, k.WithJSON(size))
}

// ForgetProcess drops an ended command, its output and its key.
func (s *Sandbox) ForgetProcess(ctx context.Context, key string) error {
	return s.c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: s.processPath(key, ""), Repeatable: true})
}

// WriteStdin writes bytes of a command's input at an offset, so that a
// repeated call never writes a byte twice. eof closes the input behind data.
func (s *Sandbox) WriteStdin(ctx context.Context, key string, offset int64, data []byte, eof bool) (api.StdinAck, error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if eof {
		q.Set("eof", "true")
	}
	if data == nil {
		data = []byte{}
	}
	return transport.Fetch[api.StdinAck](ctx, s.c.t, transport.Call{
		Method: http.MethodPost, Path: s.processPath(key, "/stdin"), Query: q, Body: data, Repeatable: true,
		Header: http.Header{"Content-Type": {"application/octet-stream"}},
	})
}

// Output reads a command's output from byte offsets on: all of it up to its
// end, or with follow false what there is now. Each event has Stream set to
// stdout or stderr, with Data or, for dropped bytes, From and To; the last
// event of an ended command has Process. Attach is the one for large outputs.
func (s *Sandbox) Output(ctx context.Context, key string, stdoutFrom, stderrFrom int64, followOn bool) iter.Seq2[api.OutputEvent, error] {
	q := url.Values{
		"stdout_from": {strconv.FormatInt(stdoutFrom, 10)},
		"stderr_from": {strconv.FormatInt(stderrFrom, 10)},
		"follow":      {strconv.FormatBool(followOn)},
	}
	f := transport.Follower{Client: s.c.t, Path: s.processPath(key, "/output"), Query: q, Finite: !followOn}
	return transport.Follow(ctx, &f, func(ev transport.Event, out *api.OutputEvent) bool {
		if ev.Name == "stdout" || ev.Name == "stderr" {
			out.Stream = ev.Name
		}
		return ev.Name != "exited"
	})
}

// ExitError is the end of a command that did not succeed.
type ExitError struct {
	Process api.Process
}

// Error says how the command ended.
func (e *ExitError) Error() string {
	x := e.Process.Exit
	switch {
	case x == nil:
		return "the command ended without a status"
	case x.Reason != "":
		return "exit status " + strconv.Itoa(x.Code) + " (" + x.Reason + ")"
	case x.Signal != 0:
		return "exit status " + strconv.Itoa(x.Code) + " (signal " + strconv.Itoa(x.Signal) + ")"
	}
	return "exit status " + strconv.Itoa(x.Code)
}

// Code returns the status as a shell reports it: 0..255, 128+n for signal n.
func (e *ExitError) Code() int {
	if e.Process.Exit == nil {
		return -1
	}
	return e.Process.Exit.Code
}

// endOf turns the final state of a command into what Wait returns.
func endOf(p api.Process) error {
	switch {
	case p.State == "lost":
		return errs.New(errs.Conflict, "the command %s is lost: its sandbox was started anew after the key had been used, and it was not run again", p.Key).
			WithHint("how it ended cannot be known; look at its effects, and take a new key to run it again")
	case p.Exit == nil:
		return errs.New(errs.Internal, "the server told of the end of the command %s without a status", p.Key)
	case p.Exit.Code != 0 || p.Exit.Signal != 0:
		return &ExitError{Process: p}
	}
	return nil
}
