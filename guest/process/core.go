package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/process/task"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of what is kept.
const (
	exitedMax          = 1000 // ended processes with all details
	outputBytesDefault = 256 << 20
	settleWait         = 250 * time.Millisecond // for what others write after the end of the process
	stopWait           = 2 * time.Second        // between TERM and KILL at a timeout
)

// Config of a Core.
type Config struct {
	Boot wire.Boot
	// InitFD is the descriptor that init left in this process.
	InitFD int
	// Settle is called when a process has ended, before anybody learns of it;
	// nil = nothing is to be done.
	Settle func()
	// Log takes one line an event; nothing that a command wrote gets there unquoted.
	Log io.Writer
}

// Core is the table of processes as supervise knows it.
//
// All methods are safe for concurrent use.
type Core struct {
	cfg       Config
	init      *pair.Client
	boot      pair.Boot
	spoolDir  string
	used      atomic.Int64 // bytes of all spools
	usedMax   int64
	quit      chan struct{}
	planner   planner
	ownKernel func() bool
	ooms      task.OOMs

	taskMu sync.Mutex // leaf lock: wg.Add against Close
	over   bool
	wg     sync.WaitGroup

	launchMu sync.RWMutex // before mu: starts against Quiesce

	mu       sync.Mutex
	byKey    map[string]*proc
	byID     map[uint64]*proc
	early    map[uint64]pair.Exit // ends that came before the process was registered
	starting map[string]chan struct{}
	ended    []*proc // oldest first
	autoKeys uint64
	closed   bool
	thaw     *alarm
	stopped  map[int]bool  // pids that Quiesce stopped
	thawed   chan struct{} // closed at the thaw; nil = nothing is stopped
	running  chan struct{} // a token when a process was started
}

// New connects to init and takes over every process that it has.
func New(cfg Config) (*Core, error) {
	state := cfg.Boot.StateDir
	if state == "" {
		state = pair.DefaultStateDir
	}
	c := &Core{
		cfg: cfg, spoolDir: pair.SpoolDir(state), usedMax: cfg.Boot.OutputBytesMax, quit: make(chan struct{}),
		byKey: map[string]*proc{}, byID: map[uint64]*proc{}, early: map[uint64]pair.Exit{}, starting: map[string]chan struct{}{},
		running: make(chan struct{}, 1), planner: planner{Boot: cfg.Boot, Shell: sync.OnceValue(findShell)}, ownKernel: sync.OnceValue(task.OnGVisor),
	}
	if c.usedMax == 0 {
		c.usedMax = outputBytesDefault
	}
	if err := os.MkdirAll(c.spoolDir, 0o700); err != nil {
		return nil, err
	}
	names, err := spool.Names(c.spoolDir)
	if err != nil {
		return nil, err
	}
	if c.init, err = pair.Connect(cfg.InitFD, func(e pair.Entry) { c.adopt(e, names) }, c.onExit); err != nil {
		return nil, err
	}
	if c.boot, err = c.init.Adopt(context.Background()); err != nil {
		return nil, errors.Join(err, c.init.Close())
	}
	c.sortEnded()
	c.thawLeft()
	c.wg.Go(c.watchMemory)
	return c, nil
}

// Boot says what init knows of the present boot, under the id that Become
// gave it.
func (c *Core) Boot() pair.Boot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

// Become changes who the machine is for every command that is started from
// now on: its names, environment, working directory, and the boot's id, which
// stands in the keys that the guest makes. Two copies of one machine would
// make the same ones else.
func (c *Core) Become(boot wire.Boot, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner.Boot, c.boot.ID = boot, id
}

func (c *Core) plan(req *wire.StartRequest) (*pair.Spawn, error) {
	c.mu.Lock()
	p := c.planner
	c.mu.Unlock()
	return p.Plan(req, c.autoKey)
}

// Done is closed when init is gone.
func (c *Core) Done() <-chan struct{} { return c.init.Done() }

// Shutdown ends every process and then the machine; it returns at once.
func (c *Core) Shutdown(grace time.Duration) error { return c.init.Shutdown(grace) }

// OutputBytes is what all spools keep now.
func (c *Core) OutputBytes() int64 { return c.used.Load() }

// Close stops moving bytes; the processes live on, with init.
func (c *Core) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.quit)
	procs := make([]*proc, 0, len(c.byID))
	for _, p := range c.byID {
		procs = append(procs, p)
	}
	if c.thaw != nil {
		c.thaw.Stop()
	}
	c.mu.Unlock()
	for _, p := range procs {
		p.halt()
	}
	c.taskMu.Lock()
	c.over = true
	c.taskMu.Unlock()
	err := c.init.Close()
	c.wg.Wait()
	return err
}

func (c *Core) logf(format string, args ...any) {
	if c.cfg.Log != nil {
		_, _ = fmt.Fprintf(c.cfg.Log, "supervise: "+format+"\n", args...)
	}
}

// adopt registers a process that an earlier supervise started (or that init
// forked while we came up).
func (c *Core) adopt(e pair.Entry, names []string) {
	p, err := newProc(c, e, names)
	if err != nil {
		c.logf("adopt %q: %v", e.Key, err)
		e.CloseFiles()
		return
	}
	c.register(p)
}

// register starts what moves p's bytes and makes it known. In this order: as soon as it is known
// its end can be told, and with the end of a process without streams its output is whole.
func (c *Core) register(p *proc) {
	p.start()
	c.mu.Lock()
	c.byKey[p.key] = p
	c.byID[p.id] = p
	x, early := c.early[p.id]
	delete(c.early, p.id)
	c.mu.Unlock()
	if p.entry.State == pair.Exited {
		x, early = pair.Exit{ID: p.id, Status: p.entry.Status, EndedUnixNs: p.entry.EndedUnixNs, Cause: p.entry.Cause, CauseSignal: p.entry.CauseSignal}, true
	}
	if early {
		c.end(p, x)
	}
	select {
	case c.running <- struct{}{}:
	default:
	}
}

// onExit is called by the connection to init, in order.
func (c *Core) onExit(x pair.Exit) {
	c.mu.Lock()
	if ws := unix.WaitStatus(x.Status); x.Cause == pair.CauseNone && ws.Signaled() && ws.Signal() == unix.SIGKILL && c.ooms.Rose() {
		x.Cause = pair.CauseMemory // the kernel was quicker than watchMemory
	}
	p := c.byID[x.ID]
	if p == nil {
		c.early[x.ID] = x // its spawn is just being answered
	}
	c.mu.Unlock()
	if p != nil {
		c.end(p, x)
	}
}

// end tells that a process has ended.
func (c *Core) end(p *proc, x pair.Exit) {
	if c.cfg.Settle == nil {
		c.tell(p, x)
		return
	}
	c.spawnTask(func() {
		c.cfg.Settle()
		c.tell(p, x)
	})
}

func (c *Core) tell(p *proc, x pair.Exit) {
	if !p.end(x) {
		return
	}
	c.mu.Lock()
	c.ended = append(c.ended, p)
	over := len(c.ended) > exitedMax
	c.mu.Unlock()
	if over {
		c.spawnTask(c.evictOldest)
	}
}

// spawnTask runs f in a goroutine that Close waits for.
func (c *Core) spawnTask(f func()) {
	c.taskMu.Lock()
	defer c.taskMu.Unlock()
	if c.over {
		return
	}
	c.wg.Go(f)
}

// find returns the process of a key. A key that was evicted or that an earlier
// boot used comes back as a process without output.
func (c *Core) find(key string) (*proc, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	c.mu.Lock()
	p := c.byKey[key]
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	e, err := c.init.Lookup(key)
	if errs.Is(err, errs.NotFound) {
		return nil, errs.New(errs.NotFound, "no process %q", key)
	}
	if err != nil {
		return nil, err
	}
	return c.bare(e), nil
}

// signal sends a signal to a process of ours.
func (c *Core) signal(p *proc, sig unix.Signal, scope pair.Scope, cause pair.Cause) error {
	err := c.init.Signal(p.id, sig, scope, cause)
	if errors.Is(err, unix.ESRCH) || errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "process %q has ended", p.key)
	}
	return err
}
