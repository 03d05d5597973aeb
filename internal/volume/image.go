package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

const (
	loopControl = "/dev/loop-control"
	loopTries   = 64 // others take loop devices at the same moment
	mountsMax   = 8
	loopMajor   = 7
	// discard gives blocks of deleted files back to the host; noinit_itable
	// keeps the kernel from filling the holes of the file.
	mountOptions = "discard,noinit_itable,errors=remount-ro"

	unmountTries = 20
	unmountPause = 25 * time.Millisecond
)

// copySparse copies what is no hole.
func copySparse(to string, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	if !clone(out, in) {
		if err := copyHoles(out, in); err != nil {
			return err
		}
	}
	return out.Close()
}

// mountImage mounts through a loop device that frees itself: it holds on to
// its file only while it is open or mounted, whatever happens to us.
func mountImage(image, at string) error {
	loop, err := openLoop(image)
	if err != nil {
		return err
	}
	defer loop.Close()
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	err = unix.Mount(loop.Name(), at, "ext4", flags, mountOptions)
	if errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG) {
		return errs.Wrap(errs.Corrupt, fmt.Errorf("mount %s: %w", image, err), "the workspace's file system is damaged").
			WithHint("the operator can run `e2fsck -f` over its image; the server's log says which")
	}
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// loopSetup has one of us at a time look for a free device: the kernel tells all who
// ask at once of the same one, and of a hundred that set theirs up together some
// would never get any.
var loopSetup sync.Mutex

// openLoop returns a loop device over the image: the one that it still has, if
// any. An unmount here does not end the file system while it is still mounted
// elsewhere (a copy of our mounts in another namespace, a lazy unmount); a second
// device over the same image would then be a second file system that does not
// see what the first has not written yet, and both would write.
func openLoop(image string) (*os.File, error) {
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if loop := presentLoop(file); loop != nil {
		return loop, nil
	}
	ctl, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	loopSetup.Lock()
	defer loopSetup.Unlock()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		loop, err := openNode(n)
		if err != nil {
			return nil, err
		}
		conf := unix.LoopConfig{Fd: uint32(file.Fd()), Size: 4096, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(conf.Info.File_name[:], filepath.Base(filepath.Dir(image)))
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &conf)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up a loop device: %w", err)
		}
	}
	return nil, errs.New(errs.Unavailable, "no loop device was free")
}

// presentLoop returns the loop device that a file has, nil = none. While it is
// open it cannot free itself.
func presentLoop(file *os.File) *os.File {
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil {
		return nil
	}
	names, _ := filepath.Glob("/sys/block/loop*/loop")
	for _, name := range names {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(name)), "loop"))
		if err != nil {
			continue
		}
		loop, err := openNode(n)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		if err == nil && info.Inode == st.Ino && info.Device == st.Dev {
			return loop
		}
		_ = loop.Close()
	}
	return nil
}

// openNode opens /dev/loopN, and makes the node where it is missing.
func openNode(n int) (*os.File, error) {
	path := "/dev/loop" + strconv.Itoa(n)
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		loop, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	return loop, err
}

// mounted reports whether something is mounted on a directory.
func mounted(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "lstat", Path: filepath.Dir(dir), Err: err}
	}
	return here.Dev != above.Dev, nil
}

// flush writes what the file system has in memory and gives the blocks of
// deleted files back to the host. The last unmount would do both, but ours is
// not the last one while any process of the host (another sandbox that is just
// starting, say) holds a copy of our mounts. It is a favour, not a promise:
// nothing is lost without it.
func flush(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.Syncfs(fd)
	whole := trimRange{length: ^uint64(0)}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fitrim, uintptr(unsafe.Pointer(&whole)))
}

// fitrim is FITRIM of linux/fs.h, trimRange its struct fstrim_range.
const fitrim = 0xc0185879

type trimRange struct{ start, length, minimum uint64 }

// unmount waits a little for the last user to let go. A mount that stays busy
// is taken out of sight: it ends, with its loop device, when its last user does.
// Copies of the mount in other mount namespaces are no users.
func unmount(ctx context.Context, dir string) error {
	for range unmountTries {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if err == nil {
			renew(dir)
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
	if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	renew(dir)
	return nil
}

// renew puts a new directory in the place of one on which nothing is mounted here
// any more. With the old one go the copies of its mount in other namespaces, since
// Linux 4.2. Each process that began while it was mounted, and made a mount
// namespace of its own, has such a copy: gVisor's do, of the volumes of all other
// sandboxes, and keep them for as long as they live, also from where they have
// detached them. Until then the loop device stays, and what the image takes on the
// disk, and it cannot be checked.
//
// It is no error if that cannot be, on a full disk say: the mount here is gone.
func renew(dir string) {
	fresh := dir + ".new"
	if err := os.Mkdir(fresh, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return
	}
	if err := unix.Rename(fresh, dir); err != nil { // something is mounted on it still, or in it
		_ = os.Remove(fresh)
	}
}
