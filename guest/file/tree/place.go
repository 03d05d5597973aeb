package tree

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const linksMax = 40 // as the kernel

// FollowLast opens the directory of what a path means in the end: links in
// the last component are followed step by step, each relative to the real
// directory that holds it.
func FollowLast(name string) (dir int, base string, err error) {
	parent, base := Split(name)
	if dir, err = Open(parent, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return -1, "", err
	}
	for range linksMax {
		target, err := Readlink(dir, base)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return dir, base, nil // no link, or nothing yet
		}
		if err == nil && strings.HasSuffix(target, "/") {
			err = unix.EISDIR
		}
		if err == nil && onProc(dir) {
			err = unix.ELOOP // a magic link's text is no path
		}
		next := -1
		if err == nil {
			next, base, err = step(dir, target)
		}
		_ = unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		dir = next
	}
	_ = unix.Close(dir)
	return -1, "", unix.ELOOP
}

func onProc(dir int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(dir, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

// step opens the directory that a link's target names, relative to dir.
func step(dir int, target string) (int, string, error) {
	up, base := path.Split(target)
	if base == "." || base == ".." || base == "" {
		return -1, "", unix.EISDIR
	}
	if up == "" {
		up = "."
	}
	fd, err := openIn(dir, up, unix.O_PATH|unix.O_DIRECTORY, 0)
	return fd, base, err
}

// MakeDir makes a directory with exactly this mode, whatever the umask.
func MakeDir(dir int, base string, mode uint32, existsOK bool) (created bool, err error) {
	err = unix.Mkdirat(dir, base, mode&0o777)
	if errors.Is(err, unix.EEXIST) && existsOK {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, base, &st, 0); err != nil {
			return false, err
		}
		if !IsDir(&st) {
			return false, unix.EEXIST
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, Chmod(dir, base, mode)
}

// MakeParents makes the directories above a path.
func MakeParents(name string) error {
	dir, err := Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	parent, _ := Split(name)
	for part := range strings.SplitSeq(strings.Trim(parent, "/"), "/") {
		if part == "" {
			continue
		}
		next, err := openIn(dir, part, unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, unix.ENOENT) {
			if _, err = MakeDir(dir, part, 0o755, true); err == nil {
				next, err = openIn(dir, part, unix.O_PATH|unix.O_DIRECTORY, 0)
			}
		}
		if err != nil {
			return err
		}
		_ = unix.Close(dir)
		dir = next
	}
	return nil
}

// RenameNoReplace renames unless the new name exists. Where the file system
// lacks the flag, a hard link does the same for files; for directories an
// empty one is made first, which a rename may replace only while it is empty.
func RenameNoReplace(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	st, statErr := Lstat(fromDir, from)
	if statErr != nil {
		return statErr
	}
	if !IsDir(&st) {
		if err := unix.Linkat(fromDir, from, toDir, to, 0); err != nil {
			return err
		}
		return unix.Unlinkat(fromDir, from, 0)
	}
	if err := unix.Mkdirat(toDir, to, 0o700); err != nil {
		return err
	}
	if err := unix.Renameat(fromDir, from, toDir, to); err != nil {
		_ = unix.Unlinkat(toDir, to, unix.AT_REMOVEDIR)
		return err
	}
	return nil
}
