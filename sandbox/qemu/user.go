package qemu

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// hidingFlags put QEMU where it sees no network and no shared memory of others.
const hidingFlags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC

// canHide reports whether a process of ours gets such namespaces.
func canHide(ctx context.Context) bool {
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
	return uid, err == nil && mapsAll(string(data))
}

// mapsAll reports whether a user id map knows the whole range.
func mapsAll(text string) bool {
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && inside <= userMin && inside+count > userMin+userMask {
			return true
		}
	}
	return false
}
