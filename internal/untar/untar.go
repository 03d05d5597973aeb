// Package untar unpacks untrusted tar streams beneath a directory.
//
//	root, err := os.OpenRoot(dir)
//	res, err := untar.Unpack(ctx, root, r, untar.Options{BytesMax: 1 << 30, EntriesMax: 10_000})
//
// Nothing is ever created outside of root, whatever the stream says and
// whichever process changes the tree meanwhile: the Root sees to that. On the host it is
// an *os.Root; in a guest it is guest/file/tree's, since os.Root does not hold
// on gVisor. Entries and bytes
// are bounded, set-id bits dropped, devices never made. On error, what was
// unpacked until then stays; Result says how much that was.
//
// Errors of the stream are errs.Invalid, bounds are errs.Limit; everything
// else is the file system's own error.
package untar

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Bounds of one name.
const (
	nameBytesMax      = 4095
	componentBytesMax = 255
	depthMaxDefault   = 200
	linksMax          = 40
)

// Root is a directory that names cannot leave. *os.Root is one.
type Root interface {
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Remove(name string) error
	Symlink(target, name string) error
	Link(old, name string) error
	Chmod(name string, mode fs.FileMode) error
	Lchown(name string, uid, gid int) error
	Chtimes(name string, atime, mtime time.Time) error
}

// Options say what is accepted. BytesMax and EntriesMax must be set.
type Options struct {
	BytesMax   int64 // of file content, holes included
	EntriesMax int64
	DepthMax   int // 0 = 200
	// Absolute takes "/etc/passwd" as "etc/passwd"; else it is refused.
	Absolute bool
	// FollowLinks resolves symbolic links in the middle of a name beneath the
	// root, as a chroot would; else an entry through a link is refused.
	FollowLinks bool
	// SkipSpecial passes over devices and fifos; else they are refused.
	SkipSpecial bool
	// Owner keeps numeric owners (needs root).
	Owner bool
}

// Result says what was unpacked.
type Result struct{ Entries, Bytes int64 }

// Unpack reads r to the end of the archive.
func Unpack(ctx context.Context, root Root, r io.Reader, o Options) (Result, error) {
	if o.DepthMax == 0 {
		o.DepthMax = depthMaxDefault
	}
	u := &unpacker{ctx: ctx, root: root, o: o, buf: make([]byte, 256<<10)}
	err := u.all(tar.NewReader(r))
	if err == nil {
		err = u.finishDirs()
	}
	return u.res, err
}

type unpacker struct {
	ctx    context.Context
	root   Root
	o      Options
	res    Result
	buf    []byte
	parent string   // the last one made, so that it is not looked at again
	dirs   []*entry // whose mode and time are set at the end
}

// entry is one header after its checks.
type entry struct {
	name string // clean, relative, beneath the root
	mode fs.FileMode
	hdr  *tar.Header
}

func (u *unpacker) all(tr *tar.Reader) error {
	for {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return streamError(err)
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if u.res.Entries >= u.o.EntriesMax {
			return errs.New(errs.Limit, "the archive has more than %d entries", u.o.EntriesMax)
		}
		if err := u.entry(hdr, tr); err != nil {
			return err
		}
	}
}

// streamError keeps a class that the reader gave; all else is a bad archive.
func streamError(err error) error {
	var own *errs.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.Wrap(errs.Invalid, err, "the archive is cut off")
	}
	return errs.Wrap(errs.Invalid, err, "this is not a tar archive, or a damaged one")
}

// Clean checks the name of an archive's entry and makes it relative.
func Clean(name string, absolute bool) (string, error) {
	bad := func(why string) (string, error) {
		return "", errs.New(errs.Invalid, "the archive's entry %.80q %s", name, why)
	}
	switch {
	case name == "":
		return bad("has no name")
	case len(name) > nameBytesMax:
		return bad("has a name that is too long")
	case strings.IndexByte(name, 0) >= 0:
		return bad("has a NUL in its name")
	case name[0] == '/' && !absolute:
		return bad("is absolute")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return bad("leaves its directory")
		}
		if len(part) > componentBytesMax {
			return bad("has a name that is too long")
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (u *unpacker) entry(hdr *tar.Header, r io.Reader) error {
	name, err := Clean(hdr.Name, u.o.Absolute)
	if err != nil {
		return err
	}
	if strings.Count(name, "/") >= u.o.DepthMax {
		return errs.New(errs.Limit, "the archive's entry %.80q is deeper than %d levels", hdr.Name, u.o.DepthMax)
	}
	u.res.Entries++
	if name == "" { // the root itself
		return nil
	}
	if name, err = u.place(name); err != nil {
		return err
	}
	e := &entry{name: name, mode: hdr.FileInfo().Mode().Perm(), hdr: hdr}
	switch hdr.Typeflag {
	case tar.TypeDir:
		return u.dir(e)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return u.file(e, r)
	case tar.TypeSymlink:
		return u.symlink(e)
	case tar.TypeLink:
		return u.link(e)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if u.o.SkipSpecial {
			u.res.Entries--
			return nil
		}
		return errs.New(errs.Invalid, "the archive's entry %.80q is a device or fifo", hdr.Name)
	}
	return errs.New(errs.Invalid, "the archive's entry %.80q has the unknown type %q", hdr.Name, hdr.Typeflag)
}

// place makes the directories above a name and returns the name with no link
// left in its parents.
func (u *unpacker) place(name string) (string, error) {
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return name, nil
	}
	resolved, err := u.resolve(dir)
	if err != nil {
		return "", err
	}
	if resolved != "" && resolved != u.parent {
		if err := u.root.MkdirAll(resolved, 0o755); err != nil {
			return "", err
		}
		u.parent = resolved
	}
	return path.Join(resolved, base), nil
}

// resolve walks a directory's name. What does not exist yet is taken as it is.
func (u *unpacker) resolve(dir string) (string, error) {
	if dir == u.parent {
		return dir, nil
	}
	todo := strings.Split(dir, "/")
	at, links := "", 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..": // only from a link's target; a chroot stays at its root
			at = strings.TrimPrefix(path.Dir("/"+at), "/")
			continue
		}
		next := path.Join(at, part)
		fi, err := u.root.Lstat(next)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			at = next // MkdirAll says what is wrong with it
			continue
		}
		if !u.o.FollowLinks {
			return "", errs.New(errs.Invalid, "the archive's entry beneath %.80q leads through a symbolic link", dir)
		}
		if links++; links > linksMax {
			return "", errs.New(errs.Invalid, "too many symbolic links above %.80q", dir)
		}
		target, err := u.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			at = ""
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return at, nil
}

func (u *unpacker) dir(e *entry) error {
	fi, err := u.root.Lstat(e.name)
	switch {
	case err == nil && fi.IsDir():
	case err == nil && u.o.FollowLinks && fi.Mode()&fs.ModeSymlink != 0:
		return nil // "lib -> usr/lib" stays what it is when a layer has "lib/"
	default:
		if err := u.clear(e.name, fi); err != nil {
			return err
		}
		// Until the end of the archive we must be able to write into it.
		if err := u.root.Mkdir(e.name, 0o700); err != nil {
			return err
		}
	}
	u.dirs = append(u.dirs, e)
	return nil
}

// clear makes room for an entry: a directory is replaced only when empty.
func (u *unpacker) clear(name string, fi fs.FileInfo) error {
	if fi == nil {
		return nil
	}
	if name == u.parent {
		u.parent = ""
	}
	return u.root.Remove(name)
}

func (u *unpacker) clearName(name string) error {
	fi, err := u.root.Lstat(name)
	if err != nil {
		return nil
	}
	return u.clear(name, fi)
}

func (u *unpacker) file(e *entry, r io.Reader) error {
	if e.hdr.Size > u.o.BytesMax-u.res.Bytes {
		return errs.New(errs.Limit, "the archive holds more than %d bytes", u.o.BytesMax)
	}
	if err := u.clearName(e.name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := u.copy(f, r)
	u.res.Bytes += n
	if err != nil {
		return err
	}
	if u.o.Owner {
		if err := f.Chown(e.hdr.Uid, e.hdr.Gid); err != nil {
			return err
		}
	}
	if err := f.Chmod(e.mode); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return u.times(e)
}

// copy separates the stream's errors from the file's.
func (u *unpacker) copy(f *os.File, r io.Reader) (int64, error) {
	var total int64
	for {
		if err := u.ctx.Err(); err != nil {
			return total, err
		}
		n, readErr := r.Read(u.buf)
		if n > 0 {
			if _, err := f.Write(u.buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if errors.Is(readErr, io.EOF) {
			return total, nil
		}
		if readErr != nil {
			return total, streamError(readErr)
		}
	}
}

func (u *unpacker) times(e *entry) error {
	at := e.hdr.ModTime
	if at.Before(time.Unix(0, 0)) || at.Year() > 2400 {
		return nil // beyond what file systems keep
	}
	return u.root.Chtimes(e.name, at, at)
}

func (u *unpacker) symlink(e *entry) error {
	if t := e.hdr.Linkname; t == "" || len(t) > nameBytesMax || strings.IndexByte(t, 0) >= 0 {
		return errs.New(errs.Invalid, "the archive's link %.80q has a bad target", e.hdr.Name)
	}
	if err := u.clearName(e.name); err != nil {
		return err
	}
	if err := u.root.Symlink(e.hdr.Linkname, e.name); err != nil {
		return err
	}
	if u.o.Owner {
		return u.root.Lchown(e.name, e.hdr.Uid, e.hdr.Gid)
	}
	return nil
}

// link makes a hard link, to a regular file of the same root only.
func (u *unpacker) link(e *entry) error {
	old, err := Clean(e.hdr.Linkname, u.o.Absolute)
	if err != nil {
		return err
	}
	dir, base := path.Split(old)
	if dir, err = u.resolve(strings.TrimSuffix(dir, "/")); err != nil {
		return err
	}
	old = path.Join(dir, base)
	fi, err := u.root.Lstat(old)
	if err != nil || !fi.Mode().IsRegular() {
		return errs.New(errs.Invalid, "the archive's hard link %.80q points to no file of the archive's", e.hdr.Name)
	}
	if old == e.name {
		return nil
	}
	if err := u.clearName(e.name); err != nil {
		return err
	}
	return u.root.Link(old, e.name)
}

// finishDirs sets modes and times of directories, the deepest first, because
// a mode may forbid us to look inside and a change inside moves the time.
func (u *unpacker) finishDirs() error {
	slices.SortStableFunc(u.dirs, func(a, b *entry) int {
		return strings.Count(b.name, "/") - strings.Count(a.name, "/")
	})
	for _, e := range u.dirs {
		fi, err := u.root.Lstat(e.name)
		if err != nil || !fi.IsDir() {
			continue // replaced by a later entry
		}
		if u.o.Owner {
			if err := u.root.Lchown(e.name, e.hdr.Uid, e.hdr.Gid); err != nil {
				return err
			}
		}
		mode := e.mode
		if e.hdr.Mode&0o1000 != 0 {
			mode |= fs.ModeSticky
		}
		if err := u.root.Chmod(e.name, mode); err != nil {
			return err
		}
		if err := u.times(e); err != nil {
			return err
		}
	}
	return nil
}
