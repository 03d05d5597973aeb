package template

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"
)

// sweepKey is locked by who publishes or deletes trees, between processes.
const sweepKey = "sweep"

// Swept says what a sweep removed.
type Swept struct {
	Trees, Images, Blobs int
	Bytes                int64 // of images and blobs
}

// Usage is what a store takes of the disk.
type Usage struct {
	Trees, Images, Blobs             int
	TreeBytes, ImageBytes, BlobBytes int64
}

// partialsKept is how long a pull that does not go on is kept.
const partialsKept = 24 * time.Hour

// GC removes trees, images and blobs that no template and no machine needs;
// with all set also what was fetched of pulls that did not end.
func (s *Store) GC(_ context.Context, all bool) (Swept, error) {
	var swept Swept
	var wanted []record
	err := s.alone(func() error {
		var err error
		if swept, err = s.sweep(); err != nil {
			return err
		}
		wanted, err = s.records()
		return err
	})
	if err != nil {
		return swept, err
	}
	older := partialsKept
	if all {
		older = 0
	}
	blobs, err := s.blobs.Sweep(func(digest string) bool {
		return slices.ContainsFunc(wanted, func(r record) bool { return slices.Contains(r.Blobs, digest) })
	}, older)
	swept.Blobs += blobs.Blobs
	swept.Bytes += blobs.Bytes
	return swept, err
}

// sweep deletes trees, lists and images that no name has and no machine uses.
// alone holds the locks.
func (s *Store) sweep() (swept Swept, err error) {
	if s.inUse == nil {
		return swept, nil
	}
	wanted, err := s.records()
	if err != nil {
		return swept, err
	}
	needed := func(hash string) bool {
		return hash == s.host.Hash || s.inUse(hash) || slices.ContainsFunc(wanted, func(r record) bool { return r.Hash == hash })
	}
	var all error
	for dir, count := range map[string]*int{treesDir: &swept.Trees, listsDir: nil, imagesDir: &swept.Images, madeDir: nil} {
		entries, err := os.ReadDir(s.Path(dir))
		if err != nil {
			return swept, err
		}
		for _, e := range entries {
			if needed(s.hashOf(dir, e.Name())) {
				continue
			}
			if info, err := e.Info(); err == nil && dir == imagesDir {
				swept.Bytes += info.Size()
			}
			if count != nil {
				*count++
			}
			all = errors.Join(all, s.Discard(s.Path(dir, e.Name())))
		}
	}
	return swept, all
}

// hashOf is the tree that something in a store's directory belongs to.
func (s *Store) hashOf(dir, name string) string {
	if dir == madeDir {
		r, _ := s.made(name)
		return r.Hash
	}
	hash, _, _ := strings.Cut(strings.TrimPrefix(name, hostPrefix), ".")
	return hash
}

// Usage counts what is kept. The template host's small tree is not counted.
func (s *Store) Usage(_ context.Context) (Usage, error) {
	var u Usage
	records, err := s.records()
	if err != nil {
		return u, err
	}
	seen := map[string]bool{}
	for _, r := range records {
		if !seen[r.Hash] {
			seen[r.Hash] = true
			u.Trees++
			u.TreeBytes += r.Bytes
		}
	}
	entries, err := os.ReadDir(s.Path(imagesDir))
	if err != nil {
		return u, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			u.Images++
			u.ImageBytes += info.Size()
		}
	}
	b, err := s.blobs.Usage()
	u.Blobs, u.BlobBytes = b.Blobs, b.Bytes
	return u, err
}
