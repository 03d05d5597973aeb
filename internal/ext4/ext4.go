// Package ext4 makes empty ext4 file systems in sparse files.
package ext4

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/confine"
)

const (
	timeout  = time.Minute
	bytesMin = 16 << 20
)

// Blank makes an empty ext4 file system of this size in a new sparse file.
// It costs little to make, to keep and to copy: inode tables and the journal
// stay holes, nothing is reserved for root, and there is an inode for every
// 8 KiB, for trees of small files. Unsupported: mkfs.ext4 is not installed.
// Exists: path is taken.
func Blank(ctx context.Context, path string, bytes int64) (err error) {
	if bytes < bytesMin {
		return errs.New(errs.Invalid, "a disk has at least %d bytes", bytesMin)
	}
	mkfs, err := Look()
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
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The file is all holes: nothing in it needs to be zeroed, now or by the
	// kernel later. mkfs.ext4 before 1.47 cannot be told.
	err = format(ctx, mkfs, path, bytes, "assume_storage_prezeroed=1")
	if err != nil && ctx.Err() == nil {
		err = format(ctx, mkfs, path, bytes, "lazy_itable_init=1,lazy_journal_init=1")
	}
	return err
}

// features are named, since no configuration file is read. Inodes of 256 bytes
// keep times in nanoseconds; those of 128 keep seconds, and then one cannot see
// that a file changed.
const features = "ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum,^resize_inode"

func format(ctx context.Context, mkfs, path string, bytes int64, extended string) error {
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-b", "4096", "-i", "8192", "-I", "256",
		"-J", "size="+strconv.Itoa(journalMiB(bytes)), "-O", features,
		"-E", extended+",nodiscard,root_owner=0:0", path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null"}
	if out, err := confine.CombinedOutput(cmd, confine.Rights{Write: []string{path}}); err != nil {
		if ctx.Err() != nil { // that it was killed is no news
			err = ctx.Err()
		}
		return fmt.Errorf("mkfs.ext4: %w: %.300q", err, out)
	}
	return nil
}

// Look returns the path of mkfs.ext4. Unsupported: it is not installed.
func Look() (string, error) {
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
