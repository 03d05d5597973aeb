package initd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mounts of a machine with a kernel of its own, in order.
var mounts = []struct {
	target, fstype, data string
	flags                uintptr
}{
	{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"/dev", "devtmpfs", "mode=0755", unix.MS_NOSUID},
	{"/dev/pts", "devpts", "mode=0620,ptmxmode=0666", unix.MS_NOSUID | unix.MS_NOEXEC},
	{"/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	{"/tmp", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	{"/run", "tmpfs", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// links that programs expect and devtmpfs lacks.
var links = []struct{ at, to string }{
	{"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"}, {"/dev/stderr", "/proc/self/fd/2"},
}

// mountAll mounts what a bare machine lacks and names it. What is mounted
// already (devtmpfs by the kernel) is no error.
func mountAll(hostname string) error {
	for _, m := range mounts {
		if m.fstype == "proc" && exists("/proc/self") { // each mount of it would be another one
			continue
		}
		if err := os.MkdirAll(m.target, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := unix.Mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for _, l := range links {
		if err := os.Symlink(l.to, l.at); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if hostname != "" {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("set the host name: %w", err)
		}
	}
	return nil
}
