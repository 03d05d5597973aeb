package kvtest

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/skete-dev/skete/errs"
)

// Memory is a kv.Store for tests. It outlives what is opened on it, as a disk
// would, and can be told to fail.
type Memory struct {
	// Fail, if set, is asked before each call ("create", "get", "update",
	// "delete", "list") and may return an error for it. Set it before use.
	Fail func(op, key string) error

	mu       sync.Mutex
	entries  map[string]entry
	revision uint64
}

type entry struct {
	value    []byte
	revision uint64
}

// NewMemory returns an empty one.
func NewMemory() *Memory { return &Memory{entries: map[string]entry{}} }

func (m *Memory) begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if op != "list" && (key == "" || len(key) > 512 || slices.Contains(strings.Split(key, "/"), "")) {
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
	return nil
}

// List implements kv.Store.
func (m *Memory) List(ctx context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error {
	if err := m.begin(ctx, "list", prefix); err != nil {
		return err
	}
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		return errs.New(errs.Invalid, "prefix %.64q does not end in a slash", prefix)
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

func (m *Memory) set(key string, value []byte) uint64 {
	m.revision++
	m.entries[key] = entry{bytes.Clone(value), m.revision}
	return m.revision
}
