package scratch

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Disk mounts an ext4 file system of so many megabytes, which the test may fill,
// and returns where. It skips the test where that cannot be done.
func Disk(t testing.TB, mb int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk to fill")
	}
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	f, err := os.OpenFile(image, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Truncate(mb << 20)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("this host mounts no loop device: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}
