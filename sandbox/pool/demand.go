package pool

import (
	"math"
	"time"
)

// Demand is a count of creates that forgets: half of it in halfLife.
const (
	halfLife      = 5 * time.Minute
	createsPerOne = 3   // so many lately are worth one member
	slack         = 0.8 // so that three are three for some minutes
	// linger is for how long a create is worth one member: what was made once
	// is often made again soon.
	linger = 10 * time.Minute
)

// demand is the zero value at first.
type demand struct {
	score float64
	at    time.Time
}

func (d *demand) add(now time.Time) {
	d.score = d.now(now) + 1
	d.at = now
}

func (d demand) now(now time.Time) float64 {
	if d.score == 0 {
		return 0
	}
	age := max(now.Sub(d.at), 0)
	return d.score * math.Exp2(-float64(age)/float64(halfLife))
}

// members is how many it is worth.
func (d demand) members(now time.Time) int {
	n := int((d.now(now) + slack) / createsPerOne)
	if d.score > 0 && now.Sub(d.at) < linger {
		return max(n, 1)
	}
	return n
}
