package ext4

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
)

func TestBlank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := Blank(t.Context(), path, 512<<20); err != nil {
		if errs.Is(err, errs.Unsupported) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != 512<<20 {
		t.Fatal(info, err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Blocks*512 > 1<<20 {
		t.Errorf("it takes %d KiB", st.Blocks/2)
	}
	head := make([]byte, 2048)
	if f, err := os.Open(path); err == nil {
		_, _ = f.ReadAt(head, 0)
		_ = f.Close()
	}
	if size := binary.LittleEndian.Uint16(head[1024+88:]); size != 256 { // s_inode_size
		t.Errorf("inodes of %d bytes, whose times are whole seconds", size)
	}
	if err := Blank(t.Context(), path, 512<<20); !errs.Is(err, errs.Exists) {
		t.Errorf("a second time: %v", err)
	}
	if err := Blank(t.Context(), path+"2", 1<<20); !errs.Is(err, errs.Invalid) {
		t.Errorf("too small: %v", err)
	}
	if out, err := exec.Command("/usr/sbin/fsck.ext4", "-fn", path).CombinedOutput(); err != nil {
		t.Errorf("fsck: %v: %s", err, out)
	}
}

// A caller that gives up hears that, not how mkfs.ext4 was ended.
func TestBlank_cancelled(t *testing.T) {
	if _, err := Look(); err != nil {
		t.Skip(err)
	}
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		path := filepath.Join(t.TempDir(), "disk")
		err := Blank(ctx, path, 8<<30)
		cancel()
		if err == nil {
			continue // it was faster
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", after, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
	}
}
