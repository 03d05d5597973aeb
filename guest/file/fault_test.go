package file

import (
	"io/fs"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// What is wrong with a path has a code, which crosses the wire.
func TestFaultOf_codes(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.ENOENT: "file_not_found", unix.EACCES: "permission_denied", unix.EPERM: "permission_denied", unix.EROFS: "permission_denied",
		unix.EEXIST: "file_exists", unix.ENOTEMPTY: "directory_not_empty", unix.ENOTDIR: "not_a_directory", unix.EISDIR: "is_directory",
		unix.ELOOP: "invalid_path", unix.ENAMETOOLONG: "invalid_path", unix.ENXIO: "not_a_file", unix.ESTALE: "file_changed",
		unix.ENOSPC: "no_space", unix.EDQUOT: "no_space", unix.EFBIG: "file_too_large", unix.EMFILE: "", unix.EIO: "",
	} {
		err := wire.Err(wire.ToConnect(faultOf(&fs.PathError{Op: "open", Path: "x", Err: errno}, "/workspace")))
		if got := errs.Code(err); got != want {
			t.Errorf("%v: %q, not %q", errno, got, want)
		}
	}
	for _, name := range []string{"", "a\x00b", string(make([]byte, 5000)), "/" + string(slices.Repeat([]byte("n"), 300))} {
		if _, err := cleanPath(name, "/workspace", "/home/user"); errs.Code(err) != errs.InvalidPath {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
