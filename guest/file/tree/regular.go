package tree

import (
	"io"

	"golang.org/x/sys/unix"
)

// OpenRegular opens a file that bytes can be read from or written to.
func OpenRegular(name string, flags int, mode uint32) (int, unix.Stat_t, error) {
	fd, err := Open(name, flags, mode)
	if err != nil {
		return -1, unix.Stat_t{}, err
	}
	st, err := Fstat(fd)
	switch {
	case err != nil:
	case IsDir(&st):
		err = unix.EISDIR
	case !IsRegular(&st):
		err = unix.ENXIO
	default:
		return fd, st, nil
	}
	_ = unix.Close(fd)
	return -1, st, err
}

// ReadAt reads once; io.EOF at the end.
func ReadAt(fd int, b []byte, at int64) (int, error) {
	n := 0
	err := Retry(func() (err error) {
		n, err = unix.Pread(fd, b, at)
		return err
	})
	if err == nil && n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}
