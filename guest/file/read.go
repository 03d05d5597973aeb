package file

import (
	"context"
	"errors"
	"io"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// buffers holds chunk-sized buffers; every stream of bytes borrows one.
var buffers = sync.Pool{New: func() any { b := make([]byte, wire.ChunkBytes); return &b }}

func takeBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func giveBuffer(b *[]byte) { buffers.Put(b) }

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
		fd, st, err = tree.OpenRegular(name, unix.O_RDONLY, 0)
		return err
	})
	if err != nil {
		return faultOf(err, name)
	}
	defer unix.Close(fd)
	return faultOf(sendRange(ctx, fd, m.Offset, m.Length, entryOf(name, &st, ""), out), name)
}

func sendRange(ctx context.Context, fd int, at, length int64, entry *wire.Entry, out *connect.ServerStream[wire.ReadResponse]) error {
	buf := takeBuffer()
	defer giveBuffer(buf)
	for left := length; ; {
		b := *buf
		if length > 0 {
			b = b[:min(left, int64(len(b)))]
		}
		n, err := tree.ReadAt(fd, b, at)
		if errors.Is(err, io.EOF) {
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
