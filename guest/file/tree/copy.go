package tree

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// ErrIntoItself refuses a copy whose destination lies in its source.
var ErrIntoItself = errors.New("a directory cannot be copied into itself")

// ErrSpecial refuses to copy a fifo, socket or device by itself.
var ErrSpecial = errors.New("not a file, directory or symbolic link")

// Copy makes to (which must not exist) a copy of an entry: links stay links,
// modes and times are kept, set-id bits dropped, holes of sparse files kept.
// Fifos, sockets and devices inside a directory are left out. It returns the
// bytes of file content. On error something may be left at to.
func Copy(ctx context.Context, fromDir int, from string, toDir int, to string) (int64, error) {
	st, err := Lstat(fromDir, from)
	if err != nil {
		return 0, err
	}
	c := &copier{ctx: ctx}
	if !IsDir(&st) {
		return c.bytes, c.leaf(fromDir, from, toDir, to, &st)
	}
	if err := refuseInside(toDir, &st); err != nil {
		return 0, err
	}
	src, err := OpenAt(fromDir, from, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(src)
	if err := c.enter(toDir, to, ""); err != nil {
		return 0, err
	}
	defer c.closeAll()
	opts := Options{Leave: c.leave, Unreadable: func(rel string, err error) error { return pathError("copy", rel, err) }}
	if err := Walk(ctx, src, opts, c.visit); err != nil {
		return c.bytes, err
	}
	return c.bytes, finishDir(c.dirs[0], &st)
}

type copier struct {
	ctx   context.Context
	dirs  []int // open destination directories, from the root of the copy down
	bytes int64
}

func (c *copier) enter(dir int, name, rel string) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return pathError("copy", rel, err)
	}
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return pathError("copy", rel, err)
	}
	c.dirs = append(c.dirs, fd)
	return nil
}

func (c *copier) visit(it Item) error {
	dir := c.dirs[it.Depth-1]
	if IsDir(&it.Stat) {
		return c.enter(dir, it.Name, it.Rel)
	}
	err := c.leaf(it.Dir, it.Name, dir, it.Name, &it.Stat)
	if errors.Is(err, ErrSpecial) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return pathError("copy", it.Rel, err)
}

func (c *copier) leave(it Item) error {
	last := len(c.dirs) - 1
	fd := c.dirs[last]
	c.dirs = c.dirs[:last]
	defer unix.Close(fd)
	return pathError("copy", it.Rel, finishDir(fd, &it.Stat))
}

func (c *copier) closeAll() {
	for _, fd := range c.dirs {
		_ = unix.Close(fd)
	}
}

func finishDir(fd int, st *unix.Stat_t) error {
	if err := unix.Fchmod(fd, st.Mode&0o1777); err != nil {
		return err
	}
	return setTimes(fd, st)
}

func setTimes(fd int, st *unix.Stat_t) error {
	tv := []unix.Timeval{unix.NsecToTimeval(st.Atim.Nano()), unix.NsecToTimeval(st.Mtim.Nano())}
	return unix.Futimes(fd, tv)
}

func (c *copier) leaf(fromDir int, from string, toDir int, to string, st *unix.Stat_t) error {
	switch {
	case IsLink(st):
		target, err := Readlink(fromDir, from)
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, toDir, to)
	case IsRegular(st):
		return c.file(fromDir, from, toDir, to)
	}
	return ErrSpecial
}

func (c *copier) file(fromDir int, from string, toDir int, to string) error {
	in, err := OpenAt(fromDir, from, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	st, err := Fstat(in)
	if err != nil {
		return err
	}
	if !IsRegular(&st) {
		return ErrSpecial // swapped since
	}
	out, err := OpenAt(toDir, to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	n, err := CopyData(c.ctx, in, out, st.Size)
	c.bytes += n
	if err != nil {
		return err
	}
	if err := unix.Fchmod(out, st.Mode&0o777); err != nil {
		return err
	}
	return setTimes(out, &st)
}

// CopyData copies the first size bytes of in to the empty file out and keeps
// holes. A file that shrinks meanwhile gives a shorter copy.
func CopyData(ctx context.Context, in, out int, size int64) (int64, error) {
	if err := unix.Ftruncate(out, size); err != nil {
		return 0, err
	}
	var copied int64
	for at := int64(0); at < size; {
		from, to, err := nextData(in, at, size)
		if err != nil || from >= size {
			return copied, err
		}
		n, err := copyRange(ctx, in, out, from, to)
		copied += n
		if errors.Is(err, io.EOF) {
			return copied, nil
		}
		if err != nil {
			return copied, err
		}
		at = to
	}
	return copied, nil
}

// nextData finds the next stretch that is not a hole. Where the file system
// cannot say, all is data.
func nextData(fd int, at, size int64) (from, to int64, err error) {
	from, err = unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err != nil {
		return at, size, nil
	}
	to, err = unix.Seek(fd, from, unix.SEEK_HOLE)
	if err != nil || to > size || to <= from {
		to = size
	}
	return from, to, nil
}

func copyRange(ctx context.Context, in, out int, from, to int64) (int64, error) {
	start := from
	var buf []byte // made only where the kernel cannot copy by itself
	for from < to {
		if err := ctx.Err(); err != nil {
			return from - start, err
		}
		want := int(min(to-from, 8<<20))
		n := 0
		var err error
		if buf == nil {
			r, w := from, from
			err = Retry(func() (err error) {
				n, err = unix.CopyFileRange(in, &r, out, &w, want, 0)
				return err
			})
			if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.EIO) {
				buf = make([]byte, 256<<10)
				continue
			}
		} else {
			n, err = copyChunk(in, out, from, buf[:min(want, len(buf))])
		}
		if err != nil {
			return from - start, err
		}
		if n == 0 {
			return from - start, io.EOF
		}
		from += int64(n)
	}
	return from - start, nil
}

func copyChunk(in, out int, at int64, buf []byte) (int, error) {
	n := 0
	err := Retry(func() (err error) {
		n, err = unix.Pread(in, buf, at)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, WriteAt(out, buf[:n], at)
}

// WriteAt writes all of b at an offset.
func WriteAt(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n := 0
		err := Retry(func() (err error) {
			n, err = unix.Pwrite(fd, b, at)
			return err
		})
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// refuseInside climbs from dir to the root of the file system and refuses
// when it meets the directory of st.
func refuseInside(dir int, st *unix.Stat_t) error {
	at, err := OpenIn(dir, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	for range 4096 {
		if err != nil {
			return nil // we may not look further up; the walk's own bound ends a loop
		}
		here, statErr := Fstat(at)
		if statErr != nil || Same(&here, st) {
			_ = unix.Close(at)
			if statErr == nil {
				return ErrIntoItself
			}
			return statErr
		}
		up, upErr := OpenIn(at, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		if upErr == nil {
			if top, err := Fstat(up); err == nil && Same(&top, &here) {
				return unix.Close(up)
			}
		}
		at, err = up, upErr
	}
	if err == nil {
		_ = unix.Close(at)
	}
	return nil
}
