package qemu

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/sleep"
)

// This file makes a process that can reach nothing: a user of its own, in
// namespaces of its own, with sockets that the server has made.

// hidingFlags put QEMU where it sees no network and no shared memory of others.
const hidingFlags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC

// canDropPrivileges reports whether a process of ours gets such namespaces.
func canDropPrivileges(ctx context.Context) bool {
	if os.Geteuid() != 0 {
		return false
	}
	cmd := exec.CommandContext(ctx, "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: hidingFlags}
	return cmd.Run() == nil
}

// Users of machines: a range that no distribution, container manager or
// directory service gives away by default (above systemd's containers, below
// 2^31). A machine's user derives from its ID: no two need share one, no list
// is kept.
const (
	userMin  = 0x70000000
	userMask = 1<<27 - 1
)

// ownUser returns the machine's user on the host; false: we cannot switch.
func ownUser(id string) (uint32, bool) {
	if os.Geteuid() != 0 {
		return 0, false
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	uid := uint32(userMin) + h.Sum32()&userMask
	data, err := os.ReadFile("/proc/self/uid_map")
	return uid, err == nil && mapsAllUsers(string(data))
}

// mapsAllUsers reports whether a user id map knows the whole range.
func mapsAllUsers(text string) bool {
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && inside <= userMin && inside+count > userMin+userMask {
			return true
		}
	}
	return false
}

// privdropAttributes of a process of its own session, the user of that id where we can
// switch, and the namespaces if hidden. kvm adds the group that may use it.
func privdropAttributes(id string, hidden, kvm bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if uid, ok := ownUser(id); ok {
		a.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		var st unix.Stat_t
		if kvm && unix.Stat("/dev/kvm", &st) == nil && st.Gid != 0 {
			a.Credential.Groups = []uint32{st.Gid}
		}
	}
	if hidden {
		a.Cloneflags = hidingFlags
	}
	return a
}

// privdropListen makes a listening socket at a path of any length.
func privdropListen(path string) (*os.File, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))})
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	ln.SetUnlinkOnClose(false)
	return ln.File()
}

// redialQueue is how long it is waited for QEMU to take a connection out of its queue.
const redialQueue = 20 * time.Millisecond

// privdropDial reaches a socket at a path of any length. QEMU's queue holds one or two
// connections, those that were given up among them, until its main loop comes round: on a
// host with much to do that takes a while, and a queue that is full is no machine that is
// gone. It waits as long as ctx does.
func privdropDial(ctx context.Context, path string) (net.Conn, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
		if !errors.Is(err, unix.EAGAIN) || sleep.For(ctx, redialQueue) != nil {
			return conn, err
		}
	}
}
