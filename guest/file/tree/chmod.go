package tree

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Chmod sets the mode of one entry of dir. A symbolic link is ELOOP: its own
// mode means nothing, and what it points to was not asked for.
func Chmod(dir int, name string, mode uint32) error {
	fd, err := OpenAt(dir, name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := Fstat(fd)
	if err != nil {
		return err
	}
	if IsLink(&st) {
		return unix.ELOOP
	}
	return chmodFD(fd, mode)
}

// chmodFD works on O_PATH descriptors, so that a file which its owner may not
// read can still be changed. Older kernels (and gVisor) lack fchmodat2; there
// the way leads through /proc, to exactly this descriptor's file.
func chmodFD(fd int, mode uint32) error {
	err := Retry(func() error { return unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH) })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = Retry(func() error { return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode) })
	}
	return err
}

// ChmodAll sets the mode of an entry and of all beneath it; links are left alone.
func ChmodAll(ctx context.Context, dir int, name string, mode uint32) error {
	st, err := Lstat(dir, name)
	if err != nil || !IsDir(&st) {
		if err == nil {
			err = Chmod(dir, name, mode)
		}
		return err
	}
	// While inside we must be able to read and search, whatever the mode is to be.
	if err := Chmod(dir, name, mode|0o700); err != nil {
		return err
	}
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	set := func(it Item, mode uint32) error {
		if err := Chmod(it.Dir, it.Name, mode); err != nil && !vanished(err) {
			return pathError("chmod", it.Rel, err)
		}
		return nil
	}
	visit := func(it Item) error {
		switch {
		case IsLink(&it.Stat):
			return nil
		case IsDir(&it.Stat):
			return set(it, mode|0o700)
		}
		return set(it, mode)
	}
	leave := func(it Item) error { return set(it, mode) }
	deny := func(rel string, err error) error { return pathError("chmod", rel, err) }
	if err := Walk(ctx, fd, Options{Leave: leave, Unreadable: deny}, visit); err != nil {
		return err
	}
	return Chmod(dir, name, mode)
}
