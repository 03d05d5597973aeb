//go:build !packed

package runsc

import (
	"math"
	"runtime/debug"
	"time"
)

// A start leaves megabytes of garbage behind, and Go, whose heaps begin at
// four, would stop to collect it. We let it lie: until startTime has passed, or
// a heap of startHeap bytes, whichever comes first. Afterwards everything is as
// Go has it, and what was not needed goes back to the host.
const (
	startHeap = 48 << 20 // less than what a machine may have beyond its user's memory
	startTime = time.Second
)

// startQuickly holds the garbage collector back while this process starts.
func startQuickly() {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(startHeap)
	if percent < 0 || limit != math.MaxInt64 { // set otherwise, by GOGC or GOMEMLIMIT
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
		return
	}
	time.AfterFunc(startTime, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}
