package agent

import (
	"context"
	"sync"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool/backend"
)

// This file shows what left a thread's prompt as files: whole results, and
// the conversation that a summary replaced.
//
// Safe for concurrent use.

// offloaded is a place of files. What is short enough to stand in the log itself
// is kept in memory; the rest are blobs.
type offloaded struct {
	Files *backend.Map
	texts *offloadedTexts
}

// newOffloaded returns an archive without files.
func newOffloaded(blobs thread.Blobs) *offloaded {
	t := &offloadedTexts{Blobs: blobs, known: map[string]string{}}
	return &offloaded{Files: backend.NewMap(t), texts: t}
}

// Add puts a file into it.
func (a *offloaded) Add(path string, f runs.Archived) {
	if f.Blob == "" {
		f.Blob = a.texts.add(f.Text)
	}
	a.Files.Apply(thread.FileChange{Path: path, Blob: f.Blob, Bytes: f.Bytes})
}

// offloadedTexts are blobs, and texts that look like blobs.
type offloadedTexts struct {
	thread.Blobs
	mu    sync.Mutex
	known map[string]string
}

func (t *offloadedTexts) add(text string) string {
	hash := thread.Hash([]byte(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[hash] = text
	return hash
}

func (t *offloadedTexts) find(hash string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok := t.known[hash]
	return text, ok
}

// Get implements thread.Blobs.
func (t *offloadedTexts) Get(ctx context.Context, hash string) ([]byte, error) {
	if text, ok := t.find(hash); ok {
		return []byte(text), nil
	}
	return t.Blobs.Get(ctx, hash)
}

// ReadAt implements thread.Blobs.
func (t *offloadedTexts) ReadAt(ctx context.Context, hash string, p []byte, off int64) (int, int64, error) {
	if text, ok := t.find(hash); ok {
		size := int64(len(text))
		return copy(p, text[min(max(off, 0), size):]), size, nil
	}
	return t.Blobs.ReadAt(ctx, hash, p, off)
}
