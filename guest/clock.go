package guest

import (
	"encoding/binary"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func setClock(ts *unix.Timespec) error {
	_, _, errno := unix.Syscall(unix.SYS_CLOCK_SETTIME, uintptr(unix.CLOCK_REALTIME), uintptr(unsafe.Pointer(ts)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// reseed credits the entropy where we may, else it is only mixed in.
func reseed(entropy []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	msg := make([]byte, 8, 8+len(entropy)) // struct rand_pool_info
	binary.NativeEndian.PutUint32(msg, uint32(8*len(entropy)))
	binary.NativeEndian.PutUint32(msg[4:], uint32(len(entropy)))
	msg = append(msg, entropy...)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&msg[0])))
	if errno == 0 {
		// Else what reads the kernel's generator gets the old stream for
		// up to a minute more.
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDRESEEDCRNG, 0)
	}
	if errno == 0 {
		return nil
	}
	_, err = f.Write(entropy)
	if err != nil {
		return errors.Join(errno, err)
	}
	return nil
}
