package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is a directory beneath which names are looked up without ever
// following a symbolic link, by the kernel (openat2). It has the methods of
// os.Root that internal/untar needs.
//
// os.Root itself must not be used in a guest: it relies on O_NOFOLLOW together
// with O_DIRECTORY, and gVisor follows a link to a directory then.
type Root struct{ fd int }

// OpenRoot opens a directory; links that lead to it are followed.
func OpenRoot(name string) (*Root, error) {
	fd, err := Open(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Root{fd}, nil
}

// Close closes the directory.
func (r *Root) Close() error { return unix.Close(r.fd) }

// at runs a call on the directory that holds a name.
func (r *Root) at(op, name string, call func(dir int, base string) error) error {
	up, base := path.Split(path.Clean(name))
	if base == "." || base == ".." || strings.HasPrefix(name, "/") {
		return pathError(op, name, unix.EINVAL)
	}
	if up == "" {
		return pathError(op, name, call(r.fd, base))
	}
	dir, err := r.dir(strings.TrimSuffix(up, "/"))
	if err != nil {
		return pathError(op, name, err)
	}
	defer unix.Close(dir)
	return pathError(op, name, call(dir, base))
}

// dir opens a directory beneath the root.
func (r *Root) dir(name string) (int, error) {
	fd := -1
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	err := Retry(func() (err error) {
		fd, err = unix.Openat2(r.fd, name, &how)
		return err
	})
	if errors.Is(err, unix.ENOSYS) { // kernels before 5.6
		return r.walk(name, false)
	}
	return fd, err
}

// walk opens a directory step by step, making what is missing if asked to.
func (r *Root) walk(name string, create bool) (int, error) {
	fd, err := OpenAt(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	for part := range strings.SplitSeq(name, "/") {
		if err != nil {
			return -1, err
		}
		next, nextErr := OpenAt(fd, part, unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(nextErr, unix.ENOENT) && create {
			if nextErr = unix.Mkdirat(fd, part, 0o755); nextErr == nil || errors.Is(nextErr, unix.EEXIST) {
				next, nextErr = OpenAt(fd, part, unix.O_PATH|unix.O_DIRECTORY, 0)
			}
		}
		_ = unix.Close(fd)
		fd, err = next, nextErr
	}
	return fd, err
}

// Mkdir makes a directory.
func (r *Root) Mkdir(name string, perm fs.FileMode) error {
	return r.at("mkdir", name, func(dir int, base string) error { return unix.Mkdirat(dir, base, uint32(perm.Perm())) })
}

// MkdirAll makes a directory and those above it.
func (r *Root) MkdirAll(name string, _ fs.FileMode) error {
	fd, err := r.walk(path.Clean(name), true)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			err = unix.EEXIST // as for os.Root: something else has the name
		}
		return pathError("mkdir", name, err)
	}
	return unix.Close(fd)
}

// OpenFile opens a file.
func (r *Root) OpenFile(name string, flag int, perm fs.FileMode) (f *os.File, err error) {
	err = r.at("open", name, func(dir int, base string) error {
		fd, err := OpenAt(dir, base, flag, uint32(perm.Perm()))
		if err == nil {
			f = os.NewFile(uintptr(fd), base)
		}
		return err
	})
	return f, err
}

// Lstat describes an entry.
func (r *Root) Lstat(name string) (info fs.FileInfo, err error) {
	err = r.at("lstat", name, func(dir int, base string) error {
		st, err := Lstat(dir, base)
		if err == nil {
			info = fileInfo{base, st}
		}
		return err
	})
	return info, err
}

// Readlink reads a link's target.
func (r *Root) Readlink(name string) (target string, err error) {
	err = r.at("readlink", name, func(dir int, base string) (err error) {
		target, err = Readlink(dir, base)
		return err
	})
	return target, err
}

// Remove removes a file or an empty directory.
func (r *Root) Remove(name string) error {
	return r.at("remove", name, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			if dirErr := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); !errors.Is(dirErr, unix.ENOTDIR) {
				return dirErr
			}
		}
		return err
	})
}

// Symlink makes a link.
func (r *Root) Symlink(target, name string) error {
	return r.at("symlink", name, func(dir int, base string) error { return unix.Symlinkat(target, dir, base) })
}

// Link makes a hard link.
func (r *Root) Link(old, name string) error {
	return r.at("link", old, func(oldDir int, oldBase string) error {
		return r.at("link", name, func(dir int, base string) error { return unix.Linkat(oldDir, oldBase, dir, base, 0) })
	})
}

// Chmod sets permission bits; a link is refused.
func (r *Root) Chmod(name string, mode fs.FileMode) error {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return r.at("chmod", name, func(dir int, base string) error { return Chmod(dir, base, bits) })
}

// Lchown sets the owner, of a link itself.
func (r *Root) Lchown(name string, uid, gid int) error {
	return r.at("chown", name, func(dir int, base string) error {
		return unix.Fchownat(dir, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// Chtimes sets the times, of a link itself.
func (r *Root) Chtimes(name string, atime, mtime time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(atime.UnixNano()), unix.NsecToTimespec(mtime.UnixNano())}
	return r.at("chtimes", name, func(dir int, base string) error {
		return unix.UtimesNanoAt(dir, base, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// fileInfo is fs.FileInfo of a stat.
type fileInfo struct {
	name string
	st   unix.Stat_t
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.st.Size }
func (i fileInfo) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i fileInfo) IsDir() bool        { return IsDir(&i.st) }
func (i fileInfo) Sys() any           { return &i.st }

func (i fileInfo) Mode() fs.FileMode {
	mode := fs.FileMode(i.st.Mode & 0o777)
	switch i.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return mode
	case unix.S_IFDIR:
		return mode | fs.ModeDir
	case unix.S_IFLNK:
		return mode | fs.ModeSymlink
	}
	return mode | fs.ModeIrregular
}
