package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// This file moves bytes out of pipes without touching them.
//
// Everything is safe for concurrent use.

// pipeHolds reports whether a pipe holds data, or has ended.
func pipeHolds(fd int) (data, end bool) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 0); err != nil || n == 0 {
		return false, err != nil && err != unix.EINTR
	}
	return p[0].Revents&unix.POLLIN != 0, p[0].Revents&unix.POLLIN == 0
}

// splicePipe moves bytes from a pipe or a terminal to the end of f, itself a file
// or a pipe, inside the kernel.
func splicePipe(fd int, f *os.File, most int64) (int64, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int64
	cerr := raw.Control(func(out uintptr) {
		n, err = unix.Splice(fd, nil, int(out), nil, int(most), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	})
	if cerr != nil {
		return 0, cerr
	}
	return n, err
}
