package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Bounds of a Map. Every change is an entry of one event, so a call may make
// only so many.
const (
	mapFilesMax     = 10_000
	mapFileBytesMax = 16 << 20
	mapDeleteMax    = 100
)

// Map is the files of one thread: paths and hashes of blobs, computed from its
// log. A write puts the blob first and then tells the agent
// (tool.RecordFile), which logs the change with the call's result;
// without a recorder, it is refused.
type Map struct {
	blobs thread.Blobs

	mu     sync.Mutex
	files  map[string]tool.FileInfo
	sorted index // nil = to be made anew
}

// NewMap returns an empty map; Apply fills it from the log.
func NewMap(blobs thread.Blobs) *Map {
	return &Map{blobs: blobs, files: map[string]tool.FileInfo{}}
}

// Apply takes over changes that are in the log already. Later ones win.
func (m *Map) Apply(changes ...thread.FileChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		m.set(c, time.Time{})
	}
}

func (m *Map) set(c thread.FileChange, at time.Time) {
	m.sorted = nil
	if c.Blob == "" {
		delete(m.files, c.Path)
		return
	}
	m.files[c.Path] = tool.FileInfo{Path: c.Path, Bytes: c.Bytes, Hash: c.Blob, Modified: at}
}

// index is sorted once per change. The slice is never changed afterwards.
func (m *Map) index() index {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.indexLocked()
}

func (m *Map) indexLocked() index {
	if m.sorted == nil {
		m.sorted = make(index, 0, len(m.files))
		for _, f := range m.files {
			m.sorted = append(m.sorted, f)
		}
		slices.SortFunc(m.sorted, func(a, b tool.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	}
	return m.sorted
}

// List implements tool.Files.
func (m *Map) List(_ context.Context, dir string) ([]tool.FileInfo, error) {
	return m.index().list(dir)
}

// Stat implements tool.Files.
func (m *Map) Stat(_ context.Context, p string) (tool.FileInfo, error) { return m.index().stat(p) }

// Read implements tool.Files.
func (m *Map) Read(ctx context.Context, p string, limit int64) ([]byte, string, error) {
	f, err := m.index().file(p)
	if err != nil {
		return nil, "", err
	}
	if f.Bytes > limit {
		return nil, "", fail(tool.CodeTooLarge, p, fmt.Sprintf("it has %d bytes", f.Bytes))
	}
	content, err := m.content(ctx, f)
	return content, f.Hash, err
}

func (m *Map) content(ctx context.Context, f tool.FileInfo) ([]byte, error) {
	content, err := m.blobs.Get(ctx, f.Hash)
	if err != nil {
		return nil, fmt.Errorf("read a file of the thread: %w", err)
	}
	return content, nil
}

// ReadAt implements tool.Files.
func (m *Map) ReadAt(ctx context.Context, p string, off int64, limit int) ([]byte, int64, error) {
	f, err := m.index().file(p)
	if err != nil || off < 0 || limit <= 0 {
		return nil, f.Bytes, err
	}
	return blobAt(ctx, m.blobs, f, off, limit)
}

func blobAt(ctx context.Context, blobs thread.Blobs, f tool.FileInfo, off int64, limit int) ([]byte, int64, error) {
	if off >= f.Bytes {
		return nil, f.Bytes, nil
	}
	buf := make([]byte, min(int64(limit), f.Bytes-off))
	n, size, err := blobs.ReadAt(ctx, f.Hash, buf, off)
	if n < len(buf) && err != nil {
		return nil, 0, fmt.Errorf("read a file: %w", err)
	}
	return buf[:n], size, nil
}

// Write implements tool.Files.
func (m *Map) Write(ctx context.Context, p string, content []byte, ifHash string) (string, error) {
	if len(content) > mapFileBytesMax {
		return "", fail(tool.CodeTooLarge, p, fmt.Sprintf("a file here has at most %d bytes", mapFileBytesMax))
	}
	hash, err := m.blobs.Put(ctx, content)
	if err != nil {
		return "", fmt.Errorf("write a file of the thread: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.indexLocked().mayWrite(p); err != nil {
		return "", err
	}
	old, exists := m.files[p]
	if err := expected(p, ifHash, old.Hash, exists); err != nil {
		return "", err
	}
	if !exists && len(m.files) >= mapFilesMax {
		return "", fail(tool.CodeTooLarge, p, fmt.Sprintf("there are %d files here, no more are possible", mapFilesMax))
	}
	return hash, m.record(ctx, thread.FileChange{Path: p, Blob: hash, Bytes: int64(len(content))})
}

func (m *Map) record(ctx context.Context, c thread.FileChange) error {
	if !tool.RecordFile(ctx, c) {
		return errs.New(errs.Denied, "changes of the thread's files are not recorded here")
	}
	m.set(c, time.Now())
	return nil
}

// Delete implements tool.Files.
func (m *Map) Delete(ctx context.Context, p string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.indexLocked()
	if _, ok := x.find(p); ok {
		return m.record(ctx, thread.FileChange{Path: p})
	}
	in := x.beneath(p)
	switch {
	case len(in) == 0:
		return x.missing(p)
	case len(in) > mapDeleteMax:
		return fail(tool.CodeTooLarge, p, fmt.Sprintf("there are %d files beneath it; delete at most %d at once", len(in), mapDeleteMax))
	}
	for _, f := range in {
		if err := m.record(ctx, thread.FileChange{Path: f.Path}); err != nil {
			return err
		}
	}
	return nil
}

// Glob implements tool.Files.
func (m *Map) Glob(_ context.Context, dir, pattern string, limit int) ([]tool.FileInfo, bool, error) {
	return m.index().glob(dir, pattern, limit)
}

// Grep implements tool.Files.
func (m *Map) Grep(ctx context.Context, dir string, pattern tool.Pattern, glob string, limit int) ([]tool.Match, bool, error) {
	return m.index().grep(ctx, dir, pattern, glob, limit, m.content)
}
