package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// spareBytes must be free on the disk beyond what is staged.
const spareBytes = 1 << 20

// Config says where a Run works.
type Config struct {
	Dir     string // that is changed
	Staging string // on the same file system, outside Dir; ours alone
	Journal string // a file outside Dir
	// Note is kept in the journal for Recover's caller.
	Note []byte
	// Stage is called with the name of each stage, for tests that die there; it
	// may be nil.
	Stage func(name string)
}

func (c Config) stage(name string) {
	if c.Stage != nil {
		c.Stage(name)
	}
}

// Result says what a Run left as it was.
type Result struct {
	// Kept are paths that are not what was planned: directories that were not
	// removed because they hold something that the history does not have, and
	// what another process changed meanwhile.
	Kept []string
}

// Run does the operations of a plan. begun: they happen, whatever dies; with an
// error Recover goes on. Otherwise the directory is as it was. The journal stays
// until Done. Limit: the disk has no room for what is to be written.
func Run(ctx context.Context, c Config, store *object.Store, ops []Op) (result Result, begun bool, err error) {
	if err := c.room(store, ops); err != nil {
		return Result{}, false, err
	}
	if err := c.writeJournal(ops); err != nil {
		return Result{}, false, errors.Join(full(err), c.drop())
	}
	c.stage("journal")
	err = c.prepare(ctx, store, ops)
	if err == nil {
		err = writeDurably(c.mark(), nil)
	}
	if err != nil {
		return Result{}, false, errors.Join(full(err), c.drop())
	}
	c.stage("staged")
	result, err = c.finish(ops)
	return result, true, err
}

// Recovered is a Run that was done, by itself or by Recover, and was not said to
// be Done.
type Recovered struct {
	Note   []byte
	Result Result
}

// Recover finishes or drops what a Run that died has left. It is called before
// anything else looks at the directory. nil: there is nothing to write down.
func Recover(c Config) (*Recovered, error) {
	ops, note, err := c.readJournal()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, c.drop()
	}
	if err != nil {
		return nil, err
	}
	staged, applied := c.marks()
	switch {
	case applied: // who wrote to the directory since may have been let go on
		return &Recovered{note, Result{Kept: c.readKept()}}, nil
	case !staged:
		return nil, c.drop()
	}
	result, err := c.finish(ops)
	if err != nil {
		return nil, err
	}
	return &Recovered{note, result}, nil
}

// Done says that what a Run did is written down: the journal goes.
func Done(c Config) error {
	if err := c.drop(); err != nil {
		return err
	}
	c.stage("dropped")
	return nil
}

// drop removes all that is ours, the journal last.
func (c Config) drop() error {
	err := os.RemoveAll(c.Staging)
	if err == nil {
		err = remove(c.Journal)
	}
	if err == nil {
		err = c.unmark()
	}
	return err
}

func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Wrap(errs.Limit, err, "the workspace's disk is too full for this").
			WithHint("nothing was changed; delete something first")
	}
	return err
}

// room looks before anything is written whether the disk can take it.
func (c Config) room(store *object.Store, ops []Op) error {
	need := int64(spareBytes)
	for _, o := range ops {
		if o.Action != Write || o.After.Type != tree.File {
			continue
		}
		bytes, err := dataBytes(store, o.After)
		if err != nil {
			return err
		}
		need += bytes
	}
	var st unix.Statfs_t
	if err := unix.Statfs(c.Dir, &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return errs.New(errs.Limit, "the workspace's disk has %d MiB free, and %d MiB are to be written", free>>20, need>>20).
			WithHint("nothing was changed; delete something first")
	}
	return nil
}

// dataBytes is what a file takes on disk, in whole blocks, without its holes.
func dataBytes(store *object.Store, e tree.Entry) (sum int64, err error) {
	const block = 4096
	whole := func(n int64) int64 { return (n + block - 1) / block * block }
	if !e.Listed {
		return whole(e.Size), nil
	}
	list, err := store.Get(object.List, e.Hash)
	if err != nil {
		return 0, err
	}
	chunks, err := tree.DecodeList(list)
	for _, c := range chunks {
		sum += whole(c.Length)
	}
	return sum, err
}

// prepare puts the contents of all files into the staging directory.
func (c Config) prepare(ctx context.Context, store *object.Store, ops []Op) error {
	if err := os.RemoveAll(c.Staging); err != nil {
		return err
	}
	if err := os.Mkdir(c.Staging, 0o700); err != nil {
		return err
	}
	for i, o := range ops {
		if o.Action != Write || o.After.Type != tree.File {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeFile(c.staged(i), store, o.After); err != nil {
			return fmt.Errorf("stage %q: %w", o.Path, err)
		}
	}
	c.stage("contents")
	d, err := os.Open(c.Staging)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

func (c Config) staged(i int) string { return filepath.Join(c.Staging, strconv.Itoa(i)) }

// writeFile writes what an entry names, with its owner, mode and attributes.
func writeFile(name string, store *object.Store, e tree.Entry) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = Content(store, e, func(at int64, data []byte) error {
		_, err := f.WriteAt(data, at)
		return err
	})
	if err == nil {
		err = f.Truncate(e.Size)
	}
	if err == nil {
		err = attributes(int(f.Fd()), e)
	}
	return errors.Join(err, f.Close())
}

// Content visits the bytes of a file that are no holes.
func Content(store *object.Store, e tree.Entry, visit func(at int64, data []byte) error) error {
	if !e.Listed {
		data, err := part(store, e.Hash, e.Size)
		if err != nil {
			return err
		}
		return visit(0, data)
	}
	list, err := store.Get(object.List, e.Hash)
	if err != nil {
		return err
	}
	chunks, err := tree.DecodeList(list)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if c.Offset+c.Length > e.Size {
			return errs.New(errs.Corrupt, "%.200q holds %d bytes, and should hold %d", e.Name, c.Offset+c.Length, e.Size)
		}
		data, err := part(store, c.Hash, c.Length)
		if err == nil {
			err = visit(c.Offset, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// part reads a blob that has to be so long: what names it may be a machine's
// word, and where it is served its length was announced.
func part(store *object.Store, h object.Hash, length int64) ([]byte, error) {
	data, err := store.Get(object.Blob, h)
	if err == nil && int64(len(data)) != length {
		return nil, errs.New(errs.Corrupt, "object %s holds %d bytes, and should hold %d", h, len(data), length)
	}
	return data, err
}

// attributes sets owner, then mode (a change of owner drops setuid), then the
// user's attributes.
func attributes(fd int, e tree.Entry) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid != e.UID || st.Gid != e.GID {
		if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if err := unix.Fchmod(fd, e.Mode); err != nil {
		return err
	}
	dropXattrs(fd, e)
	for _, x := range e.Xattrs {
		if err := unix.Fsetxattr(fd, x.Name, []byte(x.Value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}

// dropXattrs removes the user's attributes that an entry does not have.
func dropXattrs(fd int, e tree.Entry) {
	var buf [4096]byte
	n, err := unix.Flistxattr(fd, buf[:])
	if err != nil || n <= 0 {
		return
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		known := slices.ContainsFunc(e.Xattrs, func(x tree.Xattr) bool { return x.Name == name })
		if strings.HasPrefix(name, "user.") && !known {
			_ = unix.Fremovexattr(fd, name)
		}
	}
}

// finish does all operations, each of which may have been done before.
func (c Config) finish(ops []Op) (Result, error) {
	root, err := unix.Open(c.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Result{}, err
	}
	defer unix.Close(root)
	x := executor{c: c, root: root}
	for i, o := range ops {
		if err := x.doOrKeep(i, o); err != nil {
			return x.result, fmt.Errorf("%s %q: %w", o.Action, o.Path, err)
		}
		c.stage("applied " + strconv.Itoa(i))
	}
	if err := unix.Syncfs(root); err != nil {
		return x.result, err
	}
	c.stage("applied")
	if err := c.markDone(x.result); err != nil {
		return x.result, err
	}
	c.stage("marked")
	return x.result, nil
}

type executor struct {
	c      Config
	root   int
	result Result
}

// pathStep is how much of a path one system call takes; the kernel's PATH_MAX
// is 4096.
const pathStep = 3500

// parent opens the directory that a path is in. Another process may swap parts
// of the path meanwhile: no link is followed.
func (x *executor) parent(p []byte) (fd int, name string, err error) {
	dir, name := path.Split(string(p))
	if err := tree.CheckName(name); err != nil {
		return -1, "", err
	}
	fd, dir = x.root, strings.TrimSuffix(dir, "/")
	for first := true; first || dir != ""; first = false {
		var part string
		part, dir = cutPath(dir)
		next, err := unix.Openat2(fd, part, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
		})
		if fd != x.root {
			_ = unix.Close(fd)
		}
		if err != nil {
			return -1, "", err
		}
		fd = next
	}
	return fd, name, nil
}

// cutPath cuts off as much as one call takes; "" is the directory itself.
func cutPath(dir string) (part, rest string) {
	if dir == "" {
		return ".", ""
	}
	if len(dir) <= pathStep {
		return dir, ""
	}
	at := strings.LastIndexByte(dir[:pathStep], '/')
	return dir[:at], dir[at+1:]
}

// doOrKeep does an operation, or leaves the path as it is if another process has
// made it impossible: an undo must end, whatever stands in its way. Errors are
// those of the disk.
func (x *executor) doOrKeep(i int, o Op) error {
	err := x.do(i, o)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		x.unlock(o.Path)
		err = x.do(i, o)
	}
	for _, theirs := range []error{
		unix.EPERM, unix.EACCES, unix.EBUSY, unix.ELOOP, unix.EXDEV, unix.ENOTDIR, unix.EISDIR,
		unix.ENOENT, unix.EEXIST, unix.ENOTEMPTY, unix.EMLINK, unix.ETXTBSY,
	} {
		if errors.Is(err, theirs) {
			x.keep(o)
			return nil
		}
	}
	return err
}

func (x *executor) keep(o Op) {
	if p := string(o.Path); !slices.Contains(x.result.Kept, p) {
		x.result.Kept = append(x.result.Kept, p)
	}
}

// Flags of a file that stop even root.
const fixed = 0x10 | 0x20 // FS_IMMUTABLE_FL, FS_APPEND_FL

// unlock takes these flags off a path and the directory it is in.
func (x *executor) unlock(p []byte) {
	fd, name, err := x.parent(p)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	unfix(fd)
	file, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(file)
	var st unix.Stat_t
	if unix.Fstat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return // a device may understand the number in its own way
	}
	unfix(file)
}

func unfix(fd int) {
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&fixed != 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags&^fixed))
	}
}

func (x *executor) do(i int, o Op) error {
	fd, name, err := x.parent(o.Path)
	if err != nil {
		gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
		if o.Action == Remove && gone {
			return nil // done, with its directory, in whose place there may be something else by now
		}
		return err
	}
	defer unix.Close(fd)
	switch o.Action {
	case Remove:
		return x.remove(fd, name, o)
	case Mkdir:
		if err := unix.Mkdirat(fd, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return x.attrs(fd, name, o)
	case Attrs:
		return x.attrs(fd, name, o)
	case Write:
		return x.write(i, fd, name, o)
	}
	return errs.New(errs.Corrupt, "an unknown action")
}

func (x *executor) remove(fd int, name string, o Op) error {
	flags := 0
	if o.Before.Type == tree.Dir {
		flags = unix.AT_REMOVEDIR
	}
	err := unix.Unlinkat(fd, name, flags)
	switch {
	case errors.Is(err, unix.ENOTEMPTY):
		x.keep(o)
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR):
		return nil // done already, and perhaps replaced
	}
	return err
}

// attrs sets what a name has beside its content, without following it.
func (x *executor) attrs(fd int, name string, o Op) error {
	e := o.After
	if e.Type == tree.Link {
		if err := unix.Fchownat(fd, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
		return nil
	}
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	file, err := unix.Openat(fd, name, flags, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		x.keep(o)
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(file)
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return err
	}
	want := map[tree.Type]uint32{tree.File: unix.S_IFREG, tree.Dir: unix.S_IFDIR, tree.Fifo: unix.S_IFIFO}[e.Type]
	if st.Mode&unix.S_IFMT != want {
		x.keep(o) // something else stands there by now
		return nil
	}
	return attributes(file, e)
}

func (x *executor) write(i, fd int, name string, o Op) error {
	e, temp := o.After, x.c.staged(i)
	if e.Type == tree.File {
		// One that is not staged any more has got there, whatever became of it
		// since: staged files were durable before the first was moved.
		if err := x.rename(temp, fd, name, o); !errors.Is(err, unix.ENOENT) || staged(temp) {
			return err
		}
		return nil
	}
	if x.isThere(fd, name, e) {
		return nil
	}
	if err := os.MkdirAll(x.c.Staging, 0o700); err != nil {
		return err
	}
	if err := remove(temp); err != nil {
		return err
	}
	if err := makeSpecial(temp, e); err != nil {
		return err
	}
	return x.rename(temp, fd, name, o)
}

func staged(temp string) bool {
	_, err := os.Lstat(temp)
	return err == nil
}

// rename moves what is staged to its place. Where the history knows of nothing
// nothing is replaced: what is there is a file that it does not keep. EEXIST:
// so it is.
func (x *executor) rename(temp string, fd int, name string, o Op) error {
	if o.Before.Type != 0 {
		return unix.Renameat(unix.AT_FDCWD, temp, fd, name)
	}
	err := unix.Renameat2(unix.AT_FDCWD, temp, fd, name, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	var st unix.Stat_t // a file system that cannot do it in one
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return unix.EEXIST
	}
	return unix.Renameat(unix.AT_FDCWD, temp, fd, name)
}

// isThere reports whether a link or fifo has been made.
func (x *executor) isThere(fd int, name string, e tree.Entry) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Uid != e.UID || st.Gid != e.GID {
		return false
	}
	if e.Type == tree.Fifo {
		return st.Mode == unix.S_IFIFO|e.Mode
	}
	buf := make([]byte, tree.TargetBytesMax+1)
	n, err := unix.Readlinkat(fd, name, buf)
	return err == nil && string(buf[:n]) == e.Target
}

// makeSpecial makes a link or fifo.
func makeSpecial(temp string, e tree.Entry) error {
	if e.Type == tree.Link {
		if err := unix.Symlink(e.Target, temp); err != nil {
			return err
		}
	} else if err := unix.Mkfifo(temp, e.Mode); err != nil {
		return err
	}
	if err := unix.Lchown(temp, int(e.UID), int(e.GID)); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	if e.Type == tree.Link {
		return nil
	}
	return unix.Chmod(temp, e.Mode) // mkfifo obeyed the umask
}
