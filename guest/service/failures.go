package service

import (
	"slices"
	"time"
)

// When a service that ends by itself is started again.
const (
	backoffMin    = 100 * time.Millisecond
	backoffMax    = 10 * time.Second
	steadyAfter   = 10 * time.Second // a run this long begins the back-off anew
	loopFailures  = 5
	loopWindow    = time.Minute
	loopRetry     = 30 * time.Second
	failuresKept  = loopFailures
	doublingsMost = 20
)

// failures counts the ends of a service that were not requested.
type failures struct {
	Times []time.Time `json:"times,omitempty"` // the newest
	InRow int         `json:"in_row,omitempty"`
}

// add notes an end after a run that lasted, and says how long to wait before
// the next, and whether that is a crash loop.
func (f *failures) add(now time.Time, lasted time.Duration) (wait time.Duration, loop bool) {
	if lasted >= steadyAfter {
		f.InRow = 0
	}
	wait = min(backoffMin<<min(f.InRow, doublingsMost), backoffMax)
	f.InRow++
	f.Times = append(f.Times, now)
	f.Times = f.Times[max(len(f.Times)-failuresKept, 0):]
	recent := len(f.Times) - slices.IndexFunc(f.Times, func(t time.Time) bool { return now.Sub(t) <= loopWindow })
	if recent >= loopFailures || f.InRow > loopFailures { // tries every 30 s go on being the same loop
		return loopRetry, true
	}
	return wait, false
}
