package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// expectAbsent asks for a file that does not exist yet.
const expectAbsent = "absent"

// Write replaces a file whole, or writes a range of it in place.
//
// A whole write goes to a temporary file beside the target which then takes
// its name: readers see the old content or the new. The new file has the old
// one's mode and owner; where the owner cannot be kept, or the user may not
// write the old file, the call is denied. Hard links to the old file keep the
// old content; extended attributes are not kept. A link is followed first, so
// the link stays and its target is replaced.
//
// expect_sha256 is checked and the name taken under one lock per file: of
// several such writes through this service exactly one wins. Programs in the
// sandbox that write the same file at the same moment do not take the lock.
func (s *Service) Write(ctx context.Context, in *connect.ClientStream[wire.WriteRequest]) (*connect.Response[wire.WriteResponse], error) {
	return answer(s.write(ctx, in))
}

func (s *Service) write(ctx context.Context, in *connect.ClientStream[wire.WriteRequest]) (*wire.WriteResponse, error) {
	if !in.Receive() {
		if err := wire.Err(in.Err()); err != nil {
			return nil, err
		}
		return nil, errs.New(errs.Invalid, "a write needs a header first")
	}
	h := in.Msg().Header
	if h == nil {
		return nil, errs.New(errs.Invalid, "a write needs a header first")
	}
	if err := checkHeader(h); err != nil {
		return nil, err
	}
	name, run, err := s.begin(h.Path, h.User)
	if err != nil {
		return nil, err
	}
	w := &writer{s: s, ctx: ctx, run: run, name: name, h: h, in: in, dir: -1, fd: -1}
	defer w.close()
	var res *wire.WriteResponse
	if h.Ranged || h.Append {
		res, err = w.inPlace()
	} else {
		res, err = w.whole()
	}
	return res, faultOf(err, name)
}

func checkHeader(h *wire.WriteRequest_Header) error {
	if _, err := modeOf(h.Mode, 0); err != nil {
		return err
	}
	switch {
	case h.Ranged && h.Append:
		return errs.New(errs.Invalid, "ranged and append exclude each other")
	case (h.Ranged || h.Append) && h.ExpectSha256 != "":
		return errs.New(errs.Invalid, "an expected hash needs a whole write")
	case h.Offset < 0:
		return errs.New(errs.Invalid, "the offset must not be negative")
	case h.Offset != 0 && !h.Ranged:
		return errs.New(errs.Invalid, "an offset needs a ranged write")
	case h.ExpectSha256 == "" || h.ExpectSha256 == expectAbsent:
		return nil
	}
	if b, err := hex.DecodeString(h.ExpectSha256); err != nil || len(b) != sha256.Size || strings.ToLower(h.ExpectSha256) != h.ExpectSha256 {
		return errs.New(errs.Invalid, `the expected hash must be "absent" or 64 lower-case hex digits`)
	}
	return nil
}

// writer is one write under way.
type writer struct {
	s    *Service
	ctx  context.Context
	run  runner
	name string
	h    *wire.WriteRequest_Header
	in   *connect.ClientStream[wire.WriteRequest]

	dir  int    // of the file, after links
	base string // in dir
	temp string // in dir; "" when there is none
	fd   int    // what is written to
	old  *unix.Stat_t
}

// close removes what a broken call would leave. It must run even when the
// request's context is over.
func (w *writer) close() {
	if w.temp != "" {
		_ = w.run.quick(context.WithoutCancel(w.ctx), func() error { return unix.Unlinkat(w.dir, w.temp, 0) })
	}
	for _, fd := range []int{w.fd, w.dir} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// receive hands each chunk to use, the first message's own first.
func (w *writer) receive(use func([]byte) error) error {
	for {
		if data := w.in.Msg().Data; len(data) > 0 {
			if err := use(data); err != nil {
				return err
			}
		}
		if !w.in.Receive() {
			return wire.Err(w.in.Err())
		}
		if w.in.Msg().Header != nil {
			return errs.New(errs.Invalid, "only the first message of a write has a header")
		}
	}
}

func (w *writer) inPlace() (*wire.WriteResponse, error) {
	flags := unix.O_WRONLY | unix.O_CREAT
	if w.h.Append {
		flags |= unix.O_APPEND
	}
	err := w.run.quick(w.ctx, func() (err error) {
		if w.h.MakeParents {
			if err := tree.MakeParents(w.name); err != nil {
				return err
			}
		}
		mode, _ := modeOf(w.h.Mode, 0o644)
		w.fd, _, err = tree.OpenRegular(w.name, flags, mode&0o777)
		return err
	})
	if err != nil {
		return nil, err
	}
	at := w.h.Offset
	err = w.receive(func(data []byte) error {
		if w.h.Append {
			return appendAll(w.fd, data)
		}
		err := tree.WriteAt(w.fd, data, at)
		at += int64(len(data))
		return err
	})
	if err != nil {
		return nil, err
	}
	st, err := tree.Fstat(w.fd)
	if err != nil {
		return nil, err
	}
	return &wire.WriteResponse{Entry: entryOf(w.name, &st, "")}, nil
}

func appendAll(fd int, b []byte) error {
	for len(b) > 0 {
		n := 0
		err := tree.Retry(func() (err error) {
			n, err = unix.Write(fd, b)
			return err
		})
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (w *writer) whole() (*wire.WriteResponse, error) {
	if err := w.run.quick(w.ctx, w.prepare); err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := w.receive(func(data []byte) error { return w.chunk(sum, data) }); err != nil {
		return nil, err
	}
	if err := tree.Retry(func() error { return unix.Fsync(w.fd) }); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	entry, err := w.commit()
	if err != nil {
		return nil, err
	}
	return &wire.WriteResponse{Entry: entry, Sha256: hex.EncodeToString(sum.Sum(nil))}, nil
}

func (w *writer) chunk(sum hash.Hash, data []byte) error {
	sum.Write(data)
	return appendAll(w.fd, data)
}

// prepare finds the file behind links and makes the temporary one beside it.
// It runs with the user's rights.
func (w *writer) prepare() error {
	if w.h.MakeParents {
		if err := tree.MakeParents(w.name); err != nil {
			return err
		}
	}
	var err error
	if w.dir, w.base, err = tree.FollowLast(w.name); err != nil {
		return err
	}
	st, err := tree.Lstat(w.dir, w.base)
	switch {
	case err == nil:
		w.old = &st
		if err := mayWrite(w.dir, w.base, &st); err != nil {
			return err
		}
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	temp := tree.TempName()
	if w.fd, err = tree.OpenAt(w.dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600); err != nil {
		return err
	}
	w.temp = temp
	return w.dress()
}

// dress gives the temporary file its owner and mode, in this order: a change
// of owner clears set-id bits.
func (w *writer) dress() error {
	mode, _ := modeOf(w.h.Mode, 0o644)
	if w.old != nil {
		if w.h.Mode == 0 {
			mode = w.old.Mode & 0o777
		}
		own, err := tree.Fstat(w.fd)
		if err != nil {
			return err
		}
		if own.Uid != w.old.Uid || own.Gid != w.old.Gid {
			if err := unix.Fchown(w.fd, int(w.old.Uid), int(w.old.Gid)); err != nil {
				return errs.Wrap(errs.Denied, err, "%s belongs to another user and would change its owner", showPath(w.name)).WithCode(errs.PermissionDenied).
					WithHint("a ranged write changes it in place")
			}
		}
	}
	return unix.Fchmod(w.fd, mode)
}

// mayWrite asks the kernel for the right to write the old file, because the
// rename alone would need only the directory's.
func mayWrite(dir int, base string, st *unix.Stat_t) error {
	if tree.IsDir(st) {
		return unix.EISDIR
	}
	if !tree.IsRegular(st) {
		return unix.ENXIO
	}
	fd, err := tree.OpenAt(dir, base, unix.O_WRONLY, 0)
	if errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.ENOENT) {
		return nil // a running program may be replaced
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// commit checks the expectation and renames, under the file's lock.
func (w *writer) commit() (*wire.Entry, error) {
	st, err := tree.Fstat(w.dir)
	if err != nil {
		return nil, err
	}
	defer w.s.locks.Lock(pathKey{st.Dev, st.Ino, w.base})()
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	if err := w.expected(); err != nil {
		return nil, err
	}
	var entry *wire.Entry
	err = w.run.quick(w.ctx, func() error {
		if err := w.rename(); err != nil {
			return err
		}
		w.temp = ""
		st, err := tree.Fstat(w.fd)
		if err != nil {
			return err
		}
		entry = entryOf(w.name, &st, "")
		return nil
	})
	return entry, err
}

func (w *writer) rename() error {
	if w.h.ExpectSha256 != expectAbsent {
		return unix.Renameat(w.dir, w.temp, w.dir, w.base)
	}
	return tree.RenameNoReplace(w.dir, w.temp, w.dir, w.base)
}

// expected compares the present content with what the caller saw.
func (w *writer) expected() error {
	want := w.h.ExpectSha256
	if want == "" || want == expectAbsent {
		return nil // absence is checked by the rename itself
	}
	fd := -1
	err := w.run.quick(w.ctx, func() (err error) {
		fd, err = tree.OpenAt(w.dir, w.base, unix.O_RDONLY, 0)
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return errs.New(errs.Conflict, "%s no longer exists", showPath(w.name)).WithCode(errs.FileChanged)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	have, err := hashFile(w.ctx, fd)
	if err != nil {
		return err
	}
	if have != want {
		return errs.New(errs.Conflict, "%s has changed: its hash is %s", showPath(w.name), have).WithCode(errs.FileChanged)
	}
	return nil
}

// pathKey names a file by the directory that holds it, whatever path led there.
type pathKey struct {
	dev, ino uint64
	base     string
}
