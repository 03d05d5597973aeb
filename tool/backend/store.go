package backend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Bounds of a Store.
const (
	storePathBytesMax = 200
	storeFileBytesMax = 16 << 20
	inlineBytesMax    = 32 << 10 // content that is kept in the record itself
	triesMax          = 10
)

// Store is files that outlive threads: /memories. Every file is a record of a
// kv.Store, so a write that expects a hash is decided by the record's revision, for
// all servers that share it. Content up to 32 KiB stands in the record, more
// is a blob.
type Store struct {
	kv    kv.Store
	blobs thread.Blobs
	in    string // prefix of the keys, without "/"
}

// NewStore returns the files of a namespace, which is a path without "/" in
// front: two namespaces share nothing, unless one is beneath the other.
func NewStore(kv kv.Store, blobs thread.Blobs, namespace string) *Store {
	return &Store{kv: kv, blobs: blobs, in: strings.Trim(namespace, "/")}
}

// record is the value of a file's key.
type record struct {
	V        int       `json:"v"`
	Hash     string    `json:"hash"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
	Blob     bool      `json:"blob,omitempty"` // the content is the blob Hash
	Content  []byte    `json:"content,omitempty"`
}

func (r record) info(p string) tool.FileInfo {
	return tool.FileInfo{Path: p, Bytes: r.Bytes, Hash: r.Hash, Modified: r.Modified}
}

func parse(p string, value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil || r.V != 1 {
		return r, errs.Wrap(errs.Corrupt, err, "the record of the stored file %.200q cannot be read", p)
	}
	return r, nil
}

func (s *Store) key(p string) string { return s.in + p }

// get reads a record. NotFound (errs): there is none.
func (s *Store) get(ctx context.Context, p string) (record, uint64, error) {
	if len(p) > storePathBytesMax || p == "/" {
		return record{}, 0, errs.New(errs.NotFound, "no such file")
	}
	value, revision, err := s.kv.Get(ctx, s.key(p))
	if err != nil {
		return record{}, 0, err
	}
	r, err := parse(p, value)
	return r, revision, err
}

// index lists what is beneath a directory.
func (s *Store) index(ctx context.Context, dir string) (index, error) {
	var x index
	err := s.kv.List(ctx, s.key(strings.TrimSuffix(dir, "/")+"/"), func(key string, value []byte, _ uint64) error {
		p := strings.TrimPrefix(key, s.in)
		r, err := parse(p, value)
		x = append(x, r.info(p))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list stored files: %w", err)
	}
	slices.SortFunc(x, func(a, b tool.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return x, nil
}

// at is the index of what is needed to say what a path is: the file, or what
// is beneath it, or the file that stands in its way.
func (s *Store) at(ctx context.Context, p string) (index, error) {
	r, _, err := s.get(ctx, p)
	if err == nil {
		return index{r.info(p)}, nil
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, fmt.Errorf("read a stored file: %w", err)
	}
	x, err := s.index(ctx, p)
	if err != nil || len(x) > 0 {
		return x, err
	}
	return s.above(ctx, p)
}

func (s *Store) above(ctx context.Context, p string) (index, error) {
	for dir := path.Dir(p); dir != "/" && dir != "."; dir = path.Dir(dir) {
		r, _, err := s.get(ctx, dir)
		if err == nil {
			return index{r.info(dir)}, nil
		}
		if !errs.Is(err, errs.NotFound) {
			return nil, fmt.Errorf("read a stored file: %w", err)
		}
	}
	return nil, nil
}

// List implements tool.Files.
func (s *Store) List(ctx context.Context, dir string) ([]tool.FileInfo, error) {
	x, err := s.at(ctx, dir)
	if err != nil {
		return nil, err
	}
	return x.list(dir)
}

// Stat implements tool.Files.
func (s *Store) Stat(ctx context.Context, p string) (tool.FileInfo, error) {
	x, err := s.at(ctx, p)
	if err != nil {
		return tool.FileInfo{}, err
	}
	return x.stat(p)
}

// open reads the record of a file, or says what is there instead.
func (s *Store) open(ctx context.Context, p string) (record, error) {
	r, _, err := s.get(ctx, p)
	if errs.Is(err, errs.NotFound) {
		x, err := s.at(ctx, p)
		if err == nil {
			_, err = x.file(p)
		}
		if err == nil {
			err = notFound(p) // it came in this moment
		}
		return r, err
	}
	if err != nil {
		return r, fmt.Errorf("read a stored file: %w", err)
	}
	return r, nil
}

func (s *Store) content(ctx context.Context, r record) ([]byte, error) {
	if !r.Blob {
		return r.Content, nil
	}
	content, err := s.blobs.Get(ctx, r.Hash)
	if err != nil {
		return nil, fmt.Errorf("read a stored file: %w", err)
	}
	return content, nil
}

// Read implements tool.Files.
func (s *Store) Read(ctx context.Context, p string, limit int64) ([]byte, string, error) {
	r, err := s.open(ctx, p)
	if err != nil {
		return nil, "", err
	}
	if r.Bytes > limit {
		return nil, "", fail(tool.CodeTooLarge, p, fmt.Sprintf("it has %d bytes", r.Bytes))
	}
	content, err := s.content(ctx, r)
	return content, r.Hash, err
}

// ReadAt implements tool.Files.
func (s *Store) ReadAt(ctx context.Context, p string, off int64, limit int) ([]byte, int64, error) {
	r, err := s.open(ctx, p)
	switch {
	case err != nil || off < 0 || limit <= 0:
		return nil, r.Bytes, err
	case r.Blob:
		return blobAt(ctx, s.blobs, r.info(p), off, limit)
	}
	return slice(r.Content, off, limit), r.Bytes, nil
}

// Write implements tool.Files.
func (s *Store) Write(ctx context.Context, p string, content []byte, ifHash string) (string, error) {
	value, hash, err := s.prepare(ctx, p, content)
	if err != nil {
		return "", err
	}
	for range triesMax {
		err = s.put(ctx, p, value, ifHash)
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Exists) {
			break // a FileError has no class
		}
	}
	if err != nil {
		return "", err
	}
	return hash, nil
}

// prepare makes the record of a content, and its blob.
func (s *Store) prepare(ctx context.Context, p string, content []byte) (value []byte, hash string, err error) {
	switch {
	case len(p) > storePathBytesMax:
		return nil, "", fail(tool.CodeInvalidPath, p, fmt.Sprintf("a path here has at most %d bytes", storePathBytesMax))
	case len(content) > storeFileBytesMax:
		return nil, "", fail(tool.CodeTooLarge, p, fmt.Sprintf("a file here has at most %d bytes", storeFileBytesMax))
	}
	sum := sha256.Sum256(content)
	r := record{V: 1, Hash: hex.EncodeToString(sum[:]), Bytes: int64(len(content)), Modified: time.Now().UTC(), Content: content}
	if len(content) > inlineBytesMax {
		r.Content, r.Blob = nil, true
		if _, err := s.blobs.Put(ctx, content); err != nil {
			return nil, "", fmt.Errorf("write a stored file: %w", err)
		}
	}
	value, err = json.Marshal(r)
	return value, r.Hash, err
}

// put writes the record if it is as expected. Conflict, Exists: another
// writer wrote it meanwhile; look again.
func (s *Store) put(ctx context.Context, p string, value []byte, ifHash string) error {
	old, revision, err := s.get(ctx, p)
	exists := err == nil
	if err != nil && !errs.Is(err, errs.NotFound) {
		return fmt.Errorf("write a stored file: %w", err)
	}
	if err := expected(p, ifHash, old.Hash, exists); err != nil {
		return err
	}
	if exists {
		_, err = s.kv.Update(ctx, s.key(p), value, revision)
		return err
	}
	x, err := s.at(ctx, p)
	if err == nil {
		err = x.mayWrite(p)
	}
	if err == nil {
		_, err = s.kv.Create(ctx, s.key(p), value)
	}
	return err
}

// Delete implements tool.Files.
func (s *Store) Delete(ctx context.Context, p string) error {
	x, err := s.at(ctx, p)
	if err != nil {
		return err
	}
	d, err := x.stat(p)
	if err != nil {
		return err
	}
	if !d.Dir {
		return s.remove(ctx, p)
	}
	for _, f := range x.beneath(p) {
		if err := s.remove(ctx, f.Path); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a record, whatever it holds; one that is gone is fine.
func (s *Store) remove(ctx context.Context, p string) error {
	for try := 1; ; try++ {
		_, revision, err := s.get(ctx, p)
		if err == nil {
			err = s.kv.Delete(ctx, s.key(p), revision)
		}
		if err == nil || errs.Is(err, errs.NotFound) {
			return nil
		}
		if !errs.Is(err, errs.Conflict) || try == triesMax {
			return fmt.Errorf("delete a stored file: %w", err)
		}
	}
}

// Glob implements tool.Files.
func (s *Store) Glob(ctx context.Context, dir, pattern string, limit int) ([]tool.FileInfo, bool, error) {
	x, err := s.at(ctx, dir)
	if err != nil {
		return nil, false, err
	}
	return x.glob(dir, pattern, limit)
}

// Grep implements tool.Files.
func (s *Store) Grep(ctx context.Context, dir string, pattern tool.Pattern, glob string, limit int) ([]tool.Match, bool, error) {
	x, err := s.at(ctx, dir)
	if err != nil {
		return nil, false, err
	}
	return x.grep(ctx, dir, pattern, glob, limit, func(ctx context.Context, f tool.FileInfo) ([]byte, error) {
		r, _, err := s.get(ctx, f.Path)
		if errs.Is(err, errs.NotFound) {
			return nil, nil // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		return s.content(ctx, r)
	})
}
