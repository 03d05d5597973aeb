package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/internal/volume/layout"
)

const (
	// blankForm changes when images are made differently.
	blankForm = "v2"
	// unfinished begins the name of a directory in which one is made.
	unfinished = blankDir + ".new"
	// blanksMax bounds the blanks that are kept: callers choose the sizes.
	blanksMax = 16
)

// blank opens a formatted, empty image of this size, made once and copied for
// each volume: that costs a fifth of formatting. nil = no images here. A size
// that is there waits for none that is being made.
func (s *Store) blank(ctx context.Context, bytes int64) (*os.File, error) {
	if s.Weakness() != nil {
		return nil, nil
	}
	path := filepath.Join(s.dir, blankDir, strconv.FormatInt(bytes, 10)+"-"+blankForm)
	if f, err := openBlank(path); f != nil || err != nil {
		return f, err
	}
	s.making.Lock()
	defer s.making.Unlock()
	if s.Weakness() != nil {
		return nil, nil
	}
	f, err := openBlank(path) // another call has made it
	if f != nil || err != nil {
		return f, err
	}
	if err = s.makeBlank(ctx, path, bytes); err == nil {
		return openBlank(path)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if limited := limit(err); errs.Is(limited, errs.Unavailable) || passing(err) {
		return nil, limited
	}
	// It does not work here after all.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = errs.Wrap(errs.Unsupported, err, "images cannot be mounted on this host")
	return nil, nil
}

// openBlank returns a blank that is there, and notes its use in its time; nil =
// it is not there.
func openBlank(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		_ = os.Chtimes(path, time.Time{}, time.Now())
	}
	return f, err
}

// dropBlanks removes those that were not used for the longest time, so that
// there is room for one more. What copies one has it open.
func dropBlanks(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			used[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return used[a.Name()].Compare(used[b.Name()]) })
	for len(entries) >= blanksMax {
		if err := ignoreMissing(os.Remove(filepath.Join(dir, entries[0].Name()))); err != nil {
			return err
		}
		entries = entries[1:]
	}
	return nil
}

// passing reports whether an error says something of this moment, not of this
// host: volumes without a limit must not follow from it.
func passing(err error) bool {
	for _, e := range []error{unix.EBUSY, unix.EAGAIN, unix.EINTR, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EIO, unix.EUCLEAN, unix.EBADMSG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Store) makeBlank(ctx context.Context, path string, bytes int64) (err error) {
	if err := s.sweepBlanks(ctx); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := dropBlanks(dir); err != nil {
		return err
	}
	// A directory of our own: a mkfs that outlives its server would write to the
	// image of the next one.
	temp, err := os.MkdirTemp(s.dir, unfinished)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	image := filepath.Join(temp, imageName)
	if err := ext4.Blank(ctx, image, bytes); err != nil {
		return err
	}
	// Mounted once: that proves that it works here.
	if err := arrangeUnseen(image); err != nil {
		return err
	}
	return os.Rename(image, path)
}

// sweepBlanks removes what a server that died was making. Earlier versions
// mounted it in its directory, and what they mounted outlived them.
func (s *Store) sweepBlanks(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		dir := filepath.Join(s.dir, e.Name())
		mnt := filepath.Join(dir, "mnt")
		if on, err := mounted(mnt); err == nil && on {
			if err := unmount(context.WithoutCancel(ctx), mnt); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return err
}

// arrangeUnseen makes the layout in an image whose mount is in no directory: it
// is this process's descriptor, and ends with the process at the latest. A mount
// in a directory would outlive a kill.
func arrangeUnseen(image string) error {
	loop, err := openLoop(image)
	if err != nil {
		return err
	}
	defer loop.Close()
	fd, err := mountUnseen(loop.Name())
	if err != nil {
		return err
	}
	err = layout.Arrange("/proc/self/fd/" + strconv.Itoa(fd))
	// The last close unmounts, and the image must be whole when we return: no
	// child between its fork and its exec has a copy of the descriptor meanwhile.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return errors.Join(err, unix.Close(fd))
}

// mountUnseen mounts a device, and attaches it nowhere.
func mountUnseen(device string) (fd int, err error) {
	config, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount: %w", err)
	}
	defer unix.Close(config)
	err = unix.FsconfigSetString(config, "source", device)
	for option := range strings.SplitSeq(mountOptions, ",") {
		if key, value, is := strings.Cut(option, "="); is {
			err = cmp.Or(err, unix.FsconfigSetString(config, key, value))
		} else {
			err = cmp.Or(err, unix.FsconfigSetFlag(config, key))
		}
	}
	if err = cmp.Or(err, unix.FsconfigCreate(config)); err != nil {
		return -1, fmt.Errorf("mount: %w", err)
	}
	if fd, err = unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME); err != nil {
		return -1, fmt.Errorf("mount: %w", err)
	}
	return fd, nil
}
