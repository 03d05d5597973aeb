package enginetest

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A process of another program that was started in a mount namespace of its own
// sees the engine's mounts, and is none of the engine's.
func TestKillInside_leavesOthersAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts file systems: needs root")
	}
	// Of a name that no other test's directory has, as an engine's.
	e := &Engine{Kind: Docker, t: t, dir: filepath.Join(t.TempDir(), rand.Text())}
	at := filepath.Join(e.dir, "data")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", at, "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	start := func(root string) *exec.Cmd {
		cmd := exec.Command("/bin/sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Chroot: root}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	other := start("")
	if e.killInside() || other.Process.Signal(syscall.Signal(0)) != nil {
		t.Fatal("what is none of the engine's was ended")
	}

	// A container's root is an overlay that is kept in the engine's directory.
	root := filepath.Join(at, "merged")
	for _, dir := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil { //nolint:gosec // as an engine does
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+at+"/upper,workdir="+at+"/work"); err != nil {
		t.Skipf("cannot mount an overlay here: %v", err)
	}
	inside := start(root)
	if !e.killInside() {
		t.Error("what runs in a container was not found")
	}
	if state, _ := inside.Process.Wait(); state == nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", state)
	}
	if other.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("what is none of the engine's was ended with it")
	}
}
