package thread

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// BlobBytesMax bounds a blob.
const BlobBytesMax = 64 << 20

// Memory is a Log and Blobs of one tenant that live as long as the process.
// Events are kept as JSON, so that what comes out is what a disk would give.
type Memory struct {
	// Before and After, if set, are asked around each call ("append", "load",
	// "head", "delete", "put", "get") and may return an error for it. After an
	// append's After the events are there and only the caller does not know:
	// return errs.Unavailable for a lost acknowledgement. Set them before use.
	Before, After func(op string, id ID) error

	mu      sync.Mutex // guards what follows
	threads map[ID]*memThread
	blobs   map[string][]byte
}

// memThread is a thread; it stays as a tombstone when it is deleted.
type memThread struct {
	records [][]byte // of one append each
	firsts  []uint64 // the number of each record's first event
	head    uint64
	gone    bool
	// unsure is the record of an append whose caller was told Unavailable: the
	// same again is no second one.
	unsure  []byte
	changed chan struct{} // closed at the next change
}

// NewMemory returns an empty one.
func NewMemory() *Memory {
	return &Memory{threads: map[ID]*memThread{}, blobs: map[string][]byte{}}
}

func (m *Memory) begin(ctx context.Context, op string, id ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.Before != nil {
		return m.Before(op, id)
	}
	return nil
}

func (m *Memory) end(op string, id ID) error {
	if m.After != nil {
		return m.After(op, id)
	}
	return nil
}

// thread returns a thread, making its place if need be. mu is held.
func (m *Memory) thread(id ID) *memThread {
	t := m.threads[id]
	if t == nil {
		t = &memThread{changed: make(chan struct{})}
		m.threads[id] = t
	}
	return t
}

func errDeleted(id ID) error { return errs.New(errs.NotFound, "the thread %s was deleted", id) }

// Append implements Log.
func (m *Memory) Append(ctx context.Context, id ID, after uint64, events ...Event) (uint64, error) {
	if _, err := ParseID(string(id)); err != nil {
		return 0, err
	}
	if err := m.begin(ctx, "append", id); err != nil {
		return 0, err
	}
	record, err := Encode(after, events)
	if err != nil {
		return 0, err
	}
	head, err := m.append(id, after, record, uint64(len(events)))
	if err != nil {
		return 0, err
	}
	if err := m.end("append", id); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.thread(id).unsure = record
		return 0, err
	}
	return head, nil
}

func (m *Memory) append(id ID, after uint64, record []byte, n uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := id; at != ""; at, _ = at.Parent() {
		if t := m.threads[at]; t != nil && t.gone {
			return 0, errDeleted(at)
		}
	}
	t := m.thread(id)
	if t.head == 0 && after > 0 {
		return 0, errs.New(errs.NotFound, "no thread %s", id)
	}
	if t.unsure != nil && bytes.Equal(t.unsure, record) {
		if at, ok := slices.BinarySearch(t.firsts, after+1); ok && bytes.Equal(t.records[at], record) {
			t.unsure = nil
			return after + n, nil
		}
	}
	if t.head != after {
		return 0, errs.New(errs.Conflict, "the thread %s ends at event %d, not at %d", id, t.head, after)
	}
	t.records, t.firsts = append(t.records, record), append(t.firsts, after+1)
	t.head += n
	t.change()
	return t.head, nil
}

func (t *memThread) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Load implements Log.
func (m *Memory) Load(ctx context.Context, id ID, from uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := m.begin(ctx, "load", id); err != nil {
			yield(Event{}, err)
			return
		}
		records, first, _, _ := m.since(id, from, false)
		if _, ok := yieldRecords(ctx, records, first, from, yield); !ok {
			return
		}
		if err := m.end("load", id); err != nil {
			yield(Event{}, err)
		}
	}
}

// Watch implements Log.
func (m *Memory) Watch(ctx context.Context, id ID, from uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := m.begin(ctx, "watch", id); err != nil {
			yield(Event{}, err)
			return
		}
		for next := max(from, 1); ; {
			records, first, gone, changed := m.since(id, next, true)
			var ok bool
			if next, ok = yieldRecords(ctx, records, first, next, yield); !ok {
				return
			}
			if gone {
				yield(Event{}, errDeleted(id))
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(Event{}, ctx.Err())
				return
			}
		}
	}
}

// since returns the records that hold the events from number from on, the
// number of their first event, and, to those who stay, what tells of the next
// change.
func (m *Memory) since(id ID, from uint64, stay bool) (records [][]byte, first uint64, gone bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.threads[id]
	if t == nil && !stay {
		return nil, 0, false, nil
	}
	t = m.thread(id)
	if from <= t.head {
		at, exact := slices.BinarySearch(t.firsts, max(from, 1))
		if !exact {
			at--
		}
		records, first = t.records[at:len(t.records):len(t.records)], t.firsts[at]
	}
	return records, first, t.gone, t.changed
}

// yieldRecords yields the events from number from on and returns the number
// of the next one; false = the loop has ended.
func yieldRecords(ctx context.Context, records [][]byte, first, from uint64, yield func(Event, error) bool) (uint64, bool) {
	for _, record := range records {
		events, err := Decode(record, first)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(Event{}, err)
			return from, false
		}
		for _, e := range events {
			if e.Seq >= from && !yield(e, nil) {
				return from, false
			}
		}
		first += uint64(len(events))
		from = max(from, first)
	}
	return from, true
}

// Head implements Log.
func (m *Memory) Head(ctx context.Context, id ID) (uint64, error) {
	if err := m.begin(ctx, "head", id); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.threads[id]; t != nil {
		return t.head, nil
	}
	return 0, nil
}

// List implements Log.
func (m *Memory) List(ctx context.Context, root ID) iter.Seq2[ID, error] {
	return func(yield func(ID, error) bool) {
		if err := ctx.Err(); err != nil {
			yield("", err)
			return
		}
		m.mu.Lock()
		ids := slices.DeleteFunc(slices.Sorted(maps.Keys(m.threads)), func(id ID) bool {
			return m.threads[id].head == 0 || !id.Under(root)
		})
		m.mu.Unlock()
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// Delete implements Log.
func (m *Memory) Delete(ctx context.Context, id ID) error {
	if _, err := ParseID(string(id)); err != nil {
		return err
	}
	if err := m.begin(ctx, "delete", id); err != nil {
		return err
	}
	m.mu.Lock()
	for at, t := range m.threads {
		if at.Under(id) && t.head > 0 {
			changed := t.changed
			*t = memThread{gone: true, changed: make(chan struct{})}
			close(changed)
		}
	}
	m.mu.Unlock()
	return m.end("delete", id)
}

var hashForm = pattern.Lazy(`^[0-9a-f]{64}$`)

// ParseHash checks the form of a blob's hash.
func ParseHash(s string) (string, error) {
	if !hashForm().MatchString(s) {
		return "", errs.New(errs.Invalid, "%.80q is not the hash of a blob", s)
	}
	return s, nil
}

// Hash returns the hash that a blob of this content has.
func Hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Put implements Blobs.
func (m *Memory) Put(ctx context.Context, content []byte) (string, error) {
	if err := m.begin(ctx, "put", ""); err != nil {
		return "", err
	}
	if len(content) > BlobBytesMax {
		return "", errs.New(errs.Limit, "a blob of %d bytes is over %d", len(content), BlobBytesMax)
	}
	hash := Hash(content)
	m.mu.Lock()
	if _, ok := m.blobs[hash]; !ok {
		m.blobs[hash] = bytes.Clone(content)
	}
	m.mu.Unlock()
	return hash, m.end("put", "")
}

// Get implements Blobs.
func (m *Memory) Get(ctx context.Context, hash string) ([]byte, error) {
	b, err := m.blob(ctx, hash)
	return bytes.Clone(b), err
}

// ReadAt implements Blobs.
func (m *Memory) ReadAt(ctx context.Context, hash string, p []byte, off int64) (int, int64, error) {
	b, err := m.blob(ctx, hash)
	if err != nil {
		return 0, 0, err
	}
	if off < 0 {
		return 0, 0, errs.New(errs.Invalid, "a negative offset")
	}
	n, err := bytes.NewReader(b).ReadAt(p, off)
	return n, int64(len(b)), err
}

func (m *Memory) blob(ctx context.Context, hash string) ([]byte, error) {
	if _, err := ParseHash(hash); err != nil {
		return nil, err
	}
	if err := m.begin(ctx, "get", ""); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.blobs[hash]
	if !ok {
		return nil, errs.New(errs.NotFound, "no blob %.12s…", hash)
	}
	return b, nil
}

// Memories keeps a Memory for each tenant: a supervisor.Threads. The zero value is
// ready. Safe for concurrent use.
type Memories struct {
	mu      sync.Mutex
	tenants map[string]*Memory
}

// Of returns a tenant's memory.
func (ms *Memories) Of(tenant string) *Memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.tenants == nil {
		ms.tenants = map[string]*Memory{}
	}
	m := ms.tenants[tenant]
	if m == nil {
		m = NewMemory()
		ms.tenants[tenant] = m
	}
	return m
}

// Log returns a tenant's log.
func (ms *Memories) Log(_ context.Context, tenant string) (Log, error) { return ms.Of(tenant), nil }

// Blobs returns a tenant's blobs.
func (ms *Memories) Blobs(_ context.Context, tenant string) (Blobs, error) {
	return ms.Of(tenant), nil
}

// Under reports whether id is root or a sub-agent's thread beneath it; every
// id is under "".
func (id ID) Under(root ID) bool {
	return root == "" || id == root || strings.HasPrefix(string(id), string(root)+"/")
}
