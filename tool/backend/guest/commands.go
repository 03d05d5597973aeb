package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/tool"
)

// Bounds of commands.
const (
	keyBytesMax = 128
	waitStep    = 30 * time.Second
	termWait    = 2 * time.Second
	triesMax    = 6 // of a stream that breaks without a byte
	retryWait   = 50 * time.Millisecond
	pagesMax    = 100
)

// script runs the command in bash, or in sh where there is none. With a
// second argument, both streams are one.
const script = `shell=$(command -v bash) || shell=sh; if [ -n "$2" ]; then exec "$shell" -c "$1" 2>&1; fi; exec "$shell" -c "$1"`

// Commands are the commands of one machine. Safe for concurrent use.
type Commands struct {
	c *wire.Client
}

// NewCommands returns the commands of the machine that the client speaks to.
func NewCommands(c *wire.Client) *Commands { return &Commands{c: c} }

// guestKey is the key as the guest takes it: any other is told by its hash.
func guestKey(key string) string {
	ok := key != "" && len(key) <= keyBytesMax
	for _, c := range []byte(key) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:-", c) >= 0)
	}
	if ok {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Start implements tool.Commands.
func (g *Commands) Start(ctx context.Context, key string, c tool.Command) (tool.Process, error) {
	argv := [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(script), []byte("sh"), []byte(c.Shell)}
	if c.Merge {
		argv = append(argv, []byte("merge"))
	}
	req := &wire.StartRequest{Key: guestKey(key), Argv: argv, Cwd: []byte(c.Dir), TimeoutMs: max(c.Timeout.Milliseconds(), 0)}
	if c.Timeout > 0 {
		req.TimeoutMs = max(req.TimeoutMs, 1)
	}
	req.Fingerprint = wire.Fingerprint([]any{c.Shell, c.Merge, c.Dir, c.Env})
	for k, v := range c.Env {
		if req.Env == nil {
			req.Env = map[string][]byte{}
		}
		req.Env[k] = []byte(v)
	}
	err := retry(ctx, func() error { // keyed: a repetition starts nothing twice
		_, err := g.c.Process.Start(ctx, connect.NewRequest(req))
		return err
	})
	if errs.Is(err, errs.Invalid) && c.Dir != "" && !g.isDir(ctx, c.Dir) {
		return nil, fail(tool.CodeInvalidPath, c.Dir, "there is no such directory to work in")
	}
	if err != nil {
		return nil, fmt.Errorf("start a command: %w", err)
	}
	return &process{c: g.c, key: req.Key}, nil
}

func (g *Commands) isDir(ctx context.Context, p string) bool {
	res, err := g.c.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: []byte(p), Follow: true}))
	return err == nil && res.Msg.Entry.GetType() == wire.FileType_FILE_TYPE_DIRECTORY
}

// retry repeats a call that may be repeated while the connection breaks.
func retry(ctx context.Context, call func() error) error {
	for try := range triesMax {
		err := wire.Err(call())
		if !errs.Temporary(err) || ctx.Err() != nil || try == triesMax-1 {
			return err
		}
		if err := sleep.For(ctx, retryWait<<try); err != nil {
			return err
		}
	}
	return nil
}

// Find implements tool.Commands.
func (g *Commands) Find(ctx context.Context, key string) (tool.Process, error) {
	p := &process{c: g.c, key: guestKey(key)}
	if _, err := p.get(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// List implements tool.Commands.
func (g *Commands) List(ctx context.Context, prefix string) ([]tool.Listed, error) {
	var list []tool.Listed
	token := ""
	for range pagesMax {
		res, err := g.c.Process.List(ctx, connect.NewRequest(&wire.ListProcessesRequest{PageSize: 200, PageToken: token}))
		if err != nil {
			return nil, fmt.Errorf("list commands: %w", wire.Err(err))
		}
		for _, p := range res.Msg.Processes {
			if strings.HasPrefix(p.GetKey(), prefix) && len(list) < tool.ListMax {
				list = append(list, listed(p))
			}
		}
		if token = res.Msg.NextPageToken; token == "" {
			break
		}
	}
	return list, nil
}

func listed(p *wire.ProcessInfo) tool.Listed {
	l := tool.Listed{
		Key: strings.ToValidUTF8(p.GetKey(), "\uFFFD"), Started: time.Unix(0, p.GetStartedUnixNs()).UTC(),
		Running: p.GetState() == wire.ProcessState_PROCESS_STATE_RUNNING, Ended: endOf(p),
	}
	if argv := p.GetArgv(); len(argv) >= 5 && string(argv[2]) == script {
		l.Command = strings.ToValidUTF8(string(argv[4]), "\uFFFD")
	}
	return l
}

// endOf tells how a process ended, or how far it came.
func endOf(p *wire.ProcessInfo) tool.Ended {
	e := tool.Ended{
		Written: tool.Offsets{Stdout: max(p.GetStdout().GetSize(), 0), Stderr: max(p.GetStderr().GetSize(), 0)},
		Lost:    p.GetState() == wire.ProcessState_PROCESS_STATE_LOST,
	}
	x := p.GetExit()
	if x == nil {
		return e
	}
	e.Exit = int(x.GetCode())
	if s := x.GetSignal(); s > 0 && s <= 64 {
		e.Signal = signalName(syscall.Signal(s))
	}
	switch x.GetReason() {
	case "timeout":
		e.TimedOut = true
	case "out of memory":
		e.OutOfMemory = true
	case "killed":
		e.Killed = true
	}
	return e
}

var signals = map[syscall.Signal]string{
	syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL", syscall.SIGTRAP: "SIGTRAP", syscall.SIGABRT: "SIGABRT",
	syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE", syscall.SIGTERM: "SIGTERM",
	syscall.SIGXCPU: "SIGXCPU", syscall.SIGXFSZ: "SIGXFSZ", syscall.SIGSYS: "SIGSYS",
}

func signalName(s syscall.Signal) string {
	if name, ok := signals[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// process is a command that the guest knows.
type process struct {
	c   *wire.Client
	key string
}

func (p *process) get(ctx context.Context) (*wire.ProcessInfo, error) {
	var res *connect.Response[wire.GetProcessResponse]
	err := retry(ctx, func() (err error) {
		res, err = p.c.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: p.key}))
		return err
	})
	if err != nil {
		return nil, err
	}
	return res.Msg.Process, nil
}

// Status implements tool.Process.
func (p *process) Status(ctx context.Context) (tool.Ended, bool, error) {
	info, err := p.get(ctx)
	if err != nil {
		return tool.Ended{}, false, fmt.Errorf("ask for a command: %w", err)
	}
	return endOf(info), info.GetState() == wire.ProcessState_PROCESS_STATE_RUNNING, nil
}

// Wait implements tool.Process.
func (p *process) Wait(ctx context.Context) (tool.Ended, error) {
	for {
		info, err := p.wait(ctx, waitStep)
		if err != nil {
			return tool.Ended{}, fmt.Errorf("wait for a command: %w", err)
		}
		if info.GetState() != wire.ProcessState_PROCESS_STATE_RUNNING {
			return p.settle(ctx)
		}
	}
}

// settle waits until what an ended process wrote is out of its pipes, so that
// the sizes are the final ones.
func (p *process) settle(ctx context.Context) (tool.Ended, error) {
	var last *wire.ProcessInfo
	err := retry(ctx, func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		st, err := p.c.Process.Attach(ctx, connect.NewRequest(&wire.AttachRequest{Key: p.key, StdoutFrom: -1, StderrFrom: -1}))
		if err != nil {
			return err
		}
		defer st.Close()
		for st.Receive() {
			if e, ok := st.Msg().Event.(*wire.AttachEvent_Exited); ok {
				last = e.Exited
				return nil
			}
		}
		if err := wire.Err(st.Err()); err != nil {
			return err
		}
		return errs.New(errs.Unavailable, "the guest ended the stream before the command")
	})
	if err != nil {
		return tool.Ended{}, fmt.Errorf("wait for a command: %w", err)
	}
	return endOf(last), nil
}

func (p *process) wait(ctx context.Context, d time.Duration) (*wire.ProcessInfo, error) {
	var res *connect.Response[wire.WaitResponse]
	err := retry(ctx, func() (err error) {
		res, err = p.c.Process.Wait(ctx, connect.NewRequest(&wire.WaitRequest{Key: p.key, WaitMs: d.Milliseconds()}))
		return err
	})
	if err != nil {
		return nil, err
	}
	return res.Msg.Process, nil
}

// Kill implements tool.Process: TERM first, so that a program may tidy up,
// then KILL.
func (p *process) Kill(ctx context.Context) error {
	info, err := p.get(ctx)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err == nil && info.GetState() == wire.ProcessState_PROCESS_STATE_RUNNING {
			info, err = p.signal(ctx, s)
		}
	}
	if err != nil {
		return fmt.Errorf("kill a command: %w", err)
	}
	return nil
}

// signal sends a signal to the process group and gives it a moment.
func (p *process) signal(ctx context.Context, s syscall.Signal) (*wire.ProcessInfo, error) {
	_, err := p.c.Process.Signal(ctx, connect.NewRequest(&wire.SignalRequest{Key: p.key, Signal: int32(s)}))
	if err = wire.Err(err); err != nil && !errs.Is(err, errs.NotFound) { // not found: it has just ended
		return nil, err
	}
	return p.wait(ctx, termWait)
}

// Output implements tool.Process. A stream that breaks is opened again where
// it stopped.
func (p *process) Output(ctx context.Context, from tool.Offsets, follow bool, visit func(tool.Chunk) error) error {
	r := reader{at: from, visit: visit}
	for try := 0; ; try++ {
		before := r.at
		err := r.attach(ctx, p, follow)
		if stop, ok := errors.AsType[*stopped](err); ok {
			return stop.err
		}
		if err == nil || !errs.Temporary(err) || ctx.Err() != nil {
			return err
		}
		if r.at != before {
			try = 0
		}
		if try == triesMax-1 {
			return fmt.Errorf("read a command's output: %w", err)
		}
		if err := sleep.For(ctx, retryWait<<try); err != nil {
			return err
		}
	}
}

// reader follows the offsets of both streams.
type reader struct {
	at    tool.Offsets
	gaps  tool.Offsets // seen and not yet told
	visit func(tool.Chunk) error
}

// stopped carries the visitor's error past the repetition.
type stopped struct{ err error }

func (s *stopped) Error() string { return s.err.Error() }

func (r *reader) attach(ctx context.Context, p *process, follow bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := p.c.Process.Attach(ctx, connect.NewRequest(&wire.AttachRequest{Key: p.key, StdoutFrom: max(r.at.Stdout, 0), StderrFrom: max(r.at.Stderr, 0), NoFollow: !follow}))
	if err != nil {
		return r.refused(wire.Err(err))
	}
	defer st.Close()
	over := false
	for st.Receive() {
		switch e := st.Msg().Event.(type) {
		case *wire.AttachEvent_Output:
			err = r.output(e.Output)
		case *wire.AttachEvent_Gap:
			err = r.gap(e.Gap)
		case *wire.AttachEvent_Exited:
			over = true
		}
		if err != nil {
			return err
		}
	}
	if err := wire.Err(st.Err()); err != nil {
		return r.refused(err)
	}
	if follow && !over {
		return errs.New(errs.Unavailable, "the guest ended the stream before the command")
	}
	return r.flush()
}

// refused: an offset beyond the end is no error, there is nothing yet.
func (r *reader) refused(err error) error {
	if errs.Is(err, errs.Invalid) {
		return nil
	}
	return err
}

func (r *reader) position(s wire.Stream) (at, gap *int64) {
	if s == wire.Stream_STREAM_STDERR {
		return &r.at.Stderr, &r.gaps.Stderr
	}
	return &r.at.Stdout, &r.gaps.Stdout
}

func (r *reader) output(o *wire.Output) error {
	at, gap := r.position(o.GetStream())
	if o.GetOffset() != *at {
		return errs.New(errs.Corrupt, "the guest's output jumps from %d to %d", *at, o.GetOffset())
	}
	if len(o.GetData()) == 0 {
		return nil
	}
	c := tool.Chunk{Stderr: o.GetStream() == wire.Stream_STREAM_STDERR, Offset: *at, Data: o.GetData(), Gap: *gap}
	*at, *gap = *at+int64(len(c.Data)), 0
	if err := r.visit(c); err != nil {
		return &stopped{err}
	}
	return nil
}

func (r *reader) gap(g *wire.Gap) error {
	at, gap := r.position(g.GetStream())
	if g.GetFrom() != *at || g.GetTo() < g.GetFrom() {
		return errs.New(errs.Corrupt, "the guest's gap from %d to %d does not begin at %d", g.GetFrom(), g.GetTo(), *at)
	}
	*gap, *at = *gap+g.GetTo()-g.GetFrom(), g.GetTo()
	return nil
}

// flush tells of gaps that nothing followed.
func (r *reader) flush() error {
	for _, s := range []wire.Stream{wire.Stream_STREAM_STDOUT, wire.Stream_STREAM_STDERR} {
		at, gap := r.position(s)
		if *gap == 0 {
			continue
		}
		c := tool.Chunk{Stderr: s == wire.Stream_STREAM_STDERR, Offset: *at, Gap: *gap}
		*gap = 0
		if err := r.visit(c); err != nil {
			return &stopped{err}
		}
	}
	return nil
}
