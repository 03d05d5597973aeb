package process

import (
	"sync"
	"time"
)

// This file counts the time in which a machine runs.
//
// Everything is safe for concurrent use.

// tick is how exactly an alarm counts.
const tick = time.Second

// alarm calls a function after a time in which the machine ran. A timer would
// do, but that a machine restored from a snapshot of days ago finds its clock
// moved on by days (gVisor's does), and every timer over: commands would go on
// before anybody has given the machine its own name.
type alarm struct {
	once sync.Once
	off  chan struct{}
}

// setAlarm calls f in a goroutine of its own once d has passed, unless Stop
// comes first.
func setAlarm(d time.Duration, f func()) *alarm {
	a := &alarm{off: make(chan struct{})}
	go func() {
		for left := d; left > 0; left -= tick {
			select {
			case <-time.After(min(left, tick)):
			case <-a.off:
				return
			}
		}
		f()
	}()
	return a
}

// Stop ends the alarm; a call of f under way is not waited for. It may be
// repeated, and called by f.
func (a *alarm) Stop() { a.once.Do(func() { close(a.off) }) }
