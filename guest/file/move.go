package file

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// Move renames. Without overwrite it is atomic that nothing is replaced; with
// it a file replaces a file, and a directory an empty one. Across file
// systems it copies under a temporary name, renames that, and then removes
// the source: the destination still appears at once.
func (s *Service) Move(ctx context.Context, req *connect.Request[wire.MoveRequest]) (*connect.Response[wire.MoveResponse], error) {
	m := req.Msg
	var entry *wire.Entry
	err := s.two(ctx, m.Source, m.Destination, m.User, func(p pair) (err error) {
		err = p.rename(m.Overwrite)
		if errors.Is(err, unix.EXDEV) {
			if _, err = p.copy(ctx, m.Overwrite); err == nil {
				_, err = tree.Remove(ctx, p.fromDir, p.from)
			}
		}
		if err == nil {
			entry, err = entryAt(p.toDir, p.to, p.toName)
		}
		return err
	})
	return answer(&wire.MoveResponse{Entry: entry}, err)
}

// Copy copies a file, link or tree, under a temporary name that then becomes
// the destination: it appears whole or not at all. With overwrite a file
// replaces a file, and a directory an empty one. Inside a tree, fifos,
// sockets and devices are left out.
func (s *Service) Copy(ctx context.Context, req *connect.Request[wire.CopyRequest]) (*connect.Response[wire.CopyResponse], error) {
	m := req.Msg
	res := &wire.CopyResponse{}
	err := s.two(ctx, m.Source, m.Destination, m.User, func(p pair) (err error) {
		if res.BytesCopied, err = p.copy(ctx, m.Overwrite); err == nil {
			res.Entry, err = entryAt(p.toDir, p.to, p.toName)
		}
		return err
	})
	return answer(res, err)
}

// pair is a source and a destination, by open directories.
type pair struct {
	fromDir, toDir int
	from, to       string
	toName         string // for the answer
}

// two opens both ends with the user's rights and runs the change there. An
// error about the destination names the destination.
func (s *Service) two(ctx context.Context, source, destination []byte, user string, change func(pair) error) error {
	from, run, err := s.begin(source, user)
	if err != nil {
		return err
	}
	to, err := s.normalise(destination)
	if err == nil {
		err = notRoot(from, to)
	}
	if err != nil {
		return err
	}
	blame := from
	err = run.slow(ctx, func() error {
		return withParent(from, func(fromDir int, fromBase string) error {
			if _, err := tree.Lstat(fromDir, fromBase); err != nil {
				return err
			}
			blame = to
			return withParent(to, func(toDir int, toBase string) error {
				return change(pair{fromDir, toDir, fromBase, toBase, to})
			})
		})
	})
	return faultOf(err, blame)
}

func (p pair) rename(overwrite bool) error {
	if overwrite {
		return unix.Renameat(p.fromDir, p.from, p.toDir, p.to)
	}
	return tree.RenameNoReplace(p.fromDir, p.from, p.toDir, p.to)
}

// copy makes the copy beside the destination and renames it there.
func (p pair) copy(ctx context.Context, overwrite bool) (int64, error) {
	if !overwrite { // an early answer; the rename below decides
		if _, err := tree.Lstat(p.toDir, p.to); err == nil {
			return 0, unix.EEXIST
		}
	}
	temp := tree.TempName()
	n, err := tree.Copy(ctx, p.fromDir, p.from, p.toDir, temp)
	if err == nil {
		err = pair{p.toDir, p.toDir, temp, p.to, p.toName}.rename(overwrite)
	}
	if err != nil {
		discard(p.toDir, temp)
		return 0, err
	}
	return n, nil
}

// discard removes a tree of ours, also where it copied directories that may
// not be written. It must happen even when the call is over.
func discard(dir int, name string) {
	ctx := context.Background()
	if _, err := tree.Remove(ctx, dir, name); err != nil && !errors.Is(err, unix.ENOENT) {
		_ = tree.ChmodAll(ctx, dir, name, 0o700)
		_, _ = tree.Remove(ctx, dir, name)
	}
}
