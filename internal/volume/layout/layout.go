// Package layout says what lies where on the disk of a workspace. The host and
// the guests of virtual machines, which mount it themselves, share it.
package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Names on the disk.
const (
	Files = "files" // the workspace, as the machine sees it
	// Staging and History are root's alone: new contents of files before they
	// are moved into their places, and what a guest keeps of the past.
	Staging = "staging"
	History = "history"

	marker    = ".skete" // says how far Arrange came
	moving    = ".skete.moving"
	lostFound = "lost+found"

	begun = "1 begun\n"
	done  = "1\n"
)

// Arrange makes the layout on a disk that is empty, or that has the workspace
// at its top as those of earlier versions. It may die at any moment and be
// called again, and costs one look where there is nothing to do. One caller at
// a time; nothing else writes to the disk meanwhile.
func Arrange(disk string) error {
	mark := filepath.Join(disk, marker)
	state, err := read(mark)
	if state == done || err != nil {
		return err
	}
	if err := arrange(disk, state == begun); err != nil {
		return fmt.Errorf("arrange a workspace's disk: %w", err)
	}
	return write(mark, done)
}

// arrange moves all that is at the top into Files, by way of a directory that
// is there until the last rename: begun without it is done.
func arrange(disk string, resumed bool) error {
	to := filepath.Join(disk, moving)
	info, err := os.Stat(disk)
	if err != nil {
		return err
	}
	if !resumed {
		if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := write(filepath.Join(disk, marker), begun); err != nil {
			return err
		}
	} else if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := moveAll(disk, to); err != nil {
		return err
	}
	if err := hand(to, info); err != nil {
		return err
	}
	if err := os.Rename(to, filepath.Join(disk, Files)); err != nil {
		return err
	}
	// What lies beside the workspace is for this process's user only.
	return errors.Join(chown(disk, os.Geteuid(), os.Getegid()), os.Chmod(disk, 0o700))
}

func moveAll(disk, to string) error {
	entries, err := os.ReadDir(disk)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case marker, marker + ".new", moving, lostFound:
			continue
		}
		if err := os.Rename(filepath.Join(disk, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hand gives the new top to whom the old one belonged.
func hand(dir string, was fs.FileInfo) error {
	st, ok := was.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return errors.Join(chown(dir, int(st.Uid), int(st.Gid)), os.Chmod(dir, was.Mode().Perm()))
}

// chown is os.Chown where there is something to change.
func chown(path string, uid, gid int) error {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return err
	}
	if int(st.Uid) == uid && int(st.Gid) == gid {
		return nil
	}
	return os.Chown(path, uid, gid)
}

// read reads a small file, "" if there is none. A machine may have put
// anything in its place.
func read(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := make([]byte, len(begun)+1)
	n, err := f.Read(text)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(text[:n]), err
}

// write replaces a small file, durably.
func write(path, text string) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
