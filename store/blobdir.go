package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
)

// This file keeps content by its sha256 in a directory.
//
// A blob is the file ab/cd/abcd…; it is written beside, synced, and renamed, so
// it is there whole or not at all, also after a power cut. What a crash leaves
// over is in the directory tmp. All methods are safe for concurrent use, within
// one process: a directory has one owner.

// blobDirConfig of a blobDir.
type blobDirConfig struct {
	BlobBytesMax int64
	// FreeBytesMin of the disk are left alone: a Put that would take them is
	// refused.
	FreeBytesMin int64
}

// blobDir is a directory of blobs.
type blobDir struct {
	path string
	c    blobDirConfig
	// one holds a lock for each hash that is being put.
	one keylock.Locks[string]
	// gone is held shared while a Put decides that a blob is there already, and
	// alone while one is removed.
	gone sync.RWMutex
}

const blobTmpDir = "tmp"

// blobTmpAgeMax is the age after which a file that was never renamed is garbage.
const blobTmpAgeMax = time.Hour

// openBlobDir opens a directory, making it if need be.
func openBlobDir(path string, c blobDirConfig) (*blobDir, error) {
	d := &blobDir{path: path, c: c}
	if err := d.mkdir(blobTmpDir); err != nil {
		return nil, blobClass(err, "cannot make the directory of the blobs")
	}
	return d, nil
}

// Put stores content and returns its hash.
func (d *blobDir) Put(content []byte) (string, error) {
	if int64(len(content)) > d.c.BlobBytesMax {
		return "", errs.New(errs.Limit, "a blob of %d bytes is over %d", len(content), d.c.BlobBytesMax)
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	defer d.one.Lock(hash)()
	there, err := d.touch(hash, content)
	if err != nil || there {
		return hash, err
	}
	if err := d.room(int64(len(content))); err != nil {
		return "", err
	}
	if err := d.write(hash, content); err != nil {
		return "", blobClass(err, "cannot write a blob")
	}
	return hash, nil
}

// touch reports whether a blob is there, with these very bytes, and makes it
// young, so that no sweep takes it before its new owner has named it.
func (d *blobDir) touch(hash string, content []byte) (bool, error) {
	d.gone.RLock()
	defer d.gone.RUnlock()
	file := d.file(hash)
	got, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(got, content) {
		return false, nil // a damaged one is replaced: here is what it should be
	}
	now := time.Now()
	if err == nil {
		err = os.Chtimes(file, now, now)
	}
	if err == nil {
		// The process that wrote it may have died before this.
		err = syncDir(filepath.Dir(file))
	}
	if err != nil {
		return false, blobClass(err, "cannot read a blob")
	}
	return true, nil
}

func (d *blobDir) write(hash string, content []byte) error {
	if err := d.mkdir(filepath.Join(hash[:2], hash[2:4])); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Join(d.path, blobTmpDir), hash[:8]+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails once it is renamed
	if _, err = tmp.Write(content); err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), d.file(hash))
	}
	if err == nil {
		err = syncDir(filepath.Dir(d.file(hash)))
	}
	return err
}

// mkdir makes a directory beneath d durably.
func (d *blobDir) mkdir(rel string) error {
	dir := filepath.Join(d.path, rel)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for at := dir; at != d.path; {
		at = filepath.Dir(at)
		if err := syncDir(at); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(d.path))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (d *blobDir) room(n int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.path, &st); err != nil {
		return errs.Wrap(errs.Internal, err, "cannot look at the disk of the blobs")
	}
	if free := int64(st.Bavail) * st.Bsize; free-n < d.c.FreeBytesMin {
		return errBlobsFull(nil)
	}
	return nil
}

func errBlobsFull(cause error) error {
	return errs.Wrap(errs.Unavailable, cause, "the server's disk is full: its data directory has no room for a blob").
		WithHint("free some space there; nothing that was acknowledged is lost")
}

// Get reads a blob whole.
func (d *blobDir) Get(hash string) ([]byte, error) {
	f, err := d.open(hash)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, d.c.BlobBytesMax+1))
	if err != nil {
		return nil, blobClass(err, "cannot read a blob")
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != hash {
		return nil, errs.New(errs.Corrupt, "blob %s is damaged: its %d bytes have another hash", hash, len(content))
	}
	return content, nil
}

// ReadAt reads a part of a blob, unchecked, and says how large it is. io.EOF
// comes with less than len(p) bytes.
func (d *blobDir) ReadAt(hash string, p []byte, off int64) (n int, size int64, err error) {
	if off < 0 {
		return 0, 0, errs.New(errs.Invalid, "a negative offset")
	}
	f, err := d.open(hash)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, blobClass(err, "cannot read a blob")
	}
	n, err = f.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = blobClass(err, "cannot read a blob")
	}
	return n, info.Size(), err
}

func (d *blobDir) open(hash string) (*os.File, error) {
	if !isBlobHash(hash) {
		return nil, errs.New(errs.Invalid, "%.80q is not the hash of a blob", hash)
	}
	f, err := os.Open(d.file(hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.NotFound, "no blob %s", hash)
	}
	if err != nil {
		return nil, blobClass(err, "cannot read a blob")
	}
	return f, nil
}

// Walk visits every blob, and cleans up after writers that died.
func (d *blobDir) Walk(visit func(hash string, size int64, changed time.Time) error) error {
	return filepath.WalkDir(d.path, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err != nil {
			return ignoreGone(err)
		}
		if filepath.Base(filepath.Dir(file)) == blobTmpDir {
			if time.Since(info.ModTime()) > blobTmpAgeMax {
				_ = os.Remove(file)
			}
			return nil
		}
		if !isBlobHash(e.Name()) {
			return nil
		}
		return visit(e.Name(), info.Size(), info.ModTime())
	})
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove removes a blob unless it was put (again) after before, and reports
// whether it did.
func (d *blobDir) Remove(hash string, before time.Time) (bool, error) {
	if !isBlobHash(hash) {
		return false, errs.New(errs.Invalid, "%.80q is not the hash of a blob", hash)
	}
	d.gone.Lock()
	defer d.gone.Unlock()
	info, err := os.Stat(d.file(hash))
	if err != nil || info.ModTime().After(before) {
		return false, ignoreGone(err)
	}
	return true, os.Remove(d.file(hash))
}

// Erase removes the directory with all that it holds.
func (d *blobDir) Erase() error {
	d.gone.Lock()
	defer d.gone.Unlock()
	return os.RemoveAll(d.path)
}

// file is where a blob is. Preconditions: isHash(hash).
func (d *blobDir) file(hash string) string { return filepath.Join(d.path, hash[:2], hash[2:4], hash) }

func isBlobHash(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func blobClass(err error, doing string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errBlobsFull(err)
	}
	return errs.Wrap(errs.Internal, err, "%s", doing)
}
