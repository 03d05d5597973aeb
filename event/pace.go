package event

import "time"

// Bounds of what is told of a thing that happens to it as often as a program likes:
// events are kept for days.
const (
	paceAtOnce = 30
	paceEvery  = time.Second
)

// Pace bounds how often something is told of one thing: 30 times at once, and once a second
// in the long run. The zero value has told nothing. Not safe for concurrent use.
type Pace struct{ taken time.Time } // up to when events have taken their share of the time

// Allow reports whether one more may be told now.
func (p *Pace) Allow(now time.Time) bool {
	at := now.Add(-paceAtOnce * paceEvery)
	if p.taken.After(at) {
		at = p.taken
	}
	if at = at.Add(paceEvery); at.After(now) {
		return false
	}
	p.taken = at
	return true
}
