package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Make makes Root. With a jailer it belongs to the machine's user, who must be
// able to bind sockets there; no other user can pass Dir.
func (j Jail) Make() error {
	if err := os.MkdirAll(j.Root(), 0o700); err != nil {
		return err
	}
	return j.own(j.Root())
}

func (j Jail) own(path string) error {
	if j.Jailer == "" {
		return nil
	}
	return os.Lchown(path, j.UID, j.GID)
}

// Link shows a file that is only read. It must be on the same file system; it
// is made readable for all, which its directory keeps from others.
func (j Jail) Link(source, name string) error {
	if err := j.link(source, name); err != nil {
		return err
	}
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	if mode := info.Mode(); j.Jailer != "" && mode.Perm()&0o004 == 0 {
		return os.Chmod(source, mode.Perm()|0o444)
	}
	return nil
}

// LinkOwn shows a file and gives it to the machine's user.
func (j Jail) LinkOwn(source, name string) error {
	if err := j.link(source, name); err != nil {
		return err
	}
	return j.own(j.Path(name))
}

// ShowSocket shows a socket that was made out of Firecracker's reach, in the place
// of what has the name, and gives it to the machine's user.
func (j Jail) ShowSocket(source, name string) error {
	if err := os.Remove(j.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.own(source); err != nil {
		return err
	}
	return os.Link(source, j.Path(name))
}

// Own gives a file that was made in Root to the machine's user.
func (j Jail) Own(name string) error { return j.own(j.Path(name)) }

// Disown takes a file back, before Root is removed: others have it too.
func (j Jail) Disown(name string) error {
	if j.Jailer == "" {
		return nil
	}
	err := os.Lchown(j.Path(name), os.Geteuid(), os.Getegid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (j Jail) link(source, name string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errs.New(errs.Invalid, "%s is not a regular file", source)
	}
	err = os.Link(source, j.Path(name))
	if errors.Is(err, unix.EXDEV) {
		return errs.Wrap(errs.Unsupported, err, "a machine's files are on different file systems").
			WithHint("keep templates, kernels, workspaces and machines below one data directory")
	}
	return err
}

// Take moves a file that Firecracker has written out of its reach.
func (j Jail) Take(name, target string) error {
	if err := os.Rename(j.Path(name), target); err != nil {
		return err
	}
	info, err := os.Lstat(target) // where Firecracker can no longer exchange it
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errs.New(errs.Corrupt, "%s is not a regular file", name)
	}
	if err := os.Lchown(target, os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	return os.Chmod(target, 0o400)
}

// open opens what Root has under this name and no link's target.
func (j Jail) open(name string, flags int) (*os.File, error) {
	dir, err := unix.Open(j.Root(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: j.Root(), Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Open opens a regular file in Root for reading.
func (j Jail) Open(name string) (*os.File, error) {
	f, err := j.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errs.New(errs.Corrupt, "%s is not a regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// MakePipe makes a named pipe for Firecracker to write to. What is written while
// the pipe is full is lost, so it needs no other bound.
func (j Jail) MakePipe(name string) error {
	if err := unix.Mkfifo(j.Path(name), 0o600); err != nil {
		return &fs.PathError{Op: "mkfifo", Path: name, Err: err}
	}
	return j.own(j.Path(name))
}

// OpenPipe opens a named pipe in Root for reading, without waiting for a writer.
func (j Jail) OpenPipe(name string) (*os.File, error) {
	f, err := j.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Type() != fs.ModeNamedPipe {
		err = errs.New(errs.Corrupt, "%s is not a pipe", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadTail reads the last bytes of a file that Firecracker may be writing.
func (j Jail) ReadTail(name string, bytesMax int64) ([]byte, error) {
	f, err := j.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-bytesMax), bytesMax))
}

// Dial connects to a socket in Root. The way there may be longer than a
// socket's address (108 bytes), so the socket is opened by its name and
// connected to by its number.
func (j Jail) Dial(ctx context.Context, name string) (net.Conn, error) {
	f, err := j.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, errs.New(errs.Unavailable, "%s is no socket", name)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(int(f.Fd())))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", name, errors.Unwrap(err))
	}
	return conn, nil
}
