package file

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/untar"
)

// Bounds of an upload; a request may lower or raise them up to the maximum.
const (
	uploadBytesDefault   = 8 << 30
	uploadBytesMax       = 1 << 40
	uploadEntriesDefault = 200_000
	uploadEntriesMax     = 2_000_000
)

// Upload unpacks a tar stream into a directory, which is made if need be.
// Files replace files; what the archive does not name stays. Set-id bits are
// dropped. An error says how far it came; what was unpacked stays.
func (s *Service) Upload(ctx context.Context, in *connect.ClientStream[wire.UploadRequest]) (*connect.Response[wire.UploadResponse], error) {
	return answer(s.upload(ctx, in))
}

func (s *Service) upload(ctx context.Context, in *connect.ClientStream[wire.UploadRequest]) (*wire.UploadResponse, error) {
	if !in.Receive() || in.Msg().Header == nil {
		if err := wire.Err(in.Err()); err != nil {
			return nil, err
		}
		return nil, errs.New(errs.Invalid, "an upload needs a header first")
	}
	h := in.Msg().Header
	name, run, err := s.begin(h.Path, h.User)
	if err != nil {
		return nil, err
	}
	opts, err := uploadOptions(h)
	if err != nil {
		return nil, err
	}
	var res untar.Result
	err = run.slow(ctx, func() error {
		if err := tree.MakeParents(name + "/."); err != nil {
			return err
		}
		root, err := tree.OpenRoot(name)
		if err != nil {
			return err
		}
		defer root.Close()
		r := &uploadReader{in: in, rest: in.Msg().Data}
		if res, err = untar.Unpack(ctx, root, r, opts); err != nil {
			return err
		}
		return r.drain()
	})
	if err != nil {
		return nil, partly(faultOf(err, name), res)
	}
	return &wire.UploadResponse{Entries: res.Entries, Bytes: res.Bytes}, nil
}

func uploadOptions(h *wire.UploadRequest_Header) (untar.Options, error) {
	o := untar.Options{BytesMax: h.BytesMax, EntriesMax: h.EntriesMax}
	if o.BytesMax < 0 || o.BytesMax > uploadBytesMax || o.EntriesMax < 0 || o.EntriesMax > uploadEntriesMax {
		return o, errs.New(errs.Invalid, "an upload takes at most %d bytes and %d entries", int64(uploadBytesMax), uploadEntriesMax)
	}
	if o.BytesMax == 0 {
		o.BytesMax = uploadBytesDefault
	}
	if o.EntriesMax == 0 {
		o.EntriesMax = uploadEntriesDefault
	}
	return o, nil
}

// partly adds to an error what is there now.
func partly(err error, res untar.Result) error {
	var e *errs.Error
	if res.Entries == 0 || !errors.As(err, &e) {
		return err
	}
	return errs.Wrap(e.Class, err, "%s (the upload stopped at entry %d, %d bytes were written and stay)", e.Msg, res.Entries, res.Bytes).WithCode(e.Code)
}

// uploadReader is the stream of an upload's bytes.
type uploadReader struct {
	in   *connect.ClientStream[wire.UploadRequest]
	rest []byte
}

func (r *uploadReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if !r.in.Receive() {
			if err := wire.Err(r.in.Err()); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		if r.in.Msg().Header != nil {
			return 0, errs.New(errs.Invalid, "only the first message of an upload has a header")
		}
		r.rest = r.in.Msg().Data
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// trailerBytesMax bounds what may follow the end of an archive: tar pads.
const trailerBytesMax = 1 << 20

// drain reads the padding, so that the client can finish its stream.
func (r *uploadReader) drain() error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, trailerBytesMax+1))
	if err == nil && n > trailerBytesMax {
		return errs.New(errs.Invalid, "there is data behind the end of the archive")
	}
	return err
}

// Download streams a file or tree as tar, names relative to the path (a file
// by its own name). Links stay links; sockets, fifos and devices are left
// out. A file keeps the size it had when its turn came: what it grows then is
// cut, what it shrinks is filled with zeros. An unreadable file ends the call.
func (s *Service) Download(ctx context.Context, req *connect.Request[wire.DownloadRequest], out *connect.ServerStream[wire.DownloadResponse]) error {
	return wire.ToConnect(s.download(ctx, req.Msg, out))
}

func (s *Service) download(ctx context.Context, m *wire.DownloadRequest, out *connect.ServerStream[wire.DownloadResponse]) error {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return err
	}
	exclude, err := excluded(m)
	if err != nil {
		return err
	}
	w := &downloadWriter{out: out, buf: takeBuffer()}
	defer func() { giveBuffer(w.buf) }()
	err = run.slow(ctx, func() error {
		if m.Image && name == "/" {
			return packRoot(ctx, exclude, w)
		}
		return withParent(name, func(dir int, base string) error {
			if m.Image {
				return tree.PackImage(ctx, dir, base, exclude, w)
			}
			return tree.Pack(ctx, dir, base, w)
		})
	})
	if err == nil {
		err = w.flush()
	}
	return faultOf(err, name)
}

// excludeMax is how many paths a download leaves out at most.
const excludeMax = 64

func excluded(m *wire.DownloadRequest) ([]string, error) {
	if len(m.Exclude) > excludeMax || len(m.Exclude) > 0 && !m.Image {
		return nil, errs.New(errs.Invalid, "a download of an image leaves out at most %d paths, others none", excludeMax)
	}
	var paths []string
	for _, p := range m.Exclude {
		paths = append(paths, string(p))
	}
	return paths, nil
}

// packRoot packs the machine's whole root, which is in no directory.
func packRoot(ctx context.Context, exclude []string, w io.Writer) error {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return tree.PackImage(ctx, fd, ".", exclude, w)
}

// downloadWriter gathers bytes into messages of one chunk.
type downloadWriter struct {
	out  *connect.ServerStream[wire.DownloadResponse]
	buf  *[]byte
	used int
}

func (w *downloadWriter) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		n := copy((*w.buf)[w.used:], b)
		w.used, written, b = w.used+n, written+n, b[n:]
		if w.used == len(*w.buf) {
			if err := w.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (w *downloadWriter) flush() error {
	if w.used == 0 {
		return nil
	}
	err := w.out.Send(&wire.DownloadResponse{Data: (*w.buf)[:w.used]})
	w.used = 0
	return err
}
