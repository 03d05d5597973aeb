// Package archive shows what left a thread's prompt as files: whole results, and
// the conversation that a summary replaced.
//
//	a := archive.New(blobs)
//	a.Add("/large_tool_results/c1", state.Archived{Blob: hash, Bytes: n})
//	content, _, err := a.Files.Read(ctx, "/large_tool_results/c1", max)
//
// Safe for concurrent use.
package archive

import (
	"context"
	"sync"

	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool/place"
)

// Archive is a place of files. What is short enough to stand in the log itself
// is kept in memory; the rest are blobs.
type Archive struct {
	Files *place.Map
	texts *texts
}

// New returns an archive without files.
func New(blobs thread.Blobs) *Archive {
	t := &texts{Blobs: blobs, known: map[string]string{}}
	return &Archive{Files: place.NewMap(t), texts: t}
}

// Add puts a file into it.
func (a *Archive) Add(path string, f state.Archived) {
	if f.Blob == "" {
		f.Blob = a.texts.add(f.Text)
	}
	a.Files.Apply(thread.FileChange{Path: path, Blob: f.Blob, Bytes: f.Bytes})
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
