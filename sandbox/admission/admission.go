// Package admission bounds how many machines boot at the same time by what the
// host manages.
//
//	place := gate.Join(admission.Boot{Provider: "gvisor", Tenant: tenant, Like: shape})
//	turn, err := place.Wait(ctx) // meanwhile place.Ahead() says how many are before it
//	…boot…
//	turn.End(admission.Up)
//
// A hundred boots at once on two cores all take a hundred times as long, and
// all miss their deadlines; a few at a time, each takes as long as it does
// alone, and the last is not later. How many is measured, as TCP does for
// packets. The first boot is alone, which shows how long one takes; with each
// that comes up the bound grows by one, until boots take twice as long as they
// do alone: then it shrinks, and from then on it grows by one a round. Each
// provider has a bound of its own, since what they wait for differs. A boot that
// hangs does not keep the others: once younger ones have come up it counts no
// longer, and where nothing moves at all another one is tried.
//
// Turns go round the tenants, first come first served within one, so that no
// tenant's hundred keep another's one waiting. Boots that no caller waits for
// come after those that a caller does, but for one in every spareEvery turns.
//
// All methods are safe for concurrent use.
package admission

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// slack is how many times as long as alone a boot may take. Of boots that
	// only compute, that is reached at slack boots a processor.
	slack = 2.0
	// memory is the share of the old in the average of how slow boots are.
	memory   = 0.7
	slowMax  = 8.0 // one boot counts as no slower than this
	cutLeast = 0.9 // of the bound when boots are slow
	cutMost  = 0.5 // when they are very slow, or one missed its deadline
	// spareEvery-th turn is a spare boot's, if one waits: else a server that
	// never rests would never have a warm pool.
	spareEvery = 8
	// Nothing moves for long when that is overdueTimes what boots take alone;
	// but overdueMin at the least, and overdueNew where that is not known.
	overdueTimes = 4
	overdueMin   = 2 * time.Second
	overdueNew   = 10 * time.Second
	stallsMax    = 6   // doublings
	likesMax     = 256 // kinds of boots whose times are remembered
)

// Boot is what waits for its turn.
type Boot struct {
	Provider string
	Tenant   string
	// Spare: no caller waits for it.
	Spare bool
	// Like is equal for boots that take equally long alone.
	Like string
}

// Outcome of a boot.
type Outcome int

const (
	Up    Outcome = iota // the machine came up
	Late                 // it did not within its deadline
	Other                // it failed, or was given up: that says nothing of the host
)

// Gate gives turns to boot.
type Gate struct {
	max int // boots at the same time

	mu    sync.Mutex // guards all below, and all that hangs on it; a leaf
	lanes map[string]*lane
}

// lane is what there is of one provider.
type lane struct {
	limit   float64
	probed  bool // the limit was too high once
	booting map[*Turn]struct{}
	// Of boots that a caller waits for: tenants in the order of their next
	// turns, and the places of each.
	tenants []string
	asked   map[string][]*Place
	spare   []*Place
	passed  int // turns since a spare boot had one, while one waits

	alone map[string]time.Duration // how long boots that are Like this take alone
	slow  float64                  // average of how many times as long they take now
	cutAt time.Time                // of the limit; turns that began before say nothing new

	movedAt time.Time   // when a machine came up last, or a turn was given
	stalls  int         // turns that were given for want of that, in a row
	clock   *time.Timer // until the next; nil = none runs
}

// Place is a place in the line.
type Place struct {
	g    *Gate
	l    *lane
	b    Boot
	turn chan *Turn // has room for it
}

// Turn is the right to boot until End.
type Turn struct {
	g     *Gate
	l     *lane
	b     Boot
	began time.Time
	bound int  // when it began
	crowd int  // most boots at the same time while it lasted
	hangs bool // younger ones have come up: it does not count
	ended bool
}

// New returns a gate at which no boot waits. Of each provider no more than max
// machines boot at the same time, however well that goes; 0 = what suits the
// host.
func New(max int) *Gate {
	if max <= 0 {
		max = 8 * runtime.GOMAXPROCS(0)
	}
	return &Gate{max: max, lanes: map[string]*lane{}}
}

// Join takes a place at the end of the line. Wait must follow.
func (g *Gate) Join(b Boot) *Place {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lanes[b.Provider]
	if l == nil {
		l = &lane{
			limit: 1, booting: map[*Turn]struct{}{}, asked: map[string][]*Place{}, alone: map[string]time.Duration{}, slow: 1,
		}
		g.lanes[b.Provider] = l
	}
	p := &Place{g: g, l: l, b: b, turn: make(chan *Turn, 1)}
	switch {
	case b.Spare:
		l.spare = append(l.spare, p)
	case len(l.asked[b.Tenant]) == 0:
		l.tenants = append(l.tenants, b.Tenant)
		fallthrough
	default:
		l.asked[b.Tenant] = append(l.asked[b.Tenant], p)
	}
	g.admit(l)
	return p
}

// Wait returns when it is the place's turn. When ctx ends before, the place is
// given up and ctx's error returned.
func (p *Place) Wait(ctx context.Context) (*Turn, error) {
	select {
	case t := <-p.turn:
		return t, nil
	default:
	}
	select {
	case t := <-p.turn:
		return t, nil
	case <-ctx.Done():
	}
	p.g.mu.Lock()
	p.l.leave(p)
	p.g.mu.Unlock()
	select {
	case t := <-p.turn: // at the same moment
		t.End(Other)
	default:
	}
	return nil, ctx.Err()
}

// Ahead is how many boots have their turn before this one, as far as can be
// said now; 0 also when it has had its own.
func (p *Place) Ahead() int {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.l.ahead(p)
}

// Waits reports whether the place's turn is still to come.
func (p *Place) Waits() bool {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return slices.Contains(p.l.spare, p) || slices.Contains(p.l.asked[p.b.Tenant], p)
}

// Busy reports whether a boot that a caller waits for is under way or waits.
func (g *Gate) Busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lanes {
		if len(l.tenants) > 0 {
			return true
		}
		for t := range l.booting {
			if !t.b.Spare {
				return true
			}
		}
	}
	return false
}

// Limit is how many machines of a provider may boot at the same time now.
func (g *Gate) Limit(provider string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.lanes[provider]; l != nil {
		return int(l.limit)
	}
	return 1
}

// End ends the turn. It may be repeated; the first outcome counts.
func (t *Turn) End(o Outcome) {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	delete(t.l.booting, t)
	switch o {
	case Up:
		t.g.measure(t, time.Since(t.began))
	case Late:
		t.l.cut(t, cutMost)
	}
	t.g.admit(t.l)
}

// measure takes in how long a boot took. Preconditions: g.mu is held.
func (g *Gate) measure(t *Turn, took time.Duration) {
	l := t.l
	l.movedAt, l.stalls = time.Now(), 0
	for other := range l.booting {
		if time.Since(other.began) > max(overdueMin, overdueTimes*took) {
			other.hangs = true
		}
	}
	stale := t.began.Before(l.cutAt) // its crowd was too large, which we know
	alone, known := l.alone[t.b.Like]
	switch {
	case !known && len(l.alone) == 0:
		alone = took / time.Duration(t.crowd) // at worst; it comes to be known
	case !known: // beside others it took as many times as long as those do
		alone = time.Duration(float64(took) / l.slow)
		if len(l.alone) >= likesMax {
			clear(l.alone)
		}
	case took < alone:
		alone = took
	case !stale && (t.crowd == 1 || l.limit < 2): // the host has become slower
		alone = (alone + took) / 2
	}
	l.alone[t.b.Like] = alone
	if stale {
		return
	}
	l.slow = memory*l.slow + (1-memory)*min(float64(took)/float64(max(alone, 1)), slowMax)
	switch {
	case l.slow > slack:
		l.cut(t, min(max(slack/l.slow, cutMost), cutLeast))
	case t.crowd < t.bound: // that more are of use was not shown
	case l.probed:
		l.limit = min(l.limit+1/l.limit, float64(g.max))
	default:
		l.limit = min(l.limit+1, float64(g.max))
	}
}

// cut lowers the bound, once for all boots that were under way together.
// Preconditions: the gate's mu is held.
func (l *lane) cut(t *Turn, by float64) {
	if t.began.Before(l.cutAt) {
		return
	}
	l.limit = max(1, min(l.limit, float64(t.crowd))*by)
	l.slow, l.probed, l.cutAt = 1, true, time.Now()
}

// admit gives the turns that there are. Preconditions: g.mu is held.
func (g *Gate) admit(l *lane) {
	if l.clock != nil {
		l.clock.Stop()
		l.clock = nil
	}
	for l.counted() < int(l.limit) {
		if !g.give(l) {
			return
		}
	}
	if len(l.tenants)+len(l.spare) > 0 {
		l.clock = time.AfterFunc(time.Until(l.movedAt.Add(l.patience())), func() { g.stalled(l) })
	}
}

// give gives the next turn; false: no place waits. Preconditions: g.mu is held.
func (g *Gate) give(l *lane) bool {
	p := l.next()
	if p == nil {
		return false
	}
	t := &Turn{g: g, l: l, b: p.b, began: time.Now(), bound: int(l.limit)}
	l.booting[t] = struct{}{}
	for other := range l.booting {
		other.crowd = max(other.crowd, len(l.booting))
	}
	l.movedAt = t.began
	p.turn <- t
	return true
}

// stalled gives one more turn where nothing has moved for long: those who have
// one may hang. If it is the host that is slow, more would make it slower: the
// bound shrinks, and the next such turn comes after twice the time.
func (g *Gate) stalled(l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(l.movedAt) >= l.patience() {
		l.limit, l.probed, l.cutAt = max(1, l.limit*cutMost), true, time.Now()
		l.stalls++
		g.give(l)
	}
	g.admit(l)
}

// patience is how long nothing may move.
func (l *lane) patience() time.Duration {
	d := overdueMin
	for t := range l.booting {
		if alone, known := l.alone[t.b.Like]; known {
			d = max(d, overdueTimes*alone)
		} else {
			d = max(d, overdueNew)
		}
	}
	return d << min(l.stalls, stallsMax)
}

// counted is how many turns count.
func (l *lane) counted() (n int) {
	for t := range l.booting {
		if !t.hangs {
			n++
		}
	}
	return n
}

// next takes the place whose turn it is out of the line; nil = none waits.
func (l *lane) next() *Place {
	var p *Place
	switch {
	case len(l.spare) > 0 && (len(l.tenants) == 0 || l.passed >= spareEvery-1):
		p, l.passed = l.spare[0], 0
	case len(l.tenants) > 0:
		p = l.asked[l.tenants[0]][0]
		if len(l.spare) > 0 {
			l.passed++
		}
	default:
		return nil
	}
	l.leave(p)
	if i := slices.Index(l.tenants, p.b.Tenant); i == 0 && !p.b.Spare {
		l.tenants = append(l.tenants[1:], p.b.Tenant) // the others are next
	}
	return p
}

// leave takes a place out of the line, if it is still in it.
func (l *lane) leave(p *Place) {
	if p.b.Spare {
		l.spare = slices.DeleteFunc(l.spare, func(o *Place) bool { return o == p })
		return
	}
	of := slices.DeleteFunc(l.asked[p.b.Tenant], func(o *Place) bool { return o == p })
	if l.asked[p.b.Tenant] = of; len(of) == 0 {
		delete(l.asked, p.b.Tenant)
		l.tenants = slices.DeleteFunc(l.tenants, func(t string) bool { return t == p.b.Tenant })
	}
}

// ahead counts the turns before a place's.
func (l *lane) ahead(p *Place) int {
	if p.b.Spare {
		n := max(slices.Index(l.spare, p), 0)
		for _, of := range l.asked {
			n += len(of)
		}
		return n
	}
	round := slices.Index(l.asked[p.b.Tenant], p)
	if round < 0 {
		return 0
	}
	n, before := 0, 1 // tenants before its own have one turn more
	for _, tenant := range l.tenants {
		if tenant == p.b.Tenant {
			n, before = n+round, 0
			continue
		}
		n += min(len(l.asked[tenant]), round+before)
	}
	return n + min(len(l.spare), (l.passed+n)/(spareEvery-1))
}
