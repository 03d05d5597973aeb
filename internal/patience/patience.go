// Package patience tells tests how long to wait on this machine.
//
//	patience.Until(t, 30*time.Second, "the server to answer", func() bool { … })
//
//	ctx, cancel := patience.Context(t.Context(), time.Minute)
//	defer cancel()
//
//	case <-time.After(patience.Of(10 * time.Second)):
//
// Every duration is what the thing may take on the reference: two idle cores
// of a common server. A machine that is slower, or busy, gets up to factorMax
// times as much, so a deadline says that something hangs and never that the
// machine has other work. How slow it is, is measured when it is first asked
// and again while a wait goes on: load that comes later counts. What hangs
// fails all the same, on an idle machine after the duration that was given.
//
// All functions are safe for concurrent use, also in bubbles of synctest.
package patience

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// factorMax bounds how much slower than the reference a machine may be.
const factorMax = 20

// How often Until and Holds ask: less often when it goes on, since what they
// wait for has use for the machine as well.
const (
	pollMin = 2 * time.Millisecond
	pollMax = 50 * time.Millisecond
)

// factor is how many times slower than the reference this machine is now,
// from 1 to 20.
func factor() float64 {
	if f := paced.Load(); f != nil {
		return (*f)()
	}
	return measured.factor()
}

var (
	measured meter
	paced    atomic.Pointer[func() float64] // in place of it, in tests of this package
)

// Of returns how long to wait here for what takes d on the reference. Load
// that comes later does not count: where it may, Until and Context are better.
func Of(d time.Duration) time.Duration { return time.Duration(float64(d) * factor()) }

// Until calls done until it reports true. It fails the test when the machine
// had d of the reference's time for that.
func Until(t testing.TB, d time.Duration, what string, done func() bool) {
	t.Helper()
	began := time.Now()
	if !Holds(d, done) {
		t.Fatalf("waited in vain for %s: %v, which are %v of the reference's time",
			what, time.Since(began).Round(time.Millisecond), d)
	}
}

// Try calls try until it returns no error. It fails the test with the last one
// when the machine had d of the reference's time for that.
func Try(t testing.TB, d time.Duration, what string, try func() error) {
	t.Helper()
	var err error
	began := time.Now()
	if !Holds(d, func() bool { err = try(); return err == nil }) {
		t.Fatalf("waited in vain for %s: %v, which are %v of the reference's time: %v",
			what, time.Since(began).Round(time.Millisecond), d, err)
	}
}

// Holds calls done until it reports true, which it returns, or the machine had
// d of the reference's time for that.
func Holds(d time.Duration, done func() bool) bool {
	left, pause := newBudget(d), pollMin
	for !done() {
		if left.spent() {
			return false
		}
		<-time.After(pause)
		pause = min(pause+pause/4, pollMax)
	}
	return true
}

// Within calls f in a goroutine of its own and fails the test when f has not
// returned in d of the reference's time.
func Within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	Until(t, d, what, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// Context is context.WithTimeout by the reference's time.
func Context(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return newDeadline(parent, d, time.Now().Add(factorMax*d), func() int { return 0 })
}

// Steps is Context for work of many steps, each of which may take d: the time
// begins anew whenever done returns another number. It is called once a second
// and not by two goroutines at once.
func Steps(parent context.Context, d time.Duration, done func() int) (context.Context, context.CancelFunc) {
	return newDeadline(parent, d, time.Time{}, done)
}

func newDeadline(parent context.Context, d time.Duration, latest time.Time, done func() int) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(parent)
	c := &deadline{Context: inner, latest: latest, over: make(chan struct{}), each: d, left: newBudget(d), done: done}
	stop := context.AfterFunc(inner, func() { c.end(inner.Err()) })
	c.mu.Lock()
	c.timer = time.AfterFunc(c.left.next(), c.look)
	c.mu.Unlock()
	return c, func() {
		stop()
		c.end(context.Canceled)
		cancel()
	}
}

// deadline ends with DeadlineExceeded when its budget is spent. When that will
// be it cannot say: Deadline is the latest moment possible, so that what is
// called does not think it had as much time as it likes, or its usual time.
type deadline struct {
	context.Context
	latest time.Time // zero: unknown
	over   chan struct{}
	each   time.Duration
	done   func() int

	steps int     // look's, which runs once at a time
	left  *budget // look's

	mu    sync.Mutex
	timer *time.Timer
	err   error
}

func (c *deadline) Deadline() (time.Time, bool) {
	if at, ok := c.Context.Deadline(); ok && (c.latest.IsZero() || at.Before(c.latest)) {
		return at, true
	}
	return c.latest, !c.latest.IsZero()
}

func (c *deadline) Done() <-chan struct{} { return c.over }

func (c *deadline) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *deadline) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.timer.Stop()
	c.err = err
	close(c.over)
}

func (c *deadline) look() {
	if now := c.done(); now != c.steps {
		c.steps, c.left = now, newBudget(c.each)
	}
	if c.left.spent() {
		c.end(context.DeadlineExceeded)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.timer.Reset(c.left.next())
	}
}

// A budget is time of the reference, spent at the pace of this machine. It is
// not for concurrent use.
type budget struct {
	left   time.Duration
	every  time.Duration
	looked time.Time
}

// everyMax is how often a budget asks for the factor at least.
const everyMax = time.Second

func newBudget(d time.Duration) *budget {
	return &budget{left: d, every: min(max(d/10, time.Millisecond), everyMax), looked: time.Now()}
}

// next is when to look again.
func (b *budget) next() time.Duration { return max(0, time.Until(b.looked.Add(b.every))) }

// spent takes what has passed from the budget and reports whether nothing is
// left. It costs next to nothing before next is over.
func (b *budget) spent() bool {
	now := time.Now()
	passed := now.Sub(b.looked)
	if passed < b.every {
		return b.left <= 0
	}
	// A process that was stopped, or not scheduled at all, did not wait.
	passed = min(passed, 2*b.every)
	b.left -= time.Duration(float64(passed) / factor())
	b.looked = now
	return b.left <= 0
}
