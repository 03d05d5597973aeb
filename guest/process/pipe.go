package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// This file moves bytes out of pipes without touching them.
//
// Everything is safe for concurrent use.

// pipeHolds reports whether a pipe holds data, or has ended.
func pipeHolds(fd int) (data, end bool) {
	return holds(func() (events int16, err error) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err = unix.Poll(p, 0)
		return p[0].Revents, err
	})
}

// holds asks poll. The kernel (pipe_poll of Linux) looks for bytes first and for
// writers then, without a lock: a write and the end of the last writer in between
// look like an end without bytes. So an end is asked for twice; after the first
// answer nothing can be written any more, and the second one is exact.
func holds(poll func() (events int16, err error)) (data, end bool) {
	for range 2 {
		events, err := poll()
		if err != nil {
			return false, !errors.Is(err, unix.EINTR)
		}
		if data, end = events&unix.POLLIN != 0, events != 0 && events&unix.POLLIN == 0; !end {
			break
		}
	}
	return data, end
}

// pipeBytes is how much a pipe or a terminal holds; 0 when it cannot be known.
func pipeBytes(f *os.File) int64 {
	if f == nil {
		return 0
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	cerr := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if cerr != nil || err != nil {
		return 0
	}
	return int64(n)
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
