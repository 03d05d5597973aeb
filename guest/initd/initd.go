package initd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
)

// Restart policy of supervise: at once, unless it died often lately; then
// each further death within the window adds deathsWait.
const (
	deathsMax     = 5
	deathsWindow  = 10 * time.Second
	deathsWait    = 2 * time.Millisecond
	deathsWaitMax = time.Second
)

// graceDefault is what a TERM of init leaves to the commands.
const graceDefault = 2 * time.Second

// Config of init.
type Config struct {
	Boot wire.Boot
	// Supervise is the argv of supervise; its first element is the program's path.
	Supervise []string
	// Log takes one line an event; it never gets what a command wrote.
	Log io.Writer
}

// daemon is init at work.
type daemon struct {
	cfg      Config
	log      *logger
	bootID   string
	stateDir string
	devNull  int
	limit    *processLimit // nil: processes are not counted
	journal  *journal
	jobs     chan func() // run on the forking thread

	// forkMu is held over a fork and over each reap, so that no child is
	// reaped before its pid is in the table. Taken before mu.
	forkMu sync.Mutex
	forked chan struct{} // a token when a child may exist

	mu        sync.Mutex
	byKey     map[string]*record
	byID      map[uint64]*record
	byPID     map[int]*record
	lastID    uint64
	stopping  bool
	starts    uint64
	supervise int // its pid, 0 = none
	dead      chan struct{}
	conn      *conn // to the present supervise, nil = none
}

// Run is init. It returns the exit code when the machine is to end: after
// TERM, INT or a shutdown that supervise asked for.
func Run(cfg Config) int {
	debug.SetGCPercent(400)                                         // a small heap, rarely touched
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // what our parent left open is not for commands
	d := &daemon{
		cfg: cfg, log: &logger{w: cfg.Log}, bootID: newBootID(),
		jobs: make(chan func(), 64), forked: make(chan struct{}, 1), dead: make(chan struct{}, 1),
		byKey: map[string]*record{}, byID: map[uint64]*record{}, byPID: map[int]*record{},
	}
	if err := d.prepare(); err != nil {
		d.log.printf("init: %v", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ready := make(chan error, 1)
	go d.forkLoop(ready)
	if err := <-ready; err != nil {
		d.log.printf("init: %v", err)
		return 1
	}
	go d.reapLoop()
	d.superviseLoop(ctx)
	d.shutdown(graceDefault) // no-op when a shutdown has been done
	if d.limit != nil {
		d.limit.remove()
	}
	return 0
}

func newBootID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// prepare does what must be done before the first supervise: nothing slow.
func (d *daemon) prepare() error {
	defaultSignals()
	if d.cfg.Boot.Mounts {
		if err := mountAll(d.cfg.Boot.Hostname); err != nil {
			return err
		}
	}
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become the reaper: %w", err)
		}
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // commands inherit it: no core files by default
	var err error
	if d.devNull, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	d.stateDir = d.cfg.Boot.StateDir
	if d.stateDir == "" {
		d.stateDir = pair.DefaultStateDir
	}
	if err := os.MkdirAll(d.stateDir, 0o700); err != nil {
		return err
	}
	// Spools of an earlier boot have ids that we use again.
	if err := os.RemoveAll(pair.SpoolDir(d.stateDir)); err != nil {
		return err
	}
	var lost []string
	if d.journal, lost, err = openJournal(filepath.Join(d.stateDir, "keys")); err != nil {
		return err
	}
	for _, key := range lost {
		d.insert(&record{Entry: pair.Entry{Key: key, State: pair.Lost}, fds: noFDs})
	}
	return nil
}

// forkLoop owns the one thread that forks commands: the thread alone is in the
// cgroup that counts them, has no-new-privileges and cannot change the machine's
// network, and all of it is inherited. Whether commands may be forked is told to ready.
func (d *daemon) forkLoop(ready chan<- error) {
	runtime.LockOSThread()
	defer d.recovered("fork")
	if d.cfg.Boot.Network != nil && !d.cfg.Boot.Mounts { // else the kernel is the machine's own
		if err := leaveNetwork(); err != nil {
			ready <- err
			return
		}
	}
	if n := d.cfg.Boot.ProcessesMax; n > 0 {
		limit, err := newProcessLimit(d.bootID, n)
		if err != nil {
			d.log.printf("init: processes are not limited here: %v", err)
		}
		d.mu.Lock()
		d.limit = limit
		d.mu.Unlock()
	}
	if !d.cfg.Boot.Root {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			d.log.printf("init: no-new-privileges: %v", err)
		}
	}
	ready <- nil
	for job := range d.jobs {
		job()
	}
}

// leaveNetwork takes from the calling thread, and from what is executed in it, what
// supervise alone is to have: root's commands shall not reach the parts of a shared
// kernel that set networks up.
func leaveNetwork() error {
	for _, capability := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SETPCAP} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("keep commands away from the network's settings: %w", err)
		}
	}
	return nil
}

// reapLoop waits for children without taking their status, then takes it
// under the lock that also covers forks.
func (d *daemon) reapLoop() {
	defer d.recovered("reap")
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch err {
		case nil:
			d.reap()
		case unix.ECHILD:
			<-d.forked
		}
	}
}

func (d *daemon) reap() {
	d.forkMu.Lock()
	defer d.forkMu.Unlock()
	for {
		d.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			d.mu.Unlock()
			continue
		}
		if err != nil || pid <= 0 {
			d.mu.Unlock()
			return
		}
		d.ended(pid, uint32(status))
		d.mu.Unlock()
	}
}

// ended notes the end of a child. Preconditions: mu is held.
func (d *daemon) ended(pid int, status uint32) {
	if pid == d.supervise {
		d.supervise = 0
		d.dead <- struct{}{}
		return
	}
	r := d.byPID[pid]
	if r == nil {
		return // an orphan
	}
	delete(d.byPID, pid)
	r.State, r.Status, r.EndedUnixNs = pair.Exited, status, time.Now().UnixNano()
	if r.announced && d.conn != nil {
		d.conn.pushExit(r)
	}
}

// childMade lets the reaper look again. It never blocks.
func (d *daemon) childMade() {
	select {
	case d.forked <- struct{}{}:
	default:
	}
}

// superviseLoop keeps a supervise alive until ctx ends or a shutdown was asked for.
func (d *daemon) superviseLoop(ctx context.Context) {
	var deaths []time.Time
	for ctx.Err() == nil && !d.isStopping() {
		if err := d.superviseOnce(ctx); err != nil {
			d.log.printf("init: start supervise: %v", err)
		}
		now := time.Now()
		deaths = append(deaths, now)
		for now.Sub(deaths[0]) > deathsWindow {
			deaths = deaths[1:]
		}
		if n := len(deaths) - deathsMax; n > 0 {
			_ = sleep.For(ctx, min(time.Duration(n)*deathsWait, deathsWaitMax))
		}
	}
}

// superviseOnce runs one supervise until it is dead and its connection closed.
func (d *daemon) superviseOnce(ctx context.Context) error {
	c, err := d.startSupervise()
	if err != nil {
		return err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer d.recovered("serve")
		c.serve()
		d.killSupervise() // it hung up or spoke nonsense: it cannot be trusted any more
	}()
	select {
	case <-d.dead:
	case <-ctx.Done():
		d.shutdown(graceDefault)
		<-d.dead
	}
	d.mu.Lock()
	d.conn = nil
	d.mu.Unlock()
	c.close()
	<-served
	return nil
}

func (d *daemon) startSupervise() (*conn, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ends[1])
	c, err := newConn(d, ends[0])
	if err != nil {
		return nil, err
	}
	d.forkMu.Lock()
	defer d.forkMu.Unlock()
	pid, err := syscall.ForkExec(d.cfg.Supervise[0], d.cfg.Supervise, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{uintptr(d.devNull), 1, 2, pair.SocketFD: uintptr(ends[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		c.close()
		return nil, err
	}
	d.mu.Lock()
	d.supervise, d.conn = pid, c
	d.starts++
	d.mu.Unlock()
	d.childMade()
	return c, nil
}

// killSupervise ends supervise if it is alive; the pid cannot be another's
// because reaping needs mu too.
func (d *daemon) killSupervise() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.supervise > 0 {
		_ = unix.Kill(d.supervise, unix.SIGKILL)
	}
}

func (d *daemon) isStopping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopping
}

// recovered logs a panic of a goroutine instead of ending the machine.
func (d *daemon) recovered(where string) {
	if p := recover(); p != nil {
		d.log.printf("init: %s: %v\n%s", where, p, debug.Stack())
	}
}

// logger writes lines and never fails.
type logger struct{ w io.Writer }

func (l *logger) printf(format string, args ...any) {
	if l.w != nil {
		_, _ = fmt.Fprintf(l.w, format+"\n", args...)
	}
}
