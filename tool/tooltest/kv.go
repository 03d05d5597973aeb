package tooltest

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"github.com/skete-dev/skete/errs"
)

// KV is a place.KV in memory. Every call lets others go first, as one over a
// network would. Safe for concurrent use.
type KV struct {
	mu      sync.Mutex
	last    uint64
	values  map[string][]byte
	numbers map[string]uint64
}

// NewKV returns an empty one.
func NewKV() *KV { return &KV{values: map[string][]byte{}, numbers: map[string]uint64{}} }

func (k *KV) lock() {
	for range 20 {
		runtime.Gosched()
	}
	k.mu.Lock()
}

func (k *KV) set(key string, value []byte) uint64 {
	k.last++
	k.values[key], k.numbers[key] = append([]byte(nil), value...), k.last
	return k.last
}

// Create implements place.KV.
func (k *KV) Create(_ context.Context, key string, value []byte) (uint64, error) {
	k.lock()
	defer k.mu.Unlock()
	if k.numbers[key] != 0 {
		return 0, errs.New(errs.Exists, "%s exists", key)
	}
	return k.set(key, value), nil
}

// Get implements place.KV.
func (k *KV) Get(_ context.Context, key string) ([]byte, uint64, error) {
	k.lock()
	defer k.mu.Unlock()
	if k.numbers[key] == 0 {
		return nil, 0, errs.New(errs.NotFound, "no %s", key)
	}
	return k.values[key], k.numbers[key], nil
}

// Update implements place.KV.
func (k *KV) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	k.lock()
	defer k.mu.Unlock()
	if revision == 0 || k.numbers[key] != revision {
		return 0, errs.New(errs.Conflict, "%s has moved", key)
	}
	return k.set(key, value), nil
}

// Delete implements place.KV.
func (k *KV) Delete(_ context.Context, key string, revision uint64) error {
	k.lock()
	defer k.mu.Unlock()
	if k.numbers[key] != 0 && k.numbers[key] != revision {
		return errs.New(errs.Conflict, "%s has moved", key)
	}
	delete(k.values, key)
	delete(k.numbers, key)
	return nil
}

// List implements place.KV.
func (k *KV) List(_ context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error {
	k.lock()
	values, numbers := map[string][]byte{}, map[string]uint64{}
	for key, n := range k.numbers {
		if strings.HasPrefix(key, prefix) {
			values[key], numbers[key] = k.values[key], n
		}
	}
	k.mu.Unlock()
	for key, v := range values {
		if err := visit(key, v, numbers[key]); err != nil {
			return err
		}
	}
	return nil
}
