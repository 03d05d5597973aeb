package patience

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What the reference takes for the two pieces of work.
const (
	workRef  = 3 * time.Millisecond
	wakesRef = 4 * time.Millisecond
)

const (
	measureEvery = time.Second // as often as anyone asks
	decay        = 0.8         // a measurement that fell into a quiet moment counts for little
)

// meter keeps the last measurement.
type meter struct {
	mu   sync.Mutex
	at   time.Duration // of the machine's clock
	last float64
}

func (m *meter) factor() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := monotonic(); m.last == 0 || now-m.at > measureEvery {
		m.last = max(min(measure(), factorMax), 1, m.last*decay)
		m.at = monotonic()
	}
	return m.last
}

// measure takes some milliseconds. The pieces of work tell what an idle machine
// can do; they are too short to feel all of its load, since a scheduler prefers
// who has slept.
func measure() float64 {
	cpu := clocked(work)
	wakes := clocked(wake)
	return max(float64(cpu)/float64(workRef), float64(wakes)/float64(wakesRef), load())
}

func clocked(f func()) time.Duration {
	began := monotonic()
	f()
	return monotonic() - began
}

// monotonic is the machine's clock, in a bubble of synctest too.
func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// work is what Go programs do: memory, branches, some allocation.
func work() {
	x := uint64(88172645463325252)
	for range 4 {
		list := make([]uint64, 1<<13)
		for i := range list {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			list[i] = x
		}
		slices.Sort(list)
	}
}

// wake hands a token between two threads, which sleep in between: how long
// that takes differs more from host to host than all else.
func wake() {
	const rounds = 100
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for range there {
			back <- struct{}{}
		}
		close(back)
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range rounds {
		there <- struct{}{}
		<-back
	}
	close(there)
	<-back
}

// load is how many tasks want each core, now or over the last minute; 0 =
// unknown.
func load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var minute, five, fifteen float64
	var now, all int
	if _, err := fmt.Sscanf(string(data), "%g %g %g %d/%d", &minute, &five, &fifteen, &now, &all); err != nil {
		return 0
	}
	return max(minute, float64(now-1)) / float64(runtime.NumCPU()) // we are one of them
}
