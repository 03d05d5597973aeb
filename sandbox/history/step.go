package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

const (
	touchQuiet  = 2 * time.Second // without a change, before what changed becomes a revision
	touchLate   = 20 * time.Second
	touchedBusy = time.Minute     // that such a revision may take
	stepWait    = 2 * time.Second // that the answer of a call waits for its revision; it is made all the same
	stepTextMax = 200             // bytes of what a step is called
	stepNames   = 8               // calls that a revision names; of more, how many
)

// byAPI begins the Actor of what a call from outside of an agent's run did.
const byAPI = "api:"

// Step is a call from outside of an agent's run that may change the files of a
// sandbox. Calls that overlap share their revisions, which name them all.
type Step struct {
	l         *ledger
	who, what string
	n         int  // of the ledger's; guarded by l.mu, as is alone
	alone     bool // goes on by itself
	once      sync.Once
}

// Step begins one: what is on disk now is a revision before it returns, if
// something is not yet; it waits up to beginMax for that, and for a look that is
// under way. What the step does becomes one when it ends, and if it lasts whenever
// it is quiet.
//
// Where the kernel reports changes, a look at what has not changed costs
// microseconds; elsewhere, and in machines with a disk of their own, it is a scan.
// Where no revision can be made the call goes on, and the log says so. A step of
// a sandbox that the tenant does not have is none, and leaves nothing behind.
func (s *Service) Step(ctx context.Context, tenant string, id sandbox.ID, who, what string) *Step {
	st := &Step{l: s.ledger(ctx, tenant, id), who: who, what: clip.Line(what, stepTextMax)}
	if st.l == nil {
		return st
	}
	s.Begin(ctx, tenant, id)
	st.l.join(ctx, st, st.l.before(ctx))
	return st
}

// join lets a step be under way. A look that has begun has its name already, and may
// find what the step does next: the step waits for its end, and with after for that of
// one that begins after now.
func (l *ledger) join(ctx context.Context, st *Step, after bool) {
	l.mu.Lock()
	l.begun++
	st.n = l.begun
	wait := l.now
	if after {
		wait = l.wanted()
	}
	if wait != nil {
		wait.join = append(wait.join, st)
	}
	l.mu.Unlock()
	if wait != nil {
		wait.wait(ctx, beginMax)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait == nil || wait.leave(st) {
		l.under = append(l.under, st)
	}
	l.arm()
}

// End keeps what the step changed. It may be repeated.
func (st *Step) End() { st.once.Do(st.end) }

func (st *Step) end() {
	l := st.l
	if l == nil {
		return
	}
	l.mu.Lock()
	l.under = slices.DeleteFunc(l.under, func(o *Step) bool { return o == st })
	l.ended = append(l.ended, st)
	l.mu.Unlock()
	if n, known := l.s.heard(l.id); known && n == 0 {
		l.mu.Lock()
		l.ended = slices.DeleteFunc(l.ended, func(o *Step) bool { return o == st })
		l.mu.Unlock()
	} else {
		l.look(context.Background(), stepWait)
	}
	l.drop()
}

// Follow lets the step last until wait returns, which ends with its context.
func (st *Step) Follow(wait func(context.Context)) {
	if st.l == nil {
		return
	}
	st.l.mu.Lock()
	over := !slices.Contains(st.l.under, st)
	st.alone = true
	st.l.mu.Unlock()
	if over || !st.l.s.spawn(func() { wait(st.l.s.ctx); st.End() }) {
		st.End()
	}
}

// Call says that a call of an agent is under way, which makes a revision of its own of
// what it did: until done is called none is made because it was quiet for a moment. It
// waits for a look that has begun, which would take what the call does for others' work.
// done may be called once.
func (s *Service) Call(ctx context.Context, tenant string, id sandbox.ID) (done func()) {
	l := s.ledger(ctx, tenant, id)
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	l.calls++
	k := l.next
	if k == nil {
		k = l.now
	}
	l.mu.Unlock()
	if k != nil {
		k.wait(ctx, beginMax)
	}
	return func() {
		l.mu.Lock()
		l.calls--
		l.mu.Unlock()
		l.drop()
	}
}

// holding is a sandbox by whose it is: a tenant may name one that is another's.
type holding struct {
	tenant string
	id     sandbox.ID
}

// ledger knows the calls of which a sandbox's next revision is the work.
type ledger struct {
	s      *Service
	tenant string
	id     sandbox.ID
	refs   int // guarded by Service.mu; 0: it is not in the Service's list any more

	mu    sync.Mutex // guards all below
	under []*Step    // begun and not ended
	ended []*Step    // since the last look began
	now   *scan      // under way; nil = none is
	next  *scan      // begins after that; nil = no call waits for one
	begun int        // how many steps
	calls int        // of agents, under way

	timer   *time.Timer // nil = nothing waits for quiet
	touched bool        // something may have changed, and it was not looked at
	last    time.Time   // when it was touched last
	first   time.Time   // since when something may be there that was not looked at; zero = it is not
	heard   uint64      // at the last tick
}

// scan is one look at the files of a sandbox, which makes a revision of what changed.
type scan struct {
	done chan struct{} // closed when it has ended
	join []*Step       // that begin when it has; guarded by the ledger's mu
}

// wait waits until the look has ended, but no longer than most.
func (k *scan) wait(ctx context.Context, most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-k.done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// leave takes a step out of those that wait for the look; false = it has begun.
func (k *scan) leave(st *Step) bool {
	n := len(k.join)
	k.join = slices.DeleteFunc(k.join, func(o *Step) bool { return o == st })
	return len(k.join) < n
}

// ledger returns that of a sandbox, to be dropped; nil = the tenant has no such
// sandbox, or the service is closed. Calls come here before anything else has
// looked whose the sandbox is.
func (s *Service) ledger(ctx context.Context, tenant string, id sandbox.ID) *ledger {
	if _, err := s.c.Sandboxes.Get(ctx, tenant, id); err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	of := holding{tenant, id}
	l := s.ledgers[of]
	if l == nil {
		l = &ledger{s: s, tenant: tenant, id: id}
		s.ledgers[of] = l
	}
	l.refs++
	return l
}

// known returns the ledger of a sandbox in which something goes on, to be
// dropped; nil = nothing does.
func (s *Service) known(tenant string, id sandbox.ID) *ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[holding{tenant, id}]
	if l != nil {
		l.refs++
	}
	return l
}

func (l *ledger) drop() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.refs--; l.refs == 0 {
		delete(l.s.ledgers, holding{l.tenant, l.id})
	}
}

// spawn starts what Close waits for; false = the service is closed.
func (s *Service) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// heard is how many changes the kernel has reported of a sandbox since its last
// look. known is false where the kernel does not say so, or there was no look yet.
func (s *Service) heard(id sandbox.ID) (n uint64, known bool) {
	s.mu.Lock()
	var open workspace.History
	if d := s.handles[id]; d != nil {
		open = d.h
	}
	s.mu.Unlock()
	h, ok := open.(interface{ Heard() (uint64, bool) })
	if !ok {
		return 0, false
	}
	return h.Heard()
}

// before reports whether there may be something on disk that is in no revision.
// Without that, what has ended has changed nothing.
func (l *ledger) before(ctx context.Context) bool {
	if n, known := l.s.heard(l.id); known && n > 0 || !known && !l.fresh(ctx) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil && l.next == nil {
		l.ended = nil
	}
	return false
}

// fresh reports whether a sandbox has no history yet and was made empty: it
// begins with the empty workspace, whenever that is looked at.
func (l *ledger) fresh(ctx context.Context) bool {
	l.mu.Lock()
	others := len(l.under) > 0
	l.mu.Unlock()
	if others || l.s.owner(l.id) != "" {
		return false
	}
	info, err := l.s.c.Sandboxes.Get(ctx, l.tenant, l.id)
	return err == nil && info.From == ""
}

// look has a look begin after now, and waits for it, but no longer than most.
// One look serves all who came before it began.
func (l *ledger) look(ctx context.Context, most time.Duration) {
	l.mu.Lock()
	k := l.wanted()
	l.mu.Unlock()
	if k != nil {
		k.wait(ctx, most)
	}
}

// wanted returns the look that begins next; nil = the service is closed.
// Preconditions: l.mu is held.
func (l *ledger) wanted() *scan {
	if l.next == nil {
		l.next = &scan{done: make(chan struct{})}
		if l.now == nil && !l.s.spawn(l.looks) {
			l.next = nil
		}
	}
	return l.next
}

// looks makes revisions as long as a call waits for one.
func (l *ledger) looks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.next != nil {
		l.now, l.next = l.next, nil
		label := labelOf(append(slices.Clone(l.ended), l.under...))
		l.ended, l.touched, l.first = nil, false, time.Time{}
		l.mu.Unlock()
		l.revise(label)
		l.mu.Lock()
		l.under, l.now.join = append(l.under, l.now.join...), nil
		close(l.now.done)
	}
	l.now = nil
}

// labelOf names the calls that a revision is the work of.
func labelOf(steps []*Step) workspace.Label {
	if len(steps) == 0 {
		return workspace.Label{Actor: workspace.Outside}
	}
	slices.SortFunc(steps, func(a, b *Step) int { return a.n - b.n })
	var who []string
	for _, st := range steps {
		if !slices.Contains(who, st.who) && len(who) < stepNames {
			who = append(who, st.who)
		}
	}
	return workspace.Label{Actor: byAPI + strings.Join(who, ", "), Text: texts(steps)}
}

// texts lists what calls are called.
func texts(steps []*Step) string {
	var names []string
	for i, st := range steps {
		if i == stepNames {
			names = append(names, fmt.Sprintf("and %d more", len(steps)-i))
			break
		}
		names = append(names, st.what)
	}
	return strings.Join(names, "; ")
}

// revise makes a revision of what changed. A sandbox that was paused meanwhile
// is not woken for that; what stopped has had its last one.
func (l *ledger) revise(label workspace.Label) {
	ctx, cancel := context.WithTimeout(l.s.ctx, touchedBusy)
	defer cancel()
	if info, err := l.s.c.Sandboxes.Get(ctx, l.tenant, l.id); err != nil || info.State != sandbox.Running {
		return
	}
	h := &history{s: l.s, tenant: l.tenant, id: l.id}
	_, _, err := h.snapshot(ctx, label)
	switch {
	case err == nil, errors.Is(err, context.Canceled), errs.Is(err, errs.NotFound), errs.Is(err, errs.Conflict), errs.Is(err, errs.Unsupported):
	default:
		l.s.c.Log.Warn("what changed in a sandbox did not become a revision", "id", l.id, "by", label.Text, "error", err)
	}
}

// Touched says that something may have changed the files of a sandbox from
// outside of an agent's run, and was no step. Once it has been quiet for a
// moment, what changed becomes a revision.
func (s *Service) Touched(tenant string, id sandbox.ID) {
	l := s.ledger(s.ctx, tenant, id)
	if l == nil {
		return
	}
	defer l.drop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touched, l.last = true, time.Now()
	l.arm()
}

// arm sees to it that there is a look once it is quiet. Preconditions: l.mu is held.
func (l *ledger) arm() {
	if l.timer == nil && l.s.known(l.tenant, l.id) == l { // dropped by the last tick
		l.timer = time.AfterFunc(touchQuiet, func() {
			if !l.s.spawn(l.tick) {
				l.drop()
			}
		})
	}
}

// tick looks if it is quiet, or was not for long.
func (l *ledger) tick() {
	n, known := l.s.heard(l.id)
	l.mu.Lock()
	now := time.Now()
	moving := known && n != l.heard || now.Sub(l.last) < touchQuiet
	l.heard = n
	lasting := slices.ContainsFunc(l.under, func(st *Step) bool { return !st.alone || known })
	due := l.touched || known && n > 0 || !known && lasting
	if due && l.first.IsZero() {
		l.first = now
	}
	late := due && now.Sub(l.first) >= touchLate && l.calls == 0
	quiet := due && !moving && (known || !lasting) && l.calls == 0
	more := due || lasting
	if more {
		l.timer.Reset(touchQuiet)
	} else {
		l.timer = nil
	}
	l.mu.Unlock()
	if late || quiet { // no call waits for that
		if done, err := l.s.background.begin(l.s.ctx, l.tenant); err == nil {
			if k := l.unlessCalled(); k != nil {
				k.wait(l.s.ctx, touchedBusy)
			}
			done()
		}
	}
	if !more {
		l.drop()
	}
}

// unlessCalled returns the look that begins next, nil if a call of an agent has begun.
func (l *ledger) unlessCalled() *scan {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls > 0 {
		return nil
	}
	return l.wanted()
}

// lastLabel names what did the changes that are found when a sandbox goes.
func (s *Service) lastLabel(tenant string, id sandbox.ID) workspace.Label {
	if l := s.known(tenant, id); l != nil {
		defer l.drop()
		if label := l.label(); label.Text != "" {
			return label
		}
	}
	return workspace.Label{Actor: workspace.Outside, Text: "before it stopped"}
}

// label names the calls that the next revision is the work of.
func (l *ledger) label() workspace.Label {
	l.mu.Lock()
	defer l.mu.Unlock()
	return labelOf(append(slices.Clone(l.ended), l.under...))
}

// settled waits until what calls from outside have done so far is a revision
// of theirs, before another call makes one with another name.
func (h *history) settled(ctx context.Context) {
	l := h.s.known(h.tenant, h.id)
	if l == nil {
		return
	}
	defer l.drop()
	l.mu.Lock()
	busy := len(l.under)+len(l.ended) > 0 || l.now != nil || l.next != nil
	l.mu.Unlock()
	if n, known := h.s.heard(h.id); busy && (!known || n > 0) {
		l.look(ctx, beginMax)
	}
}

// meanwhile lists the calls from outside that go on beside an agent's.
func (h *history) meanwhile() string {
	l := h.s.known(h.tenant, h.id)
	if l == nil {
		return ""
	}
	defer l.drop()
	return l.label().Text
}
