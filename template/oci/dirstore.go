package oci

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// This file keeps directories and files that are whole or not there, for
// several processes at once.
//
// Locks end with the process that holds them. All methods are safe for
// concurrent use.

const (
	tempDir  = "tmp"   // under construction, each locked by its builder
	locksDir = "locks" // files to lock; what they hold means nothing
	// lockEvery is how often a caller that waits looks again.
	lockEvery = 25 * time.Millisecond
)

// DirStore is a directory.
type DirStore struct{ dir string }

// OpenDirStore makes the directory and those in it if need be, and sweeps what killed
// processes left half-made.
func OpenDirStore(dir string, subs ...string) (*DirStore, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &DirStore{dir}
	for _, sub := range append([]string{tempDir, locksDir}, subs...) {
		if err := os.MkdirAll(s.Path(sub), 0o700); err != nil {
			return nil, err
		}
	}
	return s, s.sweep()
}

// Path is a path beneath the shelf.
func (s *DirStore) Path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// TempEntry is a directory under construction. Its lock tells other processes that
// it is still being built; the lock ends with the process.
type TempEntry struct {
	Dir  string
	lock *os.File
}

// Close removes the directory and what is left in it.
func (t *TempEntry) Close() {
	_ = removeTree(t.Dir)
	_ = t.lock.Close()
}

// Temp makes a directory to build in.
func (s *DirStore) Temp() (*TempEntry, error) {
	for {
		dir := s.Path(tempDir, rand.Text())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		lock, err := tryLock(dir, os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		// A sweep may have been faster than our lock.
		if _, err := os.Stat(dir); err == nil {
			return &TempEntry{dir, lock}, nil
		}
		_ = lock.Close()
	}
}

// tryLock locks a file or directory; nil when it is locked already or is gone.
func tryLock(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

// Lock waits for the lock of a key, between goroutines and processes alike.
func (s *DirStore) Lock(ctx context.Context, key string) (unlock func(), err error) {
	return s.LockWatching(ctx, key, func() {})
}

// LockWatching is Lock that calls waiting again and again while another
// goroutine or process has it.
func (s *DirStore) LockWatching(ctx context.Context, key string, waiting func()) (unlock func(), err error) {
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		unlock, err := s.TryLock(key)
		if unlock != nil || err != nil {
			return unlock, err
		}
		waiting()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// TryLock takes the lock of a key, or returns nil when it is taken.
func (s *DirStore) TryLock(key string) (unlock func(), err error) {
	if filepath.Base(key) != key {
		return nil, errs.New(errs.Internal, "%q cannot be locked", key)
	}
	path := s.Path(locksDir, key)
	f, err := tryLock(path, os.O_RDWR|os.O_CREATE)
	if f == nil {
		return nil, err
	}
	// The holder of the lock removes the file: the lock of a file that has no
	// name any more counts for nothing.
	mine, err := f.Stat()
	named, nameErr := os.Stat(path)
	if err != nil || nameErr != nil || !os.SameFile(mine, named) {
		return nil, f.Close()
	}
	return func() {
		_ = os.Remove(path)
		_ = f.Close()
	}, nil
}

// Share takes the lock of a key together with others that share it, waiting
// while one holder has it alone. Such keys are locked by Share and TryAlone only.
func (s *DirStore) Share(ctx context.Context, key string) (unlock func(), err error) {
	f, err := os.OpenFile(s.Path(locksDir, key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// TryAlone takes the lock of a key that others share, or returns nil.
func (s *DirStore) TryAlone(key string) (unlock func(), err error) {
	f, err := tryLock(s.Path(locksDir, key), os.O_RDWR|os.O_CREATE)
	if f == nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Publish gives what was built its final name. If that is there already,
// it is the same and stays.
func (s *DirStore) Publish(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case err == nil, errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY):
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // the file system knows no such rename
		err = os.Rename(from, to)
		if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// Discard deletes a tree or file, moving it aside first so that half of one is
// never found. It is no error if it is gone.
func (s *DirStore) Discard(path string) error {
	t, err := s.Temp()
	if err != nil {
		return err
	}
	defer t.Close()
	err = os.Rename(path, filepath.Join(t.Dir, "discarded"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *DirStore) sweep() error {
	entries, err := os.ReadDir(s.Path(tempDir))
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		dir := s.Path(tempDir, e.Name())
		lock, err := tryLock(dir, os.O_RDONLY)
		if err != nil || lock == nil {
			all = errors.Join(all, err)
			continue
		}
		all = errors.Join(all, removeTree(dir), lock.Close())
	}
	return all
}

// removeTree removes a tree also where its directories may not be written,
// which without root needs their modes changed.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// WriteFile writes a file so that it is there, whole and durable, or not at all.
func (s *DirStore) WriteFile(path string, data []byte) error {
	t, err := s.Temp()
	if err != nil {
		return err
	}
	defer t.Close()
	f, err := os.OpenFile(filepath.Join(t.Dir, "file"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
