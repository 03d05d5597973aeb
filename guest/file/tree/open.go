package tree

import (
	"errors"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Bounds of what is read from a tree.
const (
	DepthMax = 200       // levels; each holds one descriptor open
	namesMax = 2_000_000 // in one directory
)

// ErrTooDeep and ErrTooMany say that a tree is beyond those bounds.
var (
	ErrTooDeep = errors.New("the tree is deeper than 200 levels")
	ErrTooMany = errors.New("a directory has more than 2,000,000 entries")
)

// Retry repeats a system call that a signal interrupted.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Open opens a path as the kernel resolves it, but never through a magic link
// of /proc: those would lead to whatever our own process has open. It never
// blocks (a fifo opens at once) and never takes a terminal.
func Open(name string, flags int, mode uint32) (int, error) {
	return open(unix.AT_FDCWD, name, flags, mode, 0)
}

// openIn is Open relative to a directory.
func openIn(dir int, name string, flags int, mode uint32) (int, error) {
	return open(dir, name, flags, mode, 0)
}

// OpenAt opens one entry of dir and never follows a symbolic link. O_NOFOLLOW
// would do on Linux, but gVisor follows a link to a directory when O_DIRECTORY
// is given too.
func OpenAt(dir int, name string, flags int, mode uint32) (int, error) {
	return open(dir, name, flags|unix.O_NOFOLLOW, mode, unix.RESOLVE_NO_SYMLINKS)
}

func open(dir int, name string, flags int, mode uint32, resolve uint64) (int, error) {
	flags |= unix.O_CLOEXEC
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	fd := -1
	err := Retry(func() (err error) {
		fd, err = unix.Openat2(dir, name, &how)
		if errors.Is(err, unix.ENOSYS) { // kernels before 5.6
			fd, err = unix.Openat(dir, name, flags, mode)
		}
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// Lstat reads the metadata of one entry, of a link itself.
func Lstat(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := Retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// Fstat reads the metadata of an open file.
func Fstat(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := Retry(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

// Readlink reads a link's target.
func Readlink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax+1)
	n := 0
	err := Retry(func() (err error) {
		n, err = unix.Readlinkat(dir, name, buf)
		return err
	})
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Names lists a directory that is open for reading, sorted by bytes, from its
// beginning.
func Names(dir int) ([]string, error) {
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return nil, err
	}
	var names []string
	buf := make([]byte, 32<<10)
	for {
		n := 0
		err := Retry(func() (err error) {
			n, err = unix.ReadDirent(dir, buf)
			return err
		})
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		if len(names) > namesMax {
			return nil, ErrTooMany
		}
	}
	slices.Sort(names)
	return names, nil
}

// IsDir and the like read the type from a mode.
func IsDir(st *unix.Stat_t) bool     { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func IsRegular(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }
func IsLink(st *unix.Stat_t) bool    { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// same reports whether two results describe one file.
func same(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// vanished reports errors that mean: the entry is no longer what it was when
// the directory was read.
func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}

func pathError(op, rel string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return &fs.PathError{Op: op, Path: rel, Err: err}
}

func join(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}

// Split cuts a clean absolute path into its directory and last name; the root
// is "/" and ".".
func Split(name string) (dir, base string) {
	if name == "/" {
		return "/", "."
	}
	return path.Dir(name), path.Base(name)
}
