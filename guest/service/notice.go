package service

import (
	"os"
	"path/filepath"
	"time"
)

// This file tells programs that watch files of changes that their kernel
// has not seen.
//
// In gVisor the host puts files back beneath a kernel that only sees what its
// own programs do: a dev server that watches them by inotify would never learn
// that an undo has happened. A time that is set to what it is already changes
// nothing and is told to all programs that watch.
//
// giveNotice is safe for concurrent use.

// giveNotice makes the kernel tell who watches the paths, which are absolute, or the
// directories that hold them. Of what is gone, the nearest directory that is
// there is told of, and links are told of by theirs: nothing follows one out
// of the place where it stands. What cannot be told of is left out.
func giveNotice(paths [][]byte) {
	told := make(map[string]bool, len(paths))
	for _, p := range paths {
		for path := filepath.Clean(string(p)); filepath.IsAbs(path) && !told[path]; path = filepath.Dir(path) {
			told[path] = true
			if noticeOne(path) || path == "/" {
				break
			}
		}
	}
}

// noticeOne tells of one file or directory; false: there is none, or it is a link.
func noticeOne(path string) bool {
	dir, name := filepath.Split(path)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return false
	}
	// The one time alone: with both it would be told as a change of attributes.
	return root.Chtimes(name, time.Time{}, info.ModTime()) == nil
}
