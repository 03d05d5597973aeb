// Package keylock holds one lock for each key in use.
//
//	var locks keylock.Locks[string]
//	defer locks.Lock("a")()
//
// The zero value is ready. Safe for concurrent use; a key costs memory only
// while a goroutine has or awaits its lock.
package keylock

import "sync"

// Locks is a set of locks by key.
type Locks[K comparable] struct {
	mu   sync.Mutex // held for a moment only; never while a key's lock is awaited
	held map[K]*lock
}

type lock struct {
	mu    sync.Mutex
	users int
}

// Lock waits for a key's lock and returns what releases it.
func (l *Locks[K]) Lock(key K) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[K]*lock{}
	}
	p := l.held[key]
	if p == nil {
		p = &lock{}
		l.held[key] = p
	}
	p.users++
	l.mu.Unlock()
	p.mu.Lock()
	return func() {
		p.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(l.held, key)
		}
	}
}
