package inside

import (
	"cmp"
	"context"
	"encoding/base64"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// Bounds of a command that is run in one call.
const (
	runTimeout     = 10 * time.Minute // if none is asked for
	runOutputBytes = 1 << 20          // of each stream, if nothing is asked for
	runKillWait    = 5 * time.Second
)

type runCommandIn struct {
	SandboxPath
	Body api.RunCommand
}

type runCommandOut struct{ Body api.CommandResult }

// runCommand starts a command, feeds and reads it, and answers at its end. A
// caller that goes away ends it, unless a key is there to ask for it again.
func (s *service) runCommand(ctx context.Context, in *runCommandIn) (*runCommandOut, error) {
	b := in.Body
	if b.Stdin != "" && len(b.StdinBase64) > 0 {
		return nil, errs.New(errs.Invalid, "stdin and stdin_base64 are both set; give one of them")
	}
	input := append([]byte(b.Stdin), b.StdinBase64...)
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	start := time.Now()
	defer func() { s.execEnded(time.Since(start)) }()
	ctx, release, err := s.hub.Open(ctx, auth.From(ctx).Owner) // long: it must end when the server does
	if err != nil {
		return nil, err
	}
	defer release()
	req := api.StartProcess{
		Key: b.Key, Argv: b.Argv, Command: b.Command, Code: b.Code, Language: b.Language, Env: b.Env, Cwd: b.Cwd, User: b.User,
		Stdin: len(input) > 0, TimeoutMS: cmp.Or(b.TimeoutMS, runTimeout.Milliseconds()), Wait: true,
	}
	starts, err := s.starts(ctx, g, req)
	if err != nil {
		return nil, err
	}
	s.started()
	out := stream.Start(g.Client, starts...)
	step := route.Begin(ctx, commandName(req))
	leave := step.End
	defer func() { leave() }()
	out.Alive, out.Still = s.alive(g), s.still(g)
	r := run{guest: g.Client, out: out, input: input, max: int(cmp.Or(b.OutputMax, runOutputBytes))}
	err = r.toTheEnd(ctx)
	if exit := errs.Exit(err); exit != 0 {
		return &runCommandOut{api.CommandResult{
			Key: out.Key(), NotStarted: true, ExitCode: exit, Reason: errs.Public(err),
			StdoutEncoding: encodingText, StderrEncoding: encodingText,
		}}, nil
	}
	if err != nil {
		out.Close()
		switch {
		case !wire.MadeUp(out.Key()): // it goes on
			leave = func() { step.Follow(s.ends(g, out.Key())) }
		case ctx.Err() != nil:
			r.kill(ctx)
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	out.Finish()
	return r.result()
}

// run is one command that is run in one call.
type run struct {
	guest *wire.Client
	out   *stream.Output
	input []byte
	max   int // bytes kept of each stream
	kept  [2][]byte
	holed [2]bool // the sandbox dropped what would come next
	end   *wire.ProcessInfo
}

// toTheEnd reads all that comes, and keeps the beginning of it.
func (r *run) toTheEnd(ctx context.Context) error {
	for r.end == nil {
		ev, err := r.out.Next(ctx)
		if err != nil {
			return err
		}
		switch e := ev.GetEvent().(type) {
		case *wire.AttachEvent_Started:
			if len(r.input) > 0 && !r.out.Existed() {
				feeding, stop := context.WithCancel(ctx)
				defer stop()
				fed := stream.Feed(feeding, r.guest, r.out.Key(), r.input)
				defer func() { stop(); <-fed }()
			}
		case *wire.AttachEvent_Output:
			r.keep(e.Output.GetStream(), e.Output.GetData())
		case *wire.AttachEvent_Gap:
			r.holed[indexOf(e.Gap.GetStream())] = true
		case *wire.AttachEvent_Exited:
			r.end = e.Exited
		}
	}
	return nil
}

func indexOf(s wire.Stream) int {
	if s == wire.Stream_STREAM_STDERR {
		return 1
	}
	return 0
}

func (r *run) keep(s wire.Stream, data []byte) {
	i := indexOf(s)
	if room := r.max - len(r.kept[i]); !r.holed[i] && room > 0 {
		r.kept[i] = append(r.kept[i], data[:min(room, len(data))]...)
	}
}

// kill ends a command that no client can ask for any more.
func (r *run) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runKillWait)
	defer cancel()
	_ = stream.Signal(ctx, r.guest, r.out.Key(), api.SignalProcess{Signal: int(syscall.SIGKILL)})
}

func (r *run) result() (*runCommandOut, error) {
	x := r.end.GetExit()
	if r.end.GetState() != wire.ProcessState_PROCESS_STATE_EXITED || x == nil {
		return nil, errs.New(errs.Conflict, "the command %s is lost: its sandbox was started anew after the key had been used, and it was not run again", r.out.Key()).
			WithHint("how it ended cannot be known; look at its effects, and take a new key to run it again")
	}
	v := api.CommandResult{Key: r.out.Key(), Existed: r.out.Existed(), ExitCode: int(x.GetCode()), Signal: int(x.GetSignal()), Reason: x.GetReason()}
	v.StdoutBytes, v.StderrBytes = r.out.At()
	v.StdoutTruncated, v.StderrTruncated = int64(len(r.kept[0])) < v.StdoutBytes, int64(len(r.kept[1])) < v.StderrBytes
	v.Stdout, v.StdoutEncoding = encode(r.kept[0], v.StdoutTruncated)
	v.Stderr, v.StderrEncoding = encode(r.kept[1], v.StderrTruncated)
	return &runCommandOut{v}, nil
}

// Encodings of output in an answer.
const (
	encodingText   = "utf-8"
	encodingBase64 = "base64"
)

// encode shows bytes as text if they are. A character that the cut went
// through is left out rather than changing all to base64.
func encode(b []byte, cut bool) (text, encoding string) {
	whole := b
	if cut {
		for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
			if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	if utf8.Valid(b) {
		return string(b), encodingText
	}
	return base64.StdEncoding.EncodeToString(whole), encodingBase64
}
