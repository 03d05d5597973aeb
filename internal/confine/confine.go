// Package confine starts programs of the host that read what others made, a file system's
// image or a package, with no more rights than that takes: should such a program be
// taken over, it reads the system's own programs and what it was given, writes where it was
// told to, opens no TCP connection, signals no other process and becomes no other user.
//
//	cmd := exec.CommandContext(ctx, "e2fsck", "-p", image)
//	out, err := confine.CombinedOutput(cmd, confine.Rights{Write: []string{image}})
//
// It is done with Landlock (https://docs.kernel.org/userspace-api/landlock.html), as far as
// the kernel has it: Level says how far. Without it a program is started all the same, and
// has lost the way to more rights alone. All functions are safe for concurrent use.
package confine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights are what a program may use beside the system's programs, libraries and settings.
type Rights struct {
	// Read are files, and directories with all beneath them, that it may read.
	Read []string
	// Write are those that it may read and change; in a directory also make and remove.
	Write []string
}

// system is what every program needs to run. Users' files are not among it.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/alternatives", "/dev/urandom", "/dev/zero"}

// Accesses of files and directories, of the first version on.
const (
	read     = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	readFile = read &^ unix.LANDLOCK_ACCESS_FS_READ_DIR
	change   = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	never = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO
)

// Versions of Landlock, and what came with them.
const (
	withTruncate = 3
	withTCP      = 4
	withDevices  = 5
	withScopes   = 6
)

// Level is the version of Landlock that the kernel has; 0 = none.
var Level = sync.OnceValue(func() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
})

// Start is cmd.Start with these rights and no others.
func Start(cmd *exec.Cmd, r Rights) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: what is taken from this thread is not given back, and it ends with the goroutine
		err := restrict(r)
		if err == nil {
			err = cmd.Start() // by this thread, so that the program has what it has
		}
		started <- err
	}()
	return <-started
}

// CombinedOutput is cmd.CombinedOutput with these rights.
func CombinedOutput(cmd *exec.Cmd, r Rights) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := Start(cmd, r)
	if err == nil {
		err = cmd.Wait()
	}
	return out.Bytes(), err
}

// restrict takes from the calling thread, and what it starts, all but the rights.
func restrict(r Rights) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine a program: %w", err)
	}
	level := Level()
	if level == 0 {
		return nil
	}
	rules, err := ruleset(level)
	if err != nil {
		return fmt.Errorf("confine a program: %w", err)
	}
	defer unix.Close(rules)
	for _, path := range system {
		if err := allow(rules, path, read); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("confine a program: %s: %w", path, err)
		}
	}
	if err := allow(rules, os.DevNull, read|unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
		return fmt.Errorf("confine a program: %w", err)
	}
	writes := uint64(read | change)
	if level >= withTruncate {
		writes |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	for access, paths := range map[uint64][]string{read: r.Read, writes: r.Write} {
		for _, path := range paths {
			if err := allow(rules, path, access); err != nil {
				return fmt.Errorf("confine a program: %w", err)
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("confine a program: %w", errno)
	}
	return nil
}

// ruleset is one that allows nothing that this version can forbid.
func ruleset(level int) (int, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: read | change | never}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if level >= withTruncate {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if level >= withDevices {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if level >= withTCP {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = unsafe.Offsetof(attr.Scoped)
	}
	if level >= withScopes {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Offsetof(attr.Quiet_access_fs)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// allow adds what may be done with a file, or in a directory.
func allow(rules int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR { // the others mean nothing for a file, and are refused
		access &= readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return &fs.PathError{Op: "landlock", Path: path, Err: errno}
	}
	return nil
}
