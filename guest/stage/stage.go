// Package stage is what the first program of a virtual machine does before it
// is init: it turns an initramfs and three disks into a root file system, and
// becomes init there.
//
//	os.Exit(stage.Run()) // returns only when something failed
//
// The root disk is shared by many machines and read-only; what a machine
// changes goes to its layer. The workspace is a disk of its own. The kernel's
// command line says which is which (guest/stage/plan).
//
// # Who may do what
//
// The sandbox's user sees a plain Linux machine. The raw disks, the line to
// the host and the guest's own directories are root's alone; what the kernel
// tells of its addresses and messages is not for users. Where the sandbox
// grants root, root inside is root of this machine: it can write to the layer
// and the workspace beneath the file systems, stop the guest's supervisor,
// speak in its place, panic the kernel. It harms its own machine by that; the
// root disk is read-only in the monitor, and the host trusts nothing that
// comes out.
//
// # When it fails
//
// A machine without a root has nothing to go on with: Run says why in one line
// on the console and returns; the kernel then panics, because its first
// program ended, and with "panic=-1" the machine is over.
package stage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/stage/plan"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/volume/layout"
)

// Places in the initramfs.
const (
	newRoot     = "/new"
	disksDir    = "/disk"
	modulesDir  = "/mod"
	modulesList = "/modules.list"
	workspace   = "/workspace"
)

const (
	diskWait  = 10 * time.Second
	diskPause = time.Millisecond
)

// Run prepares the machine and becomes its init. It returns an exit code only
// when that failed.
func Run() int {
	fmt.Fprintf(os.Stderr, "\nskete: this machine cannot start: %v\n", enter())
	unix.Sync()
	return 1
}

// enter returns only when it failed.
func enter() error {
	if os.Getpid() != 1 {
		return errors.New("not the first program of a machine")
	}
	if err := mountKernel(); err != nil {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	p, err := plan.ParseParams(string(line))
	if err != nil {
		return err
	}
	if err := load(p.Wants()); err != nil {
		return err
	}
	if err := mountRoot(p); err != nil {
		return err
	}
	if err := mountWorkspace(p); err != nil {
		return err
	}
	if err := settle(p.Boot); err != nil {
		return err
	}
	return become(p)
}

// mountKernel mounts what the kernel shows of itself.
func mountKernel() error {
	for _, m := range []struct {
		at, kind, data string
		flags          uintptr
	}{
		{"/dev", "devtmpfs", "mode=0755", unix.MS_NOSUID},
		{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// load loads the modules for these uses, in the order of the list.
func load(uses []plan.Use) error {
	text, err := os.ReadFile(modulesList)
	if err != nil {
		return err
	}
	list, err := plan.ParseModules(string(text))
	if err != nil {
		return err
	}
	for _, file := range plan.Choose(list, uses) {
		if err := loadModule(filepath.Join(modulesDir, file)); err != nil {
			return fmt.Errorf("load the module %s: %w", file, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// disk waits for a block device and returns its path.
func disk(name string) (string, error) {
	path := filepath.Join("/dev", name)
	for end := time.Now().Add(diskWait); ; <-time.After(diskPause) {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("the disk %s did not appear within %s", name, diskWait)
		}
	}
}

// ext4 options of disks that we write to. noinit_itable keeps the kernel from
// filling the holes of the host's sparse file; discard gives blocks back to it.
const ext4Options = "discard,noinit_itable,errors=remount-ro"

// mountRoot puts the layer above the root disk.
func mountRoot(p plan.Params) error {
	lower, layer := filepath.Join(disksDir, "root"), filepath.Join(disksDir, "layer")
	for _, dir := range []string{lower, layer} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	dev, err := disk(p.Root)
	if err != nil {
		return err
	}
	if err := mountImage(dev, lower); err != nil {
		return fmt.Errorf("mount the root disk: %w", err)
	}
	if err := mountLayer(p, layer); err != nil {
		return fmt.Errorf("mount the layer: %w", err)
	}
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", newRoot, "overlay", unix.MS_NODEV|unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("put the layer above the root disk: %w", err)
	}
	return nil
}

// mountImage mounts a read-only image of either kind that templates have.
func mountImage(dev, at string) error {
	const flags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOATIME
	first := unix.Mount(dev, at, "ext4", flags, "")
	if first == nil {
		return nil
	}
	if err := load([]plan.Use{plan.Erofs}); err != nil {
		return errors.Join(first, err)
	}
	if err := unix.Mount(dev, at, "erofs", flags, ""); err != nil {
		return fmt.Errorf("as ext4: %w; as erofs: %w", first, err)
	}
	return nil
}

func mountLayer(p plan.Params, at string) error {
	if p.Layer == "" {
		return unix.Mount("tmpfs", at, "tmpfs", unix.MS_NODEV|unix.MS_NOATIME, "mode=0700")
	}
	dev, err := disk(p.Layer)
	if err != nil {
		return err
	}
	return mountDisk(dev, at, unix.MS_NODEV|unix.MS_NOATIME)
}

// mountDisk mounts an ext4 disk for writing; the kernel replays its journal.
func mountDisk(dev, at string, flags uintptr) error {
	err := unix.Mount(dev, at, "ext4", flags, ext4Options)
	if errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("its file system is damaged or none: %w", err)
	}
	return err
}

// mountWorkspace shows the files of the workspace disk; the whole disk stays
// where only root finds it (see showGuest).
func mountWorkspace(p plan.Params) error {
	at, err := place(newRoot, workspace, 0o755)
	if err != nil {
		return err
	}
	if p.Work == "" {
		return os.Chown(at, int(p.Boot.UID), int(p.Boot.GID))
	}
	dev, err := disk(p.Work)
	if err != nil {
		return err
	}
	top := filepath.Join(disksDir, "work")
	if err := os.MkdirAll(top, 0o700); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	if err := mountDisk(dev, top, flags); err != nil {
		return fmt.Errorf("mount the workspace: %w", err)
	}
	if err := layout.Arrange(top); err != nil {
		return err
	}
	files := filepath.Join(top, layout.Files)
	if err := adopt(files, p.Boot); err != nil {
		return err
	}
	if err := unix.Mount(files, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the workspace: %w", err)
	}
	return nil
}

// adopt gives a workspace that is empty and root's to the sandbox's user; any
// other keeps its owners.
func adopt(files string, b wire.Boot) error {
	var st unix.Stat_t
	if err := unix.Stat(files, &st); err != nil || st.Uid != 0 {
		return err
	}
	list, err := os.ReadDir(files)
	if err != nil || len(list) > 0 {
		return err
	}
	return os.Chown(files, int(b.UID), int(b.GID))
}

// place returns where a directory of the new root is, which it makes; what is
// no directory (a link that the template has there) gives way.
func place(root, name string, mode os.FileMode) (string, error) {
	at := filepath.Join(root, name)
	info, err := os.Lstat(at)
	if err == nil && info.IsDir() {
		return at, nil
	}
	if err == nil {
		if err := os.Remove(at); err != nil {
			return "", err
		}
	}
	return at, os.Mkdir(at, mode)
}

// become moves the machine to its new root and runs init there.
func become(p plan.Params) error {
	if err := showGuest(p.Boot); err != nil {
		return err
	}
	_ = os.RemoveAll(modulesDir) // its memory
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		at, err := place(newRoot, dir, 0o755)
		if err != nil {
			return err
		}
		if err := unix.Mount(dir, at, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	err := unix.Exec(wire.GuestBinary, []string{wire.GuestBinary, "init", "--boot", wire.BootFile}, []string{path})
	return fmt.Errorf("run init: %w", err)
}
