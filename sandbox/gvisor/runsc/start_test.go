//go:build !packed

package runsc

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// now returns the two settings without changing them.
func now() (percent int, limit int64) {
	percent = debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	return percent, debug.SetMemoryLimit(-1)
}

func TestTheCollectorIsHeldBackForTheStartOnly(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	synctest.Test(t, func(t *testing.T) {
		startQuickly()
		if p, l := now(); p != -1 || l != startHeap {
			t.Errorf("at the start: %d, %d", p, l)
		}
		<-time.After(startTime) // of the bubble
		synctest.Wait()
		if p, l := now(); p != 100 || l != math.MaxInt64 {
			t.Errorf("afterwards: %d, %d", p, l)
		}
		debug.SetMemoryLimit(1 << 30) // GOMEMLIMIT
		startQuickly()
		if p, l := now(); p != 100 || l != 1<<30 {
			t.Errorf("what somebody set was changed: %d, %d", p, l)
		}
	})
}
