// Package scratch makes directories for tests in the system's temporary
// directory, where a test's own will not do: paths of sockets are short, other
// users must get there, a program is built once for a whole test process.
//
//	dir, err := scratch.Dir("e2e")
//	defer os.RemoveAll(dir)
//
// A test process that is killed removes nothing. So the names say whose a
// directory is, and each call removes those of processes that are no more.
// Several processes may call it at once.
package scratch

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names are short: Podman refuses paths of more than fifty letters.
const prefix = "skete-"

// Dir makes a directory, named after what it is for. The caller removes it.
func Dir(what string) (string, error) {
	for _, left := range Left(what) {
		_ = Remove(left)
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("%s%s-%s-%d-%.5s", prefix, what, namespace(), os.Getpid(), rand.Text()))
	return dir, os.Mkdir(dir, 0o700)
}

// Left lists the directories for that purpose whose processes are no more.
func Left(what string) (dead []string) {
	all, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+what+"-*"))
	for _, dir := range all {
		rest := strings.TrimPrefix(filepath.Base(dir), prefix+what+"-")
		if f := strings.Split(rest, "-"); len(f) == 3 && f[0] == namespace() && !alive(f[1]) {
			dead = append(dead, dir)
		}
	}
	return dead
}

// Remove removes a directory with all that is still mounted in it.
func Remove(dir string) error {
	for range mountsMax {
		path := mountedBelow(dir)
		if path == "" {
			break
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return os.RemoveAll(dir)
}

const mountsMax = 1000

// mountedBelow is the mount below dir that was made last, "" = none.
func mountedBelow(dir string) (path string) {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			path = f[4]
		}
	}
	return path
}

// alive judges processes of this namespace only, and keeps what it cannot judge.
func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err != nil || n <= 0 || unix.Kill(n, 0) != unix.ESRCH
}

// namespace names that of our process ids: a temporary directory may be shared
// with containers, in which the same numbers are others.
func namespace() string {
	link, _ := os.Readlink("/proc/self/ns/pid") // "pid:[4026531836]"
	n, _ := strconv.ParseUint(strings.Trim(strings.TrimPrefix(link, "pid:"), "[]"), 10, 64)
	return strconv.FormatUint(n%(36*36*36*36), 36)
}
