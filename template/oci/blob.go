package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// This file keeps content by its SHA-256 digest, fetched in pieces if need be.
//
// What is in the cache was checked when it came. A fetch that was cut off or
// killed goes on where it was. Of several that want the same, in other
// processes too, one works and the others wait; when it gives up, the next
// goes on.

const (
	wholeDir   = "sha256"
	partialDir = "partial"
	usedKey    = "used" // shared by who needs blobs that no template names yet
)

// Wanted says which content is wanted.
type Wanted struct {
	Digest string // "sha256:" and 64 hex digits
	Size   int64
}

// BlobSource opens the content at an offset; from is that offset, or 0 when it can
// only begin at the begin.
type BlobSource func(ctx context.Context, offset int64) (r io.ReadCloser, from int64, err error)

// errDigest is content that is not what its name says.
var errDigest = errors.New("the content is not what its digest says")

// errShort is content that ended early.
var errShort = errors.New("the content ended early")

// BlobCache is a directory of blobs.
type BlobCache struct{ shelf *DirStore }

// OpenBlobs makes the directory if need be.
func OpenBlobs(dir string) (*BlobCache, error) {
	s, err := OpenDirStore(dir, wholeDir, partialDir)
	if err != nil {
		return nil, err
	}
	return &BlobCache{s}, nil
}

var digestForm = pattern.Lazy(`^sha256:[0-9a-f]{64}$`)

// checkDigest refuses what is not a SHA-256 digest.
func checkDigest(digest string) error {
	if !digestForm().MatchString(digest) {
		return errs.New(errs.Unsupported, "%.100q is not a SHA-256 digest", digest)
	}
	return nil
}

func (c *BlobCache) path(digest string) string {
	return c.shelf.Path(wholeDir, strings.TrimPrefix(digest, "sha256:"))
}

func (c *BlobCache) partial(digest string) string {
	return c.shelf.Path(partialDir, strings.TrimPrefix(digest, "sha256:"))
}

// Has returns the path of content that is there whole.
func (c *BlobCache) Has(w Wanted) (string, bool) {
	info, err := os.Stat(c.path(w.Digest))
	return c.path(w.Digest), err == nil && info.Size() == w.Size
}

// Use keeps every blob from being swept until release.
func (c *BlobCache) Use(ctx context.Context) (release func(), err error) {
	return c.shelf.Share(ctx, usedKey)
}

// Fetch makes one attempt to have the content whole. done is called with the
// number of bytes that are there, also while another goroutine or process
// fetches them. ErrShort and errors of the source may be tried again; ErrDigest
// may not.
func (c *BlobCache) Fetch(ctx context.Context, w Wanted, open BlobSource, done func(int64)) (string, error) {
	if err := checkDigest(w.Digest); err != nil {
		return "", err
	}
	unlock, err := c.shelf.LockWatching(ctx, filepath.Base(c.partial(w.Digest)), func() {
		if info, err := os.Stat(c.partial(w.Digest)); err == nil {
			done(min(info.Size(), w.Size))
		}
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if path, ok := c.Has(w); ok {
		done(w.Size)
		return path, nil
	}
	if err := c.fetch(ctx, w, open, done); err != nil {
		return "", err
	}
	done(w.Size)
	return c.path(w.Digest), os.Rename(c.partial(w.Digest), c.path(w.Digest))
}

// fetch completes the partial file. One that turns out to be wrong is fetched
// once more from its begin, since the fault may be that of an older try.
func (c *BlobCache) fetch(ctx context.Context, w Wanted, open BlobSource, done func(int64)) error {
	f, err := os.OpenFile(c.partial(w.Digest), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	had, err := io.Copy(h, io.LimitReader(f, w.Size+1))
	if err != nil {
		return err
	}
	err = complete(ctx, f, h, had, w, open, done)
	if errors.Is(err, errDigest) && had > 0 {
		h.Reset()
		err = complete(ctx, f, h, 0, w, open, done)
	}
	if errors.Is(err, errDigest) {
		_ = os.Remove(f.Name())
	}
	if err != nil {
		return err
	}
	return f.Sync()
}

// complete appends to what is there from offset had on, which h has seen.
func complete(ctx context.Context, f *os.File, h hash.Hash, had int64, w Wanted, open BlobSource, done func(int64)) error {
	if had > w.Size {
		return errDigest
	}
	if had < w.Size || w.Size == 0 {
		r, from, err := open(ctx, had)
		if err != nil {
			return err
		}
		defer r.Close()
		if from != 0 && from != had {
			return fmt.Errorf("the source begins at %d instead of %d", from, had)
		}
		if from == 0 {
			h.Reset()
			had = 0
		}
		if had, err = take(ctx, f, h, had, w, r, done); err != nil {
			return err
		}
	}
	if had < w.Size {
		return errShort
	}
	if "sha256:"+hex.EncodeToString(h.Sum(nil)) != w.Digest {
		return errDigest
	}
	return nil
}

func take(ctx context.Context, f *os.File, h hash.Hash, at int64, w Wanted, r io.Reader, done func(int64)) (int64, error) {
	if err := f.Truncate(at); err != nil {
		return at, err
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return at, err
	}
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		n, readErr := r.Read(buf)
		if at+int64(n) > w.Size {
			return at, errDigest // longer than it may be
		}
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return at, err
			}
			_, _ = h.Write(buf[:n])
			at += int64(n)
			done(at)
		}
		if errors.Is(readErr, io.EOF) {
			return at, nil
		}
		if readErr != nil {
			return at, readErr
		}
	}
}

// BlobUsage says how much is kept.
type BlobUsage struct {
	Blobs int
	Bytes int64 // partial ones included
}

// Usage counts what is there.
func (c *BlobCache) Usage() (BlobUsage, error) {
	var u BlobUsage
	err := c.each(func(_ string, info os.FileInfo, _ bool) error {
		u.Blobs++
		u.Bytes += info.Size()
		return nil
	})
	return u, err
}

// Sweep removes what is not needed, and partial blobs that were not written to
// for so long. While the cache is in use (Use) nothing is removed.
func (c *BlobCache) Sweep(needed func(digest string) bool, partialsOlderThan time.Duration) (removed BlobUsage, err error) {
	unlock, err := c.shelf.TryAlone(usedKey)
	if unlock == nil {
		return BlobUsage{}, err
	}
	defer unlock()
	err = c.each(func(path string, info os.FileInfo, whole bool) error {
		if whole && needed("sha256:"+filepath.Base(path)) || !whole && time.Since(info.ModTime()) < partialsOlderThan {
			return nil
		}
		removed.Blobs++
		removed.Bytes += info.Size()
		return os.Remove(path)
	})
	return removed, err
}

func (c *BlobCache) each(visit func(path string, info os.FileInfo, whole bool) error) error {
	for _, dir := range []string{wholeDir, partialDir} {
		entries, err := os.ReadDir(c.shelf.Path(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			info, err := e.Info()
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				err = visit(c.shelf.Path(dir, e.Name()), info, dir == wholeDir)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
