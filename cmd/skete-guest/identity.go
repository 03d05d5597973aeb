package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeRoot makes the first process of a machine root where it is not. A
// provider without root on the host can map one identity only, and gives it to
// the commands' user, so that their files are theirs; init then starts as that
// user, with the capabilities of root, and takes the place of root here.
//
// The inheritable set that brought the capabilities along is emptied, in all
// threads: no command shall have it.
func becomeRoot() error {
	if os.Getpid() != 1 || os.Getuid() == 0 {
		return nil
	}
	if err := syscall.Setgid(0); err != nil {
		return fmt.Errorf("become root's group: %w", err)
	}
	if err := syscall.Setgroups([]int{0}); err != nil {
		return fmt.Errorf("become root's groups: %w", err)
	}
	if err := syscall.Setuid(0); err != nil {
		return fmt.Errorf("become root: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	header.Pid = 0
	_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("drop inheritable capabilities: %w", errno)
	}
	return nil
}
