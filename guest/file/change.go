package file

import (
	"context"
	"errors"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// MakeDir makes a directory; with parents, an existing one is no error.
func (s *Service) MakeDir(ctx context.Context, req *connect.Request[wire.MakeDirRequest]) (*connect.Response[wire.MakeDirResponse], error) {
	return answer(s.makeDir(ctx, req.Msg))
}

func (s *Service) makeDir(ctx context.Context, m *wire.MakeDirRequest) (*wire.MakeDirResponse, error) {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return nil, err
	}
	mode, err := modeOf(m.Mode, 0o755)
	if err != nil {
		return nil, err
	}
	res := &wire.MakeDirResponse{}
	err = run.quick(ctx, func() error {
		if m.Parents {
			if err := tree.MakeParents(name); err != nil {
				return err
			}
		}
		return withParent(name, func(dir int, base string) (err error) {
			if res.Created, err = tree.MakeDir(dir, base, mode, m.Parents); err != nil {
				return err
			}
			res.Entry, err = entryAt(dir, base, name)
			return err
		})
	})
	if err != nil {
		return nil, faultOf(err, name)
	}
	return res, nil
}

// withParent opens the directory that holds a path's last component.
func withParent(name string, use func(dir int, base string) error) error {
	parent, base := tree.Split(name)
	dir, err := tree.Open(parent, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return use(dir, base)
}

// notRoot refuses to move or remove "/".
func notRoot(names ...string) error {
	if slices.Contains(names, "/") {
		return errs.New(errs.Invalid, "the root directory cannot be moved, copied or removed").WithCode(errs.InvalidPath)
	}
	return nil
}

// Remove removes a path. A link is removed, not what it points to.
func (s *Service) Remove(ctx context.Context, req *connect.Request[wire.RemoveRequest]) (*connect.Response[wire.RemoveResponse], error) {
	return answer(s.remove(ctx, req.Msg))
}

func (s *Service) remove(ctx context.Context, m *wire.RemoveRequest) (*wire.RemoveResponse, error) {
	name, run, err := s.begin(m.Path, m.User)
	if err == nil {
		err = notRoot(name)
	}
	if err != nil {
		return nil, err
	}
	res := &wire.RemoveResponse{}
	one := func() error {
		return withParent(name, func(dir int, base string) error {
			err := unix.Unlinkat(dir, base, 0)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
				if e := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); !errors.Is(e, unix.ENOTDIR) {
					err = e
				}
			}
			if err == nil {
				res.Removed = 1
			}
			return err
		})
	}
	all := func() error {
		return withParent(name, func(dir int, base string) (err error) {
			res.Removed, err = tree.Remove(ctx, dir, base)
			return err
		})
	}
	if m.Recursive {
		err = run.slow(ctx, all)
	} else {
		err = run.quick(ctx, one)
	}
	if errors.Is(err, unix.ENOENT) && m.MissingOk {
		return res, nil
	}
	if err != nil {
		return nil, faultOf(err, name)
	}
	return res, nil
}

// Chmod sets permission bits, never through a link.
func (s *Service) Chmod(ctx context.Context, req *connect.Request[wire.ChmodRequest]) (*connect.Response[wire.ChmodResponse], error) {
	return answer(s.chmod(ctx, req.Msg))
}

func (s *Service) chmod(ctx context.Context, m *wire.ChmodRequest) (*wire.ChmodResponse, error) {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return nil, err
	}
	if m.Mode > 0o7777 {
		return nil, errs.New(errs.Invalid, "the mode %#o has more than permission bits", m.Mode)
	}
	res := &wire.ChmodResponse{}
	do := run.quick
	if m.Recursive {
		do = run.slow
	}
	err = do(ctx, func() error {
		return withParent(name, func(dir int, base string) (err error) {
			if m.Recursive {
				err = tree.ChmodAll(ctx, dir, base, m.Mode)
			} else {
				err = tree.Chmod(dir, base, m.Mode)
			}
			if err != nil {
				return err
			}
			res.Entry, err = entryAt(dir, base, name)
			return err
		})
	})
	if err != nil {
		return nil, faultOf(err, name)
	}
	return res, nil
}

// Symlink makes a symbolic link; its target need not exist.
func (s *Service) Symlink(ctx context.Context, req *connect.Request[wire.SymlinkRequest]) (*connect.Response[wire.SymlinkResponse], error) {
	return answer(s.symlink(ctx, req.Msg))
}

func (s *Service) symlink(ctx context.Context, m *wire.SymlinkRequest) (*wire.SymlinkResponse, error) {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return nil, err
	}
	target := string(m.Target)
	if target == "" || len(target) > pathBytesMax || strings.IndexByte(target, 0) >= 0 {
		return nil, errs.New(errs.Invalid, "the link's target %s is empty, too long or has a NUL in it", showPath(target)).WithCode(errs.InvalidPath)
	}
	res := &wire.SymlinkResponse{}
	err = run.quick(ctx, func() error {
		return withParent(name, func(dir int, base string) (err error) {
			if err := unix.Symlinkat(target, dir, base); err != nil {
				return err
			}
			res.Entry, err = entryAt(dir, base, name)
			return err
		})
	})
	if err != nil {
		return nil, faultOf(err, name)
	}
	return res, nil
}
