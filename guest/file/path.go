package file

import (
	"path"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/guest/wire"
)

// normalise makes a request's path absolute and lexically clean.
func (s *Service) normalise(p []byte) (string, error) {
	return cleanPath(string(p), *s.workdir.Load(), s.cfg.Home)
}

// answer finishes a unary call.
func answer[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(msg), nil
}

// modeOf checks permission bits of a request.
func modeOf(mode, otherwise uint32) (uint32, error) {
	if mode > 0o7777 {
		return 0, errs.New(errs.Invalid, "the mode %#o has more than permission bits", mode)
	}
	if mode == 0 {
		return otherwise, nil
	}
	return mode, nil
}

// entryOf describes a file. target is read by the caller, under its rights.
func entryOf(name string, st *unix.Stat_t, target string) *wire.Entry {
	e := &wire.Entry{
		Name: []byte(path.Base(name)), Path: []byte(name),
		Type: typeOf(st), Size: st.Size, Mode: st.Mode & 0o7777,
		Uid: st.Uid, Gid: st.Gid, ModifiedUnixNs: st.Mtim.Nano(),
		Inode: st.Ino, Links: uint32(st.Nlink),
	}
	if target != "" {
		e.Target = []byte(target)
	}
	return e
}

func typeOf(st *unix.Stat_t) wire.FileType {
	switch {
	case tree.IsRegular(st):
		return wire.FileType_FILE_TYPE_REGULAR
	case tree.IsDir(st):
		return wire.FileType_FILE_TYPE_DIRECTORY
	case tree.IsLink(st):
		return wire.FileType_FILE_TYPE_SYMLINK
	}
	return wire.FileType_FILE_TYPE_OTHER
}

// entryAt describes an entry of an open directory.
func entryAt(dir int, base, name string) (*wire.Entry, error) {
	st, err := tree.Lstat(dir, base)
	if err != nil {
		return nil, err
	}
	return entryWithTarget(dir, base, name, &st), nil
}

func entryWithTarget(dir int, base, name string, st *unix.Stat_t) *wire.Entry {
	target := ""
	if tree.IsLink(st) {
		target, _ = tree.Readlink(dir, base) // gone meanwhile: none
	}
	return entryOf(name, st, target)
}
