package retain

import "time"

// gapMax is the longest time between two processes that is believed. A longer
// one counts as none: it cannot be told from a clock that was moved, and what is
// kept too long does no harm.
const gapMax = time.Hour

// Clock is how long a history has been open, in all processes that had it open:
// what its revisions are stamped with (Revision.Clock), and what is old goes by.
type Clock struct {
	elapsed func() time.Duration
	before  time.Duration // until elapsed was 0
}

// NewClock returns a Clock that goes on from the last revision; the zero
// Revision: there is none. elapsed is the time since some moment of this
// process, whatever becomes of the wall clock; nil = the kernel's monotonic
// clock. now is what the wall clock says, if the revision's time is of the same
// clock; else the zero Time.
func NewClock(elapsed func() time.Duration, last Revision, now time.Time) Clock {
	if elapsed == nil {
		began := time.Now()
		elapsed = func() time.Duration { return time.Since(began) }
	}
	c := Clock{elapsed, aged(last) - elapsed()}
	if gap := now.Sub(last.Time); last.N > 0 && gap > 0 && gap <= gapMax {
		c.before += gap
	}
	return c
}

// aged is a revision's Clock.
func aged(r Revision) time.Duration { return time.Duration(r.Clock) * time.Microsecond }

// Now is how long it has been open.
func (c Clock) Now() time.Duration { return c.before + c.elapsed() }

// Stamp is the Clock of a revision that follows last.
func (c Clock) Stamp(last Revision) int64 { return max(c.Now().Microseconds(), last.Clock) }
