package process

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/wire"
)

// Run is a process as other parts of supervise use it; see Core.Launch and
// Core.Run. All methods are safe for concurrent use.
type Run struct{ p *proc }

// Launch starts a process as guest.v1's Start does, or returns the one that
// has the key.
func (c *Core) Launch(ctx context.Context, req *wire.StartRequest) (Run, error) {
	p, _, err := c.launch(ctx, req)
	return Run{p}, err
}

// launch is start, which waits while commands are stopped (Quiesce): what is
// started in a freeze would not be frozen. A key that is known is answered at
// once, for that starts nothing.
func (c *Core) launch(ctx context.Context, req *wire.StartRequest) (*proc, bool, error) {
	for {
		p, existed, frozen, err := c.tryStart(ctx, req)
		if !frozen {
			return p, existed, err
		}
		select {
		case <-c.Moving():
		case <-c.quit:
			return nil, false, os.ErrClosed
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// tryStart starts unless commands are stopped; Quiesce waits for it.
func (c *Core) tryStart(ctx context.Context, req *wire.StartRequest) (p *proc, existed, frozen bool, err error) {
	c.launchMu.RLock()
	defer c.launchMu.RUnlock()
	if !isClosed(c.Moving()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p = c.byKey[req.Key]; p == nil {
			return nil, false, true, nil
		}
		return p, true, false, p.sameAs(req)
	}
	p, existed, err = c.start(ctx, req)
	return p, existed, false, err
}

// still is closed: nothing is stopped.
var still = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// Moving returns a channel that is closed once commands are not stopped by
// Quiesce (any more).
func (c *Core) Moving() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.thawed == nil {
		return still
	}
	return c.thawed
}

// Run returns the process of a key; NotFound when there is none, or when it is
// just being started.
func (c *Core) Run(key string) (Run, error) {
	p, err := c.find(key)
	if err == nil && p.stop == nil && !isClosed(p.exited) { // init has it, and we do not know its output yet
		return Run{}, errs.New(errs.NotFound, "process %q is being started", key)
	}
	return Run{p}, err
}

// Info is the process as clients see it.
func (r Run) Info() *wire.ProcessInfo { return r.p.info() }

// Exited is closed at the end of the process.
func (r Run) Exited() <-chan struct{} { return r.p.exited }

// Settled is closed when its output is whole too, or a moment after its end.
func (r Run) Settled() <-chan struct{} { return r.p.settled }

// Output reads its standard output from an offset on. The reader must be closed.
func (r Run) Output(from int64) *spool.Reader { return r.p.out.NewReader(from) }

// End ends the process and all that belongs to it: TERM, and after grace
// KILL; at once KILL without a grace. It returns when nothing is left, or ctx
// is over.
func (r Run) End(ctx context.Context, grace time.Duration) {
	c := r.p.core
	if grace > 0 && !isClosed(r.p.exited) && c.signal(r.p, unix.SIGTERM, pair.ScopeGroup, pair.CauseKilled) == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-r.p.exited:
		case <-timer.C:
		case <-c.quit:
			return
		case <-ctx.Done():
			return
		}
	}
	c.finish(r.p, pair.CauseKilled)
}

// Members are the living processes that belong to it, itself included.
func (r Run) Members() []int {
	var pids []int
	for _, t := range r.p.core.descendants(r.p) {
		pids = append(pids, t.PID)
	}
	return pids
}

// Forget drops the ended process, its output and its key. One that runs is
// Conflict, one that is not known (any more) is no error.
func (r Run) Forget() error {
	if err := r.p.core.forget(r.p); !errs.Is(err, errs.NotFound) {
		return err
	}
	return nil
}
