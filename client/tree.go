package client

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// This file moves directories of this machine to and from a sandbox as tar.
//
// Functions are safe for concurrent use on different directories.

// entriesMax bounds the entries of a tree that comes from a sandbox.
const entriesMax = 5_000_000

// TreeStat counts what Unpack made. Skipped are entries that are no file,
// directory or symlink that stays in the tree.
type TreeStat struct {
	Entries, Bytes int64
	Skipped        []string
}

// packTree writes a directory of this machine as tar: files, directories and
// symlinks (not followed) with their permission bits and times.
func packTree(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return packTreeEntry(t, root, name, d)
	})
	return errors.Join(err, t.Close())
}

func packTreeEntry(t *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return t.WriteHeader(h)
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
		return t.WriteHeader(h)
	case 0:
		return packTreeFile(t, root, name, h)
	}
	return nil // a socket, fifo or device has no content to send
}

func packTreeFile(t *tar.Writer, root *os.Root, name string, h *tar.Header) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	// A file that grows while it is read keeps the size of its header; one
	// that shrinks is an error.
	_, err = io.CopyN(t, f, h.Size)
	if errors.Is(err, io.EOF) {
		return errs.New(errs.Conflict, "%q shrank while it was read", name)
	}
	return err
}

// unpackTree unpacks a tar stream of a sandbox beneath dir, which is made when
// missing. The stream is hostile: no entry leaves dir, whatever links stand in
// the way, and no set-id bit, device or foreign owner is made.
func unpackTree(r io.Reader, dir string) (TreeStat, error) {
	var stat TreeStat
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return stat, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return stat, err
	}
	defer root.Close()
	u := treeUnpacker{root: root, stat: &stat, modes: map[string]fs.FileMode{}}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return stat, u.finish()
		}
		if err != nil {
			return stat, errs.Wrap(errs.Unavailable, err, "the tree broke off")
		}
		if stat.Entries++; stat.Entries > entriesMax {
			return stat, errs.New(errs.Limit, "the tree has more than %d entries", entriesMax)
		}
		if err := u.entry(h, t); err != nil {
			return stat, err
		}
	}
}

// treeUnpacker writes entries beneath a root. Directories get their bits at the
// end: one without write permission could not be filled.
type treeUnpacker struct {
	root  *os.Root
	stat  *TreeStat
	modes map[string]fs.FileMode
}

func (u *treeUnpacker) entry(h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) || strings.ContainsRune(h.Name, 0) {
		return errs.New(errs.Invalid, "the tree has an entry %.80q that would leave the directory", h.Name)
	}
	if name == "." {
		u.stat.Entries--
		return nil
	}
	if sparseFile(h) {
		return errs.New(errs.Invalid, "the tree has a sparse entry %.80q: a few bytes could fill this disk", h.Name)
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		u.modes[name] = mode
		return u.root.MkdirAll(name, 0o700)
	case tar.TypeReg:
		return u.file(name, mode, h, r)
	case tar.TypeSymlink:
		return u.symlink(name, h.Linkname)
	}
	u.skip(name)
	return nil
}

// sparseFile reports an entry whose content is larger than its bytes in the stream.
func sparseFile(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

func (u *treeUnpacker) skip(name string) {
	u.stat.Entries--
	if len(u.stat.Skipped) < 100 {
		u.stat.Skipped = append(u.stat.Skipped, name)
	}
}

// clear makes room for an entry: the parents are made, and what is in its
// place is removed unless it is a directory that is not empty.
func (u *treeUnpacker) clear(name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (u *treeUnpacker) file(name string, mode fs.FileMode, h *tar.Header, r io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, r)
	u.stat.Bytes += n
	if err != nil {
		return errors.Join(errs.Wrap(errs.Unavailable, err, "the tree broke off in %.80q", name), f.Close())
	}
	if err := errors.Join(f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// symlink makes only links that stay in the tree, so that no later reader of
// it on this machine is led elsewhere.
func (u *treeUnpacker) symlink(name, target string) error {
	if path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) {
		u.skip(name)
		return nil
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Symlink(target, name)
}

func (u *treeUnpacker) finish() error {
	for name, mode := range u.modes {
		if err := u.root.Chmod(name, mode|0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
