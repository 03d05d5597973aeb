package place

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/tool"
)

// Bounds of a Dir.
const (
	dirHashBytesMax = 8 << 20 // Stat does not hash larger files
	dirDepthMax     = 100
)

// Dir is a directory of this machine, outside of any sandbox. Nothing opens
// one by itself: the operator of the server has to name it.
//
// Everything happens beneath an os.Root: no path and no symbolic link leads
// out of the directory, also when it is changed at the same moment. Links that
// stay inside are followed for reading; what a link points to is never written
// or deleted through it, and searches do not follow links. Fifos and devices
// are not opened.
type Dir struct {
	at    string // where the agent sees it
	root  *os.Root
	locks keylock.Locks[string]
}

// OpenDir opens dir of the host; the agent sees it at the path at. Close it.
func OpenDir(at, dir string) (*Dir, error) {
	at, err := tool.CleanPath(at)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%.200q is not a path for a directory", at)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory for %s: %w", at, err)
	}
	return &Dir{at: at, root: root}, nil
}

// Close lets go of the directory. Calls after it fail.
func (d *Dir) Close() error { return d.root.Close() }

// rel is a path beneath the root, "." for itself.
func (d *Dir) rel(p string) (string, error) {
	if p == d.at {
		return ".", nil
	}
	rel, ok := strings.CutPrefix(p, strings.TrimSuffix(d.at, "/")+"/")
	if !ok {
		return "", notFound(p)
	}
	return rel, nil
}

// trouble turns the kernel's error into one that the model can act on.
func trouble(err error, p string) error {
	var fe *tool.FileError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fe):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return notFound(p)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fail(tool.CodeDenied, p, "")
	case errors.Is(err, syscall.EISDIR):
		return fail(tool.CodeIsDirectory, p, "")
	case errors.Is(err, syscall.ENOTDIR):
		return fail(tool.CodeInvalidPath, p, "a part of the path is a file")
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fail(tool.CodeInvalidPath, p, "a name is too long")
	case errors.Is(err, syscall.ELOOP), strings.Contains(err.Error(), "path escapes from parent"):
		return fail(tool.CodeDenied, p, "a link leads out of the directory")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fail(tool.CodeTooLarge, p, "there is no space for it")
	}
	return fmt.Errorf("file beneath a directory of the host: %w", err)
}

// open opens a regular file for reading and never waits.
func (d *Dir) open(p string) (*os.File, fs.FileInfo, error) {
	rel, err := d.rel(p)
	if err != nil {
		return nil, nil, err
	}
	f, err := d.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, trouble(err, p)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(p, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, trouble(err, p)
	}
	return f, info, nil
}

func notRegular(p string, info fs.FileInfo) error {
	if info.IsDir() {
		return fail(tool.CodeIsDirectory, p, "")
	}
	return fail(tool.CodeInvalidPath, p, "it is not a regular file")
}

func infoOf(p string, info fs.FileInfo) tool.FileInfo {
	f := tool.FileInfo{Path: p, Dir: info.IsDir(), Modified: info.ModTime()}
	if !f.Dir {
		f.Bytes = info.Size()
	}
	return f
}

// List implements tool.Files. Links that lead out are listed as files.
func (d *Dir) List(_ context.Context, dir string) ([]tool.FileInfo, error) {
	rel, err := d.rel(dir)
	if err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(rel, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fail(tool.CodeInvalidPath, dir, "it is a file, not a directory")
	}
	if err != nil {
		return nil, trouble(err, dir)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, trouble(err, dir)
	}
	slices.Sort(names)
	var list []tool.FileInfo
	for _, n := range names[:min(len(names), tool.ListMax)] {
		info, err := d.root.Stat(path.Join(rel, n))
		if err != nil {
			if info, err = d.root.Lstat(path.Join(rel, n)); err != nil {
				continue // gone
			}
		}
		list = append(list, infoOf(path.Join(dir, strings.ToValidUTF8(n, "\uFFFD")), info))
	}
	return list, nil
}

// Stat implements tool.Files.
func (d *Dir) Stat(_ context.Context, p string) (tool.FileInfo, error) {
	rel, err := d.rel(p)
	if err != nil {
		return tool.FileInfo{}, err
	}
	info, err := d.root.Stat(rel)
	if err != nil {
		return tool.FileInfo{}, trouble(err, p)
	}
	found := infoOf(p, info)
	if info.Mode().IsRegular() && info.Size() <= dirHashBytesMax {
		if _, found.Hash, err = d.read(p, dirHashBytesMax); err != nil {
			return tool.FileInfo{}, err
		}
	}
	return found, nil
}

// Read implements tool.Files.
func (d *Dir) Read(_ context.Context, p string, limit int64) ([]byte, string, error) {
	return d.read(p, limit)
}

func (d *Dir) read(p string, limit int64) ([]byte, string, error) {
	f, info, err := d.open(p)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	tooLarge := func(n int64) error { return fail(tool.CodeTooLarge, p, fmt.Sprintf("it has %d bytes", n)) }
	if info.Size() > limit {
		return nil, "", tooLarge(info.Size())
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, "", trouble(err, p)
	}
	if int64(len(content)) > limit {
		return nil, "", tooLarge(int64(len(content)))
	}
	return content, hashOf(content), nil
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// ReadAt implements tool.Files.
func (d *Dir) ReadAt(_ context.Context, p string, off int64, limit int) ([]byte, int64, error) {
	f, info, err := d.open(p)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	size := info.Size()
	if off < 0 || off >= size || limit <= 0 {
		return nil, size, nil
	}
	buf := make([]byte, min(int64(limit), size-off))
	n, err := f.ReadAt(buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, trouble(err, p)
	}
	return buf[:n], size, nil
}

// Write implements tool.Files. What other programs do to the file at the same
// moment is not seen: the hash is checked just before the new file takes the
// name.
func (d *Dir) Write(_ context.Context, p string, content []byte, ifHash string) (string, error) {
	rel, err := d.rel(p)
	if err != nil {
		return "", err
	}
	if rel == "." {
		return "", fail(tool.CodeIsDirectory, p, "")
	}
	defer d.locks.Lock(rel)()
	exists, err := d.expect(p, rel, ifHash)
	if err != nil {
		return "", err
	}
	if err := d.root.MkdirAll(path.Dir(rel), 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) { // a file is in the way
			err = syscall.ENOTDIR
		}
		return "", trouble(err, p)
	}
	return hashOf(content), trouble(d.replace(rel, content, exists), p)
}

// expect checks what is at the path now.
func (d *Dir) expect(p, rel, ifHash string) (old fs.FileInfo, err error) {
	old, err = d.root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, expected(p, ifHash, "", false)
	}
	if err != nil {
		return nil, trouble(err, p)
	}
	if old.Mode()&fs.ModeSymlink != 0 {
		return nil, fail(tool.CodeDenied, p, "it is a link; write the file that it points to")
	}
	if !old.Mode().IsRegular() {
		return nil, notRegular(p, old)
	}
	have := ""
	if ifHash != "" && ifHash != tool.Absent {
		if _, have, err = d.read(p, old.Size()+1); err != nil {
			return nil, err
		}
	}
	return old, expected(p, ifHash, have, true)
}

// replace writes a temporary file beside the target, which then takes its name.
func (d *Dir) replace(rel string, content []byte, old fs.FileInfo) error {
	temp := path.Join(path.Dir(rel), ".skete-"+rand.Text())
	mode := fs.FileMode(0o644)
	if old != nil {
		mode = old.Mode().Perm()
	}
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = d.root.Rename(temp, rel)
	}
	if err != nil {
		_ = d.root.Remove(temp)
	}
	return err
}

// Delete implements tool.Files. A link is removed, not what it points to.
func (d *Dir) Delete(_ context.Context, p string) error {
	rel, err := d.rel(p)
	if err != nil {
		return err
	}
	if rel == "." {
		return fail(tool.CodeDenied, p, "this directory cannot be deleted")
	}
	if _, err := d.root.Lstat(rel); err != nil {
		return trouble(err, p)
	}
	return trouble(d.root.RemoveAll(rel), p)
}

// walk visits the regular files beneath a directory in the order of a
// directory's names, or the one file that p is.
func (d *Dir) walk(ctx context.Context, p string, enter func(rel string) bool, visit func(rel string, f tool.FileInfo) error) error {
	rel, err := d.rel(p)
	if err != nil {
		return err
	}
	return fs.WalkDir(d.root.FS(), rel, func(name string, e fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			if name == rel {
				return trouble(err, p)
			}
			return nil // not readable
		}
		below := strings.TrimPrefix(strings.TrimPrefix(name, rel), "/")
		if rel == "." {
			below = strings.TrimPrefix(name, ".")
			if name != "." {
				below = name
			}
		}
		if e.IsDir() {
			if name != rel && (!enter(below) || strings.Count(below, "/") >= dirDepthMax) {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || !utf8.ValidString(name) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerror // it is gone
		}
		return visit(below, infoOf(path.Join(p, below), info))
	})
}

// Glob implements tool.Files.
func (d *Dir) Glob(ctx context.Context, dir, pattern string, limit int) (files []tool.FileInfo, truncated bool, err error) {
	g, err := ParseGlob(pattern)
	if err != nil {
		return nil, false, err
	}
	err = d.walk(ctx, dir, g.MayContain, func(rel string, f tool.FileInfo) error {
		switch {
		case rel == "":
			return fail(tool.CodeInvalidPath, dir, "it is a file, not a directory")
		case !g.Match(rel):
			return nil
		case len(files) == limit:
			truncated = true
			return fs.SkipAll
		}
		files = append(files, f)
		return nil
	})
	return files, truncated, err
}

// Grep implements tool.Files.
func (d *Dir) Grep(ctx context.Context, dir, pattern, glob string, limit int) (found []tool.Match, truncated bool, err error) {
	enter, wanted := func(string) bool { return true }, func(string) bool { return true }
	if glob != "" {
		g, err := ParseGlob(glob)
		if err != nil {
			return nil, false, err
		}
		enter, wanted = g.MayContain, g.Match
	}
	err = d.walk(ctx, dir, enter, func(rel string, f tool.FileInfo) error {
		if f.Bytes > grepBytesMax || !wanted(nameOf(rel, f)) {
			return nil
		}
		content, _, err := d.read(f.Path, grepBytesMax)
		if err != nil {
			return nil //nolint:nilerror // unreadable files are passed over
		}
		lines, more := MatchLines(f.Path, content, pattern, limit-len(found))
		if found = append(found, lines...); more {
			truncated = true
			return fs.SkipAll
		}
		return nil
	})
	return found, truncated, err
}

// nameOf is the path of a search's file; of one that is searched by itself,
// its name.
func nameOf(rel string, f tool.FileInfo) string {
	if rel == "" {
		return path.Base(f.Path)
	}
	return rel
}
