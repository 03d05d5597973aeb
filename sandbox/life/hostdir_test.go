package life

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/errs"
)

func TestRemoveDir_leavesMountsAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	precious := filepath.Join(t.TempDir(), "precious")
	dir := filepath.Join(t.TempDir(), `a b\c`)
	at := filepath.Join(dir, "x", "mount")
	for _, d := range []string{precious, at} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(precious, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "--bind", precious, at).CombinedOutput(); err != nil {
		t.Skipf("this host mounts nothing: %v %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
		if err := removeDir(dir); err != nil {
			t.Errorf("without the mount: %v", err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("without the mount: it is still there (%v)", err)
		}
	}()
	if err := removeDir(dir); !errs.Is(err, errs.Internal) {
		t.Errorf("with a mount: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what was mounted has lost its file: %v", err)
	}
	if err := removeDir(dir + "2"); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}
