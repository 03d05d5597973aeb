package file

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of searches.
const (
	resultsDefault = 1000
	resultsMax     = 100_000
	batchBytesMax  = 256 << 10 // of one message
)

func limitOf(limit uint32) (int, error) {
	if limit > resultsMax {
		return 0, errs.New(errs.Invalid, "the limit %d is more than %d", limit, resultsMax)
	}
	if limit == 0 {
		return resultsDefault, nil
	}
	return int(limit), nil
}

// Glob streams the entries beneath base that match a pattern, sorted as List
// sorts them. The last message says whether the limit cut the result.
func (s *Service) Glob(ctx context.Context, req *connect.Request[wire.GlobRequest], out *connect.ServerStream[wire.GlobResponse]) error {
	return wire.ToConnect(s.glob(ctx, req.Msg, out))
}

func (s *Service) glob(ctx context.Context, m *wire.GlobRequest, out *connect.ServerStream[wire.GlobResponse]) error {
	name, run, err := s.begin(orWorkdir(m.Base), m.User)
	if err != nil {
		return err
	}
	pattern, err := parseGlob(m.Pattern)
	if err != nil {
		return err
	}
	limit, err := limitOf(m.Limit)
	if err != nil {
		return err
	}
	batch, used, count := &wire.GlobResponse{}, 0, 0
	err = run.slow(ctx, func() error {
		fd, err := tree.Open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return findFiles(ctx, fd, name, pattern, func(it tree.Item) error {
			if count == limit {
				batch.Truncated = true
				return tree.ErrStop
			}
			count++
			e := entryWithTarget(it.Dir, it.Name, beneath(name, it.Rel), &it.Stat)
			batch.Entries = append(batch.Entries, e)
			if used += 64 + len(e.Path) + len(e.Name) + len(e.Target); used < batchBytesMax {
				return nil
			}
			full := batch
			batch, used = &wire.GlobResponse{}, 0
			return out.Send(full)
		})
	})
	if err != nil {
		return faultOf(err, name)
	}
	return out.Send(batch)
}

// orWorkdir lets a search without a base begin in the working directory.
func orWorkdir(base []byte) []byte {
	if len(base) == 0 {
		return []byte(".")
	}
	return base
}

// Grep streams matching lines, files in List's order. The base may be a
// single file. Binary, too large and unreadable files are counted as skipped.
func (s *Service) Grep(ctx context.Context, req *connect.Request[wire.GrepRequest], out *connect.ServerStream[wire.GrepResponse]) error {
	return wire.ToConnect(s.grep(ctx, req.Msg, out))
}

func (s *Service) grep(ctx context.Context, m *wire.GrepRequest, out *connect.ServerStream[wire.GrepResponse]) error {
	name, run, err := s.begin(orWorkdir(m.Base), m.User)
	if err != nil {
		return err
	}
	limit, err := limitOf(m.Limit)
	if err != nil {
		return err
	}
	if m.Context > searchContextMax {
		return errs.New(errs.Invalid, "at most %d lines of context", searchContextMax)
	}
	q := searchQuery{
		Base: name, Pattern: m.Pattern, Literal: m.Literal, IgnoreCase: m.IgnoreCase,
		Include: m.Include, Limit: limit, Context: int(m.Context), FileBytes: m.FileBytesMax,
	}
	if err := q.Prepare(); err != nil {
		return err
	}
	b := &grepBatch{out: out, base: name}
	var res searchResult
	err = run.slow(ctx, func() error {
		root, err := openBase(&q)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		b.base = q.Base
		res, err = grep(ctx, root, q, b.add)
		return err
	})
	if err != nil {
		return faultOf(err, name)
	}
	return b.finish(res)
}

// openBase opens the directory to search in. A base that is a file is
// searched as the one file of its directory.
func openBase(q *searchQuery) (int, error) {
	fd, err := tree.Open(q.Base, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if !errors.Is(err, unix.ENOTDIR) {
		return fd, err
	}
	dir, base, err := tree.FollowLast(q.Base)
	if err != nil {
		return -1, err
	}
	q.Only = base
	q.Base, _ = tree.Split(q.Base)
	return dir, nil
}

// grepBatch gathers matches into messages.
type grepBatch struct {
	out  *connect.ServerStream[wire.GrepResponse]
	base string
	msg  wire.GrepResponse
	used int
}

func (b *grepBatch) add(rel string, lines []matchedLine) error {
	path := []byte(beneath(b.base, rel))
	for _, l := range lines {
		b.msg.Matches = append(b.msg.Matches, &wire.GrepMatch{
			Path: path, Line: uint32(l.Number), Column: uint32(l.Column),
			Text: l.Text, Before: l.Before, After: l.After,
		})
		if b.used += sizeOf(path, l); b.used >= batchBytesMax {
			if err := b.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func sizeOf(path []byte, l matchedLine) int {
	size := 32 + len(path) + len(l.Text)
	for _, near := range [][][]byte{l.Before, l.After} {
		for _, line := range near {
			size += 4 + len(line)
		}
	}
	return size
}

func (b *grepBatch) flush() error {
	err := b.out.Send(&b.msg)
	b.msg.Matches, b.used = nil, 0
	return err
}

func (b *grepBatch) finish(res searchResult) error {
	b.msg.Done = true
	b.msg.Truncated = res.Truncated
	b.msg.FilesSearched, b.msg.FilesSkipped = uint32(res.Searched), uint32(res.Skipped)
	return b.flush()
}
