package stage

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
)

// sysctls that differ from what the kernel begins with, for a machine whose
// users are not trusted. One that a kernel does not have is passed over.
var sysctls = []struct{ name, value string }{
	{"kernel/dmesg_restrict", "1"},
	{"kernel/kptr_restrict", "2"},
	{"kernel/unprivileged_bpf_disabled", "2"},
	{"kernel/perf_event_paranoid", "3"},
	{"fs/protected_hardlinks", "1"},
	{"fs/protected_symlinks", "1"},
	{"fs/protected_fifos", "1"},
	{"fs/protected_regular", "2"},
	{"fs/suid_dumpable", "0"},
	{"kernel/core_pattern", "core"},
	{"vm/swappiness", "1"},
}

// settle gives the machine its names and manners.
func settle(b wire.Boot) error {
	for _, s := range sysctls {
		_ = os.WriteFile(filepath.Join("/proc/sys", s.name), []byte(s.value), 0)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("the loopback network: %w", err)
	}
	return nameMachine(newRoot, b.Hostname)
}

// loopbackUp switches the loopback device on: the kernel begins without.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// nameMachine writes the files that name a machine. Templates come with none,
// or with one that all machines would share.
func nameMachine(root, hostname string) error {
	etc, err := place(root, "/etc", 0o755)
	if err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	if err := replace(filepath.Join(etc, "machine-id"), hex.EncodeToString(id[:])+"\n", 0o444); err != nil {
		return err
	}
	if hostname == "" {
		return nil
	}
	return replace(filepath.Join(etc, "hostname"), hostname+"\n", 0o644)
}

// replace writes a file anew, whatever was in its place.
func replace(path, text string, mode os.FileMode) error {
	tmp := path + ".skete-new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(tmp, []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// showGuest shows the initramfs's directory with our program in the new root,
// read-only, root's alone.
func showGuest(b wire.Boot) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := os.WriteFile(wire.BootFile, data, 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(wire.DiskDir, 0o700); err != nil {
		return err
	}
	at, err := place(newRoot, wire.BootDir, 0o700)
	if err != nil {
		return err
	}
	if err := unix.Mount(wire.BootDir, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s: %w", wire.BootDir, err)
	}
	const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("", at, "", flags, ""); err != nil {
		return fmt.Errorf("show %s read-only: %w", wire.BootDir, err)
	}
	top := filepath.Join(disksDir, "work")
	if _, err := os.Lstat(top); err != nil {
		return nil // the workspace is no disk
	}
	if err := unix.Mount(top, filepath.Join(newRoot, wire.DiskDir), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s: %w", wire.DiskDir, err)
	}
	return nil
}
