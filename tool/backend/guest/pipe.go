package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/tool"
)

// Bounds of pipes.
const (
	inputBytesMax  = 1 << 20 // of one call of Input
	stderrBytesMax = 4 << 10 // that are kept
	pipeSpoolBytes = 1 << 20 // of output that was not read yet
	pipeEndWait    = 300 * time.Millisecond
	pipeCloseWait  = 10 * time.Second
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
	req := &wire.StartRequest{Key: prefix + rand.Text(), Cwd: []byte(p.Dir), Stdin: true, Overflow: wire.Overflow_OVERFLOW_WAIT, SpoolBytesMax: pipeSpoolBytes, Background: true}
	for _, a := range p.Argv {
		req.Argv = append(req.Argv, []byte(a))
	}
	for k, v := range p.Env {
		if req.Env == nil {
			req.Env = map[string][]byte{}
		}
		req.Env[k] = []byte(v)
	}
	err := retry(ctx, func() error {
		_, err := g.c.Process.Start(ctx, connect.NewRequest(req))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start a program: %w", err)
	}
	return newPipe(&process{c: g.c, key: req.Key}), nil
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

// pipe holds a program's stdin and stdout.
type pipe struct {
	p      *process
	ctx    context.Context // of the calls that outlive the one that started it
	cancel context.CancelFunc
	out    *io.PipeReader
	done   chan struct{} // the output was read to its end
	once   sync.Once

	writes sync.Mutex
	offset int64 // of stdin

	mu     sync.Mutex
	stderr []byte
}

func newPipe(p *process) *pipe {
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	l := &pipe{p: p, ctx: ctx, cancel: cancel, out: r, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		err := p.Output(ctx, tool.Offsets{}, true, func(c tool.Chunk) error { return l.take(w, c) })
		_ = w.CloseWithError(err) // nil: the end of the file
	}()
	return l
}

func (l *pipe) take(w io.Writer, c tool.Chunk) error {
	if c.Stderr {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stderr = append(l.stderr, c.Data...)
		if n := len(l.stderr) - stderrBytesMax; n > 0 {
			l.stderr = append([]byte(nil), l.stderr[n:]...)
		}
		return nil
	}
	if c.Gap > 0 {
		return errors.New("output was lost")
	}
	_, err := w.Write(c.Data)
	return err
}

// Read implements tool.Pipe.
func (l *pipe) Read(b []byte) (int, error) { return l.out.Read(b) }

// Write implements tool.Pipe.
func (l *pipe) Write(b []byte) (n int, err error) {
	l.writes.Lock()
	defer l.writes.Unlock()
	for n < len(b) {
		part := b[n:min(len(b), n+inputBytesMax)]
		req := &wire.InputRequest{Key: l.p.key, Offset: l.offset, Data: part}
		err := retry(l.ctx, func() error { // by offset: a repetition writes nothing twice
			_, err := l.p.c.Process.Input(l.ctx, connect.NewRequest(req))
			return err
		})
		if err != nil {
			return n, err
		}
		n, l.offset = n+len(part), l.offset+int64(len(part))
	}
	return n, nil
}

// Stderr implements tool.Pipe.
func (l *pipe) Stderr() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(string(l.stderr), "\uFFFD")
}

// Close implements tool.Pipe: the end of stdin first, so that the program may tidy up, then
// KILL.
func (l *pipe) Close() error {
	l.once.Do(func() {
		_ = l.out.Close() // also a reader that waits
		l.cancel()
		<-l.done
		l.writes.Lock() // one that waits has ended with the context
		defer l.writes.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), pipeCloseWait)
		defer cancel()
		_, _ = l.p.c.Process.Input(ctx, connect.NewRequest(&wire.InputRequest{Key: l.p.key, Offset: l.offset, Eof: true})) // it may be gone
		if info, err := l.p.wait(ctx, pipeEndWait); err != nil || info.GetState() == wire.ProcessState_PROCESS_STATE_RUNNING {
			_ = l.p.end(ctx) // a machine that is gone has ended it
		}
		l.p.forget(ctx)
	})
	return nil
}
