package process

import (
	"testing"
	"testing/synctest"
	"time"
)

// Commands that stand still are looked at less and less often; what moves, or a
// new command, is looked at as often as before.
func TestPace(t *testing.T) {
	const limit, fine = 1 << 30, 5 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var p pace
		look := func(used int64, commands int, want time.Duration) {
			t.Helper()
			if got := p.slow(fine, used, limit, commands); got != want {
				t.Errorf("the next look is after %v, want %v", got, want)
			}
		}
		look(50<<20, 1, fine)
		<-time.After(800 * time.Millisecond)
		look(50<<20+limit/memoryMoves, 1, 100*time.Millisecond)
		<-time.After(time.Hour)
		look(50<<20, 1, memoryStill)
		look(50<<20+limit/memoryMoves+1, 1, fine)
		<-time.After(time.Hour)
		look(50<<20+limit/memoryMoves+1, 2, fine)
		<-time.After(time.Hour)
		look(40<<20, 2, fine)
		<-time.After(time.Hour) // it would be full before a later look
		look(limit/100*memoryPercent-100e6, 2, fine)
		<-time.After(time.Hour)
		look(limit/100*memoryPercent-100e6, 2, 100*time.Millisecond)
		<-time.After(time.Hour)
		look(limit, 2, fine)
		<-time.After(time.Hour)
		look(limit, 2, fine)
	})
}
