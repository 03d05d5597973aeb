package microvm

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file knows the rate of this machine's time stamp counter, which a
// virtual machine without a timer to measure it by must be told.

// tscMeasureFor is how long the counter is watched where /proc/cpuinfo does not tell
// its rate.
const tscMeasureFor = 50 * time.Millisecond

// TSCKHz returns the rate of this machine's time stamp counter, 0 where there
// is none. A machine that we are a guest of tells it as the CPU's MHz (it does
// not scale it); elsewhere that figure is the clock of the moment, and the
// counter is measured once.
var TSCKHz = sync.OnceValue(func() int {
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		if khz := khzOfCPUInfo(bufio.NewScanner(f)); khz > 0 {
			return khz
		}
	}
	return measureTSC(tscMeasureFor)
})

// khzOfCPUInfo reads the first processor. 0: the figure cannot be trusted.
func khzOfCPUInfo(s *bufio.Scanner) int {
	khz, trusted := 0, false
	for s.Scan() && s.Text() != "" {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "cpu MHz":
			mhz, err := strconv.ParseFloat(value, 64)
			if err == nil && mhz > 100 && mhz < 20_000 {
				khz = int(mhz*1000 + 0.5)
			}
		case "flags":
			flags := " " + value + " "
			trusted = strings.Contains(flags, " hypervisor ") && strings.Contains(flags, " constant_tsc ") && !strings.Contains(flags, " aperfmperf ")
		}
	}
	if !trusted {
		return 0
	}
	return khz
}

// measureTSC counts over a while. A reading that was interrupted between the
// two clocks is read again.
func measureTSC(d time.Duration) int {
	t0, c0 := readTSCAndClock()
	if c0 == 0 {
		return 0
	}
	<-time.After(d)
	t1, c1 := readTSCAndClock()
	return int(float64(c1-c0) / t1.Sub(t0).Seconds() / 1000)
}

// readTSCAndClock returns the closest of a few pairs of readings.
func readTSCAndClock() (best time.Time, count uint64) {
	closest := time.Duration(1 << 62)
	for range 10 {
		before := time.Now()
		c := readTSC()
		if gap := time.Since(before); gap < closest {
			closest, best, count = gap, before.Add(gap/2), c
		}
	}
	return best, count
}
