package volume

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fitrim is FITRIM of linux/fs.h, for the whole file system.
func fitrim(f *os.File) error {
	const request = 0xc0185879
	span := struct{ start, length, minimum uint64 }{length: math.MaxUint64}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&span)))
	if errno != 0 {
		return errno
	}
	return nil
}
