package declared

import (
	"sync"
	"time"

	"github.com/skete-dev/skete/tool"
)

// rates count calls. They are kept in memory: a server that was started anew counts from 0.
type rates struct {
	mu    sync.Mutex
	times map[string][]time.Time // of the calls that count, the oldest first
}

// take counts a call, or says how long it has to wait. A call that goes on after a crash was
// counted when it began.
func (r *rates) take(key string, limit Rate, req tool.Request, now time.Time) (wait time.Duration) {
	if limit.Calls == 0 || req.Again {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times == nil {
		r.times = map[string][]time.Time{}
	}
	times := r.times[key]
	for len(times) > 0 && now.Sub(times[0]) >= limit.Per {
		times = times[1:]
	}
	if len(times) >= limit.Calls {
		r.times[key] = times
		return max(limit.Per-now.Sub(times[0]), time.Second)
	}
	r.times[key] = append(times, now)
	return 0
}
