package history

import (
	"context"
	"sync"
	"time"
)

// looks bounds how many look at files at the same time for one key, a tenant or
// a sandbox. The host reads, hashes and writes what guests have changed; so a
// tenant whose guests change much waits for itself, and not others for it.
type looks struct {
	most int

	mu  sync.Mutex // guards all below; held for a moment only
	all map[string]*slots
	// took is how long all looks of a key took together; nil = not counted.
	took map[string]time.Duration
}

type slots struct {
	free  chan struct{}
	users int // who looks, and who waits to
}

// begin waits for the key's turn to look, and returns what ends the look.
func (l *looks) begin(ctx context.Context, key string) (done func(), err error) {
	l.mu.Lock()
	if l.all == nil {
		l.all = map[string]*slots{}
	}
	t := l.all[key]
	if t == nil {
		t = &slots{free: make(chan struct{}, l.most)}
		l.all[key] = t
	}
	t.users++
	l.mu.Unlock()
	if err := take(ctx, t.free); err != nil {
		l.leave(key, t)
		return nil, err
	}
	began := time.Now()
	return func() {
		<-t.free
		l.count(key, time.Since(began))
		l.leave(key, t)
	}, nil
}

func (l *looks) count(key string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.took != nil {
		l.took[key] += took
	}
}

// Took is how long this server has looked at the files of a tenant's guests, and
// kept what they changed, since it started. Looks at the same time count each.
func (s *Service) Took(tenant string) time.Duration {
	s.looks.mu.Lock()
	defer s.looks.mu.Unlock()
	return s.looks.took[tenant]
}

func (l *looks) leave(key string, t *slots) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.all, key)
	}
}
