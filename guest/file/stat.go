package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of a listing.
const (
	pageDefault  = 1000
	pageMax      = 10_000
	pageBytesMax = 2 << 20 // of one answer, well below the message's bound
	listDepthMax = 64
)

// Stat describes a path; of a link, the link itself unless asked to follow.
func (s *Service) Stat(ctx context.Context, req *connect.Request[wire.StatRequest]) (*connect.Response[wire.StatResponse], error) {
	return answer(s.stat(ctx, req.Msg))
}

func (s *Service) stat(ctx context.Context, m *wire.StatRequest) (*wire.StatResponse, error) {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return nil, err
	}
	res := &wire.StatResponse{}
	content := -1
	err = run.quick(ctx, func() error {
		var st unix.Stat_t
		flags := unix.AT_SYMLINK_NOFOLLOW
		if m.Follow {
			flags = 0
		}
		if err := tree.Retry(func() error { return unix.Fstatat(unix.AT_FDCWD, name, &st, flags) }); err != nil {
			return err
		}
		res.Entry = entryWithTarget(unix.AT_FDCWD, name, name, &st)
		if m.Hash && tree.IsRegular(&st) {
			content, err = tree.Open(name, unix.O_RDONLY, 0)
		}
		return err
	})
	if err != nil {
		return nil, faultOf(err, name)
	}
	if content < 0 {
		return res, nil
	}
	defer unix.Close(content)
	res.Sha256, err = hashFile(ctx, content)
	return res, faultOf(err, name)
}

// begin checks what every call has: a path and a user.
func (s *Service) begin(p []byte, user string) (string, runner, error) {
	name, err := s.normalise(p)
	if err != nil {
		return "", runner{}, err
	}
	if user == "root" && s.ofHost(name) {
		return name, direct, nil
	}
	run, err := s.as(user)
	return name, run, err
}

// hashFile reads an open file from its start. The descriptor carries the
// right to read, so it may run on any thread.
func hashFile(ctx context.Context, fd int) (string, error) {
	st, err := tree.Fstat(fd)
	if err != nil {
		return "", err
	}
	if !tree.IsRegular(&st) {
		return "", unix.ENXIO
	}
	buf := takeBuffer()
	defer giveBuffer(buf)
	h := sha256.New()
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := tree.ReadAt(fd, *buf, at)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
		h.Write((*buf)[:n])
		at += int64(n)
	}
}

// List lists a directory in pages: names of one directory by bytes, each
// directory followed by its inside. A page goes on after the last name of the
// one before, so whatever exists all the while is listed exactly once.
func (s *Service) List(ctx context.Context, req *connect.Request[wire.ListRequest]) (*connect.Response[wire.ListResponse], error) {
	return answer(s.list(ctx, req.Msg))
}

func (s *Service) list(ctx context.Context, m *wire.ListRequest) (*wire.ListResponse, error) {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return nil, err
	}
	depth, size := int(max(m.Depth, 1)), int(m.PageSize)
	if depth > listDepthMax {
		return nil, errs.New(errs.Invalid, "the depth %d is more than %d", m.Depth, listDepthMax)
	}
	if size == 0 {
		size = pageDefault
	}
	if m.PageSize > pageMax {
		return nil, errs.New(errs.Invalid, "the page size %d is more than %d", m.PageSize, pageMax)
	}
	after, err := parsePageToken(m.PageToken, name, depth)
	if err != nil {
		return nil, err
	}
	res := &wire.ListResponse{}
	err = run.slow(ctx, func() error {
		fd, err := tree.Open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return fillPage(ctx, fd, name, depth, size, after, res)
	})
	if err != nil {
		return nil, faultOf(err, name)
	}
	return res, nil
}

func fillPage(ctx context.Context, fd int, name string, depth, size int, after string, res *wire.ListResponse) error {
	used, last := 0, ""
	return tree.Walk(ctx, fd, tree.Options{Depth: depth, After: after}, func(it tree.Item) error {
		if len(res.Entries) >= size || used >= pageBytesMax {
			res.NextPageToken = pageToken(name, depth, last)
			return tree.ErrStop
		}
		e := entryWithTarget(it.Dir, it.Name, beneath(name, it.Rel), &it.Stat)
		res.Entries = append(res.Entries, e)
		used += 128 + len(e.Path) + len(e.Name) + len(e.Target)
		last = it.Rel
		return nil
	})
}

// beneath joins a clean absolute directory and a path in it.
func beneath(dir, rel string) string {
	switch {
	case rel == "":
		return dir
	case dir == "/":
		return "/" + rel
	}
	return dir + "/" + rel
}
