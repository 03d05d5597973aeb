package file

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
)

// This file turns the kernel's errors into classes and codes, with a text that
// names the user's path.
//
// Functions are pure.

// reasons pairs the kernel's errors with their classes and texts.
var reasons = []struct {
	errno unix.Errno
	class errs.Class
	code  string
	text  string
}{
	{unix.ENOENT, errs.NotFound, errs.FileNotFound, "no such file or directory"},
	{unix.EACCES, errs.Denied, errs.PermissionDenied, "permission denied"},
	{unix.EPERM, errs.Denied, errs.PermissionDenied, "operation not permitted"},
	{unix.EROFS, errs.Denied, errs.PermissionDenied, "the file system is read-only"},
	{unix.EEXIST, errs.Exists, errs.FileExists, "exists already"},
	{unix.ENOTEMPTY, errs.Exists, errs.DirectoryNotEmpty, "the directory is not empty"},
	{unix.ENOTDIR, errs.Invalid, errs.NotADirectory, "not a directory"},
	{unix.EISDIR, errs.Invalid, errs.IsDirectory, "is a directory"},
	{unix.EINVAL, errs.Invalid, errs.InvalidPath, "the file system does not accept this"},
	{unix.ELOOP, errs.Invalid, errs.InvalidPath, "too many symbolic links, or one that may not be followed"},
	{unix.ENAMETOOLONG, errs.Invalid, errs.InvalidPath, "the name is too long"},
	{unix.ENXIO, errs.Invalid, errs.NotAFile, "not a regular file"},
	{unix.ETXTBSY, errs.Conflict, "", "the program is running"},
	{unix.EBUSY, errs.Conflict, "", "in use"},
	{unix.ENOSPC, errs.Limit, errs.NoSpace, "no space left in the sandbox"},
	{unix.EDQUOT, errs.Limit, errs.NoSpace, "no space left in the sandbox"},
	{unix.EFBIG, errs.Limit, errs.FileTooLarge, "the file would be too large"},
	{unix.EMLINK, errs.Limit, "", "too many links"},
	{unix.EMFILE, errs.Limit, "", "too many files are open in the guest"},
	{unix.ENFILE, errs.Limit, "", "too many files are open in the guest"},
	{unix.ENOMEM, errs.Limit, "", "no memory left in the sandbox"},
	{unix.EOPNOTSUPP, errs.Unsupported, "", "the file system cannot do this"},
	{unix.ENOSYS, errs.Unsupported, "", "the kernel cannot do this"},
	{unix.ESTALE, errs.Conflict, errs.FileChanged, "changed meanwhile"},
	{unix.EIO, errs.Unavailable, "", "the disk answers with an error"},
}

// faultOf gives a file system's error its class and names the user's path. A
// path inside of a tree is taken from the error itself.
func faultOf(err error, file string) error {
	if err == nil {
		return nil
	}
	var own *errs.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Path != "" && !path.IsAbs(pe.Path) {
		file = path.Join(file, pe.Path)
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		for _, r := range reasons {
			if r.errno == errno {
				return errs.Wrap(r.class, err, "%s: %s", showPath(file), r.text).WithCode(r.code)
			}
		}
		return errs.Wrap(errs.Internal, err, "%s: %s", showPath(file), errno.Error())
	}
	switch {
	case errors.Is(err, tree.ErrTooDeep), errors.Is(err, tree.ErrTooMany):
		return errs.Wrap(errs.Limit, err, "%s: beyond the bounds of one call (200 levels, 2,000,000 names in a directory)", showPath(file))
	case errors.Is(err, tree.ErrIntoItself):
		return errs.Wrap(errs.Invalid, err, "%s: %s", showPath(file), tree.ErrIntoItself.Error()).WithCode(errs.InvalidPath)
	case errors.Is(err, tree.ErrSpecial):
		return errs.Wrap(errs.Invalid, err, "%s: %s", showPath(file), tree.ErrSpecial.Error()).WithCode(errs.NotAFile)
	case strings.Contains(err.Error(), "path escapes from parent"): // os.Root's, which has no exported value
		return errs.Wrap(errs.Invalid, err, "%s: leads out of its directory", showPath(file)).WithCode(errs.InvalidPath)
	}
	return err
}
