package file

import (
	"context"
	"io"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/fault"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// buffers holds chunk-sized buffers; every stream of bytes borrows one.
var buffers = sync.Pool{New: func() any { b := make([]byte, wire.ChunkBytes); return &b }}

func takeBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func giveBuffer(b *[]byte) { buffers.Put(b) }

// readAt reads once; io.EOF at the end.
func readAt(fd int, b []byte, at int64) (int, error) {
	n := 0
	err := tree.Retry(func() (err error) {
		n, err = unix.Pread(fd, b, at)
		return err
	})
	if err == nil && n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// Read streams a regular file, or a range of it, in chunks of 256 KiB. It
// never waits: fifos and devices are refused. An offset behind the end gives
// no bytes; a file that grows is read to the end that it then has.
func (s *Service) Read(ctx context.Context, req *connect.Request[wire.ReadRequest], out *connect.ServerStream[wire.ReadResponse]) error {
	return wire.ToConnect(s.read(ctx, req.Msg, out))
}

func (s *Service) read(ctx context.Context, m *wire.ReadRequest, out *connect.ServerStream[wire.ReadResponse]) error {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return err
	}
	if m.Offset < 0 || m.Length < 0 {
		return errs.New(errs.Invalid, "the offset and length must not be negative")
	}
	fd := -1
	var st unix.Stat_t
	err = run.quick(ctx, func() (err error) {
		fd, st, err = openRegular(name, unix.O_RDONLY, 0)
		return err
	})
	if err != nil {
		return fault.Of(err, name)
	}
	defer unix.Close(fd)
	return fault.Of(sendRange(ctx, fd, m.Offset, m.Length, entryOf(name, &st, ""), out), name)
}

// openRegular opens a file that bytes can be read from or written to.
func openRegular(name string, flags int, mode uint32) (int, unix.Stat_t, error) {
	fd, err := tree.Open(name, flags, mode)
	if err != nil {
		return -1, unix.Stat_t{}, err
	}
	st, err := tree.Fstat(fd)
	switch {
	case err != nil:
	case tree.IsDir(&st):
		err = unix.EISDIR
	case !tree.IsRegular(&st):
		err = unix.ENXIO
	default:
		return fd, st, nil
	}
	_ = unix.Close(fd)
	return -1, st, err
}

func sendRange(ctx context.Context, fd int, at, length int64, entry *wire.Entry, out *connect.ServerStream[wire.ReadResponse]) error {
	buf := takeBuffer()
	defer giveBuffer(buf)
	for left := length; ; {
		b := *buf
		if length > 0 {
			b = b[:min(left, int64(len(b)))]
		}
		n, err := readAt(fd, b, at)
		if err == io.EOF {
			err, n = nil, 0
		}
		if err != nil {
			return err
		}
		if n > 0 || entry != nil {
			if err := out.Send(&wire.ReadResponse{Entry: entry, Data: b[:n]}); err != nil {
				return err
			}
			entry = nil
		}
		at, left = at+int64(n), left-int64(n)
		if n == 0 || (length > 0 && left == 0) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
