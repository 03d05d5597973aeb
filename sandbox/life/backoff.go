package life

import "time"

const (
	backoffMin = time.Second
	backoffMax = 5 * time.Minute
)

// backoff says when work that is done by itself and fails may be tried again.
// The zero value is ready; its owner's lock guards it.
type backoff struct {
	failures int       // in a row
	until    time.Time // monotonic
}

// Note takes in how work ended.
func (b *backoff) Note(err error) {
	if err == nil {
		*b = backoff{}
		return
	}
	b.until = time.Now().Add(min(backoffMin<<min(b.failures, 10), backoffMax))
	b.failures++
}

// Put returns at, or the moment before which nothing is tried; the zero time,
// which is never, stays.
func (b *backoff) Put(at time.Time) time.Time {
	if !at.IsZero() && at.Before(b.until) {
		return b.until
	}
	return at
}
