package selector

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is a machine that counts.
type counting struct {
	sandbox.Machine

	mu     sync.Mutex
	counts sandbox.Counts
	err    error
	waits  error // what Wait says; nil = it ended; ctx's error by default
	ended  bool
	hold   func(context.Context)
}

func (c *counting) Counts(ctx context.Context) (sandbox.Counts, error) {
	if c.hold != nil {
		c.hold(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts, c.err
}

func (c *counting) Wait(ctx context.Context) (sandbox.Exit, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return sandbox.Exit{}, c.waits
	}
	<-ctx.Done()
	return sandbox.Exit{}, ctx.Err()
}

func (c *counting) set(f func(*counting)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

type silent struct{ sandbox.Machine }

// all has a different number in each field, so that none is forgotten or
// taken for another.
func all(factor int64) sandbox.Counts {
	var c sandbox.Counts
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(i+1) * factor)
	}
	return c
}

func want(t *testing.T, tl *counters, want sandbox.Counts) {
	t.Helper()
	got, counted := tl.Counts(t.Context())
	if !counted {
		t.Error("it says that nothing counts")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}

func TestCounts_whereNothingCounts(t *testing.T) {
	var tl counters
	tl.Note(silent{})
	if c, counted := tl.Counts(t.Context()); counted || c != (sandbox.Counts{}) {
		t.Errorf("%+v, %v", c, counted)
	}
}

func TestCounts_onlyGrow(t *testing.T) {
	var tl counters
	a, b := &counting{counts: all(1)}, &counting{counts: all(10)}
	tl.Note(a)
	tl.Note(b)
	want(t, &tl, all(11))
	want(t, &tl, all(11)) // nothing happened
	tl.Note(a)            // attached again: the same machine
	want(t, &tl, all(11))
	a.set(func(c *counting) { c.counts = all(2) })
	b.set(func(c *counting) { c.err = errs.New(errs.Unavailable, "busy") })
	want(t, &tl, all(12)) // b is as it was
	b.set(func(c *counting) { c.counts, c.err = all(20), nil })
	want(t, &tl, all(22))
	a.set(func(c *counting) { c.counts = all(1) }) // an answer that was overtaken
	want(t, &tl, all(22))
	a.set(func(c *counting) { c.counts = all(3) })
	want(t, &tl, all(23))
	a.set(func(c *counting) { c.ended, c.counts = true, all(100) })
	b.set(func(c *counting) { c.ended, c.waits = true, errors.New("let go") })
	want(t, &tl, all(23)) // what ended keeps its part
	tl.Note(&counting{counts: all(1)})
	want(t, &tl, all(24)) // the sandbox's next machine begins at nought
}

func TestCounts_ofManyThatEnd_keepsNone(t *testing.T) {
	var tl counters
	asked := 0
	m := func(ended bool) *counting {
		return &counting{counts: all(1), ended: ended, hold: func(context.Context) { asked++ }}
	}
	for range 1000 { // and no call asks for sums
		tl.Note(m(true))
	}
	if n := tl.Len(); n > 40 {
		t.Errorf("%d machines are kept that ended", n)
	}
	tl.Note(m(false))
	want(t, &tl, all(1))
	if asked != 1 || tl.Len() != 1 {
		t.Errorf("%d were asked, %d are kept", asked, tl.Len())
	}
}

func TestCounts_askFewAtOnceAndWaitForNobody(t *testing.T) {
	var tl counters
	var mu sync.Mutex
	now, most := 0, 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := func(ctx context.Context) {
		mu.Lock()
		now++
		most = max(most, now)
		if now == AskedAtOnce { // as many as there ever will be
			cancel()
		}
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		now--
		mu.Unlock()
	}
	for range 100 {
		tl.Note(&counting{err: errs.New(errs.Unavailable, "stuck"), hold: stuck})
	}
	if c, counted := tl.Counts(ctx); !counted || c != (sandbox.Counts{}) {
		t.Errorf("%+v, %v", c, counted)
	}
	if most != AskedAtOnce {
		t.Errorf("%d were asked at once", most)
	}
}
