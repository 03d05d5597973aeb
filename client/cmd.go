package client

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// Cmd is a command in a sandbox, made by Command, Shell, Code or Attach; it is
// used like exec.Cmd. Set fields before Start.
type Cmd struct {
	// Spec is the whole request; its Key is made up when empty.
	Spec api.StartProcess
	// Stdin is copied to the command until it ends; nil = no input. A read of
	// it may be under way when Wait returns.
	Stdin io.Reader
	// Stdout and Stderr receive output in order; nil = thrown away. With a
	// terminal all output is Stdout.
	Stdout, Stderr io.Writer
	// StdoutFrom and StderrFrom are where an attached command's output begins;
	// -1 = the present end.
	StdoutFrom, StderrFrom int64
	// Lossy lets the sandbox drop the middle of an output that is not read
	// fast enough, instead of making the command wait as a pipe does.
	Lossy bool
	// Detached: the end of Start's context leaves the command running instead
	// of killing it. Always so for Attach.
	Detached bool
	// OnStart is called when the command runs, or was found, before any of its
	// output is passed on.
	OnStart func(p api.Process)
	// OnGap is told of bytes that were dropped; nil = they are only counted in Lost.
	OnGap func(stream string, from, to int64)
	// OnReconnect is told that the stream broke and is being resumed.
	OnReconnect func(err error)

	sb       *Sandbox
	attached bool

	mu      sync.Mutex
	link    *link // nil while there is none
	size    *api.TerminalSize
	process api.Process
	existed bool // the first answer said so
	lost    int64

	in      *stdinSource
	out     [2]output // stdout, stderr
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	done    chan struct{} // closed when process and err are final
	err     error
}

// output is the state of one stream.
type output struct {
	name string
	w    io.Writer
	next int64
	err  error // of w
}

// Command returns a command with arguments, run without a shell.
func (s *Sandbox) Command(argv ...string) *Cmd {
	return &Cmd{sb: s, Spec: api.StartProcess{Argv: argv}}
}

// Shell returns a command line for a shell.
func (s *Sandbox) Shell(line string) *Cmd {
	return &Cmd{sb: s, Spec: api.StartProcess{Command: line}}
}

// Code returns a program in the language; "" = the sandbox's.
func (s *Sandbox) Code(language, program string) *Cmd {
	return &Cmd{sb: s, Spec: api.StartProcess{Language: language, Code: program}}
}

// Attach returns the command with the key, to read its output from
// StdoutFrom and StderrFrom on and to write to its input. It never starts anything.
func (s *Sandbox) Attach(key string) *Cmd {
	return &Cmd{sb: s, Spec: api.StartProcess{Key: key}, attached: true, Detached: true}
}

// Key names the command in its sandbox; set once Start was called.
func (c *Cmd) Key() string { return c.Spec.Key }

// Process returns what is known of the command.
func (c *Cmd) Process() api.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// Lost counts the bytes of output that were dropped.
func (c *Cmd) Lost() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Connected reports whether the streams flow; false while they are being resumed.
func (c *Cmd) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil
}

// Run starts the command and waits for its end.
func (c *Cmd) Run(ctx context.Context) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its stdout.
func (c *Cmd) Output(ctx context.Context) ([]byte, error) {
	var b bytes.Buffer
	c.Stdout = &b
	err := c.Run(ctx)
	return b.Bytes(), err
}

// CombinedOutput runs the command and returns stdout and stderr as they came.
func (c *Cmd) CombinedOutput(ctx context.Context) ([]byte, error) {
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := c.Run(ctx)
	return b.Bytes(), err
}

// Start starts the command, or attaches to it, and returns when it runs.
// ctx governs the whole life of the command: when it ends the command is
// killed, unless Detached.
func (c *Cmd) Start(ctx context.Context) error {
	if c.done != nil {
		return errs.New(errs.Invalid, "this command was started before")
	}
	if err := checkStart(c.Spec); err != nil {
		return err
	}
	c.prepare(ctx)
	l, err := c.connectFirst()
	if err != nil {
		c.killOnCancel()
		c.cancel()
		c.err = err
		close(c.done)
		return err
	}
	if c.OnStart != nil {
		c.OnStart(c.Process())
	}
	c.workers.Go(func() {
		c.follow(l)
	})
	return nil
}

func (c *Cmd) prepare(ctx context.Context) {
	if c.Spec.Key == "" {
		c.Spec.Key = newKey()
	}
	if !c.attached {
		c.Spec.Wait = c.Spec.Wait || !c.Lossy
		c.Spec.Stdin = c.Spec.Stdin || c.Stdin != nil
	}
	c.size = c.Spec.Terminal
	c.out = [2]output{{name: "stdout", w: c.Stdout, next: c.StdoutFrom}, {name: "stderr", w: c.Stderr, next: c.StderrFrom}}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.done = make(chan struct{})
}

// Wait returns when the command has ended and all of its output was written:
// nil for status 0, *ExitError for another, an error of a writer, or the
// reason why the status is not known.
func (c *Cmd) Wait() error {
	if c.done == nil {
		return errs.New(errs.Invalid, "this command was not started")
	}
	<-c.done
	c.workers.Wait()
	return c.err
}

// Signal signals the command's process group.
func (c *Cmd) Signal(ctx context.Context, sig syscall.Signal) error {
	return c.sb.SignalProcess(ctx, c.Spec.Key, sig)
}

// Look asks the server for the command's state, and waits for its end no
// longer than ctx lasts and a second.
func (c *Cmd) Look(ctx context.Context) (api.Process, error) {
	return transport.Fetch[api.Process](ctx, c.sb.c.t, transport.Get(c.sb.processPath(c.Spec.Key, "/wait"), url.Values{"wait_ms": {"1000"}}))
}

// Resize sets the size of the command's terminal.
func (c *Cmd) Resize(size api.TerminalSize) error {
	c.mu.Lock()
	c.size = &size
	l := c.link
	c.mu.Unlock()
	if l == nil {
		return nil // sent when the stream is back
	}
	return transport.Broken(c.ctx, l.sendJSON(c.ctx, api.FrameResize, size))
}

// connectFirst makes the first connection. Repeating is safe: the key never
// runs twice.
func (c *Cmd) connectFirst() (*link, error) {
	for attempt := 1; ; attempt++ {
		l, err := c.connect(!c.attached)
		if err == nil || attempt == transport.AttemptsMax || c.ctx.Err() != nil || !errs.Temporary(err) {
			return l, err
		}
		if sleep.For(c.ctx, transport.Backoff(attempt)) != nil {
			return nil, err
		}
	}
}

// connect opens a link and takes its first frame.
func (c *Cmd) connect(start bool) (*link, error) {
	k := transport.Get(c.sb.path("/exec"), c.sb.changing(nil))
	if !start {
		k = transport.Get(c.sb.processPath(c.Spec.Key, "/attach"), url.Values{
			"stdout_from": {strconv.FormatInt(c.out[0].next, 10)},
			"stderr_from": {strconv.FormatInt(c.out[1].next, 10)},
		})
	}
	l, err := c.sb.c.openLink(c.ctx, k)
	if err != nil {
		return nil, err
	}
	if start {
		err = l.sendJSON(c.ctx, api.FrameStart, c.Spec)
	}
	if err == nil {
		err = c.started(l)
	}
	if err != nil {
		l.close()
		return nil, transport.Broken(c.ctx, err)
	}
	return l, nil
}

// started takes the frame that every stream begins with.
func (c *Cmd) started(l *link) error {
	kind, body, err := l.read(c.ctx)
	if err != nil {
		return err
	}
	if kind == api.FrameProblem {
		return transport.StreamProblem(body)
	}
	if kind != api.FrameStarted {
		return badFrame(api.ErrFrame)
	}
	p, err := parse[api.Process](kind, body)
	if err != nil {
		return err
	}
	c.setProcess(p)
	for i, s := range []api.Spool{p.Stdout, p.Stderr} {
		if c.out[i].next < 0 {
			c.out[i].next = s.Size
		}
	}
	if c.Stdin != nil && c.in == nil {
		c.in = newStdinSource(c.Stdin)
		c.in.Ack(api.StdinAck{Acked: p.StdinAcked})
		go c.in.Fill(c.ctx) // not waited for: nothing can interrupt a read of Stdin
	} else if c.in != nil {
		c.in.Ack(api.StdinAck{Acked: p.StdinAcked})
	}
	return nil
}

func (c *Cmd) setProcess(p api.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process.Key == "" {
		c.existed = p.Existed // later answers are about what this Cmd itself started
	}
	p.Existed = c.existed
	c.process = p
}

// follow reads link after link until the command's end is known.
func (c *Cmd) follow(l *link) {
	defer close(c.done)
	defer c.cancel()
	for {
		err := c.serve(l)
		if err == nil {
			c.err = c.result()
			break
		}
		if c.ctx.Err() != nil || !errs.Temporary(err) {
			c.err = err
			break
		}
		if c.OnReconnect != nil {
			c.OnReconnect(err)
		}
		if l, err = c.reconnect(err); err != nil {
			c.err = err
			break
		}
	}
	if c.in != nil {
		c.in.Stop()
	}
	c.killOnCancel()
}

// reconnect attaches where the streams stopped. The reason of the break is
// returned when that does not work for too long.
func (c *Cmd) reconnect(reason error) (*link, error) {
	deadline := time.Now().Add(c.sb.c.t.Reconnect())
	for attempt := 1; ; attempt++ {
		l, err := c.connect(false)
		if err == nil || c.ctx.Err() != nil || !errs.Temporary(err) {
			return l, err
		}
		if time.Now().After(deadline) {
			return nil, reason
		}
		if err := sleep.For(c.ctx, transport.Backoff(attempt)); err != nil {
			return nil, err
		}
	}
}

// serve moves bytes both ways over one link. nil: the command has ended.
func (c *Cmd) serve(l *link) error {
	ctx, cancel := context.WithCancel(c.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.close()
	defer cancel()
	c.setLink(l)
	defer c.setLink(nil)
	wg.Go(func() { l.watch(ctx) })
	if c.in != nil {
		wg.Go(func() {
			_ = c.in.Drain(ctx, func(f []byte) error { return l.send(ctx, f) }) // the reading side sees a broken link
		})
	}
	for {
		kind, body, err := l.read(ctx)
		if err != nil {
			return err
		}
		l.taking.Store(true)
		ended, err := c.take(kind, body)
		l.taking.Store(false)
		if ended || err != nil {
			return err
		}
	}
}

// setLink announces the link to Resize, and tells the link a size that was
// set while there was none.
func (c *Cmd) setLink(l *link) {
	c.mu.Lock()
	c.link = l
	size := c.size
	c.mu.Unlock()
	if l != nil && size != nil {
		_ = l.sendJSON(c.ctx, api.FrameResize, *size) // the reading side sees a broken link
	}
}

// take handles one frame.
func (c *Cmd) take(kind api.FrameKind, body []byte) (ended bool, err error) {
	switch kind {
	case api.FrameStdout:
		return false, c.write(&c.out[0], body)
	case api.FrameStderr:
		return false, c.write(&c.out[1], body)
	case api.FrameGap:
		ev, err := parse[api.OutputEvent](kind, body)
		if err == nil {
			c.gap(ev.Stream, ev.From, ev.To)
		}
		return false, err
	case api.FrameAck:
		a, err := parse[api.StdinAck](kind, body)
		if err == nil && c.in != nil {
			c.in.Ack(a)
		}
		return false, err
	case api.FrameExited:
		p, err := parse[api.Process](kind, body)
		if err == nil {
			c.setProcess(p)
		}
		return true, err
	case api.FrameProblem:
		return false, transport.StreamProblem(body)
	}
	return false, nil // a later version may send more kinds
}

// write passes on what was not seen before.
func (c *Cmd) write(o *output, body []byte) error {
	at, data, err := api.ParseOffset(body)
	if err != nil {
		return badFrame(err)
	}
	if at > o.next {
		c.gap(o.name, o.next, at)
	}
	if seen := o.next - at; seen > 0 {
		data = data[min(seen, int64(len(data))):]
	}
	o.next += int64(len(data))
	if o.w == nil || o.err != nil || len(data) == 0 {
		return nil
	}
	if _, o.err = o.w.Write(data); o.err != nil {
		c.brokenPipe()
	}
	return nil
}

// brokenPipe tells the command that its output is not read any more, as a pipe
// does. What it still writes is thrown away.
func (c *Cmd) brokenPipe() {
	if c.Detached {
		return
	}
	c.workers.Go(func() { _ = c.Signal(c.ctx, syscall.SIGPIPE) })
}

func (c *Cmd) gap(stream string, from, to int64) {
	o := &c.out[0]
	if stream == c.out[1].name {
		o = &c.out[1]
	}
	if from = max(from, o.next); to <= from {
		return
	}
	o.next = to
	c.mu.Lock()
	c.lost += to - from
	c.mu.Unlock()
	if c.OnGap != nil {
		c.OnGap(o.name, from, to)
	}
}

func (c *Cmd) result() error {
	for _, o := range c.out {
		if o.err != nil {
			return o.err
		}
	}
	return endOf(c.Process())
}

// killOnCancel ends a command whose caller went away.
func (c *Cmd) killOnCancel() {
	if c.Detached || c.process.State == "exited" || c.ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 5*time.Second)
	defer cancel()
	_ = c.Signal(ctx, syscall.SIGKILL)
}
