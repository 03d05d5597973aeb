package supervisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Bounds, unless configured.
const (
	runsMax     = 64 // driven at once
	sweepEvery  = 10 * time.Second
	leaseTTL    = 15 * time.Second
	retryFirst  = time.Second
	retryMax    = time.Minute
	fencedRetry = leaseTTL / 3 // while another server drives
	failuresMax = 5            // drives that lose their machine, in a row; then the model learns of it

	externalTries = 50
)

// Config is what a Supervisor needs.
type Config struct {
	Threads     Threads
	Records     kv.Store
	Events      event.Log // that runs are told by; nil = none
	Leases      Leases    // nil = this is the only server
	Models      Models
	Machines    Machines // nil = agents without a machine
	Definitions Definitions
	Tools       *tool.Registry
	// Sources have tools that are not built in. The first one that has a name wins.
	Sources []tool.Source
	// Plan returns the text of a plan template; nil = there are none.
	Plan func(name string) (string, error)
	// Command returns a task that has a name; nil = there are none. NotFound.
	Command func(name string) (definition.Command, error)
	// Commands lists them; nil = there are none.
	Commands func() []definition.CommandEntry
	// Skills are what tenants have installed; nil = no run has skills.
	Skills Skills
	// Plugins are what hooks of agents may name, for a tenant; nil = there are none.
	Plugins func(tenant string) agent.Plugins
	// Memories is the place of /memories/ of a tenant; nil = none.
	Memories func(ctx context.Context, tenant string) (tool.Files, error)
	// Template reports whether there is a template of a name: that of a program's name is
	// where it works if nothing is said of one. nil = there is none.
	Template func(ctx context.Context, name string) bool
	// Inside returns the driver of a thread whose agent works in its machine (package
	// agent/inside); nil = there can be none.
	Inside func(p agent.Parts, m llm.Model, paid *agent.Paid) (agent.Driver, error)
	// Ended is told of each run that is over, after its record says so, and of what its log
	// says of that, nil if nothing. It must not block. nil = nothing is told.
	Ended func(run runs.Run, end *thread.RunEnded)
	// NameOf is what people call who has an id, "" = nothing; nil = ids have no names.
	NameOf   func(ctx context.Context, id string) string
	Wire     Wire   // nil = no live news
	Node     string // the name of this server's data directory, which owns its runs
	RunsMax  int    // driven at once; 0 = 64
	Patience llm.RetryPolicy
	Now      func() time.Time
	Log      *slog.Logger
}

// Supervisor keeps the runs of a server.
type Supervisor struct {
	c    Config
	node string // with a part that is new every time
	// opened is when this Supervisor began.
	opened time.Time

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}
	index  *index
	// entering has the runs whose records and first events are being written, or given up.
	entering keylock.Locks[runKey]

	mu     sync.Mutex
	runs   map[runKey]*entry     // not over, and those that ended lately
	byID   map[threadKey]*entry  // the newest run of a thread that is not over
	active map[threadKey]*driver // under way
	timers map[threadKey]*time.Timer
	// resting are the last runs of roots that have ended while sub-agents go on.
	resting map[threadKey]*runs.Run
	ends    map[threadKey]*treeEnd // see tree.go
	// refusals are to be told to the logs of runs.
	refusals chan refusal
	closed   bool
}

type runKey struct {
	tenant string
	id     thread.RunID
}

type threadKey struct {
	tenant string
	id     thread.ID
}

// Open reads the records and drives on what can go on.
func Open(ctx context.Context, c Config) (*Supervisor, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = event.Discard{}
	}
	if c.NameOf == nil {
		c.NameOf = func(context.Context, string) string { return "" }
	}
	if c.RunsMax <= 0 {
		c.RunsMax = runsMax
	}
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // never fails
	k := &Supervisor{
		c: c, node: c.Node + "/" + hex.EncodeToString(boot[:]), slots: make(chan struct{}, c.RunsMax), opened: c.Now(),
		index: newIndex(), runs: map[runKey]*entry{}, byID: map[threadKey]*entry{}, active: map[threadKey]*driver{}, timers: map[threadKey]*time.Timer{},
		resting: map[threadKey]*runs.Run{}, ends: map[threadKey]*treeEnd{}, refusals: make(chan refusal, refusedWaitMax),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if err := k.takeUp(ctx); err != nil {
		_ = k.Close()
		return nil, err
	}
	k.spawn(k.sweep)
	k.spawn(k.tellRefusals)
	if c.Machines != nil {
		var found []entered // now: a fork makes its sandbox before its record
		c.Machines.Entered(func(tenant string, run thread.RunID) { found = append(found, entered{tenant, run}) })
		k.spawn(func() { k.lookAfterSandboxes(found) })
	}
	return k, nil
}

// Close stops driving. Commands in machines go on; runs stay as they are.
func (k *Supervisor) Close() error {
	k.mu.Lock()
	k.closed = true
	for _, t := range k.timers {
		t.Stop()
	}
	k.mu.Unlock()
	k.cancel()
	k.wg.Wait()
	return nil
}

// spawn runs f in the background unless the Supervisor is closed.
func (k *Supervisor) spawn(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.wg.Go(f)
	return true
}

// takeUp reads the records, follows them from then on, and takes in all runs of
// this node that are not over.
func (k *Supervisor) takeUp(ctx context.Context) error {
	read := make(chan error, 1)
	k.spawn(func() { k.follow(read) })
	select {
	case err := <-read:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := k.retell(ctx); err != nil {
		k.c.Log.Warn("what became of runs when the server ended may not have been told", "err", err)
	}
	return k.adopt(ctx)
}

func (k *Supervisor) knows(tenant string, id thread.RunID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[runKey{tenant, id}] != nil
}

func (k *Supervisor) remember(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[runKey{e.tenant, e.id}] = e
	if !e.run.State.Final() {
		k.byID[threadKey{e.tenant, e.thread}] = e
	}
}

// sweep wakes what should go on and is not under way: a wake-up that was lost,
// a thread whose other driver is gone.
func (k *Supervisor) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
		if k.c.Leases != nil { // of runs that another process of this node began
			if err := k.adopt(k.ctx); err != nil {
				k.c.Log.Warn("the records of runs could not be read", "err", err)
			}
		}
		k.mu.Lock()
		var wake []threadKey
		for t, e := range k.byID {
			if !e.waits && k.active[t] == nil && !k.c.Now().Before(e.retryAt) {
				wake = append(wake, t)
			}
		}
		k.mu.Unlock()
		for _, t := range wake {
			k.wake(t)
		}
	}
}

// wake says that a thread may be able to go on.
func (k *Supervisor) wake(t threadKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	if d := k.active[t]; d != nil {
		d.again()
		return
	}
	d := &driver{k: k, key: t}
	k.active[t] = d
	k.wg.Go(d.drive)
}

// later wakes a thread when an approval expires.
func (k *Supervisor) later(t threadKey, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.timers[t]; old != nil {
		old.Stop()
		delete(k.timers, t)
	}
	if at.IsZero() || k.closed {
		return
	}
	k.timers[t] = time.AfterFunc(max(at.Sub(k.c.Now()), 0), func() { k.wake(t) })
}

// logOf returns the log of a tenant.
func (k *Supervisor) logOf(ctx context.Context, tenant string) (thread.Log, thread.Blobs, error) {
	l, err := k.c.Threads.Log(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	b, err := k.c.Threads.Blobs(ctx, tenant)
	return l, b, err
}

// fold reads a thread.
func (k *Supervisor) fold(ctx context.Context, tenant string, id thread.ID) (thread.Log, *runs.State, error) {
	log, err := k.c.Threads.Log(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	s, err := foldLog(ctx, log, id)
	return log, s, err
}

// Log returns the log of a tenant.
func (k *Supervisor) Log(ctx context.Context, tenant string) (thread.Log, error) {
	return k.c.Threads.Log(ctx, tenant)
}

// Blobs returns the blobs of a tenant.
func (k *Supervisor) Blobs(ctx context.Context, tenant string) (thread.Blobs, error) {
	return k.c.Threads.Blobs(ctx, tenant)
}

// Watch visits the live news of a thread and of those beneath it.
func (k *Supervisor) Watch(tenant string, root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error) {
	if k.c.Wire == nil {
		return func() {}, nil
	}
	return k.c.Wire.Subscribe(tenant, root, visit)
}
