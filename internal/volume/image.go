package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Bounds of waiting for others.
const (
	loopTries    = 64 // somebody else took the free device between our look and our grab
	unmountTries = 40
	unmountPause = 25 * time.Millisecond
)

func mkfsPath() (string, error) {
	for _, p := range []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	if p, err := exec.LookPath("mkfs.ext4"); err == nil {
		return p, nil
	}
	return "", errs.New(errs.Unsupported, "mkfs.ext4 is missing").WithHint("apt-get install e2fsprogs")
}

// blank returns an empty formatted image of that size. It is made once per
// size: copying it sparsely costs less than formatting.
func (s *Store) blank(ctx context.Context, bytes int64) (string, error) {
	path := filepath.Join(s.dir, blankDir, fmt.Sprintf("%d%s", bytes, imageSuffix))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	mkfs, err := mkfsPath()
	if err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Join(s.dir, blankDir), "tmp-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := tmp.Truncate(bytes); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-J", "size=4",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", tmp.Name()).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w: %.200q", err, out)
	}
	if err := tmp.Sync(); err != nil {
		return "", err
	}
	return path, os.Rename(tmp.Name(), path)
}

// copySparse copies data and leaves holes holes. Nothing is synced: the first
// sync inside the mounted image carries these bytes too.
func copySparse(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = dst.Truncate(info.Size())
	for off := int64(0); err == nil && off < info.Size(); {
		var end int64
		if off, end, err = dataAt(src, off); err != nil {
			break
		}
		_, err = io.Copy(io.NewOffsetWriter(dst, off), io.NewSectionReader(src, off, end-off))
		off = end
	}
	if errors.Is(err, unix.ENXIO) { // no more data
		err = nil
	}
	return errors.Join(err, dst.Close())
}

// dataAt finds the next stretch of data at or after off; ENXIO: there is none.
func dataAt(f *os.File, off int64) (begin, end int64, err error) {
	if begin, err = f.Seek(off, unix.SEEK_DATA); err != nil {
		return 0, 0, err
	}
	end, err = f.Seek(begin, unix.SEEK_HOLE)
	return begin, end, err
}

// mountImage mounts an image through a loop device that is freed with the
// mount, or with us if we die in between (autoclear).
func mountImage(image, target string) error {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	dev, err := loop(f, image)
	if err != nil {
		return fmt.Errorf("loop device: %w", err)
	}
	defer dev.Close()
	// discard gives blocks of deleted files back to the host.
	err = unix.Mount(dev.Name(), target, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "discard,errors=remount-ro")
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// loop binds f to a free loop device, as losetup does.
func loop(f *os.File, name string) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		dev, err := openLoop(n)
		if err != nil {
			return nil, err
		}
		cfg := unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], name)
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &cfg)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, unix.EBUSY
}

// openLoop opens /dev/loopN, making the node where no udev does.
func openLoop(n int) (*os.File, error) {
	path := fmt.Sprintf("/dev/loop%d", n)
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		err = unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(n))))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		dev, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	return dev, err
}

// isMount tells whether something is mounted at dir.
func isMount(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return here.Dev != above.Dev, nil
}

// unmount waits a little for the last user to let go; then the mount is taken
// out of sight and the kernel ends it with its last user.
func unmount(ctx context.Context, dir string) error {
	for range unmountTries {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if err == nil || errors.Is(err, unix.EINVAL) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unmountPause):
		}
	}
	return unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}
