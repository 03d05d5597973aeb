package tool

import (
	"context"
	"sync"
	"time"
)

// clock ends a context after a time, in which pauses do not count.
type clock struct {
	outer *clock // of a context above
	end   func()

	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration // when the clock was started last
	since  time.Time
	pauses int
	over   bool
}

type clockKey struct{}

// WithTimeLimit returns a context that ends with a cause after a time. Unlike the time of
// context.WithTimeoutCause it stands still during a Pause. So the context has no deadline
// that could be told to another process.
func WithTimeLimit(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc) {
	outer, _ := ctx.Value(clockKey{}).(*clock)
	c := &clock{outer: outer, left: limit}
	limited, cancel := context.WithCancelCause(context.WithValue(ctx, clockKey{}, c))
	c.end = func() { cancel(cause) }
	c.mu.Lock()
	c.run()
	c.mu.Unlock()
	return limited, func() {
		c.stop()
		cancel(nil)
	}
}

// Pause stops the clocks of all limits of a context until resume: while a person is asked,
// say. Pauses may overlap.
func Pause(ctx context.Context) (resume func()) {
	first, _ := ctx.Value(clockKey{}).(*clock)
	for c := first; c != nil; c = c.outer {
		c.pause()
	}
	return sync.OnceFunc(func() {
		for c := first; c != nil; c = c.outer {
			c.resume()
		}
	})
}

// run starts the timer. Precondition: mu is held.
func (c *clock) run() {
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, c.end)
}

func (c *clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pauses++; c.pauses == 1 && !c.over {
		c.timer.Stop()
		c.left = max(c.left-time.Since(c.since), 0)
	}
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pauses--; c.pauses == 0 && !c.over {
		c.run()
	}
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
}
