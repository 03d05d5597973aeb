package tree

import (
	"bytes"
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
	n, err := copyData(c.ctx, in, out, &st)
	c.bytes += n
	if err != nil {
		return err
	}
	if err := unix.Fchmod(out, st.Mode&0o777); err != nil {
		return err
	}
	return setTimes(out, &st)
}

// copyData copies the first st.Size bytes of in to the empty file out and
// keeps holes; it returns the bytes that it wrote. A file that shrinks
// meanwhile gives a shorter copy.
func copyData(ctx context.Context, in, out int, st *unix.Stat_t) (int64, error) {
	if err := unix.Ftruncate(out, st.Size); err != nil {
		return 0, err
	}
	c := dataCopier{ctx: ctx, in: in, out: out}
	for at := int64(0); at < st.Size; {
		from, to, err := nextData(in, at, st.Size)
		if err != nil || from >= st.Size {
			return c.written, err
		}
		if from == 0 && to == st.Size && st.Size > holesFrom && c.buf == nil {
			// No holes, or a kernel that does not tell (gVisor): then the
			// zeros themselves are looked for.
			c.buf = make([]byte, chunkBytes)
		}
		err = c.stretch(from, to)
		if errors.Is(err, io.EOF) {
			return c.written, nil
		}
		if err != nil {
			return c.written, err
		}
		at = to
	}
	return c.written, nil
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

const (
	chunkBytes = 256 << 10
	holesFrom  = 1 << 20 // smaller files are not worth a search for zeros
)

type dataCopier struct {
	ctx     context.Context
	in, out int
	buf     []byte // nil as long as the kernel copies by itself
	written int64
}

// stretch copies one stretch of data; io.EOF: the file ended before it did.
func (c *dataCopier) stretch(from, to int64) error {
	for from < to {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := c.chunk(from, int(min(to-from, 8<<20)))
		if err != nil {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		from += int64(n)
	}
	return nil
}

func (c *dataCopier) chunk(at int64, want int) (int, error) {
	if c.buf == nil {
		n, err := c.inKernel(at, want)
		if err == nil || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EIO) {
			return n, err
		}
		c.buf = make([]byte, chunkBytes) // it cannot, between these two
	}
	b := c.buf[:min(want, len(c.buf))]
	n, err := ReadAt(c.in, b, at)
	if errors.Is(err, io.EOF) {
		return 0, nil
	}
	if err != nil || allZero(b[:n]) {
		return n, err
	}
	c.written += int64(n)
	return n, WriteAt(c.out, b[:n], at)
}

func (c *dataCopier) inKernel(at int64, want int) (int, error) {
	n := 0
	err := Retry(func() (err error) {
		r, w := at, at
		n, err = unix.CopyFileRange(c.in, &r, c.out, &w, want, 0)
		return err
	})
	c.written += int64(max(n, 0))
	return max(n, 0), err
}

var zeroChunk [chunkBytes]byte

func allZero(b []byte) bool { return bytes.Equal(b, zeroChunk[:len(b)]) }

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
	at, err := openIn(dir, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	for range 4096 {
		if err != nil {
			return nil // we may not look further up; the walk's own bound ends a loop
		}
		here, statErr := Fstat(at)
		if statErr != nil || same(&here, st) {
			_ = unix.Close(at)
			if statErr == nil {
				return ErrIntoItself
			}
			return statErr
		}
		up, upErr := openIn(at, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		if upErr == nil {
			if top, err := Fstat(up); err == nil && same(&top, &here) {
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
