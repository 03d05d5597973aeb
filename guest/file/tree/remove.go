package tree

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// removeDepth is how deep Remove goes before it flattens: a directory deeper
// than that is moved up to the top and removed from there. So a tree of any
// depth costs a bounded number of descriptors.
const removeDepth = 100

// tempPrefix marks files that are being made; listings leave them in, watches
// do not report them.
const tempPrefix = ".skete-"

// TempName returns a name that no other call uses.
func TempName() string { return tempPrefix + strings.ToLower(rand.Text()[:16]) + ".tmp" }

// IsTemp reports whether TempName made the name.
func IsTemp(name string) bool {
	return len(name) == len(tempPrefix)+20 && strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, ".tmp")
}

// Remove removes an entry of dir and, of a directory, all that is in it. It
// goes on past what cannot be removed and returns the first such error. It
// says how many entries it removed. A link is removed, never followed.
func Remove(ctx context.Context, dir int, name string) (int64, error) {
	r := &remover{ctx: ctx, top: -1}
	r.entry(dir, name, "", 0)
	return r.removed, r.err
}

type remover struct {
	ctx     context.Context
	top     int // descriptor of the outermost directory, -1 outside of one
	moved   int // directories moved up to top
	removed int64
	err     error
}

func (r *remover) fail(op, rel string, err error) {
	if r.err == nil {
		r.err = pathError(op, rel, err)
	}
}

// entry removes one entry; rel is for messages only.
func (r *remover) entry(dir int, name, rel string, depth int) {
	if err := r.ctx.Err(); err != nil {
		r.err = err
		return
	}
	if r.unlink(dir, name, rel) {
		return
	}
	if depth >= removeDepth {
		if err := unix.Renameat(dir, name, r.top, TempName()); err != nil {
			r.fail("remove", rel, err)
		} else {
			r.moved++
		}
		return
	}
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		if !vanished(err) {
			r.fail("remove", rel, err)
		}
		return
	}
	defer unix.Close(fd)
	if depth == 0 {
		r.top = fd
	}
	r.inside(fd, rel, depth)
	for depth == 0 && r.moved > 0 && r.err == nil {
		r.moved = 0
		r.inside(fd, rel, depth)
	}
	if r.err != nil && r.ctx.Err() != nil {
		return
	}
	switch err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); {
	case err == nil:
		r.removed++
	case !vanished(err):
		r.fail("remove", rel, err)
	}
}

func (r *remover) inside(fd int, rel string, depth int) {
	names, err := Names(fd)
	if err != nil {
		r.fail("remove", rel, err)
		return
	}
	for _, name := range names {
		r.entry(fd, name, join(rel, name), depth+1)
		if r.ctx.Err() != nil {
			return
		}
	}
}

// unlink removes what needs no descent and reports whether there is nothing
// left to do for the entry.
func (r *remover) unlink(dir int, name, rel string) bool {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		// POSIX says EPERM for a directory; Linux says EISDIR, and EPERM for
		// "not yours in a sticky directory" and for immutable files.
		dirErr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		switch {
		case dirErr == nil:
			err = nil
		case errors.Is(dirErr, unix.ENOTDIR): // a file after all: the first answer holds
		case errors.Is(dirErr, unix.ENOTEMPTY), errors.Is(dirErr, unix.EEXIST):
			return false
		default:
			err = dirErr
		}
	}
	switch {
	case err == nil:
		r.removed++
	case errors.Is(err, fs.ErrNotExist) && rel != "":
	default:
		r.fail("remove", rel, err)
	}
	return true
}
