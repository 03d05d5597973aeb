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
	// Stage is called with the name of each stage, for tests that die there;
	// nil = nobody listens.
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
	// what somebody changed meanwhile.
	Kept []string
}

// Run does the operations of a plan. When it returns an error before anything
// was touched, the directory is as it was; behind that, the journal stays, and
// Recover goes on. Limit: the disk has no room for what is to be written.
func Run(ctx context.Context, c Config, store *object.Store, ops []Op) (Result, error) {
	if err := c.room(ops); err != nil {
		return Result{}, err
	}
	if err := c.writeJournal(ops); err != nil {
		return Result{}, errors.Join(full(err), c.drop())
	}
	c.stage("journal")
	err := c.prepare(ctx, store, ops)
	if err == nil {
		err = writeDurably(c.mark(), nil)
	}
	if err != nil {
		return Result{}, errors.Join(full(err), c.drop())
	}
	c.stage("staged")
	return c.finish(ops)
}

// Recover finishes or drops what a Run that died has left. It is called before
// anything else looks at the directory. If it finished one, done is true and
// note is the Run's.
func Recover(c Config) (note []byte, done bool, err error) {
	ops, note, err := c.readJournal()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, c.drop()
	}
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Lstat(c.mark()); errors.Is(err, fs.ErrNotExist) {
		return nil, false, c.drop()
	}
	_, err = c.finish(ops)
	return note, err == nil, err
}

// drop removes all that is ours, the journal last.
func (c Config) drop() error {
	err := os.RemoveAll(c.Staging)
	if err == nil {
		err = remove(c.Journal)
	}
	if err == nil {
		err = remove(c.mark())
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
func (c Config) room(ops []Op) error {
	need := int64(spareBytes)
	for _, o := range ops {
		if o.Action == Write && o.After.Type == tree.File {
			need += o.After.Size // more than a sparse one takes
		}
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
		data, err := store.Get(object.Blob, e.Hash)
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
		data, err := store.Get(object.Blob, c.Hash)
		if err == nil {
			err = visit(c.Offset, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
		if err := x.do(i, o); err != nil {
			return x.result, fmt.Errorf("%s %q: %w", o.Action, o.Path, err)
		}
		c.stage("applied " + strconv.Itoa(i))
	}
	if err := unix.Syncfs(root); err != nil {
		return x.result, err
	}
	c.stage("applied")
	return x.result, c.drop()
}

type executor struct {
	c      Config
	root   int
	result Result
}

// parent opens the directory that a path is in, whoever swaps parts of it.
func (x *executor) parent(p []byte) (fd int, name string, err error) {
	dir, name := path.Split(string(p))
	if err := tree.CheckName(name); err != nil {
		return -1, "", err
	}
	if dir == "" {
		dir = "."
	}
	fd, err = unix.Openat2(x.root, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	return fd, name, err
}

func (x *executor) do(i int, o Op) error {
	fd, name, err := x.parent(o.Path)
	if err != nil {
		if o.Action == Remove && errors.Is(err, unix.ENOENT) {
			return nil // done, with its directory
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
		return x.write(i, fd, name, o.After)
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
		x.result.Kept = append(x.result.Kept, string(o.Path))
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
		x.result.Kept = append(x.result.Kept, string(o.Path))
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
		x.result.Kept = append(x.result.Kept, string(o.Path)) // something else stands there by now
		return nil
	}
	return attributes(file, e)
}

func (x *executor) write(i, fd int, name string, e tree.Entry) error {
	switch e.Type {
	case tree.File:
		return x.place(i, fd, name)
	case tree.Link:
		return x.link(fd, name, e)
	}
	temp := x.c.staged(i)
	if err := remove(temp); err != nil {
		return err
	}
	if err := unix.Mkfifo(temp, e.Mode); err != nil {
		return err
	}
	if err := unix.Lchown(temp, int(e.UID), int(e.GID)); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	if err := unix.Chmod(temp, e.Mode); err != nil { // mkfifo obeyed the umask
		return err
	}
	return unix.Renameat(unix.AT_FDCWD, temp, fd, name)
}

// place renames a staged file to its place. One that is not staged any more
// has got there, whatever became of it since: staged files were durable before
// the first was moved.
func (x *executor) place(i, fd int, name string) error {
	err := unix.Renameat(unix.AT_FDCWD, x.c.staged(i), fd, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (x *executor) link(fd int, name string, e tree.Entry) error {
	temp := x.c.Staging + "/link"
	if err := os.MkdirAll(x.c.Staging, 0o700); err != nil {
		return err
	}
	if err := remove(temp); err != nil {
		return err
	}
	if err := unix.Symlink(e.Target, temp); err != nil {
		return err
	}
	if err := unix.Lchown(temp, int(e.UID), int(e.GID)); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return unix.Renameat(unix.AT_FDCWD, temp, fd, name)
}
