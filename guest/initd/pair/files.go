package pair

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// withFiles hands the received descriptors to the entry, in the order of the
// mask's bits; what does not fit is closed.
func (x Entry) withFiles(mask uint8, fds []int) Entry {
	slots := []**os.File{&x.Stdin, &x.Feed, &x.Stdout, &x.Stderr, &x.Master, &x.RelayR, &x.RelayW}
	for i, slot := range slots {
		if mask&(1<<i) == 0 || len(fds) == 0 {
			continue
		}
		*slot = os.NewFile(uintptr(fds[0]), "guest")
		fds = fds[1:]
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return x
}

// CloseFiles closes what the entry owns.
func (x *Entry) CloseFiles() {
	for _, f := range []*os.File{x.Stdin, x.Feed, x.Stdout, x.Stderr, x.Master, x.RelayR, x.RelayW} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func keepAlive(f *os.File) { runtime.KeepAlive(f) }
