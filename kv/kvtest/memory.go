package kvtest

import (
	"bytes"
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// Memory is a kv.Store for tests. It outlives what is opened on it, as a disk
// would, and can be told to fail.
type Memory struct {
	// Fail, if set, is asked before each call ("create", "get", "update",
	// "delete", "list", "watch") and before each change that a watch tells
	// ("tell"), and may return an error for it. Set it before use.
	Fail func(op, key string) error

	mu       sync.Mutex
	entries  map[string]entry
	revision uint64
	changes  []kv.Change   // since the beginning
	more     chan struct{} // closed with the next change
}

type entry struct {
	value    []byte
	revision uint64
}

// NewMemory returns an empty one.
func NewMemory() *Memory {
	return &Memory{entries: map[string]entry{}, more: make(chan struct{})}
}

func (m *Memory) begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if op == "list" || op == "watch" {
		if key != "" && !strings.HasSuffix(key, "/") {
			return errs.New(errs.Invalid, "prefix %.64q does not end in a slash", key)
		}
	} else if key == "" || len(key) > 512 || slices.Contains(strings.Split(key, "/"), "") {
		return errs.New(errs.Invalid, "bad key %.64q", key)
	}
	for range 20 { // lets others go first, as a network would
		runtime.Gosched()
	}
	if m.Fail != nil {
		return m.Fail(op, key)
	}
	return nil
}

// Create implements kv.Store.
func (m *Memory) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := m.begin(ctx, "create", key); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.entries[key]; ok {
		return 0, errs.New(errs.Exists, "%.64q exists already", key)
	}
	return m.set(key, value), nil
}

// Get implements kv.Store.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	if err := m.begin(ctx, "get", key); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok {
		return nil, 0, errs.New(errs.NotFound, "no key %.64q", key)
	}
	return bytes.Clone(e.value), e.revision, nil
}

// Update implements kv.Store.
func (m *Memory) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := m.begin(ctx, "update", key); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.entries[key]; !ok || e.revision != revision {
		return 0, errs.New(errs.Conflict, "another writer has changed it")
	}
	return m.set(key, value), nil
}

// Delete implements kv.Store.
func (m *Memory) Delete(ctx context.Context, key string, revision uint64) error {
	if err := m.begin(ctx, "delete", key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if ok && e.revision != revision {
		return errs.New(errs.Conflict, "another writer has changed it")
	}
	delete(m.entries, key)
	m.revision++
	m.tell(kv.Change{Key: key, Revision: m.revision, Deleted: true})
	return nil
}

// List implements kv.Store.
func (m *Memory) List(ctx context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error {
	if err := m.begin(ctx, "list", prefix); err != nil {
		return err
	}
	m.mu.Lock()
	found := map[string]entry{}
	for key, e := range m.entries {
		if strings.HasPrefix(key, prefix) {
			found[key] = e
		}
	}
	m.mu.Unlock()
	for key, e := range found {
		if err := visit(key, bytes.Clone(e.value), e.revision); err != nil {
			return err
		}
	}
	return nil
}

// Watch implements kv.Store.
func (m *Memory) Watch(ctx context.Context, prefix string, visit func(kv.Change) error) error {
	if err := m.begin(ctx, "watch", prefix); err != nil {
		return err
	}
	m.mu.Lock()
	var list []kv.Change
	for key, e := range m.entries {
		if strings.HasPrefix(key, prefix) {
			list = append(list, kv.Change{Key: key, Value: e.value, Revision: e.revision})
		}
	}
	told, more := len(m.changes), m.more
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b kv.Change) int { return cmp.Compare(a.Revision, b.Revision) })
	for list = append(list, kv.Change{Synced: true}); ; {
		for _, c := range list {
			if !c.Synced && !strings.HasPrefix(c.Key, prefix) {
				continue
			}
			if m.Fail != nil {
				if err := m.Fail("tell", c.Key); err != nil {
					return err
				}
			}
			c.Value = bytes.Clone(c.Value)
			if err := visit(c); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
		m.mu.Lock()
		list, told, more = m.changes[told:], len(m.changes), m.more
		m.mu.Unlock()
	}
}

func (m *Memory) tell(c kv.Change) {
	m.changes = append(m.changes, c)
	close(m.more)
	m.more = make(chan struct{})
}

func (m *Memory) set(key string, value []byte) uint64 {
	m.revision++
	m.entries[key] = entry{bytes.Clone(value), m.revision}
	m.tell(kv.Change{Key: key, Value: m.entries[key].value, Revision: m.revision})
	return m.revision
}
