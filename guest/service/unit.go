package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/process"
	"github.com/skete-dev/skete/guest/wire"
)

// unit is one service. Its loop alone starts and ends runs; others say what
// is wanted and wake it.
type unit struct {
	m    *Manager
	name string

	mu      sync.Mutex
	decl    *wire.ServiceDeclaration
	rec     *record
	round   uint64 // grows when the present run is not what is wanted any more
	done    uint64 // the round that the state below belongs to
	removed bool
	state   wire.ServiceState
	reason  string
	since   time.Time
	pid     uint32
	probed  uint64 // 1 + the number of the run that is being probed
	known   *devServer
	over    bool          // its memory, and it is ended for that
	unkept  string        // of its limits, said with its state
	wake    chan struct{} // closed when something else is wanted
	news    chan struct{} // closed when the state or the log's runs change
	seq     uint64        // counts changes of the state
}

func newUnit(m *Manager, d *wire.ServiceDeclaration, r *record) *unit {
	return &unit{
		m: m, name: d.Name, decl: d, rec: r, wake: make(chan struct{}), news: make(chan struct{}), since: time.Now(),
		state: wire.ServiceState_SERVICE_STATE_STOPPED, round: 1,
	}
}

// wish is what is wanted of a unit at one moment.
type wish struct {
	run     bool
	removed bool
	round   uint64
	decl    *wire.ServiceDeclaration
	open    bool // the last run is not over
	retry   time.Time
	loop    bool
	reason  string
	wake    <-chan struct{}
}

func (u *unit) wish() wish {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.rec.Runs)
	return wish{
		run: u.rec.Wanted && !u.rec.Over && !u.removed, removed: u.removed, round: u.round, decl: u.decl,
		open: n > 0 && u.rec.Runs[n-1].Size < 0, retry: u.rec.Retry, loop: u.rec.Loop, reason: u.rec.Reason, wake: u.wake,
	}
}

// loop does what is wanted until ctx ends; runs live on then.
func (u *unit) loop(ctx context.Context) {
	for ctx.Err() == nil {
		w := u.wish()
		switch {
		case !w.run && w.open:
			u.endRun(ctx, stopGrace(w.decl))
		case w.removed:
			u.forget()
			return
		case !w.run:
			u.rest(w)
			sleep(ctx, w.wake, 0)
		case !w.open && time.Until(w.retry) > 0:
			u.backOff(w)
			sleep(ctx, w.wake, time.Until(w.retry))
		default:
			u.serve(ctx, w)
		}
	}
}

// sleep waits for a time (0 = without end), a wake or the end of ctx.
func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-wake:
	case <-ctx.Done():
	}
}

func (u *unit) rest(w wish) {
	state := wire.ServiceState_SERVICE_STATE_STOPPED
	u.mu.Lock()
	if e := u.rec; e.Over && e.Reason != "" && !endedWell(e) {
		state = wire.ServiceState_SERVICE_STATE_FAILED
	}
	u.mu.Unlock()
	u.show(state, w.reason, w.round)
}

func endedWell(r *record) bool {
	var e wire.Exit
	return r.LastExit != nil && proto.Unmarshal(r.LastExit, &e) == nil && e.Code == 0
}

func (u *unit) backOff(w wish) {
	state := wire.ServiceState_SERVICE_STATE_BACKOFF
	if w.loop {
		state = wire.ServiceState_SERVICE_STATE_CRASH_LOOP
	}
	u.show(state, w.reason, w.round)
}

// show makes a state the present one.
func (u *unit) show(state wire.ServiceState, reason string, round uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = round
	u.showLocked(state, reason)
}

func (u *unit) showLocked(state wire.ServiceState, reason string) {
	if u.state != state {
		u.since = time.Now()
	}
	u.state, u.reason = state, reason
	u.newsLocked()
}

func (u *unit) newsLocked() {
	u.seq++
	close(u.news)
	u.news = make(chan struct{})
	u.m.tellWatchers()
}

// saveLocked keeps the record. One that cannot be written is said once; the
// service goes on, as after a supervise that knew less.
func (u *unit) saveLocked() {
	if u.removed {
		return
	}
	if err := u.rec.save(u.m.dir, u.name); err != nil {
		u.m.logf("keep service %s: %v", u.name, err)
	}
}

// serve brings a run up, or takes over the one that is there, and stays with
// it until it has ended or something else is wanted.
func (u *unit) serve(ctx context.Context, w wish) {
	run, err := u.open(ctx, w)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, os.ErrClosed) {
			u.ended(nil, err)
		}
		return
	}
	info := run.Info()
	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	group, limits := u.bind(run, w.decl)
	u.running(info, w.round)
	var asked sync.WaitGroup
	asked.Go(func() { u.probe(run, w.decl).Watch(probing) })
	asked.Go(func() {
		u.m.bounds.Watch(probing, group, limits, run.Members, func() { u.tooMuch(probing, run) })
	})
	u.stay(ctx, run, w)
	cancel()
	asked.Wait()
}

// group names the control groups of the last run.
func (u *unit) group() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rec.key(u.name, u.rec.Runs[len(u.rec.Runs)-1].Number)
}

// bind puts a run under its limits; one that is there already, too, since what
// it forked while no supervise ran may be outside.
func (u *unit) bind(run process.Run, d *wire.ServiceDeclaration) (group string, l groupLimits) {
	group, l = u.group(), limitsOf(d)
	missing := u.m.bounds.Put(group, l, run.Members)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over, u.unkept = false, ""
	if len(missing) > 0 {
		u.unkept = "not kept on this machine: the limit of " + strings.Join(missing, " and ")
	}
	return group, l
}

// tooMuch ends a run that has more memory than it may.
func (u *unit) tooMuch(ctx context.Context, run process.Run) {
	u.mu.Lock()
	u.over = true
	u.mu.Unlock()
	run.End(ctx, 0)
}

// unbind takes the limits of a run that has ended away, and reports whether it
// ended by that of its memory.
func (u *unit) unbind() bool {
	group := u.group()
	killed := u.m.bounds.OutOfMemory(group)
	u.m.bounds.Remove(group)
	u.mu.Lock()
	defer u.mu.Unlock()
	return killed || u.over
}

// stay returns when the run is over, and ends it if it is not wanted.
func (u *unit) stay(ctx context.Context, run process.Run, w wish) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-run.Exited():
			u.finish(ctx, run, u.wish().round != w.round)
			return
		case <-w.wake:
			now := u.wish()
			if !now.run || now.round != w.round {
				u.endRun(ctx, stopGrace(now.decl))
				return
			}
			w = now
		}
	}
}

// open returns the run that shall be there: it notes its number before it
// starts it, so that the run is neither started twice nor lost.
func (u *unit) open(ctx context.Context, w wish) (process.Run, error) {
	u.mu.Lock()
	if !w.open {
		u.rec.Runs = append(u.rec.Runs, span{Number: u.rec.Next, Base: u.rec.logEnd(), Size: -1})
		if u.rec.Next > 0 {
			u.rec.Restarts++
		}
		u.rec.Next++
		u.rec.Ready, u.rec.Reason, u.rec.Retry = false, "", time.Time{}
		u.saveLocked()
	}
	key := u.rec.key(u.name, u.rec.Runs[len(u.rec.Runs)-1].Number)
	u.mu.Unlock()
	boot := u.m.bootNow()
	server := knownServer(w.decl, boot.Workdir)
	u.mu.Lock()
	u.known = server
	u.mu.Unlock()
	if run, err := u.m.core.Run(key); !errs.Is(err, errs.NotFound) {
		return run, err
	}
	launching, cancel := context.WithCancel(ctx)
	defer cancel()
	defer stopOn(w.wake, cancel)()
	gate := u.m.bounds.Gate(u.group(), limitsOf(w.decl))
	return u.m.core.Launch(launching, startRequest(w.decl, key, gate, server.Env(boot.Env[wire.PreviewDomain])))
}

// stopOn calls cancel when a channel is closed, until the returned function is called.
func stopOn(ch <-chan struct{}, cancel func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-ch:
			cancel()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// running shows a run that is up.
func (u *unit) running(info *wire.ProcessInfo, round uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pid, u.done = info.GetPid(), round
	u.probed = u.rec.Runs[len(u.rec.Runs)-1].Number + 1
	state := wire.ServiceState_SERVICE_STATE_STARTING
	if u.rec.Ready {
		state = wire.ServiceState_SERVICE_STATE_READY
	}
	u.showLocked(state, u.unkept)
}

// probe of the present run. What it tells of a run that is over is not heard.
func (u *unit) probe(run process.Run, d *wire.ServiceDeclaration) *probe {
	u.mu.Lock()
	number, ready := u.probed, u.rec.Ready
	u.mu.Unlock()
	return &probe{Run: run, Declaration: d, Ready: ready, Moving: u.m.core.Moving, Tell: func(state wire.ServiceState, reason string) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.probed != number || u.state == state {
			return
		}
		if isReady := state == wire.ServiceState_SERVICE_STATE_READY; isReady != u.rec.Ready {
			u.rec.Ready = isReady
			u.saveLocked()
		}
		if state == wire.ServiceState_SERVICE_STATE_READY && reason == "" {
			reason = u.unkept
		}
		u.showLocked(state, reason)
	}}
}

// endRun ends the present run because it is not wanted any more.
func (u *unit) endRun(ctx context.Context, grace time.Duration) {
	u.mu.Lock()
	u.probed = 0
	key := u.rec.key(u.name, u.rec.Runs[len(u.rec.Runs)-1].Number)
	u.mu.Unlock()
	run, err := u.m.core.Run(key)
	if err != nil {
		if ctx.Err() == nil {
			u.closeSpan(0, nil, nil)
		}
		return
	}
	run.End(ctx, grace)
	select {
	case <-run.Exited():
		u.finish(ctx, run, true)
	case <-ctx.Done():
	}
}

// finish notes the end of a run when nothing of it is left.
func (u *unit) finish(ctx context.Context, run process.Run, asked bool) {
	run.End(ctx, 0)
	select {
	case <-run.Settled():
	case <-ctx.Done():
		return
	}
	if ctx.Err() != nil {
		return // supervise goes down: the next one finds the run as it is
	}
	info := run.Info()
	if u.unbind() && info.GetExit().GetSignal() != 0 {
		info = proto.CloneOf(info)
		info.Exit.Reason = "out of memory"
	}
	if asked {
		u.closeSpan(info.GetStdout().GetSize(), info, nil)
		return
	}
	u.ended(info, nil)
}

// ended is an end that was not requested: of a run, or of the attempt to start one.
func (u *unit) ended(info *wire.ProcessInfo, err error) {
	u.closeSpan(info.GetStdout().GetSize(), info, func(r *record) {
		lasted := time.Duration(info.GetEndedUnixNs() - info.GetStartedUnixNs())
		r.Reason = "it cannot be started: " + errs.Public(err)
		if err == nil {
			r.Reason = how(info.GetExit())
		}
		well := err == nil && info.GetExit().GetCode() == 0
		switch policy := u.decl.Restart; {
		case policy == wire.RestartPolicy_RESTART_POLICY_NEVER, policy == wire.RestartPolicy_RESTART_POLICY_ON_FAILURE && well:
			r.Over = true
		default:
			wait, loop := r.Failures.add(time.Now(), lasted)
			r.Retry, r.Loop = time.Now().Add(wait), loop
			if loop {
				r.Reason += fmt.Sprintf("; that happens again and again, so it is tried every %s only", loopRetry)
			}
		}
	})
}

// how says how a run ended.
func how(e *wire.Exit) string {
	switch {
	case e == nil:
		return "it ended, and how is not known"
	case e.Reason != "" && e.Reason != "killed":
		return "it was ended: " + e.Reason
	case e.Signal != 0:
		return fmt.Sprintf("it was ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("it ended with exit code %d", e.Code)
}

// closeSpan notes how much the last run wrote and how it ended, and lets go
// of the oldest runs.
func (u *unit) closeSpan(size int64, info *wire.ProcessInfo, change func(*record)) {
	u.mu.Lock()
	u.pid, u.probed = 0, 0
	r := u.rec
	r.Runs[len(r.Runs)-1].Size = size
	if info.GetExit() != nil {
		r.LastExit, _ = proto.Marshal(info.GetExit())
		r.LastExitNS = info.GetEndedUnixNs()
	}
	r.Ready, r.Reason, r.Loop, r.Retry = false, "", false, time.Time{}
	if change != nil {
		change(r)
	}
	old := r.prune()
	u.saveLocked()
	if r.Wanted && !r.Over && r.Retry.IsZero() { // at once, or at the thaw
		u.showLocked(wire.ServiceState_SERVICE_STATE_STARTING, "")
	} else {
		u.newsLocked()
	}
	u.mu.Unlock()
	for _, s := range old {
		u.drop(s)
	}
}

func (u *unit) drop(s span) {
	if run, err := u.m.core.Run(u.rec.key(u.name, s.Number)); err == nil {
		_ = run.Forget()
	}
}

// forget removes what is left of a service that is removed.
func (u *unit) forget() {
	u.mu.Lock()
	runs := u.rec.Runs
	u.rec.Runs = nil
	u.newsLocked()
	u.mu.Unlock()
	for _, s := range runs {
		u.drop(s)
	}
	u.m.gone(u)
}

// want changes what is wanted and wakes the loop.
func (u *unit) want(change func(*record)) (round uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change(u.rec)
	u.round++
	if n := len(u.rec.Runs); u.rec.Wanted && n > 0 && u.rec.Runs[n-1].Size < 0 { // what runs now does not count any more
		u.probed = 0
		u.showLocked(wire.ServiceState_SERVICE_STATE_STARTING, "")
	}
	u.saveLocked()
	close(u.wake)
	u.wake = make(chan struct{})
	return u.round
}

// again forgets what went wrong: a caller asked for it to run.
func again(r *record) {
	r.Wanted, r.Over, r.Loop, r.Reason, r.Retry, r.Failures = true, false, false, "", time.Time{}, failures{}
}

// info is the service as clients see it.
func (u *unit) info() *wire.ServiceInfo {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := &wire.ServiceInfo{
		Declaration: u.decl, State: u.state, Reason: u.reason, Pid: u.pid, Restarts: u.rec.Restarts,
		SinceUnixNs: u.since.UnixNano(), Wanted: u.rec.Wanted, LogSize: u.rec.logEnd(), LastExitUnixNs: u.rec.LastExitNS,
	}
	if u.known != nil {
		i.KnownAs = u.known.Name
	}
	if u.rec.LastExit != nil {
		e := &wire.Exit{}
		if proto.Unmarshal(u.rec.LastExit, e) == nil {
			i.LastExit = e
		}
	}
	if n := len(u.rec.Runs); n > 0 {
		i.LogStart = u.rec.Runs[0].Base
		i.ProcessKey = u.rec.key(u.name, u.rec.Runs[n-1].Number)
		if run, err := u.m.core.Run(i.ProcessKey); err == nil && u.rec.Runs[n-1].Size < 0 {
			i.LogSize += run.Info().GetStdout().GetSize()
		}
	}
	return i
}

// knownServer looks what a declaration starts.
func knownServer(d *wire.ServiceDeclaration, workdir string) *devServer {
	words := shellWords(string(d.Command))
	for _, a := range d.Argv {
		words = append(words, shellWords(string(a))...) // also what sh -c gets
	}
	return devServerOf(words, dirOf(d, workdir))
}
