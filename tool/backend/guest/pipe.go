package guest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/tool"
)

// Bounds of pipes.
const (
	stderrBytesMax = 4 << 10 // that are kept
	pipePrefix     = "pipe."
	pipeNameBytes  = 64
)

// Pipe implements tool.Pipes.
func (g *Commands) Pipe(ctx context.Context, p tool.Program) (tool.Pipe, error) {
	if len(p.Argv) == 0 || p.Name == "" || len(p.Name) > pipeNameBytes || strings.ContainsAny(p.Name, "./ ") {
		return nil, errs.New(errs.Invalid, "a program of a pipe needs a name and arguments")
	}
	prefix := pipePrefix + p.Name + "."
	if err := g.endPipes(ctx, prefix); err != nil {
		return nil, err
	}
	req := &wire.StartRequest{Key: prefix + rand.Text(), Cwd: []byte(p.Dir), Background: true}
	for _, a := range p.Argv {
		req.Argv = append(req.Argv, []byte(a))
	}
	for k, v := range p.Env {
		if req.Env == nil {
			req.Env = map[string][]byte{}
		}
		req.Env[k] = []byte(v)
	}
	started, err := g.c.StartPipe(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("start a program: %w", err)
	}
	return newPipe(started), nil
}

// Sweep implements tool.Pipes.
func (g *Commands) Sweep(ctx context.Context, prefix string) error {
	return g.endPipes(ctx, pipePrefix+prefix)
}

// endPipes ends what was started under a name before.
func (g *Commands) endPipes(ctx context.Context, prefix string) error {
	before, err := g.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, l := range before {
		p := &process{c: g.c, key: l.Key}
		if l.Running {
			err = p.end(ctx)
		}
		if err != nil {
			return fmt.Errorf("end an earlier program: %w", err)
		}
		p.forget(ctx)
	}
	return nil
}

// end kills a program's group at once.
func (p *process) end(ctx context.Context) error {
	_, err := p.signal(ctx, syscall.SIGKILL)
	return err
}

func (p *process) forget(ctx context.Context) {
	_, _ = p.c.Process.Forget(ctx, connect.NewRequest(&wire.ForgetRequest{Key: p.key})) // what stays is bounded by the guest
}

// pipe is a program whose stderr is read at once, and kept for people.
type pipe struct {
	*wire.Pipe
	done chan struct{}

	mu     sync.Mutex
	stderr []byte // the end of it
}

func newPipe(p *wire.Pipe) *pipe {
	l := &pipe{Pipe: p, done: make(chan struct{})}
	go func() { // it ends with the pipe
		defer close(l.done)
		_, _ = io.Copy(tail{l}, p.Stderr)
	}()
	return l
}

// Read implements tool.Pipe.
func (l *pipe) Read(b []byte) (int, error) { return l.Stdout.Read(b) }

// Stderr implements tool.Pipe.
func (l *pipe) Stderr() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(string(l.stderr), "\uFFFD")
}

// Done implements tool.Pipe.
func (l *pipe) Done() <-chan struct{} { return l.done }

// tail keeps the end of what is written to it.
type tail struct{ l *pipe }

// Write implements io.Writer.
func (t tail) Write(b []byte) (int, error) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.l.stderr = append(t.l.stderr, b...)
	if n := len(t.l.stderr) - stderrBytesMax; n > 0 {
		t.l.stderr = append([]byte(nil), t.l.stderr[n:]...)
	}
	return len(b), nil
}
