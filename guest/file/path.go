package file

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// Linux's own bounds, checked first so that the message names the path.
const (
	pathBytesMax = 4095
	nameBytesMax = 255
)

// normalise makes a request's path absolute and lexically clean.
func (s *Service) normalise(p []byte) (string, error) {
	name := string(p)
	switch {
	case name == "":
		return "", errs.New(errs.Invalid, "the path is empty")
	case bytes.IndexByte(p, 0) >= 0:
		return "", errs.New(errs.Invalid, "the path %s has a NUL in it", show(name))
	case len(name) > pathBytesMax:
		return "", errs.New(errs.Invalid, "the path %s is longer than %d bytes", show(name), pathBytesMax)
	case name == "~":
		name = s.cfg.Home
	case strings.HasPrefix(name, "~/"):
		name = s.cfg.Home + name[1:]
	case name[0] != '/':
		name = s.cfg.Workdir + "/" + name
	}
	name = path.Clean(name)
	if len(name) > pathBytesMax {
		return "", errs.New(errs.Invalid, "the path %s is longer than %d bytes", show(name), pathBytesMax)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > nameBytesMax {
			return "", errs.New(errs.Invalid, "the name %s is longer than %d bytes", show(part), nameBytesMax)
		}
	}
	return name, nil
}

// show makes a path fit for a message: short, and quoted when it is odd.
func show(name string) string {
	if len(name) > 200 {
		name = name[:100] + "…" + name[len(name)-90:]
	}
	quoted := strconv.Quote(name)
	if quoted == `"`+name+`"` && !strings.Contains(name, " ") {
		return name
	}
	return quoted
}

// reasons pairs the kernel's answers with whoever must act on them.
var reasons = []struct {
	errno unix.Errno
	class errs.Class
	text  string
}{
	{unix.ENOENT, errs.NotFound, "no such file or directory"},
	{unix.EACCES, errs.Denied, "permission denied"},
	{unix.EPERM, errs.Denied, "operation not permitted"},
	{unix.EROFS, errs.Denied, "the file system is read-only"},
	{unix.EEXIST, errs.Exists, "exists already"},
	{unix.ENOTEMPTY, errs.Exists, "the directory is not empty"},
	{unix.ENOTDIR, errs.Invalid, "not a directory"},
	{unix.EISDIR, errs.Invalid, "is a directory"},
	{unix.EINVAL, errs.Invalid, "the file system does not accept this"},
	{unix.ELOOP, errs.Invalid, "too many symbolic links, or one that may not be followed"},
	{unix.ENAMETOOLONG, errs.Invalid, "the name is too long"},
	{unix.ENXIO, errs.Invalid, "not a regular file"},
	{unix.ETXTBSY, errs.Conflict, "the program is running"},
	{unix.EBUSY, errs.Conflict, "in use"},
	{unix.ENOSPC, errs.Limit, "no space left in the sandbox"},
	{unix.EDQUOT, errs.Limit, "no space left in the sandbox"},
	{unix.EFBIG, errs.Limit, "the file would be too large"},
	{unix.EMLINK, errs.Limit, "too many links"},
	{unix.EMFILE, errs.Limit, "too many files are open in the guest"},
	{unix.ENFILE, errs.Limit, "too many files are open in the guest"},
	{unix.ENOMEM, errs.Limit, "no memory left in the sandbox"},
	{unix.EOPNOTSUPP, errs.Unsupported, "the file system cannot do this"},
	{unix.ENOSYS, errs.Unsupported, "the kernel cannot do this"},
	{unix.ESTALE, errs.Conflict, "changed meanwhile"},
}

// fault gives a file system's error its class and names the user's path. A
// path inside of a tree is taken from the error itself.
func fault(err error, name string) error {
	if err == nil {
		return nil
	}
	var own *errs.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Path != "" && !path.IsAbs(pe.Path) {
		name = path.Join(name, pe.Path)
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		for _, r := range reasons {
			if r.errno == errno {
				return errs.Wrap(r.class, err, "%s: %s", show(name), r.text)
			}
		}
		return errs.Wrap(errs.Internal, err, "%s: %s", show(name), errno.Error())
	}
	switch {
	case errors.Is(err, tree.ErrTooDeep), errors.Is(err, tree.ErrTooMany):
		return errs.Wrap(errs.Limit, err, "%s: beyond the bounds of one call (200 levels, 2,000,000 names in a directory)", show(name))
	case errors.Is(err, tree.ErrIntoItself):
		return errs.Wrap(errs.Invalid, err, "%s: %s", show(name), tree.ErrIntoItself.Error())
	case errors.Is(err, tree.ErrSpecial):
		return errs.Wrap(errs.Invalid, err, "%s: %s", show(name), tree.ErrSpecial.Error())
	case strings.Contains(err.Error(), "path escapes from parent"): // os.Root's, which has no exported value
		return errs.Wrap(errs.Invalid, err, "%s: leads out of its directory", show(name))
	}
	return err
}

// answer finishes a unary call.
func answer[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(msg), nil
}

// modeOf checks permission bits of a request.
func modeOf(mode, otherwise uint32) (uint32, error) {
	if mode > 0o7777 {
		return 0, errs.New(errs.Invalid, "the mode %#o has more than permission bits", mode)
	}
	if mode == 0 {
		return otherwise, nil
	}
	return mode, nil
}

// entryOf describes a file. target is read by the caller, under its rights.
func entryOf(name string, st *unix.Stat_t, target string) *wire.Entry {
	e := &wire.Entry{
		Name: []byte(path.Base(name)), Path: []byte(name),
		Type: typeOf(st), Size: st.Size, Mode: st.Mode & 0o7777,
		Uid: st.Uid, Gid: st.Gid, ModifiedUnixNs: st.Mtim.Nano(),
		Inode: st.Ino, Links: uint32(st.Nlink),
	}
	if target != "" {
		e.Target = []byte(target)
	}
	return e
}

func typeOf(st *unix.Stat_t) wire.FileType {
	switch {
	case tree.IsRegular(st):
		return wire.FileType_FILE_TYPE_REGULAR
	case tree.IsDir(st):
		return wire.FileType_FILE_TYPE_DIRECTORY
	case tree.IsLink(st):
		return wire.FileType_FILE_TYPE_SYMLINK
	}
	return wire.FileType_FILE_TYPE_OTHER
}

// entryAt describes an entry of an open directory.
func entryAt(dir int, base, name string) (*wire.Entry, error) {
	st, err := tree.Lstat(dir, base)
	if err != nil {
		return nil, err
	}
	return entryWithTarget(dir, base, name, &st), nil
}

func entryWithTarget(dir int, base, name string, st *unix.Stat_t) *wire.Entry {
	target := ""
	if tree.IsLink(st) {
		target, _ = tree.Readlink(dir, base) // gone meanwhile: none
	}
	return entryOf(name, st, target)
}
