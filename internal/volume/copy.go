package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// FIFREEZE and FITHAW of linux/fs.h.
const (
	fifreeze = 0xc0045877
	fithaw   = 0xc0045878
)

// freeze holds every write to a mounted directory back until thaw, and brings
// its image to what a clean unmount leaves. A directory that is not mounted
// needs none of it.
func freeze(dir string) (thaw func(), err error) {
	on, err := mounted(dir)
	if err != nil || !on {
		return func() {}, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetInt(fd, fifreeze, 0); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("freeze the volume: %w", err)
	}
	return func() {
		_ = unix.IoctlSetInt(fd, fithaw, 0)
		_ = unix.Close(fd)
	}, nil
}

// thaw ends a freeze that a process of ours did not live to end: until then
// a process that writes there waits, and the kernel keeps the file system, unmounted or
// not. It does nothing where nothing is frozen.
func thaw(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.IoctlSetInt(fd, fithaw, 0)
	_ = unix.Close(fd)
}

// clone shares the blocks of from with a new file; false: the host's file
// system cannot.
func clone(to, from *os.File) bool {
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
}

// copyTree copies a plain directory with all that a file system can say of it.
func copyTree(from, to string) error {
	out, err := exec.Command("cp", "-a", "--reflink=auto", "--", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %.200s", err, out)
	}
	return nil
}

// copyHoles copies what is no hole from in to out.
func copyHoles(out, in *os.File) error {
	for at := int64(0); ; {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, data), io.NewSectionReader(in, data, at-data)); err != nil {
			return err
		}
	}
}
