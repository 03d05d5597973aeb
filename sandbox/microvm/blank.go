package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
)

const (
	mkfsTimeout   = time.Minute
	blankBytesMin = 16 << 20
)

// Blank makes an empty ext4 file system of this size in a new sparse file.
// It costs little to make and to keep: inode tables and the journal stay
// holes. Unsupported: mkfs.ext4 is not installed. Exists: path is taken.
func Blank(ctx context.Context, path string, bytes int64) (err error) {
	if bytes < blankBytesMin {
		return errs.New(errs.Invalid, "a disk has at least %d bytes", blankBytesMin)
	}
	mkfs, err := lookMkfs()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return errs.Wrap(errs.Exists, err, "the disk exists")
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mkfsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-b", "4096", "-i", "8192",
		"-J", "size="+strconv.Itoa(journalMiB(bytes)), "-O", "^resize_inode",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %.300q", err, out)
	}
	return nil
}

func lookMkfs() (string, error) {
	for _, name := range []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errs.New(errs.Unsupported, "mkfs.ext4 is not installed").WithHint("apt install e2fsprogs")
}

func journalMiB(bytes int64) int {
	switch {
	case bytes < 256<<20:
		return 4
	case bytes < 4<<30:
		return 8
	}
	return 32
}
