package recipe

import (
	"context"
	"sync"
)

// turns lets one at a time do what has a name; who waits may give up.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the one at work is done
}

func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	for {
		t.mu.Lock()
		other := t.busy[name]
		if other == nil {
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			t.busy[name] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, name)
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
