package task

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// oomWindow is how far back a rise of the kernel's count is taken for the end
// of a process that has just been told.
const oomWindow = 250 * time.Millisecond

// OOMs follows how many processes the kernel has ended for want of memory. The
// count is the whole kernel's, a container's is its host's: so only what was
// counted just now says something about a process that was killed just now, and
// in a container it may be another's.
// All methods are safe for concurrent use.
type OOMs struct {
	mu           sync.Mutex
	before, last int64
	at           time.Time

	none atomic.Bool // the kernel has no such count, as gVisor's
}

// Look takes the count; call it often while processes run, and first when the
// first of them begins.
func (o *OOMs) Look() {
	if o.none.Load() {
		return
	}
	vmstat := Read("/proc/vmstat")
	if vmstat == "" {
		o.none.Store(true)
		return
	}
	o.look(oomKills(vmstat), time.Now())
}

func (o *OOMs) look(n int64, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch age := now.Sub(o.at); {
	case age > 4*oomWindow: // nothing ran meanwhile
		o.before, o.last, o.at = n, n, now
	case age > oomWindow:
		o.before, o.last, o.at = o.last, n, now
	}
}

// Rose reports whether the count has risen just now, once for each that was
// counted.
func (o *OOMs) Rose() bool {
	return !o.none.Load() && o.rose(oomKills(Read("/proc/vmstat")), time.Now())
}

func (o *OOMs) rose(n int64, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n <= o.before || now.Sub(o.at) > 4*oomWindow {
		return false
	}
	o.before++ // each is one process's
	o.last = max(o.last, o.before)
	return true
}

// oomKills finds the count in a vmstat; 0 = there is none, as in gVisor.
func oomKills(vmstat string) int64 {
	for line := range strings.Lines(vmstat) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return n
		}
	}
	return 0
}
