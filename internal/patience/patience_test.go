package patience

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pace replaces the measurements until the test's end. In a bubble the clock
// is exact, so what a wait takes can be compared.
func pace(t *testing.T, factor func() float64) {
	t.Helper()
	old := paced.Swap(&factor)
	t.Cleanup(func() { paced.Store(old) })
}

func steady(f float64) func() float64 { return func() float64 { return f } }

// lateFrom is slow once a point in time is reached.
func lateFrom(d time.Duration, factor float64) func() float64 {
	began := time.Now()
	return func() float64 {
		if time.Since(began) > d {
			return factor
		}
		return 1
	}
}

// failed is a test that notes how it failed.
type failed struct {
	testing.TB
	why string
}

func (f *failed) Helper() {}

func (f *failed) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// inVain runs Until with what never comes true.
func inVain(t *testing.T, d time.Duration) (why string, took time.Duration) {
	t.Helper()
	f, began, done := &failed{TB: t}, time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		Until(f, d, "a miracle", func() bool { return false })
	}()
	<-done
	return f.why, time.Since(began)
}

func TestUntil_aHungThingFailsInTheTimeOfTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		factor      func() float64
		least, most time.Duration
	}{
		"idle":                          {steady(1), 10 * time.Second, 11 * time.Second},
		"five times slow":               {steady(5), 50 * time.Second, 55 * time.Second},
		"the slowest":                   {steady(factorMax), 200 * time.Second, 220 * time.Second},
		"load from the fifth second on": {nil, 24 * time.Second, 36 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.factor == nil {
					c.factor = lateFrom(5*time.Second, 5)
				}
				pace(t, c.factor)
				why, took := inVain(t, 10*time.Second)
				if !strings.Contains(why, "in vain for a miracle") || took < c.least || took > c.most {
					t.Errorf("%q after %v, want it between %v and %v", why, took, c.least, c.most)
				}
			})
		})
	}
}

func TestUntil_asksOnceWhereItHoldsAtOnce(t *testing.T) {
	pace(t, func() float64 { t.Error("measured for nothing"); return 1 })
	asked := 0
	Until(t, time.Minute, "nothing", func() bool { asked++; return true })
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A process that was stopped for an hour has not waited for an hour.
func TestUntil_asleepIsNotWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace(t, steady(1))
		slept := false
		Until(t, 10*time.Second, "the end of a sleep", func() bool {
			if slept {
				return true
			}
			slept = true
			<-time.After(time.Hour)
			return false
		})
	})
}

func TestContext(t *testing.T) {
	mine := errors.New("mine")
	type end struct {
		Err   error
		Cause error
		After time.Duration
	}
	for name, c := range map[string]struct {
		factor float64
		act    func(parent context.CancelCauseFunc, own context.CancelFunc)
		want   end
	}{
		"its time is over":             {1, nil, end{context.DeadlineExceeded, context.DeadlineExceeded, 10 * time.Second}},
		"on a machine four times slow": {4, nil, end{context.DeadlineExceeded, context.DeadlineExceeded, 40 * time.Second}},
		"cancelled":                    {1, func(_ context.CancelCauseFunc, own context.CancelFunc) { own() }, end{context.Canceled, context.Canceled, time.Second}},
		"the parent is cancelled":      {1, func(parent context.CancelCauseFunc, _ context.CancelFunc) { parent(mine) }, end{context.Canceled, mine, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pace(t, steady(c.factor))
				began := time.Now()
				parent, endParent := context.WithCancelCause(t.Context())
				defer endParent(nil)
				ctx, cancel := Context(parent, 10*time.Second)
				defer cancel()
				if at, ok := ctx.Deadline(); !ok || at.Sub(began) != factorMax*10*time.Second {
					t.Errorf("at the latest after %v, %v", at.Sub(began), ok)
				}
				child, cancelChild := context.WithCancel(ctx)
				defer cancelChild()
				if c.act != nil {
					time.AfterFunc(time.Second, func() { c.act(endParent, cancel) })
				}
				<-child.Done()
				same := func(a, b error) bool { return errors.Is(a, b) && errors.Is(b, a) }
				if diff := cmp.Diff(c.want, end{child.Err(), context.Cause(child), time.Since(began)}, cmp.Comparer(same)); diff != "" {
					t.Error(diff)
				}
				if !same(ctx.Err(), c.want.Err) {
					t.Errorf("its own error: %v", ctx.Err())
				}
			})
		})
	}
}

// Ten steps of eight seconds each are no reason to give up; the eleventh,
// which never comes, is.
func TestSteps_endsWhenNoneIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace(t, steady(1))
		began := time.Now()
		ctx, cancel := Steps(t.Context(), 10*time.Second, func() int { return min(10, int(time.Since(began)/(8*time.Second))) })
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); ctx.Err() != context.DeadlineExceeded || took < 90*time.Second || took > 92*time.Second {
			t.Errorf("%v after %v", ctx.Err(), took)
		}
	})
}

func TestMeasure_isBoundedAndRemembersLoad(t *testing.T) {
	if f := factor(); f < 1 || f > factorMax {
		t.Errorf("factor %v", f)
	}
	if d := Of(time.Second); d < time.Second || d > factorMax*time.Second {
		t.Errorf("of a second: %v", d)
	}
	m := &meter{last: 15, at: monotonic() - time.Minute}
	if f := m.factor(); f < 15*decay {
		t.Errorf("a quiet moment after a factor of 15: %v", f)
	}
}

// The measurement works where clocks stand still.
func TestMeasure_inABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if f := (&meter{}).factor(); f < 1 || f > factorMax {
			t.Errorf("factor %v", f)
		}
	})
}
