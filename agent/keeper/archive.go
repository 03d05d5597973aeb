package keeper

import (
	"context"
	"sync"

	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool/place"
)

// archive shows what left the prompt as files: whole results, and the
// conversation that a summary replaced. What is short enough to stand in the
// log itself is kept in memory; the rest are blobs.
type archive struct {
	files *place.Map
	texts *texts
}

func newArchive(blobs thread.Blobs) *archive {
	t := &texts{Blobs: blobs, known: map[string]string{}}
	return &archive{files: place.NewMap(t), texts: t}
}

func (a *archive) add(path string, f state.Archived) {
	if f.Blob == "" {
		f.Blob = a.texts.add(f.Text)
	}
	a.files.Apply(thread.FileChange{Path: path, Blob: f.Blob, Bytes: f.Bytes})
}

// texts are blobs, and texts that look like blobs.
type texts struct {
	thread.Blobs
	mu    sync.Mutex
	known map[string]string
}

func (t *texts) add(text string) string {
	hash := thread.Hash([]byte(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[hash] = text
	return hash
}

func (t *texts) find(hash string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok := t.known[hash]
	return text, ok
}

// Get implements thread.Blobs.
func (t *texts) Get(ctx context.Context, hash string) ([]byte, error) {
	if text, ok := t.find(hash); ok {
		return []byte(text), nil
	}
	return t.Blobs.Get(ctx, hash)
}

// ReadAt implements thread.Blobs.
func (t *texts) ReadAt(ctx context.Context, hash string, p []byte, off int64) (int, int64, error) {
	if text, ok := t.find(hash); ok {
		size := int64(len(text))
		return copy(p, text[min(max(off, 0), size):]), size, nil
	}
	return t.Blobs.ReadAt(ctx, hash, p, off)
}
