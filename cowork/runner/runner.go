// Package runner drives runs of workflows: it starts the nodes of each as runs of agents,
// puts them into their machines, and decides by their results how it goes on.
//
//	r, err := runner.Open(ctx, runner.Config{Threads: threads, Records: kv, Runs: supervisor, Machines: m, Node: node})
//	run, err := r.Start(ctx, tenant, runner.Start{Name: "article", Input: input})
//	err = r.Answer(ctx, tenant, run.ID, "publish", "publish", "", "anna")
//	defer r.Close() // the next Open goes on
//
// What it promises. A run of a workflow is a thread with a log of its own, of which package
// cowork makes its state; the log says that a node begins before it does. A node's run is
// started with an id made of the workflow's run, the node, how often it was begun, the
// element and the attempt. So the server may be killed anywhere: what was started is found
// again, and nothing is started twice. A run keeps the text of the definition that it began
// with. It belongs to the node where it was started, and one process of that drives it.
//
// A Runner is safe for concurrent use.
package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const (
	leaseTTL   = 15 * time.Second
	retryFirst = time.Second
	retryMax   = time.Minute
	lookEvery  = 10 * time.Second // for what was not told
)

// Threads finds a tenant's logs and blobs. store.Threads is one.
type Threads interface {
	Log(ctx context.Context, tenant string) (thread.Log, error)
	Blobs(ctx context.Context, tenant string) (thread.Blobs, error)
}

// Runs is what is needed of *supervisor.Supervisor.
type Runs interface {
	MayStart(ctx context.Context, tenant string, s runs.Start) error
	// Start begins a run with the id that it names.
	Start(ctx context.Context, tenant string, s runs.Start) (runs.Run, error)
	// Begun returns a run whose first events are there. NotFound: it is to be started.
	Begun(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error)
	Get(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error)
	Cancel(ctx context.Context, tenant string, id thread.RunID, by, reason string) (runs.Run, error)
	// Agent returns a definition as a run would get it. NotFound.
	Agent(ctx context.Context, name string) (definition.Definition, error)
}

// Machines are the sandboxes that nodes work in. Ids are sandbox ids.
type Machines interface {
	// Check refuses a spec of which no sandbox can be made here.
	Check(spec map[string]any) error
	// Make makes a sandbox: the same key is the same one.
	Make(ctx context.Context, tenant, key string, spec map[string]any) (id string, err error)
	// CopyNow gives a sandbox the workspace of another one, as it is.
	CopyNow(ctx context.Context, tenant, from, to string) error
	// Files opens the files of a sandbox, starting it if need be, and says where the
	// workspace is. release gives it back.
	Files(ctx context.Context, tenant, id string) (files tool.Files, dir string, release func(), err error)
	Stop(ctx context.Context, tenant, id string) error
	// Destroy may be repeated.
	Destroy(ctx context.Context, tenant, id string) error
}

// Leases keep two servers from driving the same run, like supervisor.Leases.
type Leases interface {
	Hold(ctx context.Context, key, holder string, ttl time.Duration) (lost <-chan struct{}, release func(context.Context) error, err error)
}

// Config is what a Runner needs.
type Config struct {
	Threads  Threads
	Records  kv.Store
	Runs     Runs
	Machines Machines // nil = nodes have no machines
	Leases   Leases   // nil = this is the only server
	// Dir is the folder of definitions that all tenants have, "" = none. A file is read when a
	// run of it is started.
	Dir  string
	Node string // the name of this server's data directory, which owns its runs
	Now  func() time.Time
	Log  *slog.Logger
}

// Runner keeps the runs of workflows of a server.
type Runner struct {
	c      Config
	holder string
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	drivers map[runKey]*driver
	ends    map[nodeRun]chan nodeEnd // each holds one
	closed  bool
}

type runKey struct {
	tenant string
	id     ID
}

type nodeRun struct {
	tenant string
	id     thread.RunID
}

// nodeEnd is a run that is over, and what its log says of that; nil: it is not known.
type nodeEnd struct {
	run runs.Run
	end *thread.RunEnded
}

// Open goes on with the runs of this node that are not over.
func Open(ctx context.Context, c Config) (*Runner, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // never fails
	r := &Runner{c: c, holder: c.Node + "/" + hex.EncodeToString(boot[:]), drivers: map[runKey]*driver{}, ends: map[nodeRun]chan nodeEnd{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if err := r.takeUp(ctx); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// Close stops driving. Nodes' runs go on; the next Open looks what became of them.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
	return nil
}

// takeUp drives what is not over.
func (r *Runner) takeUp(ctx context.Context) error {
	return r.c.Records.List(ctx, runPrefix, func(key string, value []byte, _ uint64) error {
		run, err := parseRecord(value)
		if err != nil {
			r.c.Log.Error("the record of a workflow's run cannot be read", "key", key, "err", err)
			return nil
		}
		if !run.State.Final() && run.Node == r.c.Node {
			r.wake(run)
		}
		return nil
	})
}

// wake drives a run, or says to its driver that there is news.
func (r *Runner) wake(run Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	key := runKey{run.Tenant, run.ID}
	if d := r.drivers[key]; d != nil {
		d.tell()
		return
	}
	d := newDriver(r, run)
	r.drivers[key] = d
	r.wg.Go(func() { r.drive(key, d) })
}

// drive brings a run to its end, and tries again what could not be done.
func (r *Runner) drive(key runKey, d *driver) {
	defer close(d.gone)
	defer func() {
		r.mu.Lock()
		delete(r.drivers, key)
		r.mu.Unlock()
	}()
	for wait := retryFirst; ; wait = min(2*wait, retryMax) {
		err := d.leased(d.ctx)
		switch {
		case err == nil || d.ctx.Err() != nil:
			return
		case errs.Is(err, errs.NotFound), errs.Is(err, errs.Corrupt), errs.Is(err, errs.Unsupported), errs.Is(err, errs.Invalid), errs.Is(err, errs.Limit):
			// Trying again does not help.
			r.c.Log.Error("a workflow cannot go on", "run", key.id, "err", err)
			r.broken(d.run, err)
			return
		}
		r.c.Log.Warn("a workflow could not be driven; it will be tried again", "run", key.id, "err", err)
		select {
		case <-d.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Halt stops driving the runs of a tenant, whose records are about to be erased.
func (r *Runner) Halt(tenant string) {
	r.mu.Lock()
	var halted []*driver
	for key, d := range r.drivers {
		if key.tenant == tenant {
			d.halt()
			halted = append(halted, d)
		}
	}
	r.mu.Unlock()
	for _, d := range halted {
		<-d.gone
	}
}

// RunEnded says that a run of an agent is over; the supervisor calls it. It does not block.
// One that did not start is none: the attempt that it is of starts it, or is told why not.
func (r *Runner) RunEnded(run runs.Run, end *thread.RunEnded) {
	if run.Reason == runs.ReasonNotStarted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.ends[nodeRun{run.Tenant, run.ID}]; c != nil {
		select {
		case c <- nodeEnd{run, end}:
		default: // it was told before
		}
	}
}

// ended returns a channel that says when a run is over that is not yet.
func (r *Runner) ended(tenant string, id thread.RunID) <-chan nodeEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan nodeEnd, 1)
	r.ends[nodeRun{tenant, id}] = c
	return c
}

// forget drops the channel of a run.
func (r *Runner) forget(tenant string, id thread.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ends, nodeRun{tenant, id})
}
