package process

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/wire"
)

// proc is one process, running or ended.
type proc struct {
	core  *Core
	id    uint64
	key   string
	entry pair.Entry
	req   *wire.StartRequest // what the entry's info remembers of the request
	stdin *stdin
	out   *spool.Spool
	err   *spool.Spool // nil with a terminal
	stop  chan struct{}
	pumps sync.WaitGroup

	exited  chan struct{} // closed at the end of the process
	settled chan struct{} // closed when the output is whole, or settleWait later without what others still write

	mu        sync.Mutex
	exit      *pair.Exit
	isSettled bool
	halted    bool
	released  bool
	timer     *time.Timer
	streams   []*pump
	live      int // streams not at their end
}

func newProc(c *Core, e pair.Entry, names []string) (*proc, error) {
	p := &proc{
		core: c, id: e.ID, key: e.Key, entry: e, req: &wire.StartRequest{},
		stop: make(chan struct{}), exited: make(chan struct{}), settled: make(chan struct{}),
	}
	if err := proto.Unmarshal([]byte(e.Info), p.req); err != nil {
		return nil, err
	}
	b := spool.BoundsOf(p.req.SpoolBytesMax)
	var err error
	if p.out, err = spool.Open(c.spoolDir, fmt.Sprintf("%d.out", e.ID), b, &c.used, names); err != nil {
		return nil, err
	}
	if !e.Pty {
		if p.err, err = spool.Open(c.spoolDir, fmt.Sprintf("%d.err", e.ID), b, &c.used, names); err != nil {
			return nil, err
		}
	}
	for _, s := range p.spools() {
		s.Wait = p.req.Overflow == wire.Overflow_OVERFLOW_WAIT
	}
	p.stdin, err = newStdin(stdinEnv{Init: c.init, Dir: c.spoolDir, Go: c.spawnTask}, &p.entry)
	return p, err
}

func (p *proc) spools() []*spool.Spool {
	if p.err == nil {
		return []*spool.Spool{p.out}
	}
	return []*spool.Spool{p.out, p.err}
}

// start runs the pumps and the clock of the timeout.
func (p *proc) start() {
	e := &p.entry
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Pty {
		p.pumpLocked(&pump{spool: p.out, in: e.Master, relayR: e.RelayR, relayW: e.RelayW})
	} else {
		p.pumpLocked(&pump{spool: p.out, in: e.Stdout})
		p.pumpLocked(&pump{spool: p.err, in: e.Stderr})
	}
	if p.req.TimeoutMs > 0 && e.State == pair.Running {
		left := time.Duration(e.StartedMonoNs-monoNow()) + time.Duration(p.req.TimeoutMs)*time.Millisecond
		p.timer = time.AfterFunc(max(left, 0), func() { p.core.spawnTask(p.expire) })
	}
}

func (p *proc) pumpLocked(m *pump) {
	if m.in == nil { // released before we came: the stream is whole
		m.spool.Finish()
		return
	}
	m.core, m.stop = p.core, p.stop
	p.streams = append(p.streams, m)
	p.live++
	p.pumps.Go(func() {
		m.run()
		p.streamEnded()
	})
}

func (p *proc) streamEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	p.settleLocked()
}

// end notes how the process ended; false: that was known.
func (p *proc) end(x pair.Exit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil {
		return false
	}
	p.exit = &x
	if p.timer != nil {
		p.timer.Stop()
	}
	close(p.exited)
	p.settleLocked()
	if !p.isSettled {
		p.settleLaterLocked()
	}
	if !p.entry.Pty {
		p.core.spawnTask(p.stdin.Close)
	}
	return true
}

// settleLaterLocked settles the output of a process that has ended although a process
// that it left behind holds a stream open. What was written until the end is owed to the
// caller however long the pumps need, on a busy host, to get their turn; what is written
// later is not waited for.
func (p *proc) settleLaterLocked() {
	owed := make([]int64, len(p.streams))
	for i, m := range p.streams {
		_, owed[i] = m.extent()
	}
	p.timer = time.AfterFunc(settleWait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.halted {
			return
		}
		for i, m := range p.streams {
			// Nothing waits, and less was moved: it was read by a process that has the pipe.
			if moved, written := m.extent(); moved < min(owed[i], written) {
				p.timer.Reset(settleWait)
				return
			}
		}
		p.markSettledLocked()
	})
}

// settleLocked looks whether all is over: then init and we let go of the files.
func (p *proc) settleLocked() {
	if p.exit == nil || p.live > 0 {
		return
	}
	p.markSettledLocked()
	if p.released || p.halted {
		return
	}
	p.released = true
	p.core.spawnTask(func() {
		_ = p.core.init.Release(p.id)
		p.stdin.Close()
		p.closeOutputs()
	})
}

func (p *proc) markSettledLocked() {
	if !p.isSettled {
		p.isSettled = true
		close(p.settled)
	}
}

func (p *proc) closeOutputs() {
	e := &p.entry
	for _, f := range []*os.File{e.Stdout, e.Stderr, e.Master, e.RelayR, e.RelayW} {
		if f != nil {
			f.Close()
		}
	}
}

// halt stops moving bytes and waits for the pumps to end.
func (p *proc) halt() {
	p.mu.Lock()
	if p.halted {
		p.mu.Unlock()
		return
	}
	p.halted = true
	close(p.stop)
	if p.timer != nil {
		p.timer.Stop()
	}
	p.markSettledLocked()
	p.mu.Unlock()
	p.stdin.Close()
	p.closeOutputs()
	p.pumps.Wait()
}

// over reports whether the process has ended and its streams are whole.
func (p *proc) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit != nil && p.live == 0
}

// info is the process as clients see it.
func (p *proc) info() *wire.ProcessInfo {
	e := &p.entry
	i := &wire.ProcessInfo{
		Key: p.key, Pid: uint32(e.PID), Cwd: []byte(e.Dir), User: p.req.User, Pty: e.Pty, StartedUnixNs: e.StartedUnixNs,
		State: wire.ProcessState_PROCESS_STATE_RUNNING, Background: p.req.Background,
		Stdout: extentOf(p.out), Stderr: extentOf(p.err), StdinAcked: p.stdin.Acked(),
	}
	for _, a := range e.Argv {
		i.Argv = append(i.Argv, []byte(a))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.State == pair.Lost:
		i.State = wire.ProcessState_PROCESS_STATE_LOST
	case p.exit != nil:
		i.State, i.EndedUnixNs, i.Exit = wire.ProcessState_PROCESS_STATE_EXITED, p.exit.EndedUnixNs, exitOf(*p.exit)
	}
	return i
}

func extentOf(s *spool.Spool) *wire.Spool {
	if s == nil {
		return &wire.Spool{Eof: true}
	}
	head, tail, size, eof := s.Extent()
	return &wire.Spool{Size: size, HeadEnd: head, TailStart: tail, Eof: eof}
}

// exitOf reports a status as a shell does.
func exitOf(x pair.Exit) *wire.Exit {
	ws := unix.WaitStatus(x.Status)
	e := &wire.Exit{Code: int32(ws.ExitStatus())}
	if ws.Signaled() {
		e.Signal, e.Code, e.CoreDumped = uint32(ws.Signal()), 128+int32(ws.Signal()), ws.CoreDump()
	}
	switch x.Cause {
	case pair.CauseTimeout:
		e.Reason = "timeout"
	case pair.CauseMemory:
		e.Reason = "out of memory"
	case pair.CauseKilled:
		if ws.Signaled() && (ws.Signal() == unix.Signal(x.CauseSignal) || ws.Signal() == unix.SIGKILL) {
			e.Reason = "killed"
		}
	}
	return e
}

// bare is a process of which only init's memory is left.
func (c *Core) bare(e pair.Entry) *proc {
	p := &proc{core: c, id: e.ID, key: e.Key, entry: e, req: &wire.StartRequest{}, exited: make(chan struct{}), settled: make(chan struct{})}
	p.out, p.err = spool.Lost(e.OutSize), spool.Lost(e.ErrSize)
	p.stdin = closedStdin()
	if e.State != pair.Running {
		p.isSettled = true
		close(p.exited)
		close(p.settled)
	}
	if e.State == pair.Exited {
		p.exit = &pair.Exit{ID: e.ID, Status: e.Status, EndedUnixNs: e.EndedUnixNs, Cause: e.Cause, CauseSignal: e.CauseSignal}
	}
	return p
}

func monoNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
