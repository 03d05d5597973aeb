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

// Bounds of Paces.
const (
	pacesAgain = 5 * time.Second
	pacesKept  = 1024
)

// Paces has a Pace for each of many things, such as machines, and does not let the same be told
// of one again for some seconds. It forgets when it has seen too many. The zero value has told
// nothing. Not safe for concurrent use.
type Paces struct {
	of   map[string]*Pace
	told map[[2]string]time.Time
}

// Allow reports whether what may be told of a thing now.
func (p *Paces) Allow(of, what string, now time.Time) bool {
	key := [2]string{of, what}
	if at, is := p.told[key]; is && now.Sub(at) < pacesAgain {
		return false
	}
	if p.told == nil || len(p.told) >= pacesKept || len(p.of) >= pacesKept {
		p.of, p.told = map[string]*Pace{}, map[[2]string]time.Time{}
	}
	p.told[key] = now
	if p.of[of] == nil {
		p.of[of] = &Pace{}
	}
	return p.of[of].Allow(now)
}
